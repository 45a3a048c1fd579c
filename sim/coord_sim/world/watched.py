"""The real log and node, with everything that they apply and answer told to the checks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coord.core.state import State
from coord.model.entry import Recorded
from coord.node.node import Node
from coord.raft.guard_append import Message
from coord.raft.guarded_raft import GuardedRaft
from coord.raft.ports import Member, ProposeOutcome, StateMachine
from coord.raft.pysyncobj_log import PySyncObjLog
from coord_sim.kernel import current_process
from coord_sim.world.raft_checks import RaftChecks
from coord_sim.world.raft_traffic import RaftTraffic


class WatchedLog(PySyncObjLog):
    """`PySyncObjLog` that tells of proposals, answers, what is taken in and what is applied."""

    def __init__(
        self, checks: RaftChecks, traffic: RaftTraffic, node: int, *arguments: Any, **named: Any
    ) -> None:
        super().__init__(node, *arguments, **named)
        self._checks = checks
        self._traffic = traffic
        self._newest: dict[int, int] = {}
        """The newest connection by peer."""

    async def start(self, machine: StateMachine) -> None:
        await super().start(WatchedMachine(self._checks, self.node, machine))

    async def propose(self, payload: bytes, deadline_s: float) -> ProposeOutcome:
        process = current_process()
        if process is None:
            raise RuntimeError("a proposal must be made by the process of the node")
        loop = asyncio.get_running_loop()
        asked = self._checks.proposed(self.node, process, payload, loop.time() + deadline_s)
        outcome = await super().propose(payload, deadline_s)
        self._checks.answered(asked, outcome, loop.time())
        return outcome

    @property
    def offerable(self) -> bool:
        """A snapshot that this node would offer can be had from it."""
        point = self._snapshots.point()
        return point is None or self._snapshots.source(point.index) is not None

    @property
    def settled_members(self) -> tuple[Member, ...]:
        """By what this node knows to be committed."""
        return self._journal.configuration_at(self._raft.commit_index).members

    def connected(self, node: int, epoch: int) -> None:
        self._newest[node] = max(epoch, self._newest.get(node, 0))
        super().connected(node, epoch)

    def received(self, node: int, epoch: int, message: Message) -> None:
        if message["type"] != "bus":
            message["epoch"] = epoch
        super().received(node, epoch, message)

    def _make_raft(self, applied_index: int) -> GuardedRaft:
        raft = super()._make_raft(applied_index)
        take_in = raft.receive

        def receive(peer: int, message: Message) -> None:
            self._traffic.taken_in(self.node, peer, message.pop("epoch"), self._newest.get(peer, 0))
            if message["type"] in ("append_entries", "offer") and message["term"] < raft.term:
                self._traffic.stale(self.node, peer, message["term"])
            take_in(peer, message)

        raft.receive = receive  # type: ignore[method-assign]  # nothing of coord knows of it
        return raft


class WatchedMachine:
    """A `StateMachine` in front of another."""

    def __init__(self, checks: RaftChecks, number: int, machine: StateMachine) -> None:
        self._checks = checks
        self._number = number
        self._machine = machine

    def applied_raft_index(self) -> int:
        return self._machine.applied_raft_index()

    def apply(self, raft_index: int, term: int, payload: bytes) -> None:
        self._machine.apply(raft_index, term, payload)
        self._checks.apply(self._number, raft_index, term, payload)

    def write_snapshot(self) -> Callable[[str], None]:
        return self._machine.write_snapshot()

    def install_snapshot(self, path: str, raft_index: int) -> None:
        self._machine.install_snapshot(path, raft_index)
        self._checks.installed(self._number, raft_index)


OnApplied = Callable[[int, tuple[Recorded, ...], State], None]


class WatchedNode(Node):
    """`Node` that tells of entries and installed snapshots."""

    def __init__(self, on_applied: OnApplied, *arguments: Any) -> None:
        self._on_applied = on_applied
        super().__init__(*arguments)

    def _applied(self, records: tuple[Recorded, ...], state: State) -> None:
        super()._applied(records, state)
        if records:  # A barrier brings none.
            self._on_applied(self.config.node, records, state)

    def _installed(self) -> None:
        super()._installed()
        self._on_applied(self.config.node, (), self.state)
