"""What one agent, or one relay below, is still to be told.

As in a server, what is due is a mark where the newest is all that matters (beats, the leader), and
queues up only where each counts; that is bounded.
"""

from __future__ import annotations

import asyncio

from coord.codec import encode_to_client
from coord.model.channel import (
    BeatSeen,
    Refused,
    RelayBeatsSeen,
    RelayDown,
    Relayed,
)
from coord.model.entry import RELAY_ACTOR
from coord.relay.limits import TokenBucket

DOWN_BYTES = 1 << 20
"""About the most of one message to a relay below."""


class Conversation:
    """One connection from below. `number` is an agent's upwards; a relay's conversations have
    each their own, in `numbers`, by the numbers that it gave them."""

    def __init__(self, actor: str, number: int, bucket: TokenBucket, unread_bytes: int) -> None:
        self.actor = actor
        self.number = number
        self.bucket = bucket
        self.is_relay = actor.startswith(RELAY_ACTOR)
        self.numbers: dict[int, int] = {}
        self.ready = asyncio.Event()
        """Set when `take` has something, or the conversation is over."""
        self.over = False
        """All that is to be sent will then have been."""
        self.refused_code = ""
        self.shown = b""
        """The newest Beat that shows the host's incarnation, as it came."""
        self._unread_bytes = unread_bytes
        self._frames: list[bytes] = []
        self._relayed: list[Relayed] = []
        self._seen: list[RelayBeatsSeen] = []
        self._size_bytes = 0
        self._beat = 0
        self._applied_index = 0
        self._leader = b""

    def deliver(self, frame: bytes, session: int = 0, ends: bool = False) -> None:
        """An encoded ToClient: of the agent, or of that conversation of the relay below."""
        self._size_bytes += len(frame)
        if self._size_bytes > self._unread_bytes:
            self.refuse("too_slow", f"{self._size_bytes} bytes are unread; connect again")
            return
        if self.is_relay:
            self._relayed.append(Relayed(session, frame, ends))
        else:
            self._frames.append(frame)
            self.over = self.over or ends
        self.ready.set()

    def beat_seen(self, sequence: int, applied_index: int) -> None:
        self._beat = max(self._beat, sequence)
        self._applied_index = max(self._applied_index, applied_index)
        self.ready.set()

    def beats_seen(self, seen: RelayBeatsSeen) -> None:
        """A frame of the relay below, or of one below that, is decided."""
        self._seen.append(seen)
        self.ready.set()

    def leader_changed(self, frame: bytes) -> None:
        """An encoded LeaderChanged."""
        self._leader = frame
        self.ready.set()

    def refuse(self, code: str, message: str) -> None:
        """End the conversation; the first reason stands."""
        if not self.over:
            self._clear()
            self._frames.append(encode_to_client(Refused(code, message)))
            self.over = True
            self.refused_code = code
            self.ready.set()

    def take(self) -> list[bytes]:
        """Every message to be sent now, encoded, in order."""
        self.ready.clear()
        found = [self._leader] if self._leader else []
        found += self._frames
        if self._beat:
            found.append(encode_to_client(BeatSeen(self._beat, self._applied_index)))
        if self._relayed or self._seen:
            found += self._down()
        self._clear()
        return found

    def _down(self) -> list[bytes]:
        found, part, size_bytes = [], [], 0
        for relayed in self._relayed:
            part.append(relayed)
            size_bytes += len(relayed.frame)
            if size_bytes >= DOWN_BYTES:
                found.append(encode_to_client(RelayDown(tuple(part))))
                part, size_bytes = [], 0
        if part or self._seen:
            found.append(encode_to_client(RelayDown(tuple(part), tuple(self._seen))))
        return found

    def _clear(self) -> None:
        self._leader = b""
        self._frames, self._relayed, self._seen = [], [], []
        self._size_bytes = 0
        self._beat = 0
