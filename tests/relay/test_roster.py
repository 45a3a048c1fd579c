"""What a relay says of its hosts, held against every single beat."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord.relay.roster import Attendance, Vouched
from coord.relay.wheel import Wheel

from .dumb_roster import Truth

START_MS = 12_345
LIMIT_MS = 1_500


class Day:
    """A relay without a network: agents beat, windows close, the core answers or does not."""

    def __init__(self, period_ms: int) -> None:
        self.now_ms = START_MS
        self.period_ms = period_ms
        self.wheel = Wheel(period_ms, START_MS)
        self.attendance = Attendance("r1", 7, self.wheel, LIMIT_MS, START_MS)
        self.truth = Truth(self.wheel)
        self.frames: list[Vouched] = []
        self.sequence = 0
        self.paused = False

    def pass_to(self, now_ms: int) -> None:
        """As a relay's timer does: windows close when they are due."""
        while self.attendance.due_ms <= now_ms and not self.paused:
            self.now_ms = max(self.now_ms, self.attendance.due_ms)
            self._close()
        self.now_ms = max(self.now_ms, now_ms)

    def _close(self) -> None:
        vouched = self.attendance.close(self.now_ms)
        if vouched is not None:
            self.truth.read(vouched)
            self.frames.append(vouched)

    def beat(self, slot: int, *, session: int = 0, incarnation: int = 1) -> tuple[int, int]:
        self._close()
        self.sequence += 1
        self.truth.arrived.setdefault(slot, []).append((self.now_ms, self.sequence))
        self.attendance.beat(session or slot + 1, slot, incarnation, self.sequence, self.now_ms)
        return slot, self.sequence


def test_hosts_that_keep_their_phase_are_vouched_for_by_silence() -> None:
    """Three frames a period for a thousand hosts, without one exception, once all have joined."""
    day = Day(1_000)
    for period in range(4):
        for slot in range(1_000):
            day.pass_to(START_MS + period * 1_000 + slot)
            day.beat(slot)
    day.pass_to(START_MS + 5_000)
    steady = [
        frame for frame in day.frames if START_MS + 2_400 <= frame.ends_ms[-1] <= START_MS + 4_000
    ]
    assert [one.frame.changes for one in steady] == [()] * len(steady)
    assert [one.frame.heard[0].except_slots for one in steady] == [()] * len(steady)
    assert len(steady) == 5
    assert sum(day.truth.told.values()) == 4_000


@pytest.mark.parametrize("offset_ms", range(0, 1_000, 7))
def test_a_host_that_comes_is_told_within_a_unit(offset_ms: int) -> None:
    """At whatever moment of the period: neither its window nor its phase is waited for."""
    day = Day(1_000)
    day.pass_to(START_MS + offset_ms)
    told = day.beat(3)
    day.pass_to(START_MS + offset_ms + day.wheel.unit_ms)
    assert day.truth.told == {told: 1}


def test_a_silent_host_is_named() -> None:
    """Age 0, once a period, in the window of its phase."""
    day = Day(1_000)
    for period in range(3):
        for slot in range(10):
            day.pass_to(START_MS + period * 1_000 + slot * 100 + 5)
            if slot != 4 or period == 0:
                day.beat(slot)
    day.pass_to(START_MS + 3_000)
    named = [
        (slot, age)
        for one in day.frames
        for heard in one.frame.heard
        for slot, age in zip(heard.except_slots, heard.except_ages, strict=True)
    ]
    assert named == [(4, 0), (4, 0)]


def test_a_paused_relay_does_not_speak_of_old_windows() -> None:
    """Nor of what stood in its sockets meanwhile."""
    day = Day(1_000)
    day.beat(3)
    day.paused = True
    day.pass_to(START_MS + 8_000)
    day.paused = False
    told = day.beat(3)
    assert day.attendance.pauses == 1
    assert day.frames == []
    day.attendance.listen()
    day.pass_to(START_MS + 8_500)
    assert told not in day.truth.told
    again = day.beat(3)
    day.pass_to(START_MS + 9_600)
    assert day.truth.told[again] == 1


def test_a_change_of_roster_that_got_lost_is_said_whole_again() -> None:
    """And answers to frames from before that do not count twice."""
    day = Day(1_000)
    for second in range(4):
        day.pass_to(START_MS + second * 1_000)
        day.beat(3)
        if second == 1:
            day.attendance.stale(day.frames[-1].frame.sequence)
        if second == 2:
            day.attendance.stale(day.frames[0].frame.sequence)
    changes = [change for one in day.frames for change in one.frame.changes]
    assert [(one.number, one.replaces, one.joined_slots) for one in changes] == [
        (1, True, (3,)),
        (2, True, (3,)),
    ]


def test_a_host_that_was_cut_joins_again_when_it_beats() -> None:
    """It must show its incarnation first, like any that comes."""
    day = Day(1_000)
    day.beat(3)
    day.pass_to(START_MS + 1_100)
    day.attendance.drop((3,), day.frames[-1].frame.sequence)
    assert len(day.attendance) == 0
    assert day.attendance.beat(4, 3, 2, 99, day.now_ms)


def test_a_host_that_was_cut_is_said_to_have_left() -> None:
    """The core may know it again by then; unsaid, it would be taken as heard for ever."""
    day = Day(1_000)
    for slot in (3, 4):
        day.beat(slot)
    day.pass_to(START_MS + 1_010)
    day.attendance.drop((3,), day.frames[-1].frame.sequence)
    for second in range(1, 4):
        day.pass_to(START_MS + second * 1_000 + 11)
        day.beat(4)
    day.pass_to(START_MS + 4_000)
    assert list(day.truth.members) == [4]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    period_ms=st.sampled_from([50, 100, 333, 700, 1_000, 1_019, 3_300]),
)
def test_random_days(seed: int, period_ms: int) -> None:
    """Hosts come, drift, fall silent, change conversation and incarnation, and go; the process is
    late and pauses; frames get lost. No beat is vouched for that did not arrive in the window that
    says so, and none that could be is left out or told twice."""
    rng = random.Random(seed)
    day = Day(period_ms)
    beats: list[tuple[int, int, int]] = []
    due = {slot: START_MS + rng.randrange(period_ms) for slot in range(rng.randrange(1, 12))}
    sessions = {slot: slot + 1 for slot in due}
    incarnations = dict.fromkeys(due, 1)
    losses: list[int] = []
    for _ in range(rng.randrange(20, 200)):
        slot = min(due, key=due.__getitem__)
        if rng.random() < 0.05:
            # Late, but not so much as to be a pause: several windows close at once.
            day.paused = True
        day.pass_to(due[slot])
        day.paused = False
        if rng.random() < 0.02:
            sessions[slot] += 1_000
        if rng.random() < 0.02:
            incarnations[slot] += 1
        if rng.random() < 0.03:
            day._close()
            day.attendance.leave(sessions[slot])
            losses.append(day.now_ms)
        if rng.random() < 0.02 and day.frames:
            day._close()
            day.attendance.stale(day.frames[-1].frame.sequence)
        if rng.random() < 0.03 and day.frames:
            day._close()
            gone = rng.choice(sorted(due))
            day.attendance.drop((gone,), day.frames[-1].frame.sequence)
            losses.append(day.now_ms)
        deaf = day.attendance.deaf
        pauses = day.attendance.pauses
        told = day.beat(slot, session=sessions[slot], incarnation=incarnations[slot])
        if day.attendance.pauses != pauses or deaf:
            losses.append(day.now_ms)
            day.attendance.listen()
        else:
            beats.append((day.now_ms, *told))
        jitter = rng.choice([0, 0, 0, rng.randrange(-period_ms // 20, period_ms // 20 + 1)])
        skipped = rng.choice([1] * 12 + [2, 5])
        due[slot] += max(1, period_ms * skipped + jitter)
    day.pass_to(day.now_ms + 2 * period_ms)
    assert [key for key, times in day.truth.told.items() if times > 1] == []
    newest = {(slot, sequence) for _, slot, sequence in beats}
    for at_ms, slot, sequence in beats:
        if any(abs(at_ms - lost_ms) <= LIMIT_MS + 2 * period_ms for lost_ms in losses):
            continue
        later = [key for key in day.truth.told if key[0] == slot and key[1] >= sequence]
        assert later, f"nobody was told of beat {sequence} of slot {slot}"
        assert (slot, sequence) in newest


@pytest.mark.parametrize("period_ms", [1, 7, 50, 99, 1_000, 1_019, 3_300])
def test_units_follow_each_other_without_gaps(period_ms: int) -> None:
    """Each moment is in the unit that has begun and not ended; windows end at ends of periods."""
    wheel = Wheel(period_ms, START_MS)
    for now_ms in range(START_MS, START_MS + 3 * period_ms, max(1, period_ms // 400)):
        unit = wheel.unit_at(now_ms)
        assert wheel.begin_ms(unit) <= now_ms < wheel.begin_ms(unit + 1)
        assert unit < wheel.window_after(unit) <= wheel.period_after(unit)
