"""Linearizable reads: who has applied a barrier committed after the read came, may answer it.

Readers gather in rounds. One round asks one barrier, of this node's proposer or of the leader's,
and serves all who came before it was asked; those who come later wait for the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coord.node.config import NodeConfig
from coord.node.peers import Peers, ReadAsked, ReadReady
from coord.node.proposer import Proposer
from coord.raft.ports import RaftStatus, Role


class ReadUnavailable(Exception):
    """No barrier was committed and applied here in time. The read did not happen."""


class Reads:
    """Owned by the node, on the loop's thread."""

    def __init__(
        self,
        config: NodeConfig,
        proposer: Proposer,
        peers: Peers,
        applied_raft_index: Callable[[], int],
    ) -> None:
        self._config = config
        self._proposer = proposer
        self._peers = peers
        self._applied_raft_index = applied_raft_index
        self._leader = 0
        self._leading = False
        self._waiting: list[asyncio.Future[None]] = []
        self._asked: list[asyncio.Future[None]] = []
        self._round = 0
        self._asked_at = 0.0
        self._ready_at = 0
        """The raft index that the current round waits for; 0 until the leader has said."""

    async def barrier(self, timeout_s: float) -> None:
        """Return once everything acknowledged before the call is applied here."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if not self._asked:
            self._ask()
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            raise ReadUnavailable(
                f"no leader confirmed this read within {timeout_s:g} s (leader: "
                f"{self._leader or 'none known'}); add ?stale=1 (coordctl: --stale) to read "
                "what this node has"
            ) from None
        finally:
            future.cancel()

    def close(self) -> None:
        """The node stops: whoever waits learns it now."""
        for future in (*self._asked, *self._waiting):
            if not future.done():
                future.set_exception(ReadUnavailable("this server is stopping; ask another"))
        self._asked, self._waiting, self._ready_at = [], [], 0

    def status_changed(self, status: RaftStatus) -> None:
        """A round asked of a former leader is asked again."""
        self._leader = status.leader
        self._leading = status.role == Role.LEADER
        self._again()

    def asked(self, sender: int, message: ReadAsked) -> None:
        """A follower's round. It asks again if this node leads no more."""
        if self._leading:
            number = message.round
            self._proposer.barrier(
                lambda raft_index: self._answer(sender, ReadReady(number, raft_index))
            )

    def ready(self, message: ReadReady) -> None:
        """The leader's barrier for our round is committed at this raft index."""
        if message.round == self._round and self._asked:
            self._ready_at = message.raft_index
            self.applied()

    def applied(self) -> None:
        """Something was applied here: the round may be over."""
        if not self._ready_at or self._applied_raft_index() < self._ready_at:
            return
        served, self._asked, self._ready_at = self._asked, [], 0
        for future in served:
            if not future.done():
                future.set_result(None)
        if self._waiting:
            self._ask()

    def tick(self, now: float) -> None:
        """Ask again when an answer is overdue."""
        overdue = now - self._asked_at >= self._config.intervals.read_retry_s
        if self._asked and not self._ready_at and overdue:
            self._again()

    def _again(self) -> None:
        self._waiting = [*self._asked, *self._waiting]
        self._asked, self._ready_at = [], 0
        self._ask()

    def _ask(self) -> None:
        waiting = [future for future in self._waiting if not future.done()]
        self._asked, self._waiting = waiting, []
        if not waiting:
            return
        self._round += 1
        self._asked_at = asyncio.get_running_loop().time()
        number = self._round
        if self._leading:
            self._proposer.barrier(lambda raft_index: self.ready(ReadReady(number, raft_index)))
        elif self._leader:
            self._peers.send(self._leader, ReadAsked(number))

    def _answer(self, sender: int, message: ReadReady) -> None:
        self._peers.send(sender, message)
