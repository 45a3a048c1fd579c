"""Rosters: who stands behind a relay, and beats that a relay vouches for by what it leaves out.

A host stands in one roster at most, live and in the incarnation that the roster names. It comes in
as its relay says, and goes as its relay says, or is cut: when it is lost or removed, registers
again, joins another roster or is heard straight. So a relay that is out of date, or lies, cannot
keep a host alive that has gone elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import lt

from msgspec.structs import replace

from coord.core.hearing import clear, judge_silence, wake
from coord.core.state import LIVE_HOST, State
from coord.core.step import Step, on
from coord.model.decisions import RosterCut
from coord.model.entities import HostStatus
from coord.model.entry import RELAY_ACTOR, Origin
from coord.model.rejections import Rejection
from coord.model.roster import LAG_SHARE, Roster, RosterChanged, RosterHeard
from coord.model.settings import LONGEST_MS

RELAYS_SINCE = 2
"""The logic version from which on there are relays."""

UNIT_SHARE = 10
"""A unit of time lasts at most this part of the lease."""
PHASES_LIMIT = 10_000
"""The last phase that a roster may name."""

Members = dict[int, tuple[int, int]]
"""Of a roster: slot -> (phase, incarnation)."""


@on(RosterChanged)
def _changed(step: Step, event: RosterChanged) -> Rejection | None:
    """`Recorded.result` is how many hosts the roster has then."""
    state = step.state
    origin = step.entry.origin
    relay = relay_of_actor(origin.actor)
    if state.meta.logic_version < RELAYS_SINCE:
        return Rejection.UNKNOWN_EVENT
    if not relay or not _is_possible(event, state.meta.settings.lease_ms):
        return Rejection.INVALID
    known = state.rosters.get(relay)
    before = members_of(known) if known is not None else {}
    if event.replaces:
        roster = Roster(relay, origin.incarnation, event.number, event.unit_ms, (), (), ())
        members: Members = {}
    elif known is None or not _follows(known, origin, event.number):
        return Rejection.STALE_ROSTER
    else:
        roster = replace(known, number=event.number)
        members = dict(before)
    for slot in event.left_slots:
        members.pop(slot, None)
    refused = _join(step, relay, event, members)
    _store(state, _with_members(roster, members), (*before, *event.joined_slots))
    if refused:
        step.decide(RosterCut((step.cause,), relay, tuple(refused)))
    step.result = len(members)
    return None


def relay_of_actor(actor: str) -> str:
    """The name of a relay that sends events; empty when somebody else does."""
    return actor[len(RELAY_ACTOR) :] if actor.startswith(RELAY_ACTOR) else ""


def members_of(roster: Roster) -> Members:
    columns = zip(roster.slots, roster.phases, roster.incarnations, strict=True)
    return {slot: (phase, incarnation) for slot, phase, incarnation in columns}


def _is_possible(event: RosterChanged, lease_ms: int) -> bool:
    joined = event.joined_slots
    units = range(1, lease_ms // UNIT_SHARE + 1) if event.replaces else range(1)
    return (
        len(joined) == len(event.joined_incarnations) == len(event.joined_phases)
        and _ascend(joined)
        and _ascend(event.left_slots)
        and event.unit_ms in units
        and all(0 <= phase <= PHASES_LIMIT for phase in event.joined_phases)
    )


def _ascend(slots: tuple[int, ...]) -> bool:
    return all(map(lt, slots, slots[1:]))


def _follows(roster: Roster, origin: Origin, number: int) -> bool:
    return roster.incarnation == origin.incarnation and roster.number + 1 == number


def _join(step: Step, relay: str, event: RosterChanged, members: Members) -> list[int]:
    """Take hosts into `members`, and out of other rosters; the slots that may not come in."""
    live = step.state.live_incarnations
    relay_of = step.state.relay_of
    refused, elsewhere = [], []
    columns = zip(event.joined_slots, event.joined_incarnations, event.joined_phases, strict=True)
    for slot, incarnation, phase in columns:
        if not 0 <= slot < len(live) or live[slot] != incarnation or not incarnation:
            members.pop(slot, None)
            refused.append(slot)
            continue
        if relay_of.get(slot, relay) != relay:
            elsewhere.append(slot)
        members[slot] = (phase, incarnation)
    cut(step, elsewhere)
    return refused


def _with_members(roster: Roster, members: Members) -> Roster:
    by_phase = sorted((phase, slot, incarnation) for slot, (phase, incarnation) in members.items())
    return replace(
        roster,
        slots=tuple([slot for _, slot, _ in by_phase]),
        incarnations=tuple([incarnation for _, _, incarnation in by_phase]),
        phases=tuple([phase for phase, _, _ in by_phase]),
    )


def _store(state: State, roster: Roster, touched: Iterable[int]) -> None:
    """Keep the row, and watch those that came or went as befits where they are now. A roster
    without hosts is forgotten: the relay's next one replaces it."""
    if roster.slots:
        state.rosters.put(roster.relay, roster)
    else:
        state.rosters.drop(roster.relay)
    members = dict.fromkeys(roster.slots)
    for slot in touched:
        if slot in members:
            state.relay_of[slot] = roster.relay
        elif state.relay_of.get(slot) == roster.relay:
            del state.relay_of[slot]
        else:
            continue
        host = state.hosts[state.slots[slot]]
        if host.status in LIVE_HOST:
            wake(state, host)


def cut(step: Step, slots: Iterable[int], *causes: str) -> None:
    """Take hosts out of whatever rosters they stand in; their relays are told by the decision."""
    state = step.state
    by_relay: dict[str, list[int]] = {}
    for slot in slots:
        if slot in state.relay_of:
            by_relay.setdefault(state.relay_of[slot], []).append(slot)
    for relay, gone in sorted(by_relay.items()):
        roster = state.rosters[relay]
        members = members_of(roster)
        for slot in gone:
            members.pop(slot, None)
        _store(state, _with_members(roster, members), gone)
        step.decide(RosterCut((step.cause, *causes), relay, tuple(sorted(gone))))


@on(RosterHeard)
def _heard(step: Step, event: RosterHeard) -> Rejection | None:
    """`Recorded.result` is how many of the beats counted."""
    state = step.state
    origin = step.entry.origin
    relay = relay_of_actor(origin.actor)
    if state.meta.logic_version < RELAYS_SINCE:
        return Rejection.UNKNOWN_EVENT
    if not relay or not _is_window(event):
        return Rejection.INVALID
    roster = state.rosters.get(relay)
    if roster is None or (roster.incarnation, roster.number) != (origin.incarnation, event.number):
        return Rejection.STALE_ROSTER
    if event.lag_ms > state.meta.settings.lease_ms // LAG_SHARE:
        return Rejection.BEATS_TOO_OLD
    excepted = dict(zip(event.except_slots, event.except_ages, strict=True))
    first = bisect_left(roster.phases, event.from_phase)
    last = bisect_left(roster.phases, event.to_phase)
    slots, phases = roster.slots[first:last], roster.phases[first:last]
    if excepted:
        columns = zip(slots, phases, strict=True)
        regular = [(slot, phase) for slot, phase in columns if slot not in excepted]
        slots, phases = tuple([one for one, _ in regular]), tuple([one for _, one in regular])
    # A roster's hosts are live in the incarnations it names, or they would have been cut.
    ended_ms = step.now_ms - event.lag_ms
    unit_ms = roster.unit_ms
    end_of_first_ms = ended_ms - (event.to_phase - 1) * unit_ms
    seen = state.last_seen_ms
    for slot, phase in zip(slots, phases, strict=True):
        heard_ms = end_of_first_ms + phase * unit_ms
        if heard_ms > seen[slot]:  # noqa: PLR1730 this runs for every beat: a call would double it
            seen[slot] = heard_ms
    others = [slot for slot, age in excepted.items() if age and state.relay_of.get(slot) == relay]
    for slot in others:
        seen[slot] = max(seen[slot], ended_ms - (excepted[slot] - 1) * unit_ms)
    _clear_heard(step, (*slots, *others))
    step.result = len(slots) + len(others)
    return None


def _is_window(event: RosterHeard) -> bool:
    ages = event.except_ages
    return (
        0 <= event.from_phase < event.to_phase <= PHASES_LIMIT + 1
        and event.lag_ms >= 0
        and len(event.except_slots) == len(ages)
        and _ascend(event.except_slots)
        and all(0 <= age <= LONGEST_MS for age in ages)
    )


def _clear_heard(step: Step, heard: tuple[int, ...]) -> None:
    state = step.state
    if not state.attentive:
        return
    for slot in heard:
        if slot not in state.attentive:
            continue
        host = state.hosts[state.slots[slot]]
        silent_ms = step.now_ms - state.last_seen_ms[slot]
        # A beat may be so old that it says nothing new.
        if host.status != HostStatus.SUSPECT or silent_ms < state.meta.settings.suspect_ms:
            clear(step, host)


def look_at(step: Step, relay: str) -> None:
    """The roster's alarm went off: which of its hosts have been silent for too long?"""
    state = step.state
    roster = state.rosters.get(relay)
    if roster is None:
        return
    seen = state.last_seen_ms
    suspect_ms = state.meta.settings.suspect_ms
    oldest_ms = min(map(seen.__getitem__, roster.slots))
    if oldest_ms + suspect_ms <= step.now_ms:
        oldest_ms = _look_at_each(step, roster)
    state.timers.arm("roster", relay, oldest_ms + suspect_ms)


def _look_at_each(step: Step, roster: Roster) -> int:
    """The oldest last-seen of those that nobody suspects then; log time when all are suspected."""
    state = step.state
    seen = state.last_seen_ms
    oldest_ms = step.now_ms
    for slot in sorted(roster.slots, key=state.slots.__getitem__):
        host = state.hosts[state.slots[slot]]
        if host.status != HostStatus.UP:
            continue
        if step.now_ms - seen[slot] >= state.meta.settings.suspect_ms:
            judge_silence(step, host)
        else:
            oldest_ms = min(oldest_ms, seen[slot])
    return oldest_ms
