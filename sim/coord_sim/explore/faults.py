"""What goes wrong in an execution, as its schedule says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coord.core.state import state_digest, state_from_rows, state_rows
from coord.model.entry import Origin
from coord.model.events import (
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    HostRegistered,
    LeaderElected,
)
from coord.model.roster import RosterChanged, RosterHeard

from .judge import RESTORED_SAME
from .playing import play
from .recording import RETRY_MS
from .schedule import (
    AgentCrash,
    AnyChange,
    ClockJump,
    InFlight,
    LeaderChange,
    LoseHosts,
    Pause,
    SnapshotRestore,
)

if TYPE_CHECKING:
    from .execute import Execution

RESTART_MS = 1_000
"""From the death of an agent to its next registration."""
ELECTION_MS = 1_500
"""That nobody leads, or a quarter of a lease where that is shorter."""
SERVERS = 3


def strike(execution: Execution, change: AnyChange) -> None:
    """Let a fault happen now."""
    _STRIKES[type(change)](execution, change)


def _crash(execution: Execution, change: AgentCrash) -> None:
    agent = execution.agents.get(change.host)
    if agent is None or agent.announced is None or change.host in execution.dead:
        return
    execution.agents[change.host] = replace(agent, registered=False, outbox=())
    execution.mute.pop(change.host, None)
    execution.down[change.host] = execution.now_ms + RESTART_MS
    if not change.keeps_unsent:
        execution.forgetful[change.host] = None
    execution.later(RESTART_MS, "restart", change.host)


def _pause(execution: Execution, change: Pause) -> None:
    if change.host in execution.agents and change.host not in execution.dead:
        execution.down[change.host] = execution.now_ms + change.ms
        execution.later(change.ms, "resume", change.host)


def _change_leader(execution: Execution, change: LeaderChange) -> None:
    meta = execution.state.meta
    worst = change.in_flight is InFlight.NONE
    lease_ms = meta.settings.lease_ms
    # The worst that an election can be: nobody could be heard for a whole lease.
    execution.now_ms += lease_ms if worst else min(ELECTION_MS, lease_ms // 4)
    node, term, before = meta.leader % SERVERS + 1, meta.term + 1, meta.term
    origin = Origin(f"node:{node}", term, execution.number())
    if worst:
        # Whoever looks at the clock before the log says that it leads judges nothing.
        execution.apply(ClockAdvanced(), origin, term=term)
    if not execution.apply(LeaderElected(node, term), origin, term=term).rejection:
        execution.renew()
    if worst and before:
        # Nor does the leader before, which stood still and knows nothing of its end.
        late = Origin(f"node:{meta.leader}", before, execution.number())
        execution.apply(ClockAdvanced(), late, term=before)
    if change.in_flight is InFlight.COMMITTED_UNANSWERED:
        entry = execution.delivered.get(change.at)
        if entry is not None and not entry.origin.actor.startswith("node:"):
            # Its sender does not know, and asks the next leader.
            execution.later(RETRY_MS, "asked again", "", (entry.event, entry.origin))


def _restore(execution: Execution, change: SnapshotRestore) -> None:
    before = execution.state
    restored = state_from_rows(state_rows(before))
    if state_digest(restored) != state_digest(before):
        execution.breaks((RESTORED_SAME, "what was restored is not what was saved"))
    execution.state = restored


def _jump(execution: Execution, change: ClockJump) -> None:
    execution.jumped_ms += change.ms
    execution.wall_ms += change.ms
    execution.jumps += change.ms > 0


def _lose(execution: Execution, change: LoseHosts) -> None:
    for host in change.hosts:
        agent = execution.agents.get(host)
        if agent is not None:
            execution.agents[host] = replace(agent, registered=False, outbox=())
            execution.dead[host] = None
            execution.mute.pop(host, None)


_STRIKES: dict[type, Callable[[Any, Any], None]] = {
    AgentCrash: _crash,
    Pause: _pause,
    LeaderChange: _change_leader,
    SnapshotRestore: _restore,
    ClockJump: _jump,
    LoseHosts: _lose,
}


def drop(execution: Execution, position: int) -> None:
    """The event is lost under way; whoever waits for an answer sends it again."""
    entry = execution.recording.records[position].entry
    event, actor = entry.event, entry.origin.actor
    if isinstance(event, HeartbeatsSeen | ClockAdvanced | RosterChanged | RosterHeard):
        return  # The next one says as much.
    if isinstance(event, LeaderElected):
        play(execution, position)  # There is nobody under way to lose it.
    elif isinstance(event, HostRegistered | ClusterConfigured):
        host = event.host if isinstance(event, HostRegistered) else ""
        execution.later(RETRY_MS, "replay", host, position)
    elif actor.startswith("host:"):
        execution.losing[actor[5:]] = None
        play(execution, position)
        execution.losing.pop(actor[5:], None)
    else:
        execution.later(RETRY_MS, "asked again", "", (event, entry.origin))


def repeat(execution: Execution, position: int) -> None:
    """The same event arrives once more."""
    entry = execution.delivered.get(position)
    if entry is None and position < execution.script.first:
        entry = execution.recording.records[position].entry
    if entry is not None:
        execution.apply(entry.event, entry.origin, term=entry.term)
