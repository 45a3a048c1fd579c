"""Heartbeats heard by this node: one frame for all of them, every tenth of a second.

A frame is never retried: a later one says more. Its agents are told once it is applied here, and
their leases run from the beats it held.
"""

from __future__ import annotations

import msgspec

from coord.core.state import State
from coord.model.channel import Beat
from coord.model.entry import Origin, Recorded, Submission
from coord.model.events import HeartbeatsSeen
from coord.node.sessions import Session


class Heard(msgspec.Struct, frozen=True):
    """The newest beat of one slot and who sent it."""

    slot: int
    incarnation: int
    sequence: int
    session: Session


class Heartbeats:
    """Collects beats and answers them. `first_seq` must exceed that of any earlier process of
    this node in the same term; the wall clock at start does."""

    def __init__(self, node: int, first_seq: int, frames_limit: int) -> None:
        self.source = f"node:{node}"
        self._seq = first_seq
        self._frames_limit = frames_limit
        self._heard: dict[int, Heard] = {}
        self._sent: dict[int, list[Heard]] = {}

    def beat(self, state: State, session: Session, beat: Beat) -> None:
        """Take a beat into the next frame, or refuse the session if its host has moved on."""
        if beat.slot >= len(state.slots):
            return  # Registered through another node, and not applied here yet: it will repeat.
        if not is_of_its_host(state, session, beat.slot):
            return
        session.incarnation = beat.incarnation
        if is_outdated(state, beat.slot, beat.incarnation):
            refuse_outdated(state, session, beat.slot, beat.incarnation)
            return
        self._heard[beat.slot] = Heard(beat.slot, beat.incarnation, beat.sequence, session)

    def take_frame(self, term: int, seen_index: int) -> Submission | None:
        """All beats since the last frame as one event; None when there were none."""
        if not self._heard:
            return None
        heard = [self._heard[slot] for slot in sorted(self._heard)]
        self._heard = {}
        self._seq += 1
        self._sent[self._seq] = heard
        while len(self._sent) > self._frames_limit:
            del self._sent[next(iter(self._sent))]
        event = HeartbeatsSeen(
            self.source,
            tuple(one.slot for one in heard),
            tuple(one.incarnation for one in heard),
        )
        return Submission(Origin(self.source, term, self._seq, seen_index), event)

    def applied(self, record: Recorded, state: State) -> None:
        """A frame of some node was applied: if it was ours, its agents have their leases."""
        origin = record.entry.origin
        if origin.actor != self.source:
            return
        for heard in self._sent.pop(origin.seq, ()):
            if is_outdated(state, heard.slot, heard.incarnation):
                refuse_outdated(state, heard.session, heard.slot, heard.incarnation)
            elif not record.rejection:
                heard.session.beat_seen(heard.sequence)


def is_of_its_host(state: State, session: Session, slot: int) -> bool:
    """Whether the slot is that of the session's host; the session is refused otherwise."""
    host = state.slots[slot]
    if not session.host or session.host == host:
        return True
    session.refuse("malformed", f"slot {slot} belongs to {host}, not {session.host}")
    return False


def is_outdated(state: State, slot: int, incarnation: int) -> bool:
    """Whether the host has registered again since, or is live no more."""
    live = state.live_incarnations[slot]
    newest = live or state.hosts[state.slots[slot]].incarnation
    return incarnation < newest or (not live and incarnation == newest)


def refuse_outdated(state: State, session: Session, slot: int, incarnation: int) -> None:
    host = state.hosts[state.slots[slot]]
    session.refuse(
        "stale_incarnation",
        f"host {host.host} is {host.status} in incarnation {host.incarnation}; yours is "
        f"{incarnation}. Stop what is not adopted and register again",
    )
