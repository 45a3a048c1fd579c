"""A server of a relay that decides by itself, at once, or misbehaves as it is told."""

from __future__ import annotations

import asyncio

from coord.codec import decode_to_server, encode_to_client
from coord.model.channel import (
    Beat,
    Hello,
    RelayBeats,
    RelayBeatsSeen,
    RelayDown,
    Relayed,
    RelayUp,
    Result,
    Results,
    Submit,
    ToClient,
    ToServer,
    Welcome,
)
from coord.model.entry import Submission
from coord.model.events import HostRegistered
from coord.model.settings import Settings

from .memory import End


class ScriptedServer:
    """Accepts relays. Every host is its own slot, in the order in which they register."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.end: End | None = None
        """Of the newest connection."""
        self.hellos: list[Hello] = []
        self.said: list[ToServer] = []
        self.attached: dict[int, str] = {}
        """On the newest connection."""
        self.heard: list[tuple[int, ToServer]] = []
        """(session, message) of agents, on all connections."""
        self.frames: list[RelayBeats] = []
        self.slots: dict[str, int] = {}
        self.mute = False
        """Reads on and says nothing."""
        self.deaf = False
        """Reads nothing."""
        self.rejection = ""
        """Of frames to come."""

    async def accept(self, end: End) -> None:
        hello = await self._next(end)
        assert isinstance(hello, Hello)
        self.hellos.append(hello)
        self.end = end
        self.attached.clear()
        await end.send(encode_to_client(Welcome("test", 1, 1, "", 7, self.settings)))
        while (message := await self._next(end)) is not None:
            self.said.append(message)
            assert isinstance(message, RelayUp)
            answer = self._answer(message)
            if not self.mute and (answer.frames or answer.seen):
                await end.send(encode_to_client(answer))
            if self.deaf:
                return await self._hang(end)
        return None

    async def _hang(self, end: End) -> None:
        while not end.closed:  # noqa: ASYNC110 the end of a connection is no event
            await asyncio.sleep(0.1)

    async def _next(self, end: End) -> ToServer | None:
        frame = await end.receive()
        return decode_to_server(frame) if isinstance(frame, bytes) else None

    async def say(self, session: int, message: ToClient, ends: bool = False) -> None:
        assert self.end is not None
        down = RelayDown((Relayed(session, encode_to_client(message), ends),))
        await self.end.send(encode_to_client(down))

    def _answer(self, up: RelayUp) -> RelayDown:
        for attach in up.attached:
            assert attach.session not in self.attached
            self.attached[attach.session] = attach.actor
        frames = []
        for relayed in up.frames:
            assert relayed.session in self.attached
            message = decode_to_server(relayed.frame)
            self.heard.append((relayed.session, message))
            if isinstance(message, Submit):
                results = tuple(self._decide(one) for one in message.submissions)
                frames.append(Relayed(relayed.session, encode_to_client(Results(results, 8))))
        seen = []
        for beats in up.beats:
            self.frames.append(beats)
            seen.append(
                RelayBeatsSeen(beats.relay, beats.incarnation, beats.sequence, 9, self.rejection)
            )
        for session in up.detached:
            del self.attached[session]
        return RelayDown(tuple(frames), tuple(seen))

    def _decide(self, submission: Submission) -> Result:
        origin, event = submission.origin, submission.event
        slot = 0
        if isinstance(event, HostRegistered):
            slot = self.slots.setdefault(event.host, len(self.slots))
        return Result(origin.seq, "committed", origin.incarnation, index=8, result=1, slot=slot)

    @property
    def shown(self) -> list[tuple[int, Beat]]:
        return [(session, one) for session, one in self.heard if isinstance(one, Beat)]
