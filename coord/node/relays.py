"""Relays connected here: the conversations behind each, and the beats that they vouch for.

A conversation behind a relay is a session like any other, but for its bell: what it has to say is
sent by its relay's sender, many in a message. A relay's claims are contained: a host comes into a
roster only through a relay behind which its newest conversation here stands, once that has shown
the incarnation; no relay speaks for another that is connected here by itself. What is refused is
counted, and logged once for each relay and cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import structlog

from coord.codec import MalformedMessage, decode_to_server, encode_to_client
from coord.core.rosters import relay_of_actor
from coord.core.state import State
from coord.model.channel import (
    Beat,
    LogChunk,
    Refused,
    RelayBeats,
    RelayBeatsSeen,
    RelayDown,
    Relayed,
    RelayUp,
    Submit,
    Welcome,
)
from coord.model.decisions import RosterCut
from coord.model.entry import HOST_ACTOR, RELAY_ACTOR, Origin, Recorded, Submission
from coord.model.roster import RosterChanged, RosterHeard
from coord.node.config import Limits
from coord.node.heartbeats import is_of_its_host, is_outdated, refuse_outdated
from coord.node.metrics import Metrics
from coord.node.relay_frames import RelayFrames
from coord.node.requests import Key, key_of
from coord.node.sessions import Session, Sessions

DOWN_BYTES = 256 * 1024
"""About so much goes down to a relay in one message."""
EVENTS_PER_FRAME = 16
TOLD_FOR = 256
"""Events of a relay with which it is told that a slot is not in its roster: more than it can have
sent before it heard that for the first time."""
NAMES_LIMIT = 16_384
"""Of relays that speak through this server, those below others included."""

log = structlog.get_logger()

Receive = Callable[[Session, Submit, int], None]


class Frame(msgspec.Struct):
    """A frame of a relay that is on its way through the log."""

    link: RelayLink
    beats: RelayBeats
    last: int
    """Seq of its last event."""
    rejection: str = ""


class Dropped:
    """Slots that one relay must not take for heard, each from one of its frames on (0: from
    whatever is decided next) until one that settles it.

    A slot is named with every frame in between, for the relay may have sent some of them before it
    was told.
    """

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        """Of the relay: its sequences are those of one process."""
        self._spans: dict[int, tuple[int, int]] = {}

    def drop(self, slot: int, since: int = 0) -> None:
        since, _ = self._spans.get(slot, (since, 0))
        self._spans[slot] = (since, 0)

    def settle(self, slot: int, sequence: int) -> None:
        """That frame says anew how it is with this slot."""
        since, until = self._spans.get(slot, (0, sequence))
        if not until or until > sequence:
            self._spans[slot] = (since, sequence)

    def told_with(self, sequence: int) -> tuple[int, ...]:
        """Slots to be named with what is decided of this frame."""
        found = []
        for slot, (since, until) in sorted(self._spans.items()):
            if until and until <= sequence:
                del self._spans[slot]
            elif since <= sequence:
                found.append(slot)
                self._spans[slot] = (since, until or sequence + TOLD_FOR)
        return tuple(found)


class Bell:
    """Rings at the relay when a conversation behind it has something to say."""

    __slots__ = ("_number", "link")

    def __init__(self, link: RelayLink, number: int) -> None:
        self.link = link
        self._number = number

    def set(self) -> None:
        self.link.rung[self._number] = None
        self.link.session.ready.set()

    def clear(self) -> None:
        self.link.rung.pop(self._number, None)


class RelayLink:
    """One relay's connection: its own session, and those behind it by the relay's numbers."""

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self.session = session
        self.behind: dict[int, Session] = {}
        self.rung: dict[int, None] = {}
        """Those that have something to say, in the order in which they had."""
        self.refusals: list[Relayed] = []
        """To conversations that were not taken in."""
        self.seen: list[RelayBeatsSeen] = []
        self.dropped: dict[str, Dropped] = {}
        """By relay, slots that are not in its roster though it may believe so."""


class Relays:
    """All relays of this node. Lives on the loop's thread."""

    def __init__(
        self, sessions: Sessions, limits: Limits, metrics: Metrics, receive: Receive
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._metrics = metrics
        self._receive = receive
        self._links: dict[int, RelayLink] = {}
        """By number of the relay's own session."""
        self._names: dict[str, RelayLink] = {}
        """Through which connection a relay speaks."""
        self._sent: dict[Key, Frame] = {}
        """By the key of each of its events."""
        self._waiting = RelayFrames(limits.relay_frames)
        self._told: dict[tuple[str, str], None] = {}
        """(relay, cause) that was logged."""

    def __len__(self) -> int:
        return len(self._links)

    def behind(self) -> int:
        """How many conversations stand behind relays."""
        return sum(len(link.behind) for link in self._links.values())

    def connected(self) -> dict[str, int]:
        """By relay connected to this server, how many conversations stand behind it."""
        found = [(link.name, len(link.behind)) for link in self._links.values()]
        return dict(sorted(found))

    # Conversations

    def attach(self, session: Session) -> RelayLink:
        """A relay's conversation began. One of the same name that is still open has been left."""
        name = relay_of_actor(session.actor)
        before = self._names.get(name)
        if before is not None and before.name == name:
            before.session.refuse("replaced", f"relay {name} has opened another connection")
        link = RelayLink(name, session)
        self._links[session.number] = self._names[name] = link
        return link

    def detach(self, link: RelayLink) -> None:
        """The connection is gone, and with it all that stood behind it. Idempotent."""
        self._links.pop(link.session.number, None)
        for number in list(link.behind):
            self._leave(link, number)
        for name in [name for name, of in self._names.items() if of is link]:
            del self._names[name]
        for key in [key for key, frame in self._sent.items() if frame.link is link]:
            del self._sent[key]

    def arrived(self, link: RelayLink, up: RelayUp, state: State, now_s: float) -> None:
        """Everything in one message of a relay, in the order of its fields. `now_s`: by the clock
        of `take_frames`."""
        for attached in up.attached:
            self._attach_behind(link, attached.session, attached.actor)
        for relayed in up.frames:
            session = link.behind.get(relayed.session)
            if session is None:
                self._count(link.name, "unknown_session")  # It was refused a moment ago, perhaps.
            elif session.refused is None:
                self._said(session, relayed.frame, state)
        for beats in up.beats:
            self._vouched(link, beats, state, now_s)
        for number in up.detached:
            self._leave(link, number)

    def _attach_behind(self, link: RelayLink, number: int, actor: str) -> None:
        if not actor.startswith(HOST_ACTOR) or number in link.behind:
            self._count(link.name, "attach")
            return
        if len(link.behind) >= self._limits.relay_sessions:
            self._count(link.name, "too_many_sessions")
            refused = Refused("busy", f"{len(link.behind)} agents are behind relay {link.name}")
            link.refusals.append(Relayed(number, encode_to_client(refused), True))
            link.session.ready.set()
            return
        link.behind[number] = self._sessions.attach(actor, Bell(link, number))

    def _leave(self, link: RelayLink, number: int) -> None:
        session = link.behind.pop(number, None)
        link.rung.pop(number, None)
        if session is not None:
            self._sessions.detach(session)

    def _said(self, session: Session, frame: bytes, state: State) -> None:
        """What cannot be read ends that conversation alone."""
        try:
            message = decode_to_server(frame)
        except MalformedMessage as error:
            session.refuse("malformed", f"{error}; nothing of it was done")
            return
        if isinstance(message, Submit):
            self._receive(session, message, len(frame))
        elif isinstance(message, Beat):
            _show(session, message, state)
        elif isinstance(message, LogChunk):
            self._sessions.chunk_arrived(message)
        else:
            session.refuse("malformed", f"{type(message).__name__} came through a relay")

    # Beats

    def _vouched(self, link: RelayLink, beats: RelayBeats, state: State, now_s: float) -> None:
        events: tuple[RosterChanged | RosterHeard, ...] = (*beats.changes, *beats.heard)
        problem = self._problem(link, beats, len(events))
        if problem:
            self._count(beats.relay[:64], problem)
            return
        self._names[beats.relay] = link
        dropped = link.dropped.get(beats.relay)
        if dropped is None or dropped.incarnation != beats.incarnation:
            link.dropped[beats.relay] = Dropped(beats.incarnation)
        last = beats.sequence + len(events) - 1
        for seq, event in enumerate(events, beats.sequence):
            kept = self._contained(link, beats, event, state)
            origin = Origin(f"{RELAY_ACTOR}{beats.relay}", beats.incarnation, seq)
            self._waiting.add((Submission(origin, kept),), now_s)
        frame = Frame(link, beats, last)
        for seq in range(beats.sequence, last + 1):
            self._sent[f"{RELAY_ACTOR}{beats.relay}", beats.incarnation, seq] = frame
        while len(self._sent) > self._limits.relay_frames:
            del self._sent[next(iter(self._sent))]

    def _problem(self, link: RelayLink, beats: RelayBeats, events: int) -> str:
        """Why a frame counts for nothing at all; empty when it may count."""
        if not 0 < events <= EVENTS_PER_FRAME or not beats.relay or beats.sequence < 1:
            return "frame"
        speaks = self._names.get(beats.relay)
        if speaks is None and len(self._names) >= NAMES_LIMIT:
            return "too_many_relays"
        if speaks is None or speaks is link:
            return ""
        anew = bool(beats.changes) and beats.changes[0].replaces
        # A relay below may come through another one from now on: it then sends all of its roster.
        return "" if anew and speaks.name != beats.relay else "not_its_name"

    def _contained(
        self,
        link: RelayLink,
        beats: RelayBeats,
        event: RosterChanged | RosterHeard,
        state: State,
    ) -> RosterChanged | RosterHeard:
        """The event without the hosts that this relay has no right to: it is told so with what is
        decided of this frame or, if this one is lost, of a later one."""
        if not isinstance(event, RosterChanged):
            return event
        joined = event.joined_slots
        if not len(joined) == len(event.joined_incarnations) == len(event.joined_phases):
            return event  # The core refuses it whole.
        columns = zip(joined, event.joined_incarnations, event.joined_phases, strict=True)
        kept, refused = [], []
        dropped = link.dropped[beats.relay]
        for slot, incarnation, phase in columns:
            dropped.settle(slot, beats.sequence)
            if self._stands_behind(link, slot, incarnation, state):
                kept.append((slot, incarnation, phase))
            else:
                refused.append(slot)
        if len(kept) == len(joined):
            return event
        self._count(link.name, "not_its_host", len(refused))
        for slot in refused:
            dropped.drop(slot, beats.sequence)
        slots, incarnations, phases = zip(*kept, strict=True) if kept else ((), (), ())
        # Whom it may not have it does not keep, either.
        left = tuple(sorted({**dict.fromkeys(event.left_slots), **dict.fromkeys(refused)}))
        return msgspec.structs.replace(
            event,
            joined_slots=slots,
            joined_incarnations=incarnations,
            joined_phases=phases,
            left_slots=() if event.replaces else left,
        )

    def _stands_behind(self, link: RelayLink, slot: int, incarnation: int, state: State) -> bool:
        if not 0 <= slot < len(state.slots):
            return False
        session = self._sessions.agent_of(state.slots[slot])
        if session is None or session.incarnation != incarnation or session.refused is not None:
            return False
        return isinstance(session.ready, Bell) and session.ready.link is link

    def take_frames(self, now_s: float) -> tuple[Submission, ...]:
        """Events of relays that wait for the leader, in their order."""
        return tuple(self._waiting.take(now_s)) if self._waiting else ()

    def applied(self, record: Recorded, state: State) -> None:
        """An event of some relay was applied: if it came through here, the relay is told."""
        frame = self._sent.pop(key_of(record.entry.origin), None)
        if frame is None:
            return
        if isinstance(record.entry.event, RosterHeard) and not record.rejection:
            self._metrics.relay_beats.inc(record.result)
        frame.rejection = frame.rejection or record.rejection
        if record.entry.origin.seq < frame.last:
            return
        beats, link = frame.beats, frame.link
        dropped = link.dropped.get(beats.relay)
        link.seen.append(
            RelayBeatsSeen(
                beats.relay,
                beats.incarnation,
                beats.sequence,
                state.meta.applied_index,
                frame.rejection,
                dropped.told_with(beats.sequence) if dropped is not None else (),
            )
        )
        link.session.ready.set()

    def cut(self, decision: RosterCut, state: State) -> None:
        """Hosts left a roster: the relay hears of it with what is decided of its next frame, and
        agents that are out of date at once."""
        link = self._names.get(decision.relay)
        if link is None:
            return
        dropped = link.dropped.get(decision.relay)
        for slot in decision.slots:
            if dropped is not None:
                dropped.drop(slot)
            if slot >= len(state.slots):
                continue
            session = self._sessions.agent_of(state.slots[slot])
            if session is not None and is_outdated(state, slot, session.incarnation):
                refuse_outdated(state, session, slot, session.incarnation)

    # Downwards

    def take(
        self, link: RelayLink, state: State, welcome: Callable[[], Welcome]
    ) -> Iterator[RelayDown]:
        """All that waits for the relay, in messages of a bounded size."""
        frames, link.refusals = link.refusals, []
        size_bytes = 0
        for number in list(link.rung):
            session = link.behind[number]
            ends = session.refused
            for message in session.take(state, welcome):
                frame = encode_to_client(message)
                size_bytes += len(frame)
                frames.append(Relayed(number, frame))
            if ends is not None:
                frames.append(Relayed(number, encode_to_client(ends), True))
                self._leave(link, number)
            if size_bytes > DOWN_BYTES:
                yield RelayDown(tuple(frames))
                frames, size_bytes = [], 0
        seen, link.seen = link.seen, []
        if frames or seen:
            yield RelayDown(tuple(frames), tuple(seen))

    def _count(self, relay: str, cause: str, times: int = 1) -> None:
        self._metrics.relay_refused.labels(cause).inc(times)
        if (relay, cause) not in self._told and len(self._told) < self._limits.relay_sessions:
            self._told[relay, cause] = None
            log.warning("relay_refused", relay=relay, cause=cause)


def _show(session: Session, beat: Beat, state: State) -> None:
    """The agent's incarnation, by which its host may come into a roster."""
    if beat.slot >= len(state.slots):
        return  # Registered through another node, and not applied here yet: it will repeat.
    if is_of_its_host(state, session, beat.slot):
        session.incarnation = beat.incarnation
        if is_outdated(state, beat.slot, beat.incarnation):
            refuse_outdated(state, session, beat.slot, beat.incarnation)
