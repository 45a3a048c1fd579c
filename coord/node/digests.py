"""Nodes compare their running digests. One that differs from the majority has gone wrong and stops.

Each node says its newest (index, digest) about once a second. Whoever has another digest at that
index says so to everybody, and then everybody can count.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from coord.node.peers import DigestSeen, Peers
from coord.raft.ports import Member
from coord.store.ports import REJOIN, StorageCorrupt

KEPT = 64

log = structlog.get_logger()


class StateDiverged(Exception):
    """This node's state is another than the majority's at the same index. It must not go on."""


class Digests:
    """Owned by the node, on the loop's thread. `digest_at(index)` is empty where none is kept."""

    def __init__(
        self,
        *,
        node: int,
        peers: Peers,
        members: Callable[[], tuple[Member, ...]],
        last_index: Callable[[], int],
        digest_at: Callable[[int], str],
        halt: Callable[[BaseException], None],
    ) -> None:
        self._node = node
        self._peers = peers
        self._members = members
        self._last_index = last_index
        self._digest_at = digest_at
        self._halt = halt
        self._ahead: dict[int, DigestSeen] = {}
        """By sender: the newest digest of an index not applied here yet."""
        self._votes: dict[int, dict[int, str]] = {}
        """Indexes in dispute: who has which digest."""
        self.compared = 0

    def tick(self) -> None:
        """Say ours, and compare what arrived early."""
        last = self._last_index()
        if last:
            self._say(DigestSeen(last, self._digest_at(last)))
        early, self._ahead = self._ahead, {}
        for sender, seen in sorted(early.items()):
            self.seen(sender, seen)

    def seen(self, sender: int, message: DigestSeen) -> None:
        """A peer's digest."""
        if message.index > self._last_index():
            self._ahead[sender] = message
            return
        try:
            ours = self._digest_at(message.index)
        except StorageCorrupt as error:
            # Whoever delivers messages could do nothing about it.
            self._halt(error)
            return
        if not ours or not message.digest:
            return
        self.compared += 1
        if message.index in self._votes or ours != message.digest:
            self._dispute(sender, message, ours)

    def _dispute(self, sender: int, message: DigestSeen, ours: str) -> None:
        votes = self._votes.get(message.index)
        if votes is None:
            votes = self._votes[message.index] = {self._node: ours}
            while len(self._votes) > KEPT:
                del self._votes[next(iter(self._votes))]
            log.error(
                "digests_differ", index=message.index, ours=ours, peer=sender, theirs=message.digest
            )
            self._say(DigestSeen(message.index, ours))
        elif sender not in votes:
            self._say(DigestSeen(message.index, ours))
        votes[sender] = message.digest
        against: dict[str, list[int]] = {}
        for node, digest in sorted(votes.items()):
            if digest != ours:
                against.setdefault(digest, []).append(node)
        needed = len(self._members()) // 2 + 1
        for digest, nodes in against.items():
            if len(nodes) >= needed:
                self._halt(
                    StateDiverged(
                        f"at index {message.index} this node's digest is {ours}, that of nodes "
                        f"{nodes} is {digest}. Keep its data directory for examination, and "
                        f"{REJOIN}"
                    )
                )

    def _say(self, message: DigestSeen) -> None:
        for member in self._members():
            if member.node != self._node:
                self._peers.send(member.node, message)
