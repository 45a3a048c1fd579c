"""What must come about once everything is healed and nobody asks for anything new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coord.core.state import LIVE_HOST, State
from coord.model.entities import (
    ENDED_GANG,
    FINISHED_JOB,
    DrainState,
    GangPhase,
    Host,
    TaskStatus,
)

if TYPE_CHECKING:
    from coord_sim.world.world import World

LEVEL = "once all is healed, every member catches up with one leader"
ANSWERED = "every pending request is answered"
TOLD = "once all is healed, whatever an agent knows of its tasks is in the log"
RETURNED = "once all is healed, every host that runs is up"
FINISHED = "once all is healed, whatever fits runs to its end"
AGREED = "once all is quiet, what lives is what the state says runs"

PROPERTIES = (LEVEL, ANSWERED, TOLD, RETURNED, FINISHED, AGREED)

Unmet = tuple[str, str]
"""(property, who is behind)."""


def unmet(world: World) -> list[Unmet]:
    """What has not come about yet; empty when all has. In the order in which it should."""
    found: list[Unmet] = [(LEVEL, behind) for behind in _behind(world)]
    found += [(ANSWERED, pending) for pending in _pending(world)]
    leader = world.servers.leader()
    if leader is None:
        return found
    state = leader.state
    found += [(TOLD, untold) for untold in _untold(world)]
    found += [(RETURNED, away) for away in _away(world, state)]
    found += [(FINISHED, waits) for waits in unfinished(state)]
    found += [(AGREED, differs) for differs in world.truth.disagreements(state)]
    return found


def _behind(world: World) -> Iterator[str]:
    servers = world.servers
    leader = servers.leader()
    if leader is None:
        yield f"nobody leads: {servers.summary()}"
        return
    status = leader.log.status()
    for member in status.members:
        node = servers.node(member.node)
        if node is None:
            yield f"node {member.node} does not run: {servers.summary()}"
            continue
        own = node.log.status()
        if own.applied_index != status.applied_index or own.leader != status.leader:
            yield (
                f"node {member.node} has applied {own.applied_index} and follows {own.leader}, the "
                f"leader {status.leader} has {status.applied_index}: {servers.summary()}"
            )
        elif node.state.meta.digest != leader.state.meta.digest:
            yield f"node {member.node} has digest {node.state.meta.digest} at the same index"


def _pending(world: World) -> Iterator[str]:
    now_s = world.kernel.now_s()
    for call in world.clients.pending():
        yield f"{call.tag} asked {now_s - call.invoked_s:.1f} s ago: {call.event}"


def _untold(world: World) -> Iterator[str]:
    for name in sorted(world.hosts.hosts):
        daemon = world.hosts.hosts[name].daemon
        reported = daemon.tasks.reported if daemon is not None else {}
        for task, facts in sorted(reported.items()):
            for fact in sorted(facts.sent - facts.settled):
                yield f"{name} said {fact} of {task}, and nobody answered"


def _away(world: World, state: State) -> Iterator[str]:
    for name in sorted(world.hosts.hosts):
        host = state.hosts.get(name)
        if host is None or host.status not in LIVE_HOST:
            yield f"{name} is {host.status if host else 'unknown'}"


def unfinished(state: State) -> Iterator[str]:
    """Gangs that have not ended although the fleet has room for them, and all else is calm."""
    room = [host for host in state.hosts.values() if _takes_work(host)]
    for key, gang in sorted(state.gangs.items()):
        role = state.jobs[gang.job].spec.role(gang.role)
        if role is None or gang.phase in ENDED_GANG:
            continue
        if role.service and gang.phase == GangPhase.RUNNING:
            continue
        wanted = min(role.smallest, gang.desired) if role.gang else 1
        need = role.resources
        fits = sum(
            min(
                host.devices // need.devices if need.devices else wanted,
                host.cpu_millis // need.cpu_millis if need.cpu_millis else wanted,
                host.memory_mib // need.memory_mib if need.memory_mib else wanted,
            )
            for host in room
        )
        if gang.phase != GangPhase.WAITING or fits >= wanted:
            yield (
                f"{key}#{gang.generation} is {gang.phase} {gang.stop_cause} {gang.queue_reason} "
                f"{gang.queue_detail}: {_tasks_told(state, key)}"
            )
    for name, job in sorted(state.jobs.items()):
        ended = all(state.gangs[key].phase in ENDED_GANG for key in job.gangs)
        if job.status not in FINISHED_JOB and ended:
            yield f"{name} is {job.status} though all of it has ended"
    for key, task in sorted(state.tasks.items()):
        if task.status in (TaskStatus.STOPPING, TaskStatus.EXITED, TaskStatus.ORPHANED):
            yield f"{key} is still {task.status} on {task.host}"


def _tasks_told(state: State, gang: str) -> str:
    return ", ".join(
        f"{key} {task.status} at step {task.step} on {task.host}"
        for key, task in sorted(state.tasks.items())
        if task.gang == gang
    )


def _takes_work(host: Host) -> bool:
    return host.status in LIVE_HOST and host.drain == DrainState.NONE and not host.quarantine
