"""What a schedule changes, in words: what happens instead, what it takes, and why it may be so."""

from __future__ import annotations

import msgspec

from coord.cli.describe import said_of_event
from coord.cli.wording import clock_text, listed
from coord.model.entry import Recorded
from coord.model.events import ClockAdvanced

from .findings import inverted_pairs
from .incident import Incident
from .order import PartialOrder
from .schedule import (
    AgentCrash,
    AnyChange,
    ClockJump,
    Delay,
    Drop,
    Duplicate,
    Flip,
    InFlight,
    LeaderChange,
    LoseHosts,
    Pause,
    Reorder,
    SnapshotRestore,
)

PAIRS = 3
"""Of a new order of many events so many inverted pairs are explained."""


class Question(msgspec.Struct, frozen=True):
    """One way in which two events could be bound to an order, and why these two are not."""

    asked: str
    answer: str


class FreePair(msgspec.Struct, frozen=True):
    """Two events that came in one order and may come in the other. Indexes are of the log."""

    late: int
    early: int
    late_text: str
    early_text: str
    apart_ms: int
    questions: tuple[Question, ...]


class ChangeTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """`needs_ms` is how long the delay, the pause or the jump must be; -1 where it takes none."""

    text: str
    needs: str
    needs_ms: int = -1
    pairs: tuple[FreePair, ...] = ()


def change_told(incident: Incident, order: PartialOrder, change: AnyChange) -> ChangeTold:
    """A change with what it takes."""
    pairs = inverted_pairs(change)
    if pairs:
        return _pairs_told(incident, order, change, pairs)
    text, needs, needs_ms = _fault(incident, change)
    return ChangeTold(text, needs, needs_ms)


def event_text(incident: Incident, position: int) -> str:
    """`TaskExited digits/trainer/0#1 (entry 17)`"""
    return f"{_named(incident.records[position])} (entry {incident.index(position)})"


def _named(record: Recorded) -> str:
    event = record.entry.event
    subject = "" if isinstance(event, ClockAdvanced) else said_of_event(event).subject
    return f"{type(event).__name__} {subject}".rstrip()


# Other orders


def _pairs_told(
    incident: Incident, order: PartialOrder, change: AnyChange, pairs: tuple[tuple[int, int], ...]
) -> ChangeTold:
    explained = tuple(_free_pair(incident, order, late, early) for late, early in pairs[:PAIRS])
    needs_ms = max(_apart_ms(incident, late, early) for late, early in pairs)
    late, early = pairs[0]
    if isinstance(change, Flip):
        text = (
            f"{event_text(incident, late)} arrives after {event_text(incident, early)}, "
            "not before it"
        )
    elif isinstance(change, Delay):
        text = (
            f"{event_text(incident, late)} is under way until {event_text(incident, early)} "
            "was accepted"
        )
    else:
        text = _reorder_text(incident, change)
    return ChangeTold(text, _delay_text(needs_ms, len(pairs)), needs_ms, explained)


def _reorder_text(incident: Incident, change: AnyChange) -> str:
    order = change.order if isinstance(change, Reorder) else ()
    first, last = incident.index(min(order)), incident.index(max(order))
    arrival = listed([str(incident.index(at)) for at in order], 12)
    return f"entries {first} to {last} arrive in the order {arrival}"


def _delay_text(needs_ms: int, pairs: int) -> str:
    if needs_ms <= 0:
        return "both came within the same millisecond: no delay, another turn of the scheduler"
    what = "a message" if pairs == 1 else "messages"
    return f"{what} under way for {needs_ms:,} ms longer than recorded"


def _apart_ms(incident: Incident, late: int, early: int) -> int:
    walls = [incident.records[at].entry.wall_ms for at in (late, early)]
    return max(walls[1] - walls[0], 0)


def _free_pair(incident: Incident, order: PartialOrder, late: int, early: int) -> FreePair:
    return FreePair(
        incident.index(late),
        incident.index(early),
        event_text(incident, late),
        event_text(incident, early),
        _apart_ms(incident, late, early),
        _questions(incident, order, late, early),
    )


def _questions(
    incident: Incident, order: PartialOrder, late: int, early: int
) -> tuple[Question, ...]:
    """Every edge of the partial order that was looked for, with what stood there instead."""
    edge = order.why(late, early)
    if edge is not None:
        return (Question("Does anything order them?", f"yes: {edge.reason}"),)
    one, other = incident.records[late], incident.records[early]
    here, there = incident.index(late), incident.index(early)
    between = early - late - 1
    return (
        Question("Sent by the same actor, one after the other?", _same_actor(one, other)),
        Question(f"Had the sender of entry {there} seen entry {here}?", _seen(one, other)),
        Question(f"Does entry {there} carry what entry {here} gave out?", _minted(one, here)),
        Question(
            f"Is entry {there} a verdict that follows from entry {here}?", _verdict(other, there)
        ),
        Question(
            "Does another entry come after the one and before the other?",
            _none_between(late + 1, between, incident),
        ),
    )


def _none_between(first: int, count: int, incident: Incident) -> str:
    if not count:
        return "no: there is none between them"
    if count == 1:
        return f"no: entry {incident.index(first)} between them does not"
    return f"no: none of the {count} between them does"


def _same_actor(one: Recorded, other: Recorded) -> str:
    here, there = one.entry.origin, other.entry.origin
    if here.actor != there.actor:
        return f"no: by {here.actor} and {there.actor}"
    if here.incarnation != there.incarnation:
        return f"no: by incarnations {here.incarnation} and {there.incarnation} of {here.actor}"
    return f"no: {here.actor} sent one of them again"


def _seen(one: Recorded, other: Recorded) -> str:
    origin = other.entry.origin
    seen = max(origin.seen_index, origin.seen_plan)
    if not seen:
        return f"nothing says so: {origin.actor} did not record what it had seen"
    return f"no: {origin.actor} had seen the log up to entry {seen}"


def _minted(one: Recorded, here: int) -> str:
    given = [
        type(decision).__name__
        for decision in one.decisions
        if type(decision).__name__ in ("TasksPlaced", "HostJoined")
    ]
    if not given and type(one.entry.event).__name__ != "LeaderElected":
        return f"no: entry {here} gives out no generation, incarnation or term"
    return "no: it carries nothing of that"


def _verdict(other: Recorded, there: int) -> str:
    if not isinstance(other.entry.event, ClockAdvanced):
        return f"no: entry {there} is no verdict"
    causes = dict.fromkeys(cause for decision in other.decisions for cause in decision.causes)
    earlier = [cause for cause in causes if cause.partition(".")[0] != str(there)]
    if not earlier:
        return "no: it takes none"
    return f"no: it follows from {listed(earlier)}"


# Faults


def _fault(incident: Incident, change: AnyChange) -> tuple[str, str, int]:
    """(what happens, what it takes, for how many milliseconds)."""
    if isinstance(change, Drop):
        return f"{event_text(incident, change.at)} is lost under way", "one lost message", -1
    if isinstance(change, Duplicate):
        after = event_text(incident, change.again_after)
        text = f"{event_text(incident, change.at)} arrives a second time, after {after}"
        apart_ms = _apart_ms(incident, change.at, change.again_after)
        return text, f"one message sent twice, the second time {apart_ms:,} ms later", apart_ms
    if isinstance(change, AgentCrash):
        unsent = "with" if change.keeps_unsent else "without"
        text = f"the agent of {change.host} dies {_before(incident, change.at)} and starts again, "
        return f"{text}{unsent} the reports it had not sent", "one crash of an agent", -1
    if isinstance(change, Pause):
        text = f"the agent of {change.host} stands still {_before(incident, change.at)}"
        return text, f"a pause of {clock_text(change.ms)}", change.ms
    if isinstance(change, LeaderChange):
        return _leader_change(incident, change), "one change of leader", -1
    if isinstance(change, SnapshotRestore):
        text = f"a server goes through a snapshot {_before(incident, change.at)}"
        return text, "one restart from a snapshot", -1
    if isinstance(change, ClockJump):
        way = "ahead" if change.ms >= 0 else "back"
        text = f"the leader's clock jumps {way} {_before(incident, change.at)}"
        return text, f"a jump of {clock_text(abs(change.ms))}", abs(change.ms)
    if isinstance(change, LoseHosts):
        lost = "loses its power" if len(change.hosts) == 1 else "lose their power together"
        text = f"{listed(change.hosts)} {lost} {_before(incident, change.at)}"
        return text, "a loss of power", -1
    return "nothing is moved", "nothing", -1


def _leader_change(incident: Incident, change: LeaderChange) -> str:
    text = f"another leader is elected {_before(incident, change.at)}"
    if change.in_flight == InFlight.LOST:
        return f"{text}; that entry was under way and is lost, so its sender repeats it"
    if change.in_flight == InFlight.COMMITTED_UNANSWERED:
        return f"{text}; that entry was committed, but its sender hears nothing and repeats it"
    return text


def _before(incident: Incident, position: int) -> str:
    if position >= len(incident.records):
        return "at the end"
    return f"before {event_text(incident, position)}"
