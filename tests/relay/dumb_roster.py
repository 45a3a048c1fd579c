"""A second account of who was heard, deliberately dumb: each beat by itself, the core's rules."""

from __future__ import annotations

from coord.model.roster import RosterChanged
from coord.relay.roster import Vouched
from coord.relay.wheel import Wheel


class Truth:
    """Every beat that arrived, and what a reader of the relay's frames takes from them."""

    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel
        self.arrived: dict[int, list[tuple[int, int]]] = {}
        """slot -> (ms, sequence)"""
        self.members: dict[int, tuple[int, int]] = {}
        """slot -> (phase, incarnation), as RosterChanged say."""
        self.number = 0
        self.told: dict[tuple[int, int], int] = {}
        """(slot, sequence) -> how many frames tell its agent."""

    def read(self, vouched: Vouched) -> None:
        """Take a frame in, and hold each claim of it against what arrived."""
        for change in vouched.frame.changes:
            self._change(change)
        claims: list[tuple[int, int, int]] = []
        for heard, ends_ms in zip(vouched.frame.heard, vouched.ends_ms, strict=True):
            assert heard.number == self.number
            excepted = dict(zip(heard.except_slots, heard.except_ages, strict=True))
            first_unit = self._unit_ending_at(ends_ms) - (heard.to_phase - heard.from_phase)
            for slot, (phase, _) in self.members.items():
                if heard.from_phase <= phase < heard.to_phase and slot not in excepted:
                    unit = first_unit + phase - heard.from_phase
                    claims.append((slot, unit - 1, unit))
            for slot, age in excepted.items():
                assert slot in self.members
                if age:
                    unit = first_unit + heard.to_phase - heard.from_phase - age
                    assert unit >= first_unit
                    claims.append((slot, unit, unit))
        self._check(claims, vouched)

    def _change(self, change: RosterChanged) -> None:
        if change.replaces:
            self.members.clear()
        else:
            assert change.number == self.number + 1
            assert self.members, "a roster without hosts is forgotten"
        self.number = change.number
        for slot in change.left_slots:
            self.members.pop(slot, None)  # Said twice of one that was cut.
        columns = (change.joined_slots, change.joined_phases, change.joined_incarnations)
        for slot, phase, incarnation in zip(*columns, strict=True):
            self.members[slot] = (phase, incarnation)

    def _check(self, claims: list[tuple[int, int, int]], vouched: Vouched) -> None:
        told = {slot: sequence for _, slot, sequence in vouched.beats}
        assert sorted(told) == sorted({slot for slot, _, _ in claims})
        assert len(claims) == len(vouched.beats)
        for slot, first_unit, last_unit in claims:
            units = [
                self.wheel.unit_at(at_ms)
                for at_ms, sequence in self.arrived.get(slot, [])
                if sequence == told[slot]
            ]
            assert units, f"slot {slot} is vouched for, but no beat of it arrived"
            assert first_unit <= units[0] <= last_unit
            key = (slot, told[slot])
            self.told[key] = self.told.get(key, 0) + 1

    def _unit_ending_at(self, end_ms: int) -> int:
        unit = self.wheel.unit_at(end_ms)
        assert self.wheel.begin_ms(unit) == end_ms
        return unit
