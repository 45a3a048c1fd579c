"""Connections between servers: `PeerNetwork` on simulated links.

In an orderly climate a connection is as TCP has it: what arrives does so in order, and what is lost
ends it. Disorder comes from several connections: a reset may deliver half of what was under way,
and an older connection still delivers when a newer one has taken its place. A link that is cut one
way holds what is sent, until it heals or the connection is given up. In the chaotic climate single
messages are also lost, repeated and overtaken, which no TCP does and the guard survives too.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import msgspec

from coord.codec import decode_peer_frame, encode_peer_frame
from coord.raft.guard_append import Message
from coord.raft.network import PeerHandler, SnapshotSource
from coord.raft.ports import Member
from coord_sim.kernel import Kernel, SimProcess
from coord_sim.world import peer_files

HELD_LIMIT = 2_000
"""Frames that a connection holds for a link that is cut; one more and it is given up."""
DEAD_AFTER_S = (4.0, 8.0)
"""A connection whose data is not acknowledged is given up after a time drawn from here."""
RETRY_S = (0.05, 0.5)
"""A server dials again after a time drawn from here."""


class Climate(msgspec.Struct):
    """How the network is at the moment. Delays in seconds, shares of messages."""

    delay_s: tuple[float, float] = (0.0005, 0.004)
    slow_share: float = 0.0
    """So many messages take up to `slow_s` longer; all behind them on the connection wait."""
    slow_s: float = 0.3
    reset_share: float = 0.0
    """After so many messages the connection is reset."""
    lost_share: float = 0.0
    repeated_share: float = 0.0
    overtaken_share: float = 0.0
    bytes_per_s: float = 50e6
    """Of snapshot files."""

    @property
    def chaotic(self) -> bool:
        return bool(self.lost_share or self.repeated_share or self.overtaken_share)


CHAOS = Climate(lost_share=0.01, repeated_share=0.05, overtaken_share=0.1)


class Connection:
    """Between two nodes; the same epoch on both sides."""

    def __init__(self, one: SimPeerNetwork, other: SimPeerNetwork, epoch: int) -> None:
        self.epoch = epoch
        self.networks = {one.node: one, other.node: other}
        self._begin(one.node, other.node)

    def _begin(self, one: int, other: int) -> None:
        self.ends = (one, other)
        self.ended = False
        """Nothing can be sent any more."""
        self.last_arrival_s = {one: 0.0, other: 0.0}
        """By sender."""
        self.sent = {one: 0, other: 0}
        self.delivered = {one: 0, other: 0}
        self.cutoff: dict[int, int] = {}
        """By sender: frames from this number on never arrive."""
        self.held: dict[int, list[bytes]] = {one: [], other: []}
        self.suspected = False

    def peer_of(self, node: int) -> int:
        return self.ends[1] if self.ends[0] == node else self.ends[0]


class SimPeers:
    """All links between servers, and what may befall them."""

    def __init__(self, kernel: Kernel, climate: Climate | None = None) -> None:
        self.kernel = kernel
        self.rng: random.Random = kernel.rng("peers")
        self.climate = climate if climate is not None else Climate()
        self.networks: dict[int, SimPeerNetwork] = {}
        self.cut: dict[tuple[int, int], None] = {}
        """Directions in which nothing gets through: (from, to)."""
        self.slowed: dict[tuple[int, int], float] = {}
        """Seconds that a direction takes on top."""
        self.mended_s: dict[tuple[int, int], float] = {}
        """When a link, by its lower number, last became as new."""
        self.on_sent: Callable[[Connection, int, Message], None] | None = None
        """Told (connection, sender, message) as a message leaves."""
        self.known: dict[int, None] = {}
        """Every node that ever ran."""
        self.counts = dict.fromkeys(
            ("frames", "connections", "resets", "held", "late_epochs", "lost", "fetches"), 0
        )
        self._epoch = 0
        self._dialling: dict[tuple[int, int], None] = {}

    def network(
        self, node: int, process: SimProcess, room: peer_files.Room = lambda: True
    ) -> SimPeerNetwork:
        """The connections of a process that is node `node`; they close when it dies. `room` says
        whether its disk can take a snapshot file."""
        self.known[node] = None
        return SimPeerNetwork(self, node, process, room)

    # Faults

    def partition(self, *sides: tuple[int, ...]) -> None:
        """Nothing passes between the sides until `heal`. Connections hang before they break."""
        for side in sides:
            for other in sides:
                if side is not other:
                    for a in side:
                        for b in other:
                            self.cut[(a, b)] = None

    def isolate(self, node: int) -> None:
        """Nothing passes between this node and any other, running or not yet."""
        others = tuple(number for number in sorted(self.known) if number != node)
        self.partition((node,), others)

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """What one sends does not get to the other; what comes back does."""
        self.cut[(sender, receiver)] = None

    def slow(self, a: int, b: int, ms: float) -> None:
        """Both directions take so much longer."""
        self.slowed[(a, b)] = self.slowed[(b, a)] = ms / 1000

    def mend(self, a: int, b: int) -> None:
        """Both directions of one link are as new."""
        self.mended_s[(min(a, b), max(a, b))] = self.kernel.now_s()
        for way in ((a, b), (b, a)):
            self.cut.pop(way, None)
            self.slowed.pop(way, None)
        self._release(a, b)

    def heal(self) -> None:
        """Every link is as new, and what broke is connected again soon."""
        ways = sorted({(min(way), max(way)): None for way in (*self.cut, *self.slowed)})
        for a, b in ways:
            self.mend(a, b)

    def calm(self) -> None:
        """No climate but the plain one."""
        self.climate = Climate()

    def reset(self, a: int, b: int) -> None:
        """The connection breaks; of what is under way only the first part arrives."""
        connection = self.connection(a, b)
        if connection is None:
            return
        self.counts["resets"] += 1
        for sender in connection.ends:
            connection.cutoff[sender] = self.rng.randint(
                connection.delivered[sender], connection.sent[sender]
            )
        self._end(connection)

    def supersede(self, a: int, b: int) -> None:
        """A second connection takes the place of the first, which still delivers what it holds."""
        self._connect(a, b)

    def connection(self, a: int, b: int) -> Connection | None:
        network = self.networks.get(a)
        found = network.connections.get(b) if network is not None else None
        return None if found is None or found.ended else found

    # Connecting

    def connect_soon(self, a: int, b: int) -> None:
        link = (min(a, b), max(a, b))
        if link in self._dialling:
            return
        self._dialling[link] = None
        self.kernel.call_later(self.rng.uniform(*RETRY_S), self._dial, link)

    def _dial(self, link: tuple[int, int]) -> None:
        self._dialling.pop(link, None)
        a, b = link
        one, other = self.networks.get(a), self.networks.get(b)
        if not (one and b in one.peers) and not (other and a in other.peers):
            return
        if one is None and other is None:
            return
        known = [
            network.connections.get(peer) for network, peer in ((one, b), (other, a)) if network
        ]
        if len(known) == 2 and known[0] is not None and known[0] is known[1]:
            return
        if not self._connect(a, b):
            self.connect_soon(a, b)

    def _connect(self, a: int, b: int) -> bool:
        one, other = self.networks.get(a), self.networks.get(b)
        if one is None or other is None or (a, b) in self.cut or (b, a) in self.cut:
            return False
        if one.process.blocked or other.process.blocked:
            return False
        if b not in one.peers and a not in other.peers:
            return False
        versions = one.version(), other.version()
        if not one.accepts(b, versions[1]) or not other.accepts(a, versions[0]):
            return False
        self._epoch += 1
        self.counts["connections"] += 1
        connection = Connection(one, other, self._epoch)
        for network in (one, other):
            network.process.call_soon(network.up, connection)
        return True

    def _end(self, connection: Connection) -> None:
        """Both sides hear of it, each after the last that still arrives there."""
        if connection.ended:
            return
        connection.ended = True
        now_s = self.kernel.now_s()
        for node in connection.ends:
            network = connection.networks[node]
            if self.networks.get(node) is not network:
                continue
            last_s = connection.last_arrival_s[connection.peer_of(node)]
            heard_s = max(now_s + self.rng.uniform(*self.climate.delay_s), last_s)
            network.process.call_at(heard_s, network.down, connection)
        self.connect_soon(*connection.ends)

    def gone(self, network: SimPeerNetwork, *, silently: bool) -> None:
        """A process has ended. Its host closes the connections; a host that lost its power says
        nothing, and the others find out."""
        if self.networks.get(network.node) is not network:
            return
        del self.networks[network.node]
        for peer in sorted(network.connections):
            connection = network.connections[peer]
            if silently:
                delay_s = self.rng.uniform(*DEAD_AFTER_S)
                self.kernel.call_later(delay_s, self._end, connection)
            else:
                self._end(connection)

    # Carrying

    def carry(self, connection: Connection, sender: int, message: Message, frame: bytes) -> None:
        """From a sender's socket towards the receiver's."""
        receiver = connection.peer_of(sender)
        if self.on_sent is not None:
            self.on_sent(connection, sender, message)
        held = connection.held[sender]
        if held or (sender, receiver) in self.cut:
            self._hold(connection, sender, frame)
            return
        self.counts["frames"] += 1
        climate, rng = self.climate, self.rng
        if climate.chaotic and rng.random() < climate.lost_share:
            self.counts["lost"] += 1
            return
        self._schedule(connection, sender, frame)
        if climate.repeated_share and rng.random() < climate.repeated_share:
            self._schedule(connection, sender, frame)
        if climate.reset_share and rng.random() < climate.reset_share:
            self.reset(*connection.ends)

    def _schedule(self, connection: Connection, sender: int, frame: bytes) -> None:
        receiver = connection.peer_of(sender)
        network = connection.networks[receiver]
        number = connection.sent[sender]
        connection.sent[sender] = number + 1
        climate, rng = self.climate, self.rng
        arrival_s = self.kernel.now_s() + rng.uniform(*climate.delay_s)
        if self.slowed:
            arrival_s += self.slowed.get((sender, receiver), 0.0)
        if climate.slow_share and rng.random() < climate.slow_share:
            arrival_s += rng.uniform(0, climate.slow_s)
        if climate.overtaken_share and rng.random() < climate.overtaken_share:
            arrival_s += rng.uniform(0, climate.slow_s)
        else:
            arrival_s = max(arrival_s, connection.last_arrival_s[sender])
            connection.last_arrival_s[sender] = arrival_s
        network.process.call_at(arrival_s, network.arrive, connection, sender, number, frame)

    def _hold(self, connection: Connection, sender: int, frame: bytes) -> None:
        held = connection.held[sender]
        held.append(frame)
        self.counts["held"] += 1
        if len(held) > HELD_LIMIT:
            self._give_up(connection)
        elif not connection.suspected:
            connection.suspected = True
            self.kernel.call_later(self.rng.uniform(*DEAD_AFTER_S), self._suspect, connection)

    def _suspect(self, connection: Connection) -> None:
        connection.suspected = False
        if any(connection.held.values()):
            self._give_up(connection)

    def _give_up(self, connection: Connection) -> None:
        for held in connection.held.values():
            held.clear()
        self._end(connection)

    def _release(self, a: int, b: int) -> None:
        """What was held is sent again, at once or too late."""
        connection = self.connection(a, b)
        if connection is None:
            self.connect_soon(a, b)
            return
        if any(connection.held.values()) and self.rng.random() < 0.4:
            self._give_up(connection)
            return
        for sender in connection.ends:
            held, connection.held[sender] = connection.held[sender], []
            for frame in held:
                self._schedule(connection, sender, frame)


class SimPeerNetwork:
    """`PeerNetwork` of one process."""

    def __init__(
        self, hub: SimPeers, node: int, process: SimProcess, room: peer_files.Room
    ) -> None:
        self.hub = hub
        self.node = node
        self.process = process
        self.peers: dict[int, Member] = {}
        self.connections: dict[int, Connection] = {}
        """By peer."""
        self.loses_power = False
        """The others are not told when the process dies."""
        self._room = room
        self._handler: PeerHandler | None = None
        process.on_death.append(self._died)

    # The port

    async def start(self, handler: PeerHandler) -> None:
        self._handler = handler
        self.hub.networks[self.node] = self
        for peer in sorted(self.peers):
            self.hub.connect_soon(self.node, peer)
        for other in sorted(self.hub.networks):
            if other != self.node and self.node in self.hub.networks[other].peers:
                self.hub.connect_soon(self.node, other)

    async def stop(self) -> None:
        self._handler = None
        self.hub.gone(self, silently=False)

    def add_peer(self, member: Member) -> None:
        self.peers[member.node] = member
        if self._handler is not None:
            self.hub.connect_soon(self.node, member.node)

    def drop_peer(self, node: int) -> None:
        self.peers.pop(node, None)
        connection = self.connections.pop(node, None)
        if connection is not None:
            if self._handler is not None:
                self._handler.disconnected(node, connection.epoch)
            self.hub._end(connection)

    def send(self, node: int, message: Message) -> bool:
        connection = self.connections.get(node)
        if connection is None or connection.ended or not self.process.alive:
            return False
        frame = encode_peer_frame(message)
        if self.process.stalled_until_s > self.hub.kernel.now_s():
            self.hub.kernel.call_at(
                self.process.stalled_until_s, self._depart, connection, message, frame
            )
        else:
            self.hub.carry(connection, self.node, message, frame)
        return True

    async def fetch_snapshot(self, node: int, index: int, directory: str) -> SnapshotSource:
        self.hub.counts["fetches"] += 1
        return await peer_files.fetch(self.hub, self, node, index, directory, self._room)

    # What the hub asks and tells, the last three as code of the process

    def version(self) -> tuple[int, int]:
        assert self._handler is not None
        found: tuple[int, int] = self.process.run(self._handler.version)
        return found

    def accepts(self, node: int, version: tuple[int, int]) -> bool:
        assert self._handler is not None
        return bool(self.process.run(self._handler.accepts, node, version))

    def source(self, index: int) -> SnapshotSource | None:
        if self._handler is None:
            return None
        found: SnapshotSource | None = self.process.run(self._handler.snapshot_source, index)
        return found

    def up(self, connection: Connection) -> None:
        if self._handler is None:
            return
        peer = connection.peer_of(self.node)
        before = self.connections.get(peer)
        if before is not None:
            if before.epoch > connection.epoch:
                return
            self._handler.disconnected(peer, before.epoch)
        self.connections[peer] = connection
        self._handler.connected(peer, connection.epoch)

    def down(self, connection: Connection) -> None:
        peer = connection.peer_of(self.node)
        if self.connections.get(peer) is connection:
            del self.connections[peer]
            if self._handler is not None:
                self._handler.disconnected(peer, connection.epoch)
            self.hub.connect_soon(self.node, peer)

    def arrive(self, connection: Connection, sender: int, number: int, frame: bytes) -> None:
        if self._handler is None or number >= connection.cutoff.get(sender, number + 1):
            return
        connection.delivered[sender] = max(connection.delivered[sender], number + 1)
        if self.connections.get(sender) is not connection:
            self.hub.counts["late_epochs"] += 1
        message = decode_peer_frame(frame)
        self.hub.kernel.trace.note(
            "peer", sender=sender, type=message["type"], crc=zlib.crc32(frame)
        )
        self._handler.received(sender, connection.epoch, message)

    # Inside

    def _depart(self, connection: Connection, message: Message, frame: bytes) -> None:
        if self.process.alive and not connection.ended:
            self.hub.carry(connection, self.node, message, frame)

    def _died(self) -> None:
        self._handler = None
        self.hub.gone(self, silently=self.loses_power)
