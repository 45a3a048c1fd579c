"""Digests of peers, and what a node does that cannot read its own."""

from __future__ import annotations

from coord.node.digests import Digests
from coord.node.peers import DigestSeen, Peers
from coord.store.ports import StorageCorrupt


def test_a_node_whose_entry_is_damaged_halts_when_a_peer_asks_about_it() -> None:
    """Whoever delivered the peer's message could do nothing about it."""
    damaged = StorageCorrupt("entry 7: its checksum does not match")
    halted: list[BaseException] = []

    def digest_at(index: int) -> str:
        raise damaged

    digests = Digests(
        node=1,
        peers=Peers(1, None),
        members=lambda: (),
        last_index=lambda: 9,
        digest_at=digest_at,
        halt=halted.append,
    )
    digests.seen(2, DigestSeen(7, "ab"))
    assert halted == [damaged]
