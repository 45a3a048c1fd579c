"""What processes did, as they wrote it down themselves, against what the log says of them.

What the coordinator promises is judged and nothing else: a task that is not exclusive may go on
living on a host that is cut off while its successor runs elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations

from coord.core.state import State
from coord.model.decisions import GangSucceeded, TasksPlaced
from coord.model.entities import FINISHED_JOB, TaskStatus
from coord.model.events import TaskStarted
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.lives import Life, Shard
from jepsen_lite.judge.story import Story, read_story
from jepsen_lite.judge.verdict import Judgement

ONE_OWNER = "a device has one live owner"
ONE_RUN = "a run of a task is one process"
EXCLUSIVE = "an exclusive task is gone before its successor is placed"
STARTED = "a start that counts has happened"
REAPED = "a task is reaped when no process of it is left, and never lives again"
SAVED = "a shard that counts was written as it is told, by the generation that was placed"
FENCED = "a shard that counts is of a task that was not given up"
KEPT = "a shard that was told to be recorded is in the log"
COMMITTED = "a committed checkpoint holds what every rank of its generation wrote"
RESTORED = "a restart begins from the committed checkpoint that the log names"
SUCCEEDED = "a gang succeeds only if each of its ranks came to its last step"
ENDED = "every job comes to an end once nothing is broken"
AGREED = "when all is quiet, what lives is what the state says runs"

CLOCK_SLACK_NS = 5_000_000
"""Wall clocks are compared only within one machine; they are recorded in milliseconds."""

THAW_NS = 2_000_000_000
"""For agent or keeper to end what stood still with them."""


def judge_truth(
    lives: Sequence[Life],
    log: ExportedLog,
    state: State | None = None,
    *,
    traced: Callable[[str], bool] = lambda job: True,
    true_clocks: bool = False,
    alive: Iterable[Life] | None = None,
    frozen_hosts: Collection[str] = (),
) -> list[Judgement]:
    """`traced` says of which jobs every process writes a diary. `true_clocks`: no server's clock
    was skewed, and all ran on this machine; else REAPED, of which clocks tell, is not judged.
    `alive`: those that were seen alive when all was quiet
    and the log was exported, to be compared with `state`, that at the end of the log; either is
    None when nobody looked. `frozen_hosts` were stopped whole and went on: nothing on such a host
    can end an exclusive task in time, and it is given THAW_NS from its going on."""
    story = read_story(log, traced)
    runs: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        runs[life.task].append(life)
    seats = _exclusive_seats(lives, story)
    exclusive = sum(map(len, seats.values()))
    two_exclusive = _two_exclusive(seats, story, true_clocks, frozen_hosts)
    on_devices = sum(bool(life.devices) for life in lives)
    recorded = sum(len(life.recorded) for life in lives if traced(life.job))
    restored = sum(bool(life.restore) for life in lives)
    successes = _successes(story)
    started = [(index, event) for index, event in story.started if event.task in runs]
    found = [
        judged(ONE_OWNER, _two_owners(lives), seen=on_devices, of="processes with devices"),
        judged(ONE_RUN, _two_runs(runs), seen=len(lives), of="processes"),
        judged(EXCLUSIVE, two_exclusive, seen=exclusive, of="processes of exclusive tasks"),
        judged(STARTED, _not_started(started, runs), seen=len(started), of="starts"),
        judged(SAVED, _not_written(story, runs), seen=len(story.counted), of="shards"),
        judged(
            FENCED,
            _late(story),
            seen=len(story.counted),
            of=f"shards; {len(story.lost)} hosts and {len(story.over)} generations given up",
        ),
        judged(KEPT, _not_kept(story, lives, traced, log), seen=recorded, of="shards told of"),
        judged(COMMITTED, _not_whole(story, runs, lives), seen=len(story.commits), of="commits"),
        judged(
            RESTORED,
            _restored_wrongly(story, lives, log),
            seen=restored,
            of=f"restarts from a checkpoint among {len(lives)} processes",
        ),
        judged(SUCCEEDED, _not_done(successes, runs), seen=len(successes), of="gangs"),
    ]
    if true_clocks:
        reaped = sum(life.task in story.reaped for life in lives)
        found.append(judged(REAPED, _not_gone(lives, story), seen=reaped, of="processes reaped"))
    if alive is not None and state is not None:
        there = list(alive)
        disagreeing = _disagreeing(there, state, traced, log)
        of = f"processes, of which {len(there)} live"
        found.append(judged(AGREED, disagreeing, seen=len(lives), of=of))
    return found


# Processes among themselves


def _two_owners(lives: Sequence[Life]) -> Iterator[Finding]:
    owners: dict[tuple[str, str, int], list[Life]] = defaultdict(list)
    for life in sorted(lives, key=_beginning):
        for device in life.devices:
            others = owners[life.boot, life.host, device]
            for other in others:
                if other.overlaps(life):
                    text = f"device {device} of {life.host}: {_together(other, life)}"
                    yield Finding(text)
            # Lives come by their beginning: what has ended by now meets none that follows.
            others[:] = [other for other in others if other.last_ns >= life.first_ns]
            others.append(life)


def _two_runs(runs: dict[str, list[Life]]) -> Iterator[Finding]:
    for of_task in runs.values():
        for one, other in combinations(of_task, 2):
            if one.overlaps(other):
                yield Finding(f"two live processes: {_together(one, other)}")
            elif one.boot == other.boot:
                yield Finding(f"started twice: {one} and {other}")


def _exclusive_seats(lives: Sequence[Life], story: Story) -> dict[str, list[Life]]:
    seats: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        if tuple(life.seat.split("/")[:2]) in story.exclusive:
            seats[life.seat].append(life)
    return seats


def _two_exclusive(
    seats: dict[str, list[Life]], story: Story, true_clocks: bool, frozen_hosts: Collection[str]
) -> Iterator[Finding]:
    for of_seat in seats.values():
        for one, other in combinations(sorted(of_seat, key=_beginning), 2):
            frozen = one.host in frozen_hosts and one.thawed_late(other.first_ns, THAW_NS)
            if one.overlaps(other) and not frozen:
                yield Finding(f"both lived: {_together(one, other)}")
    if not true_clocks:
        return
    for (gang, generation), (placement, index, wall_ms) in story.placed.items():
        for task in placement.placements:
            for life in seats.get(task.task.rpartition("#")[0], ()):
                late_ns = life.last_wall_ns - wall_ms * 1_000_000
                placed_ns = life.last_ns - late_ns
                frozen = life.host in frozen_hosts and life.thawed_late(placed_ns, THAW_NS)
                if life.generation < generation and late_ns > CLOCK_SLACK_NS and not frozen:
                    yield Finding(
                        f"{life} lived {late_ns / 1e6:.0f} ms after generation {generation} of "
                        f"{gang} was placed at index {index}"
                    )


def _beginning(life: Life) -> int:
    return life.first_ns


def _together(one: Life, other: Life) -> str:
    shared_ms = (min(one.last_ns, other.last_ns) - max(one.first_ns, other.first_ns)) / 1e6
    return f"{one} and {other} for at least {shared_ms:.0f} ms"


# What the log says of them


def _not_started(
    started: list[tuple[int, TaskStarted]], runs: dict[str, list[Life]]
) -> Iterator[Finding]:
    """`started` are those of which a process left a diary: who was killed before its first line has
    left none."""
    for index, event in started:
        lives = runs[event.task]
        if not any((life.pid, life.host) == (event.pid, event.host) for life in lives):
            truth = ", ".join(map(str, lives))
            yield Finding(
                f"index {index} says that {event.task} started on {event.host} with pid "
                f"{event.pid}; in truth {truth}"
            )


def _not_gone(lives: Sequence[Life], story: Story) -> Iterator[Finding]:
    for life in lives:
        index, wall_ms = story.reaped.get(life.task, (0, 0))
        late_ns = life.last_wall_ns - wall_ms * 1_000_000
        if index and late_ns > CLOCK_SLACK_NS:
            yield Finding(
                f"{life} lived {late_ns / 1e6:.0f} ms after index {index} said that it was reaped"
            )


def _not_written(story: Story, runs: dict[str, list[Life]]) -> Iterator[Finding]:
    for (task, path), (index, event) in story.counted.items():
        written = [shard for life in runs.get(task, ()) for shard in life.written]
        if Shard(path, event.step, event.digest) not in written:
            truth = ", ".join(shard.digest for shard in written if shard.path == path)
            yield Finding(
                f"index {index} says that {task} saved {event.digest} at {path}; in truth it wrote "
                f"{truth or 'nothing there'}"
            )


def _late(story: Story) -> Iterator[Finding]:
    for (task, path), (index, event) in story.counted.items():
        given_up = story.given_up(task, index)
        if given_up:
            yield Finding(
                f"index {index} counts step {event.step} at {path} of {task} on {event.host}; "
                f"{given_up}"
            )


def _not_kept(
    story: Story, lives: Sequence[Life], traced: Callable[[str], bool], log: ExportedLog
) -> Iterator[Finding]:
    undecided = not log.whole
    for life in lives:
        for shard in life.recorded if traced(life.job) else ():
            if (life.task, shard.path, shard.digest) not in story.known:
                yield Finding(
                    f"{life} was told that step {shard.step} at {shard.path} is recorded; the log "
                    "has it not",
                    undecided=undecided,
                )


def _not_whole(
    story: Story, runs: dict[str, list[Life]], lives: Sequence[Life]
) -> Iterator[Finding]:
    writers: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        for shard in life.written:
            writers[shard.path].append(life)
    for index, commit, newest in story.commits:
        name = f"{commit.gang}#{commit.generation}@{commit.step}, committed at index {index}"
        if newest and commit.generation != newest:
            yield Finding(f"{name}: generation {newest} was placed last")
        for life in writers[commit.path]:
            if life.generation != commit.generation:
                yield Finding(f"{name}: {life} wrote at {commit.path} too")
        placed = story.placed.get((commit.gang, commit.generation))
        for placement in placed[0].placements if placed else ():
            if not any(
                shard.path == commit.path and shard.step == commit.step
                for life in runs.get(placement.task, ())
                for shard in life.written
            ):
                yield Finding(f"{name}: {placement.task} wrote nothing at {commit.path}")
            if (placement.task, commit.path) not in story.counted:
                yield Finding(f"{name}: the log has no shard of {placement.task}")


def _restored_wrongly(story: Story, lives: Sequence[Life], log: ExportedLog) -> Iterator[Finding]:
    committed = {commit.path: (index, commit.step) for index, commit, _ in story.commits}
    digests: dict[str, set[str]] = defaultdict(set)
    for (_, path), (_, event) in story.counted.items():
        digests[path].add(event.digest)
    placements = {
        placement.task: (placed, index)
        for placed, index, _ in story.placed.values()
        for placement in placed.placements
    }
    for life in lives:
        named = placements.get(life.task)
        if named is not None and (named[0].restore, named[0].restore_step) != (
            life.restore,
            life.restore_step,
        ):
            yield Finding(
                f"{life} was given {life.restore or 'nothing'} to restore; index {named[1]} says "
                f"{named[0].restore or 'nothing'}"
            )
        if not life.restore:
            continue
        undecided = not log.whole
        commit = committed.get(life.restore)
        if commit is None:
            text = f"{life} restores {life.restore}, which was never committed"
            yield Finding(text, undecided=undecided)
        elif named is not None and commit[0] > named[1]:
            yield Finding(f"{life} restores {life.restore}, committed only at index {commit[0]}")
        elif life.trouble:
            yield Finding(f"{life} cannot read the committed {life.restore}: {life.trouble}")
        elif life.restored is not None and life.restored.digest not in digests[life.restore]:
            text = f"{life} read {life.restored.digest} at {life.restore}, which no rank recorded"
            yield Finding(text, undecided=undecided)


def _successes(story: Story) -> list[tuple[int, GangSucceeded, TasksPlaced]]:
    """Index, success and placement of each gang that nobody told to stop: who is asked to leave may
    leave with 0."""
    found = []
    for index, decision in story.succeeded:
        key = (decision.gang, decision.generation)
        placed = story.placed.get(key)
        if placed is not None and key not in story.unwanted:
            found.append((index, decision, placed[0]))
    return found


def _not_done(
    successes: list[tuple[int, GangSucceeded, TasksPlaced]], runs: dict[str, list[Life]]
) -> Iterator[Finding]:
    for index, decision, placed in successes:
        for placement in placed.placements:
            lives = runs.get(placement.task, [])
            if not any(life.code == 0 and life.done for life in lives):
                yield Finding(
                    f"{decision.gang} succeeded at index {index}, but {placement.task} did not: "
                    f"{', '.join(map(str, lives)) or 'it never ran'}"
                )


def _disagreeing(
    alive: list[Life], state: State, traced: Callable[[str], bool], log: ExportedLog
) -> Iterator[Finding]:
    # Without its end the log does not tell how all was left.
    undecided = bool(log.cut_off or log.damage)
    live = {life.task: life for life in alive}
    for key, task in sorted(state.tasks.items()):
        running = task.status is TaskStatus.RUNNING and traced(task.job)
        if running and (key not in live or live[key].host != task.host):
            text = f"{key} runs on {task.host} by the state, not in truth"
            yield Finding(text, undecided=undecided)
    for key, life in sorted(live.items()):
        task_or_none = state.tasks.get(key)
        if task_or_none is None:
            text = f"{life} lives, by the state there is no such task"
            yield Finding(text, undecided=undecided)
        elif task_or_none.status not in (TaskStatus.RUNNING, TaskStatus.UNKILLABLE):
            text = f"{life} lives, by the state it is {task_or_none.status}"
            yield Finding(text, undecided=undecided)


def judge_ends(state: State, prefix: str, suffix: str = "") -> Judgement:
    """Whether every job whose name begins and ends so has ended, by the state at the end of the
    log. One that has not may only have lacked time."""
    jobs = [
        job
        for name, job in sorted(state.jobs.items())
        if name.startswith(prefix) and name.endswith(suffix)
    ]
    findings = (
        Finding(f"job {job.name} is {job.status} at the end of the log", undecided=True)
        for job in jobs
        if job.status not in FINISHED_JOB
    )
    return judged(ENDED, findings, seen=len(jobs), of="jobs remembered")
