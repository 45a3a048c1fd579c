"""How fast gangs progress: when one has hung, and which of its ranks are slow.

A hang is told by silence. How long a gang is silent between steps is learned from how long it was
before: the times between steps of the last `WINDOW` advances, over restarts. It has hung once it
is silent for three times the longest of them and for twenty times the usual one, and never before
the job's `hang_floor_ms`; before `ENOUGH` are known, ten times the floor. So a gang that stops for
an evaluation now and then is not taken for a hung one. `hang_ms` of a role overrides all of this.

A slow rank is told by the time it takes for a step, measured by itself (`busy_us`) where ranks wait
for each other, or else by the time between its reports. It is compared with the median of its gang
over `slow_steps` steps. Where the others are not alike (but for the fastest eighth), or more than
a quarter of the ranks lag behind, the work is unequal and nobody is slow. To be suspected is no
verdict: nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from coord.core.causes import attribution
from coord.core.causes.attribution import CONSEQUENCE, VAGUE, Finding
from coord.core.step import Step
from coord.model.decisions import HangDetected, SlowRankSuspected
from coord.model.entities import FailureCause, Gang, HostStatus, Task, TaskStatus
from coord.model.spec import RoleSpec

WINDOW = 64
ENOUGH = 8
LONGEST_FACTOR = 3
USUAL_FACTOR = 20
UNKNOWN_FACTOR = 10
LEAST_RANKS = 4
"""Fewer have no median that says anything."""
SLOW_SHARE = 4
"""At most one in so many can be slow."""


def hang_limit_ms(step: Step, gang: Gang, role: RoleSpec) -> int:
    """After how long a silence the gang has hung; 0: never."""
    floor_ms = step.state.jobs[gang.job].spec.hang_floor_ms
    if role.hang_ms or not floor_ms:
        return role.hang_ms
    return learned_ms(gang.pacing.intervals_ms, floor_ms)


def look_for_hang(
    step: Step, gang: Gang, role: RoleSpec, weigh_against: Callable[..., None]
) -> None:
    """Has a running gang been silent for too long?"""
    hang_ms = hang_limit_ms(step, gang, role)
    if not hang_ms:
        return
    silent_ms = step.now_ms - gang.progress_ms
    if silent_ms < hang_ms:
        step.state.timers.arm("gang", gang.key, gang.progress_ms + hang_ms)
        return
    tasks = [step.state.tasks[key] for key in gang.live]
    running = [task for task in tasks if task.status == TaskStatus.RUNNING]
    if any(step.state.hosts[task.host].status != HostStatus.UP for task in running):
        return  # Silence about a task is no evidence; `heard_again` looks again.
    if not running:
        return  # Whoever is yet to start looks again.
    behind = min(task.step for task in running)
    slowest = tuple(task.key for task in running if task.step == behind)
    cause = step.decide(
        HangDetected((step.cause,), gang.job, gang.key, gang.generation, silent_ms, slowest)
    )
    detail = f"no step finished for {silent_ms} ms"
    weight = VAGUE if len(slowest) == 1 < len(running) else CONSEQUENCE
    found = Finding(FailureCause.UNKNOWN, slowest[0], detail, weight)
    weigh_against(step, gang.key, found, gang.progress_ms, cause)


def learned_ms(intervals_ms: tuple[int, ...], floor_ms: int) -> int:
    """The limit that follows from the times between steps so far."""
    if len(intervals_ms) < ENOUGH:
        return floor_ms * UNKNOWN_FACTOR
    ordered = sorted(intervals_ms)
    usual_ms = ordered[len(ordered) // 2]
    return max(floor_ms, LONGEST_FACTOR * ordered[-1], USUAL_FACTOR * usual_ms)


def advanced(step: Step, gang: Gang, before: int) -> Gang:
    """The gang after one of its tasks got further than any had, from step `before`."""
    learns = bool(step.state.jobs[gang.job].spec.hang_floor_ms)
    if gang.step <= before or not learns:
        return gang
    pacing = gang.pacing
    if pacing.generation == gang.generation and before >= 0:
        # Never 0: several steps within one entry of the log's time are still a sign of life.
        spent_ms = max(step.now_ms - pacing.advanced_ms, 1)
        kept = (*pacing.intervals_ms, spent_ms)[-WINDOW:]
        pacing = replace(pacing, intervals_ms=kept)
    pacing = replace(pacing, generation=gang.generation, advanced_ms=step.now_ms)
    return replace(gang, pacing=pacing)


def paced(step: Step, task: Task, steps: int, busy_us: int) -> Task:
    """The task with what its newest report says of its pace. `task` as before that report."""
    if not attribution.weighs(step.state) or task.step < 0:
        return task
    spent_us = busy_us or (step.now_ms - task.progress_ms) * 1_000
    return replace(
        task, paced_steps=task.paced_steps + steps, paced_us=task.paced_us + max(spent_us, 0)
    )


def look_for_slow_ranks(step: Step, gang: Gang) -> Gang:
    """Compare its ranks, if enough steps have passed since the last time."""
    state = step.state
    settings = state.meta.settings.policy.evidence
    if not attribution.weighs(state) or gang.size < LEAST_RANKS or gang.index >= 0:
        return gang
    pacing = gang.pacing
    fresh = pacing.judged_generation != gang.generation
    if fresh:
        pacing = replace(
            pacing, judged_generation=gang.generation, judged_step=gang.step, slow=(), slow_times=()
        )
        return replace(gang, pacing=pacing)
    if gang.step - pacing.judged_step < settings.slow_steps:
        return gang
    tasks = [state.tasks[key] for key in gang.live]
    tasks = [task for task in tasks if task.status == TaskStatus.RUNNING]
    paces = [(task.index, task.paced_us // task.paced_steps) for task in tasks if task.paced_steps]
    slow, usual_us = slow_ranks(paces, settings.slow_permille)
    times = dict(zip(pacing.slow, pacing.slow_times, strict=True))
    by_rank = {task.index: task for task in tasks}
    for rank, pace_us in slow:
        times[rank] = times.get(rank, 0) + 1
        if times[rank] == settings.slow_times:
            task = by_rank[rank]
            step.decide(
                SlowRankSuspected(
                    (step.cause,),
                    gang.job,
                    gang.key,
                    gang.generation,
                    task.key,
                    task.host,
                    pace_us,
                    usual_us,
                    times[rank],
                )
            )
    for task in tasks:
        if task.paced_steps:
            current = state.tasks[task.key]
            state.tasks.put(task.key, replace(current, paced_steps=0, paced_us=0))
    ranks = tuple(sorted(rank for rank, _ in slow))
    pacing = replace(
        pacing,
        judged_step=gang.step,
        slow=ranks,
        slow_times=tuple(times[rank] for rank in ranks),
    )
    return replace(gang, pacing=pacing)


def slow_ranks(
    paces: list[tuple[int, int]], slow_permille: int
) -> tuple[list[tuple[int, int]], int]:
    """((rank, its time for a step) of those that are slow, the median), of (rank, time) pairs."""
    if len(paces) < LEAST_RANKS:
        return [], 0
    ordered = sorted(pace for _, pace in paces)
    usual = ordered[len(ordered) // 2]
    slow = [(rank, pace) for rank, pace in paces if pace * 1_000 > usual * slow_permille]
    fast, last = ordered[len(ordered) // 8], ordered[-1 - len(ordered) // SLOW_SHARE]
    alike = last * 1_000 <= fast * slow_permille
    if not usual or not alike or len(slow) * SLOW_SHARE > len(paces):
        return [], usual
    return slow, usual
