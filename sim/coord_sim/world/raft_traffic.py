"""What servers tell each other, watched on the wire and at the door of each node's raft.

These are promises about messages: how often an entry is sent, what a superseded connection may
still deliver, how soon a leader hears that it was replaced. `raft_checks.py` has those about logs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coord.raft.guard_append import Message
from coord_sim.kernel import Kernel
from coord_sim.world.peers import Climate, Connection, SimPeers
from coord_sim.world.violation import Violation

if TYPE_CHECKING:
    from coord_sim.world.server import SimServer

EACH_ONCE = "an entry is sent once over a connection, until the follower refuses one"
NEWEST = "nothing from a superseded connection is taken in"
TOLD = "a leader that was replaced is told by the first that hears it"

TOLD_WITHIN_S = 0.5
"""A stale append and what is answered take a few milliseconds each on links that are well."""


class RaftTraffic:
    """Told of every message by the links and by `WatchedLog`; tells `broken` of each violation."""

    def __init__(
        self,
        kernel: Kernel,
        servers: dict[int, SimServer],
        peers: SimPeers,
        broken: Callable[[Violation], None],
    ) -> None:
        self._kernel = kernel
        self._servers = servers
        self._peers = peers
        self._broken = broken
        self._sent_to: dict[tuple[int, int, int], int] = {}
        """(epoch, leader, term) to the last entry that went over that connection."""
        self._excused: dict[int, None] = {}
        """Epochs of connections over which messages may have been lost."""
        self._unwritable: dict[int, None] = {}
        """Nodes that take in nothing, because they can write nothing."""
        self._telling: dict[tuple[int, int], None] = {}

    def sent(self, connection: Connection, sender: int, message: Message) -> None:
        """It leaves for the other end of the connection."""
        epoch, kind = connection.epoch, message["type"]
        if self._peers.climate.chaotic or any(node in self._unwritable for node in connection.ends):
            self._excused[epoch] = None
        if kind == "append_entries" and message.get("entries"):
            self._sent_entries(connection, sender, message)
        elif kind == "next_node_idx" and not message["success"]:
            self._sent_to.pop((epoch, connection.peer_of(sender), message["term"]), None)

    def _sent_entries(self, connection: Connection, sender: int, message: Message) -> None:
        key = (connection.epoch, sender, message["term"])
        first, last = message["entries"][0][1], message["entries"][-1][1]
        before = self._sent_to.get(key, 0)
        if first <= before and connection.epoch not in self._excused:
            self._break(
                EACH_ONCE,
                f"node {sender} sent raft index {first} to {connection.peer_of(sender)}, to which "
                f"it had sent up to {before}",
            )
        self._sent_to[key] = last

    def writable(self, number: int, can: bool) -> None:
        """Whether a node takes in what arrives."""
        if can:
            self._unwritable.pop(number, None)
            return
        self._unwritable[number] = None
        network = self._servers[number].network
        for connection in network.connections.values() if network is not None else ():
            self._excused[connection.epoch] = None

    def taken_in(self, number: int, peer: int, epoch: int, newest: int) -> None:
        """A node's raft takes in a message of a connection, while it has known a newest one."""
        if epoch < newest:
            self._break(
                NEWEST, f"node {number} took in from {peer} by connection {epoch}, after {newest}"
            )

    def stale(self, number: int, leader: int, term: int) -> None:
        """A node got an append of a leader of a term that is over."""
        connection = self._peers.connection(number, leader)
        if connection is None or (leader, term) in self._telling:
            return
        if connection.last_arrival_s[number] > self._kernel.now_s() + TOLD_WITHIN_S / 2:
            return  # It would wait behind what was sent when the link was slow.
        blocked = self._unhampered(number, leader)
        if blocked is None:
            return
        self._telling[(leader, term)] = None
        self._kernel.call_later(
            TOLD_WITHIN_S, self._judge_told, number, leader, term, connection, blocked
        )

    def _judge_told(
        self,
        number: int,
        leader: int,
        term: int,
        connection: Connection,
        blocked: tuple[float, ...],
    ) -> None:
        del self._telling[(leader, term)]
        node = self._servers[leader].node
        if node is None or not node.leading or node.status.term != term:
            return
        mended_s = self._peers.mended_s.get((min(number, leader), max(number, leader)), 0.0)
        held = mended_s >= self._kernel.now_s() - TOLD_WITHIN_S
        same = self._peers.connection(number, leader) is connection and not held
        if same and self._unhampered(number, leader) == blocked:
            self._break(TOLD, f"node {leader} leads term {term}, and node {number} knew better")

    def _unhampered(self, number: int, leader: int) -> tuple[float, ...] | None:
        """How long both have stood still so far; None while anything keeps an answer away."""
        way, peers = (number, leader), self._peers
        if way in peers.cut or way in peers.slowed or peers.climate != Climate():
            return None
        if number in self._unwritable or leader in self._unwritable:
            return None
        processes = [self._servers[node].process for node in way]
        if any(process is None or process.blocked for process in processes):
            return None
        return tuple(process.blocked_s for process in processes if process is not None)

    def _break(self, property: str, detail: str) -> None:
        self._broken(Violation(property, detail))
