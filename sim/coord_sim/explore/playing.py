"""The log's events in an execution: what of them still happens, and in which form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coord.agent.reconcile import Fact
from coord.agent.records import Phase
from coord.core.rosters import members_of, relay_of_actor
from coord.model.entry import Recorded
from coord.model.events import (
    AnyEvent,
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    HostRegistered,
    LeaderElected,
    TaskExited,
    TaskFound,
)
from coord.model.rejections import Rejection
from coord.model.roster import RosterHeard

from . import agents
from .agents import Agent
from .recording import RETRY_MS
from .relayed import but_for
from .stage import exit_facts

if TYPE_CHECKING:
    from .execute import Execution


def play(execution: Execution, position: int) -> None:
    """Let the log's event happen, as far as this execution gives reason to."""
    record = execution.recording.records[position]
    event = record.entry.event
    play_it = _PLAYS.get(type(event))
    if play_it is not None:
        play_it(execution, position, record, event)
    elif record.entry.origin.actor.startswith("host:"):
        _report(execution, position, record, event)
    else:
        _request(execution, position, record, event)


def _request(execution: Execution, position: int, record: Recorded, event: AnyEvent) -> None:
    term = max(_term(execution, position, record), execution.state.meta.term)
    origin = record.entry.origin
    answer = execution.apply(event, origin, position, term)
    if answer.rejection == Rejection.NOT_CONFIGURED and record.accepted:
        execution.later(RETRY_MS, "asked again", "", (event, origin))


def _term(execution: Execution, position: int, record: Recorded) -> int:
    return record.entry.term + execution.script.terms_gained(position)


def _own(execution: Execution, position: int, record: Recorded, event: AnyEvent) -> Recorded:
    """A leader's event carries the term of its leader, also when it comes too late."""
    term = _term(execution, position, record)
    return execution.apply(event, record.entry.origin, position, term)


def _elected(execution: Execution, position: int, record: Recorded, event: LeaderElected) -> None:
    gained = execution.script.terms_gained(position)
    if gained:
        event = replace(event, term=event.term + gained)
    if not _own(execution, position, record, event).rejection:
        execution.renew()


# Heartbeats


def _frame(execution: Execution, position: int, record: Recorded, event: HeartbeatsSeen) -> None:
    """Whoever was heard is heard, if its agent still beats; under the incarnation it has here."""
    if not _as_recorded(execution, position, event):
        pairs = _pairs(execution, position, event)
        if not pairs and event.slots:
            return
        slots = tuple(slot for slot, _ in pairs)
        incarnations = tuple(incarnation for _, incarnation in pairs)
        if (slots, incarnations) != (event.slots, event.incarnations):
            event = replace(event, slots=slots, incarnations=incarnations)
    execution.apply(event, record.entry.origin, position, _term(execution, position, record))
    heard(execution, zip(event.slots, event.incarnations, strict=False))


def _relayed(execution: Execution, position: int, record: Recorded, event: RosterHeard) -> None:
    """Whom the relay heard it hears, if its agent still beats under that name."""
    recording, state = execution.recording, execution.state
    roster = state.rosters.get(relay_of_actor(record.entry.origin.actor))
    members = members_of(roster) if roster is not None else {}
    silent, pairs = [], []
    for slot, (_, incarnation) in members.items():
        agent = execution.agents.get(state.slots[slot])
        beats = agent is not None and agent.registered and agent.incarnation == incarnation
        if not beats or not execution.active(state.slots[slot]):
            silent.append(slot)
        elif slot in recording.relayed.get(position, ()):
            pairs.append((slot, incarnation))
    said = but_for(event, silent) if silent else event
    if not execution.apply(said, record.entry.origin, position).rejection:
        heard(execution, pairs)


def _as_recorded(execution: Execution, position: int, event: HeartbeatsSeen) -> bool:
    """Whether every beat of the frame happens as it did, for nothing is otherwise that could matter
    to it: most frames."""
    recording = execution.recording
    if execution.down or execution.dead or execution.now_ms != recording.times_ms[position]:
        return False
    frame = recording.frames[position]
    if frame.absent or frame.stale:
        return False
    slots, agents_here = execution.state.slots, execution.agents
    count = len(slots)
    for slot, incarnation in zip(event.slots, event.incarnations, strict=False):
        if slot >= count or slots[slot] != recording.host_at(slot):
            return False
        agent = agents_here[slots[slot]]
        if not agent.registered or agent.incarnation != incarnation:
            return False
    return True


def heard(execution: Execution, pairs: Iterable[tuple[int, int]]) -> None:
    """What agents learn from their beats having been taken, or refused."""
    state = execution.state
    hosts, agents_here, now_ms = state.hosts, execution.agents, execution.now_ms
    count = len(state.slots)
    for slot, incarnation in pairs:
        if not 0 <= slot < count:
            continue
        host = state.slots[slot]
        agent = agents_here.get(host)
        if agent is None or agent.incarnation != incarnation:
            continue
        if state.live_incarnations[slot] == incarnation:
            if execution.lease_over(host):
                execution.fence(host)
                execution.stirred[host] = None  # What it did not launch meanwhile it may now.
            execution.beats[host] = now_ms
            execution.unheard.pop(host, None)
            row = hosts[host]
            if agent.outbox or agent.seen != (row.incarnation, row.plan_version):
                execution.stirred[host] = None
        elif agent.registered and execution.active(host):
            execution.lose_touch(host)


def _pairs(execution: Execution, position: int, event: HeartbeatsSeen) -> list[tuple[int, int]]:
    recording = execution.recording
    frame = recording.frames[position]
    hosts = execution.state.hosts
    found: dict[int, int] = {}
    stale: list[tuple[int, int]] = []
    names = list(frame.absent)
    for slot, incarnation in zip(event.slots, event.incarnations, strict=False):
        name = recording.host_at(slot)
        if (slot, incarnation) not in frame.stale:
            names.append(name)
            continue
        agent = execution.agents.get(name)
        if agent is not None and agent.registered and agent.incarnation == incarnation:
            names.append(name)
        else:
            stale.append((hosts[name].slot if name in hosts else slot, incarnation))
    for name in names:
        agent = execution.agents.get(name)
        if agent is not None and agent.registered and execution.active(name):
            found[hosts[name].slot] = agent.incarnation
    stale = [pair for pair in stale if pair[0] not in found]
    return sorted([*found.items(), *stale])


# Registrations


def _registration(
    execution: Execution, position: int, record: Recorded, event: HostRegistered
) -> None:
    host = event.host
    recording = execution.recording
    agent = execution.agents.get(host)
    if position in recording.noise and agent is not None:
        _request(execution, position, record, event)
        return
    # Whoever comes too late for a name in the log may be the first here.
    if host in execution.dead:
        return
    if agent is not None and agent.announced is not None:
        if agent.announced.boot == event.boot:
            if host in execution.down:
                execution.put_off("replay", host, position)
                return
            if agent.registered and position not in recording.restarts:
                return
            execution.fence(host)
            event = _renewed(execution.agents[host], event, recording.announced.get(position, ()))
        else:
            execution.down.pop(host, None)
            execution.mute.pop(host, None)
    execution.register(host, event, record.entry.origin, position)


def _renewed(
    agent: Agent, event: HostRegistered, announced: tuple[TaskFound, ...]
) -> HostRegistered:
    """With the tasks that the agent has here. What the log's agent did not name had vanished."""
    tasks = agents.announcement(agent).tasks
    if tasks == announced:
        return event
    named = {found.task: None for found in event.tasks}
    vanished = {found.task: None for found in announced if found.task not in named}
    return replace(event, tasks=tuple(found for found in tasks if found.task not in vanished))


# Reports


def _report(execution: Execution, position: int, record: Recorded, event: Any) -> None:
    """What an agent told, if it is true here as well."""
    if position in execution.recording.noise and not _honest_here(execution, record):
        _noise(execution, position, record, event)
        return
    host = _holder(execution, event)
    if host in execution.dead or host not in execution.agents:
        return
    if host in execution.down:
        execution.put_off("replay", host, position)
        return
    about = agents.fact_of(event)
    if position in execution.recording.unexplained or about is None:
        _said(execution, position, event, host)
        return
    task, fact = about
    agent = execution.agents[host]
    if _comes_true(execution, position, agent, task, fact):
        if fact is Fact.STARTED and execution.gives_launch_up(host, agent.records[task]):
            return
        if fact is Fact.EXITED and host in execution.forgetful:
            event = TaskExited(host, event.incarnation, task, observed=False)
        execution.comes_true(host, task, event, position)
    elif agent.registered and agents.owes(agent, task, fact):
        if fact is Fact.EXITED:
            execution.agents[host] = agents.end_known(agent, task, exit_facts(event))
        execution.tell(host, task, fact, position)


def _honest_here(execution: Execution, record: Recorded) -> bool:
    """A report under an old name may be one under the present name here."""
    origin = record.entry.origin
    agent = execution.agents.get(origin.actor[5:])
    row = execution.state.hosts.get(origin.actor[5:])
    return (
        agent is not None
        and row is not None
        and not record.duplicate_of
        and record.rejection == "stale_incarnation"
        and agent.registered
        and agent.incarnation == origin.incarnation == row.incarnation
    )


def _noise(execution: Execution, position: int, record: Recorded, event: AnyEvent) -> None:
    """A copy, or what came too early: it arrives here too, unless it would be news."""
    origin = record.entry.origin
    row = execution.state.hosts.get(origin.actor[5:])
    if row is not None and (row.incarnation, row.report_seq + 1) == (
        origin.incarnation,
        origin.seq,
    ):
        return
    _request(execution, position, record, event)


def _holder(execution: Execution, event: Any) -> str:
    """The host that has the task here."""
    host: str = event.host
    task: str = getattr(event, "task", "")
    agent = execution.agents.get(host)
    if not task or (agent is not None and (task in agent.records or task in agent.burying)):
        return host
    for other in execution.agents.values():
        if task in other.records:
            return other.host
    return host


def _said(execution: Execution, position: int, event: Any, host: str) -> None:
    """Progress, shards, notices: said by a task that runs, or by the host itself."""
    agent = execution.agents[host]
    task = getattr(event, "task", "")
    record = agent.records.get(task)
    real = position in execution.recording.unexplained or not task
    if not agent.registered or not (real or (record is not None and agents.alive(record))):
        return
    if (event.host, event.incarnation) != (host, agent.incarnation):
        event = replace(event, host=host, incarnation=agent.incarnation)
    execution.say(host, event, position)


def _comes_true(execution: Execution, position: int, agent: Agent, task: str, fact: Fact) -> bool:
    record = agent.records.get(task)
    recording = execution.recording
    if record is None:
        return fact is Fact.REAPED and task in agent.burying
    if fact in (Fact.STARTED, Fact.LAUNCH_FAILED):
        return record.phase is Phase.LAUNCHING and not record.launch_error
    if fact is Fact.EXITED:
        asked_for = position in recording.upon_request
        return agents.alive(record) and (record.stopping or not asked_for)
    if fact is Fact.UNKILLABLE:
        return record.phase in (Phase.RUNNING, Phase.EXITED) and not record.unkillable_pid
    if position in recording.abrupt and agents.alive(record):
        return record.stopping or task not in _asked_to_stop(execution)
    return record.phase is Phase.EXITED or bool(record.launch_error and record.holds)


def _asked_to_stop(execution: Execution) -> dict[str, None]:
    """Tasks that somebody had asked to end in the log."""
    asked = execution.recording.asked_ms
    return {task: None for task, fact in asked if fact is Fact.EXITED}


_PLAYS: dict[type, Callable[[Any, int, Recorded, Any], object]] = {
    ClockAdvanced: _own,
    ClusterConfigured: _own,
    HeartbeatsSeen: _frame,
    HostRegistered: _registration,
    LeaderElected: _elected,
    RosterHeard: _relayed,
}
