"""The real log and node, with everything that they apply and answer told to the checks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coord.core.state import State
from coord.model.entry import Recorded
from coord.node.node import Node
from coord.raft.ports import ProposeOutcome, StateMachine
from coord.raft.pysyncobj_log import PySyncObjLog
from coord_sim.kernel import current_process
from coord_sim.world.raft_checks import RaftChecks


class WatchedLog(PySyncObjLog):
    """`PySyncObjLog` that tells of proposals, answers and what is applied."""

    def __init__(self, checks: RaftChecks, node: int, *arguments: Any, **named: Any) -> None:
        super().__init__(node, *arguments, **named)
        self._checks = checks

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
