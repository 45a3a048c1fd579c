"""What nodes tell each other beside raft's own messages.

Events on their way to the leader travel as an encoded `Batch` (topics `submit` and `beats`), so
that they have one wire form. The rest are the small messages below, on the topic `node`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from coord.codec import MalformedMessage, decode_batch, encode_batch
from coord.model.entry import Batch, Submission
from coord.node.requests import Key
from coord.raft.ports import PeerBus

SUBMIT_TOPIC = "submit"
BEATS_TOPIC = "beats"
NODE_TOPIC = "node"

log = structlog.get_logger()


class ReadAsked(msgspec.Struct, frozen=True, tag=True):
    """A follower's readers wait: commit a barrier and say where it stands."""

    round: int


class ReadReady(msgspec.Struct, frozen=True, tag=True):
    """Whoever has applied this raft index may answer the readers of that round."""

    round: int
    raft_index: int


class SubmitRefused(msgspec.Struct, frozen=True, tag=True):
    """These forwarded requests were not proposed: each `key` is (actor, incarnation, seq)."""

    keys: tuple[Key, ...]
    reason: str
    retry_after_ms: int = 0


class DigestSeen(msgspec.Struct, frozen=True, tag=True):
    """The sender's running digest after this log index."""

    index: int
    digest: str


PeerMessage = ReadAsked | ReadReady | SubmitRefused | DigestSeen

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PeerMessage)


class Peers:
    """The node's face of the PeerBus. Without a bus (a single node) nobody is reached."""

    def __init__(self, node: int, bus: PeerBus | None) -> None:
        self._node = node
        self._bus = bus

    def send(self, node: int, message: PeerMessage) -> bool:
        """False: certainly not delivered."""
        return self._bus is not None and self._bus.send(node, NODE_TOPIC, _encoder.encode(message))

    def send_events(self, node: int, topic: str, submissions: tuple[Submission, ...]) -> bool:
        """False: certainly not delivered."""
        if self._bus is None:
            return False
        return self._bus.send(node, topic, encode_batch(Batch(0, self._node, 0, submissions)))

    def on_message(self, handler: Callable[[int, PeerMessage], None]) -> None:
        def receive(sender: int, payload: bytes) -> None:
            try:
                message = _decoder.decode(payload)
            except msgspec.DecodeError as error:
                log.warning("peer_message_malformed", sender=sender, error=str(error))
                return
            handler(sender, message)

        if self._bus is not None:
            self._bus.subscribe(NODE_TOPIC, receive)

    def on_events(
        self, topic: str, handler: Callable[[int, tuple[Submission, ...], int], None]
    ) -> None:
        """`handler(sender, submissions, size_bytes)`."""

        def receive(sender: int, payload: bytes) -> None:
            try:
                batch = decode_batch(payload)
            except MalformedMessage as error:
                log.warning("peer_events_malformed", sender=sender, topic=topic, error=str(error))
                return
            handler(sender, batch.submissions, len(payload))

        if self._bus is not None:
            self._bus.subscribe(topic, receive)
