"""What could not have come in another order, and why.

Log order is only the order of acceptance. An event comes after

- what the same actor sent before it in the same incarnation (a copy that arrived late or again is
  not held to that);
- everything its sender had seen: all up to `origin.seen_index` and up to `origin.seen_plan`, which
  is the index at which that plan was made;
- whoever minted what it carries: the generation in a task's name, a host's incarnation, the term of
  a leader's own event;
- a leader's own events of the same term, in their order;
- for a verdict, whatever it says it follows from: its deadline ran from there.

Kept as one clock an event: all up to `floor`, and beyond it the last position of each chain. The
clock of an event that learns nothing new is that of its predecessor, so what this costs grows with
what actors learn of each other.
"""

from __future__ import annotations

import msgspec

from coord.model.decisions import HostJoined, TasksPlaced
from coord.model.entry import Recorded
from coord.model.events import (
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    HostRegistered,
    LeaderElected,
)
from coord.model.roster import RosterChanged

from .incident import Incident

SEQUENCE = "sent later by the same actor, {actor}"
SEEN_INDEX = "sent after its sender had seen entry {index}"
SEEN_PLAN = "sent after its sender had seen plan {index}"
GENERATION = "speaks of {key}, which was placed there"
INCARNATION = "carries incarnation {incarnation} of {host}, which was given there"
TERM = "an event of term {term}, which began there"
LEADER = "the same leader's, later in its term {term}"
DEADLINE = "a verdict that its deadline ran from"
THROUGH = "{reason}, and that comes after others in between"

NEAR = 32
"""Events before one of which it is remembered whether they come before it."""

_OWN = (ClockAdvanced, ClusterConfigured, HeartbeatsSeen, LeaderElected)
"""What a leader records by itself, in the order of its own doing."""


class Edge(msgspec.Struct, frozen=True):
    """`before` could not have come after `after`. `via` are the positions between them where it is
    no direct edge; `reason` is then that of the last step."""

    before: int
    after: int
    reason: str
    via: tuple[int, ...] = ()


class _Clock(msgspec.Struct, frozen=True):
    """Everything known to come before: all up to `floor`, and of chain c all up to `chains[c]`."""

    floor: int
    chains: dict[int, int]


class PartialOrder:
    """Of an incident's records, by position."""

    def __init__(self, incident: Incident) -> None:
        self._start_index = incident.header.start_index
        self._size = len(incident.records)
        self._direct: list[list[tuple[int, str]]] = []
        """By position: (an earlier position, why it comes before)."""
        self._floors: list[tuple[int, str]] = []
        """By position: all up to here was seen, and how that is known."""
        self._chain: list[int] = []
        self._clocks: list[_Clock] = []
        self.joins = 0
        """Clocks that had to be put together anew: what building this cost."""
        self._chains: dict[tuple[str, int], tuple[int, int, int]] = {}
        """(actor, incarnation) -> its chain, its newest position, the sequence number there."""
        self._near: dict[int, int] = {}
        """Position -> those of the `NEAR` events before it that come before it, as bits."""
        self._minted: dict[tuple[str, int], int] = {}
        self._slots: dict[int, str] = {
            host.slot: host.host for host in incident.start_state().hosts.values()
        }
        for position, record in enumerate(incident.records):
            self._add(position, record)

    def before(self, a: int, b: int) -> bool:
        """Whether the event at `a` could not have come after the one at `b`."""
        if a >= b:
            return False
        chain = self._chain[a]
        clock = self._clocks[b]
        return chain == self._chain[b] or a <= clock.floor or clock.chains.get(chain, -1) >= a

    def concurrent(self, a: int, b: int) -> bool:
        """Whether nothing orders two different events."""
        return a != b and not self.before(min(a, b), max(a, b))

    def why(self, a: int, b: int) -> Edge | None:
        """What puts `a` before `b`; None where nothing does."""
        if not self.before(a, b):
            return None
        steps: list[tuple[int, str]] = []
        at = b
        while at != a:
            at, reason = self._step_towards(a, at)
            steps.append((at, reason))
        reason = steps[0][1]
        via = tuple(position for position, _ in reversed(steps[:-1]))
        return Edge(a, b, THROUGH.format(reason=reason) if via else reason, via)

    def chain(self, position: int) -> int:
        """The position at which the chain of this event begins: events of a chain keep their order
        because one sender sent them one after the other."""
        return self._chain[position]

    def concurrent_after(self, a: int, limit: int) -> list[int]:
        """Positions after `a`, up to `limit` of them apart, that nothing orders after it."""
        last = min(self._size, a + 1 + limit)
        return [b for b in range(a + 1, last) if not self.before(a, b)]

    def before_in(self, start: int, position: int) -> int:
        """Of the events from `start` on, no more than `NEAR` before `position`, those that come
        before it: a bit for each, the lowest for `start`."""
        near = self._near.get(position)
        if near is None:
            first = position - NEAR
            near = sum(
                1 << earlier - first
                for earlier in range(max(first, 0), position)
                if self.before(earlier, position)
            )
            self._near[position] = near
        return near >> start - position + NEAR

    # Building

    def _step_towards(self, a: int, b: int) -> tuple[int, str]:
        """A direct predecessor of `b` that is `a` or comes after it."""
        direct = self._direct[b]
        for position, reason in direct:
            if position == a:
                return position, reason
        floor, reason = self._floors[b]
        if a <= floor:
            return a, reason
        return next((at, reason) for at, reason in direct if self.before(a, at))

    def _add(self, position: int, record: Recorded) -> None:
        direct: list[tuple[int, str]] = []
        chain = self._enter_chain(position, record, direct)
        self._carries(record, direct)
        self._follows(record, direct)
        floor, reason = self._seen(position, record)
        self._chain.append(chain)
        self._direct.append(direct)
        self._floors.append((floor, reason))
        self._clocks.append(self._joined(chain, floor, direct))
        self._mints(position, record)

    def _enter_chain(self, position: int, record: Recorded, direct: list[tuple[int, str]]) -> int:
        """The chain it belongs to. What is out of its actor's order is a chain of its own."""
        entry = record.entry
        origin = entry.origin
        own = isinstance(entry.event, _OWN) and origin.actor.startswith("node:")
        incarnation = entry.term if own else origin.incarnation
        key = (origin.actor, incarnation)
        known = self._chains.get(key)
        if known is None:
            self._chains[key] = (position, position, origin.seq)
            return position
        chain, newest, seq = known
        if not own and origin.seq <= seq:
            return position
        reason = LEADER.format(term=entry.term) if own else SEQUENCE.format(actor=origin.actor)
        direct.append((newest, reason))
        self._chains[key] = (chain, position, origin.seq)
        return chain

    def _carries(self, record: Recorded, direct: list[tuple[int, str]]) -> None:
        """Edges from whoever minted a generation, an incarnation or a term that it carries."""
        event = record.entry.event
        tasks = [found.task for found in event.tasks] if isinstance(event, HostRegistered) else []
        task = getattr(event, "task", "")
        for key in (*tasks, task) if task else tasks:
            self._after_mint((key, 0), GENERATION.format(key=key), direct)
        carried: list[tuple[str, int]] = []
        if isinstance(event, HeartbeatsSeen):
            pairs = zip(event.slots, event.incarnations, strict=False)
            carried = [(self._slots.get(slot, ""), incarnation) for slot, incarnation in pairs]
        elif isinstance(event, RosterChanged):
            pairs = zip(event.joined_slots, event.joined_incarnations, strict=False)
            carried = [(self._slots.get(slot, ""), incarnation) for slot, incarnation in pairs]
        elif hasattr(event, "host") and hasattr(event, "incarnation"):
            carried = [(event.host, event.incarnation)]
        for host, incarnation in carried:
            reason = INCARNATION.format(host=host, incarnation=incarnation)
            self._after_mint((f"host {host}", incarnation), reason, direct)
        if isinstance(event, _OWN):
            term = record.entry.term
            self._after_mint(("term", term), TERM.format(term=term), direct)

    def _after_mint(
        self, minted: tuple[str, int], reason: str, direct: list[tuple[int, str]]
    ) -> None:
        at = self._minted.get(minted)
        if at is not None:
            direct.append((at, reason))

    def _follows(self, record: Recorded, direct: list[tuple[int, str]]) -> None:
        """A verdict comes after what it names as its causes."""
        if not isinstance(record.entry.event, ClockAdvanced):
            return
        for decision in record.decisions:
            for cause in decision.causes:
                index, _, _ = cause.partition(".")
                if index.isdigit() and self._start_index <= int(index) < record.entry.index:
                    direct.append((int(index) - self._start_index, DEADLINE))

    def _seen(self, position: int, record: Recorded) -> tuple[int, str]:
        origin = record.entry.origin
        by_index = origin.seen_index - self._start_index
        by_plan = origin.seen_plan - self._start_index
        floor, reason = by_index, SEEN_INDEX.format(index=origin.seen_index)
        if by_plan > by_index:
            floor, reason = by_plan, SEEN_PLAN.format(index=origin.seen_plan)
        # Whoever claims to have seen what is yet to come is not believed.
        return (floor, reason) if 0 <= floor < position else (-1, "")

    def _joined(self, own: int, floor: int, direct: list[tuple[int, str]]) -> _Clock:
        before = [(at, self._chain[at], self._clocks[at]) for at, _ in direct]
        mine = next((clock for _, chain, clock in before if chain == own), None)
        if mine is not None and floor <= mine.floor:
            news = [
                at
                for at, chain, _ in before
                if chain != own and at > mine.floor and mine.chains.get(chain, -1) < at
            ]
            if not news:
                return mine  # It learnt nothing; its own chain is known by its number.
        self.joins += 1
        chains: dict[int, int] = {}
        for at, chain, clock in before:
            floor = max(floor, clock.floor)
            for known, newest in (*clock.chains.items(), (chain, at)):
                if newest > chains.get(known, -1):
                    chains[known] = newest
        return _Clock(floor, {known: at for known, at in chains.items() if at > floor})

    def _mints(self, position: int, record: Recorded) -> None:
        for decision in record.decisions:
            if isinstance(decision, TasksPlaced):
                for place in decision.placements:
                    self._minted[place.task, 0] = position
            elif isinstance(decision, HostJoined):
                self._minted[f"host {decision.host}", decision.incarnation] = position
                self._slots[decision.slot] = decision.host
        event = record.entry.event
        if isinstance(event, LeaderElected) and record.accepted:
            self._minted["term", event.term] = position
