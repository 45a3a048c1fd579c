"""What an agent owes its host, by when: held against the processes that live.

Time in which an agent could do nothing does not count: it was paused or stalled, or there was none.
"""

from __future__ import annotations

from collections.abc import Iterable

from coord.core.state import State
from coord.model.decisions import HostFenced
from coord.model.entry import Recorded
from coord_sim.kernel import SimProcess
from coord_sim.world.hosts import SimHost, SimHosts
from coord_sim.world.ranks import SimRank

UNDER_LEASE = "nothing exclusive starts on a host whose lease is over"
FENCED = "when a host counts as fenced, nothing exclusive lives there"
STOPPED = "a task that was told to stop is gone soon after its grace"

PROPERTIES = (UNDER_LEASE, FENCED, STOPPED)

LOOK_S = 0.5
SLACK_S = 4.0
"""Beyond the grace, of time in which the agent could act."""


class HostChecks:
    """Watches a fleet. The simulation ends with a Violation as soon as a property is broken."""

    def __init__(self, hosts: SimHosts) -> None:
        self._hosts = hosts
        self._kernel = hosts.kernel
        self._applied = 0
        self._stopping: dict[tuple[str, str], tuple[SimProcess, float]] = {}
        """(host, task) to the agent, and for how many seconds that could have ended it."""
        hosts.watchers.append(self)
        self._kernel.call_later(LOOK_S, self._look)

    # What happens to ranks

    def started(self, rank: SimRank) -> None:
        """Its agent has just launched it."""
        if not self._hosts.is_exclusive(rank) or rank.host.channel is None:
            return
        deadline_s = rank.host.channel.lease_deadline
        if deadline_s is None or deadline_s <= self._kernel.now_s():
            told = "never" if deadline_s is None else f"until {deadline_s:.3f} s"
            self._hosts.violated(UNDER_LEASE, f"{rank.task} on {rank.host.name}, leased {told}")

    def ended(self, rank: SimRank) -> None:
        """Nothing is broken by an end."""

    def gone(self, rank: SimRank) -> None:
        """Nor by the last of it."""

    def saved(self, rank: SimRank, step: int, path: str, digest: str) -> None:
        """Nor by what it saves."""

    # What the log says

    def on_applied(self, node: int, records: Iterable[Recorded], state: State) -> None:
        """Entries took effect on some node; those that did before elsewhere are passed over."""
        for record in records:
            if record.entry.index <= self._applied:
                continue
            self._applied = record.entry.index
            for decision in record.decisions:
                if isinstance(decision, HostFenced):
                    self._look_at_fenced(decision.host, record.entry.index)

    def _look_at_fenced(self, name: str, index: int) -> None:
        host = self._hosts.hosts.get(name)
        for rank in host.runs if host is not None else ():
            # The contract holds where something can end a task: agent, keeper, or power.
            if self._hosts.is_exclusive(rank) and not rank.gone and not rank.unkillable:
                self._hosts.violated(FENCED, f"{rank.task} on {name} at index {index}")

    # Now and then

    def _look(self) -> None:
        before, self._stopping = self._stopping, {}
        for host in self._hosts.hosts.values():
            if host.agent is not None and host.agent.alive and host.daemon is not None:
                self._look_at_stops(host, host.agent, before)
        self._kernel.call_later(LOOK_S, self._look)

    def _look_at_stops(
        self,
        host: SimHost,
        agent: SimProcess,
        before: dict[tuple[str, str], tuple[SimProcess, float]],
    ) -> None:
        stalled = agent.paused or agent.stalled_until_s > self._kernel.now_s()
        assert host.daemon is not None
        for record in host.daemon.tasks.holding():
            task = record.order.task
            if not record.stopping or not _can_end(host, task):
                continue
            by, waited_s = before.get((host.name, task), (agent, 0.0))
            if by is not agent:
                waited_s = 0.0
            waited_s += 0.0 if stalled else LOOK_S
            self._stopping[host.name, task] = (agent, waited_s)
            if waited_s > record.stop_grace_ms / 1000 + SLACK_S:
                self._hosts.violated(STOPPED, f"{task} on {host.name} after {waited_s:g} s")


def _can_end(host: SimHost, task: str) -> bool:
    """Whether something of it lives that SIGKILL would end."""
    ranks = [rank for rank in host.runs if rank.task == task and not rank.gone]
    return bool(ranks) and not any(rank.unkillable for rank in ranks)
