"""The end of an execution: all faults are over, everybody is heard, and nothing new is asked for.
What fits must then come to run, and what runs must be what the state says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from coord.agent.reconcile import Fact
from coord.agent.records import Phase
from coord.core.machine import log_time_ms, next_due_ms
from coord.core.state import State
from coord.model.entities import GangPhase, HostStatus, TaskStatus
from coord.model.entry import Origin
from coord.model.events import EvictionsAllowed, HeartbeatsSeen

from . import agents
from .judge import AS_STATED, IN_THE_END, unmet
from .playing import heard

if TYPE_CHECKING:
    from .execute import Execution

ROUNDS = 60
"""Of beats and ticks, beyond what leases and graces take."""


def heal(execution: Execution) -> None:
    """Let all heal and come to rest; then look whether all is as it should be."""
    if not execution.state.meta.cluster:
        return
    execution.healed = True
    execution.mute.clear()
    for host in sorted(execution.agents):
        _wake(execution, host)
    execution.settle()
    if execution.known_from_here():
        return
    _come_to_rest(execution)
    why = unmet(execution.state)
    if why:
        execution.breaks((IN_THE_END, why))
    _compare(execution)


def _come_to_rest(execution: Execution) -> None:
    settings = execution.state.meta.settings
    step_ms = min(settings.heartbeat_ms, settings.max_step_ms)
    patience_ms = settings.lease_ms + settings.fence_ms + settings.unkillable_ms
    for _ in range(ROUNDS + patience_ms // step_ms):
        entries = len(execution.applied)
        _round(execution, step_ms)
        if _quiet(execution) and len(execution.applied) <= entries + 2:
            return


def _wake(execution: Execution, host: str) -> None:
    """The host has power, its agent is up and heard, and its processes do as they are told."""
    agent = execution.agents[host]
    if agent.announced is None:
        return
    if host in execution.dead:
        del execution.dead[host]
        execution.agents[host] = replace(agent, records={}, reported={})
        execution.later(0, "register", host, f"{agent.announced.boot}+")
        return
    execution.down.pop(host, None)
    execution.fence(host)
    agent = replace(execution.agents[host], withheld=frozenset())
    execution.agents[host] = agent
    if not agent.registered:
        execution.later(0, "register", host)
    for task, record in sorted(agent.records.items()):
        kind, fact = "", Fact.REAPED
        if record.phase is Phase.LAUNCHING and not record.launch_error:
            kind, fact = "launched", Fact.STARTED
        elif agents.alive(record) and (record.stopping or record.unkillable_pid):
            kind, fact = "exited", Fact.EXITED
        elif record.holds and not agents.alive(record):
            kind = "gone"
        if kind:
            execution.later(execution.recording.typical_ms.get(fact, 0), kind, host, task)
    for task in sorted(agent.burying):
        execution.later(0, "gone", host, task)
    execution.stirred[host] = None


def _round(execution: Execution, step_ms: int) -> None:
    """A heartbeat of everybody, then the clock, if anything is due."""
    until_ms = execution.now_ms + step_ms
    execution.fire_until(until_ms)
    execution.now_ms = max(execution.now_ms, until_ms)
    state = execution.state
    pairs = sorted(
        (state.hosts[name].slot, agent.incarnation)
        for name, agent in execution.agents.items()
        if agent.registered
    )
    meta = state.meta
    if pairs:
        slots, incarnations = zip(*pairs, strict=True)
        source = f"node:{meta.leader}"
        origin = Origin(source, meta.term, execution.number())
        execution.apply(HeartbeatsSeen(source, slots, incarnations), origin)
        heard(execution, pairs)
        execution.settle()
    due_ms = next_due_ms(state)
    wall_ms = execution.wall_ms + execution.now_ms - execution.stamped_ms
    if due_ms is not None and due_ms <= log_time_ms(state, wall_ms):
        execution.advance_clock()
        execution.settle()
    if meta.frozen and not execution.pending:
        origin = Origin("client:operator", 0, execution.number())
        execution.apply(EvictionsAllowed("operator", "all has healed"), origin)
        execution.settle()


def _quiet(execution: Execution) -> bool:
    state = execution.state
    if execution.pending or state.meta.frozen or unmet(state):
        return False
    if any(host.status == HostStatus.SUSPECT for host in state.hosts.values()):
        return False
    if any(agent.outbox or not agent.registered for agent in execution.agents.values()):
        return False
    return not _waits_to_try_again(state)


def _waits_to_try_again(state: State) -> bool:
    return any(
        state.gangs[key].phase == GangPhase.WAITING
        and state.gangs[key].not_before_ms > state.meta.now_ms
        for key in state.waiting
    )


def _compare(execution: Execution) -> None:
    """What runs on every host with what the state says that runs there."""
    state = execution.state
    for name, agent in sorted(execution.agents.items()):
        row = state.hosts.get(name)
        stated = [
            key
            for key in (row.tasks if row is not None else ())
            if state.tasks[key].status == TaskStatus.RUNNING
        ]
        running = [task for task, record in agent.records.items() if agents.alive(record)]
        if sorted(stated) != sorted(running):
            detail = f"{name} runs {sorted(running)}, the state says {sorted(stated)}"
            execution.breaks((AS_STATED, detail))
