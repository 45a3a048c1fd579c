"""Who beats when, and what a relay may say of it. Pure: no clock, no I/O.

What is said follows `RosterChanged` and `RosterHeard` (`model/roster.py`) to the letter: a window
vouches for a host only if its beat arrived within the window, in the unit of its phase or the one
before; or names it with its age. Each beat is vouched for once, in the first window that may; of
several beats of a host the newest stands for all.
"""

from __future__ import annotations

import msgspec

from coord.model.channel import RelayBeats
from coord.model.roster import RosterChanged, RosterHeard
from coord.relay.wheel import Wheel

NONE = -1
OFF_LIMIT = 2
"""A host that was off its phase so often in a row is given another."""


class Vouched(msgspec.Struct, frozen=True):
    """One frame. `ends_ms`: when each window of `frame.heard` ended, from which its lag follows.
    `beats`: (session, slot, sequence) of whom is to be told once the frame counts."""

    frame: RelayBeats
    ends_ms: tuple[int, ...]
    beats: tuple[tuple[int, int, int], ...]

    def sent_at(self, now_ms: int) -> RelayBeats:
        """The frame as it leaves now."""
        heard = [
            msgspec.structs.replace(one, lag_ms=max(0, now_ms - end_ms))
            for one, end_ms in zip(self.frame.heard, self.ends_ms, strict=True)
        ]
        return msgspec.structs.replace(self.frame, heard=tuple(heard))

    def is_older_than(self, limit_ms: int, now_ms: int) -> bool:
        return any(now_ms - end_ms > limit_ms for end_ms in self.ends_ms)


class Member:
    """A host whose beats arrive here."""

    __slots__ = (
        "at_ms", "incarnation", "joined_in", "off", "phase", "sequence", "session", "slot", "unit",
    )  # fmt: skip

    def __init__(self, slot: int, session: int, incarnation: int, phase: int) -> None:
        self.slot = slot
        self.session = session
        self.incarnation = incarnation
        self.phase = phase
        self.joined_in = 0
        """Sequence of the frame with which it joined as it is now; 0 while that is to be said."""
        self.unit = NONE
        """Of its newest beat, while nobody has vouched for that."""
        self.at_ms = 0
        self.sequence = 0
        self.off = 0
        """How often in a row it was not heard at its phase."""


class Attendance:
    """The roster of one relay, and the beats that wait for their window to close.

    `limit_ms`: a window that ended longer ago is not spoken of any more. `sequence` is the first
    that this process has not used. Whoever brings news calls `close` before, so that windows close
    before what came after them.
    """

    def __init__(
        self,
        relay: str,
        incarnation: int,
        wheel: Wheel,
        limit_ms: int,
        now_ms: int,
        sequence: int = 1,
        number: int = 0,
    ) -> None:
        self._relay = relay
        self._incarnation = incarnation
        self._wheel = wheel
        self._limit_ms = limit_ms
        self._members: dict[int, Member] = {}
        self._slot_of: dict[int, int] = {}
        self._left: dict[int, None] = {}
        self._from_unit = wheel.unit_at(now_ms)
        self._hurry_unit = NONE
        """A window is to end with this one, for somebody has come in it."""
        self._anew = True
        self._anew_in = 0
        self.sequence = sequence
        self.number = number
        self.deaf = False
        """After a pause of this process, until `listen`: what stands in its sockets may have been
        sent at any time during the pause, and is not taken for a beat."""
        self.pauses = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def due_ms(self) -> int:
        """When `close` has something to do."""
        return self._wheel.begin_ms(self._due_unit())

    def session_of(self, slot: int) -> int:
        """Whose beats count for this slot; 0 for nobody's."""
        member = self._members.get(slot)
        return member.session if member is not None else 0

    # What happens

    def beat(self, session: int, slot: int, incarnation: int, sequence: int, now_ms: int) -> bool:
        """A beat arrived. Returns whether the server must be shown it, as the host's first here
        or in this incarnation, before it is vouched for."""
        if self.deaf:
            return False
        member = self._members.get(slot)
        if self._slot_of.get(session, slot) != slot:
            self.leave(session)
        fresh = member is None or (member.session, member.incarnation) != (session, incarnation)
        if member is None:
            phase = self._wheel.phase_for(now_ms)
            member = self._members[slot] = Member(slot, session, incarnation, phase)
            self._left.pop(slot, None)
        elif fresh:
            self._slot_of.pop(member.session, None)
            # Through another conversation nothing is new to the core but a new incarnation.
            member.joined_in = member.joined_in if member.incarnation == incarnation else 0
            member.session, member.incarnation = session, incarnation
        self._slot_of[session] = slot
        member.unit = self._wheel.unit_at(now_ms)
        member.at_ms = now_ms
        member.sequence = sequence
        if fresh:
            self._hurry_unit = member.unit
        return fresh

    def listen(self) -> None:
        """All that stood in the sockets during the pause has been read."""
        self.deaf = False

    def leave(self, session: int) -> None:
        """The conversation ended."""
        slot = self._slot_of.pop(session, None)
        if slot is not None and self._members.pop(slot).joined_in:
            self._left[slot] = None

    def drop(self, slots: tuple[int, ...], sequence: int) -> None:
        """As of that frame these are not in the roster. Whoever of them beats again comes anew.

        One may have joined since: all are said to have left, for whom the core knows and we do not
        would be taken as heard.
        """
        for slot in slots:
            member = self._members.get(slot)
            if member is not None and 0 < member.joined_in <= sequence:
                del self._members[slot]
                self._slot_of.pop(member.session, None)
            if slot not in self._members:
                self._left[slot] = None

    def stale(self, sequence: int) -> None:
        """The core knows another roster than the one that frame was about."""
        if sequence >= self._anew_in:
            self.begin_anew()

    def begin_anew(self) -> None:
        """The next frame says the whole roster."""
        self._anew = True
        self._left.clear()
        for member in self._members.values():
            member.joined_in = 0
        self._hurry_unit = self._from_unit if self._members else NONE

    # Windows

    def close(self, now_ms: int, heard_of: bool = True) -> Vouched | None:
        """What is to be said of windows that are over; None when nothing is.

        Without anybody to say it to (`heard_of` false), and after a pause of this process, beats of
        windows that are over are forgotten: their hosts get no acknowledgement and beat again.
        """
        if now_ms < self.due_ms:
            return None
        until = self._wheel.unit_at(now_ms)
        paused = now_ms - self.due_ms > self._limit_ms
        if paused:
            self.deaf = True
            self.pauses += 1
        if paused or not heard_of:
            # Beats of before are of units that no window will hold.
            self._from_unit = until
            return None
        self._hurry_unit = NONE
        change = self._change()
        heard: list[RosterHeard] = []
        ends_ms: list[int] = []
        beats: list[tuple[int, int, int]] = []
        while self._from_unit < until:
            stop = min(until, self._wheel.period_after(self._from_unit))
            said = self._hear(self._from_unit, stop, beats)
            if said is not None:
                heard.append(said)
                ends_ms.append(self._wheel.begin_ms(stop))
            self._from_unit = stop
        self._move_those_off()
        changes = (change,) if change is not None else ()
        if not changes and not heard:
            return None
        frame = RelayBeats(self._relay, self._incarnation, self.sequence, changes, tuple(heard))
        self.sequence += len(changes) + len(heard)
        return Vouched(frame, tuple(ends_ms), tuple(beats))

    def _due_unit(self) -> int:
        window_unit = self._wheel.window_after(self._from_unit)
        if self._hurry_unit < self._from_unit:
            return window_unit
        return min(window_unit, self._hurry_unit + 1)

    def _change(self) -> RosterChanged | None:
        joining = sorted(one.slot for one in self._members.values() if not one.joined_in)
        left = () if self._anew else tuple(sorted(self._left))
        self._left.clear()
        if not joining and not left:
            return None
        self.number += 1
        members = [self._members[slot] for slot in joining]
        for member in members:
            member.joined_in = self.sequence
        change = RosterChanged(
            self.number,
            tuple(joining),
            tuple([member.incarnation for member in members]),
            tuple([member.phase for member in members]),
            left,
            self._anew,
            self._wheel.unit_ms if self._anew else 0,
        )
        if self._anew:
            self._anew_in = self.sequence
        # A roster without hosts is forgotten.
        self._anew = not self._members
        return change

    def _hear(self, first: int, stop: int, beats: list[tuple[int, int, int]]) -> RosterHeard | None:
        """Of units `first` to `stop` - 1, which are of one period."""
        from_phase = self._wheel.phase_of(first)
        to_phase = from_phase + stop - first
        next_phase = self._wheel.phase_of(stop)
        excepted: list[tuple[int, int]] = []
        expected = 0
        for member in self._members.values():
            unit, phase = member.unit, member.phase
            inside = from_phase <= phase < to_phase
            expected += inside
            if inside and unit != NONE and 0 <= first + phase - from_phase - unit <= 1:
                member.off = 0
            elif not first <= unit < stop or self._may_wait(member, stop, next_phase):
                if inside:
                    excepted.append((member.slot, 0))
                continue
            else:
                excepted.append((member.slot, stop - unit))
                member.off += member.joined_in != self.sequence
            beats.append((member.session, member.slot, member.sequence))
            member.unit = NONE
        if not expected and not excepted:
            return None
        excepted.sort()
        return RosterHeard(
            self.number,
            from_phase,
            to_phase,
            0,
            tuple([slot for slot, _ in excepted]),
            tuple([age for _, age in excepted]),
        )

    def _may_wait(self, member: Member, stop: int, next_phase: int) -> bool:
        """It beat in the unit before its phase, of which the next window speaks; and does not wait
        for its first acknowledgement."""
        return (
            member.unit == stop - 1
            and member.phase == next_phase
            and member.joined_in != self.sequence
        )

    def _move_those_off(self) -> None:
        """Of a host that was off its phase again and again the phase is another from now on."""
        for member in self._members.values():
            if member.off >= OFF_LIMIT:
                member.off = 0
                member.phase = self._wheel.phase_for(member.at_ms)
                member.joined_in = 0
