"""Two orders of the same events side by side: which entries are the same, moved, gone or new.

An event is recognised by who sent it and what it says, not by its index, which moves when an entry
before it does. What was made of it is compared without the names of causes and without durations,
since both move with it too.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

from coord.model.entry import Recorded

LONGEST = 1_000
"""Entries of either side that are aligned one by one, from the first that differs on."""


class Mark(enum.StrEnum):
    """How an entry of one order stands to the other order."""

    SAME = "same"
    DIFFERS = "differs"
    """In its place on both sides, but something else was made of it."""
    MOVED = "moved"
    """On both sides, in another place."""
    GONE = "gone"
    """Only in the good order, or in the bad one not yet when it broke."""
    NEW = "new"
    """Only in the bad order."""


class Pair(msgspec.Struct, frozen=True):
    """One entry by its offset on either side, -1 where it is not. A moved entry is two pairs, one
    for each of its places, and `partner` is its offset on the side that is -1."""

    mark: Mark
    good: int = -1
    bad: int = -1
    partner: int = -1


class Outcome(msgspec.Struct, frozen=True):
    """The first event of both orders of which something else was made, by offsets; -1, -1 when
    there is none."""

    good: int = -1
    bad: int = -1


def aligned(good: Sequence[Recorded], bad: Sequence[Recorded]) -> list[Pair]:
    """Every entry of `bad`, and those of `good` up to where `bad` ends, in order.

    Beyond `LONGEST` entries after the first difference nothing is aligned any more.
    """
    begin = common_start(good, bad)
    pairs = [Pair(Mark.SAME, at, at) for at in range(begin)]
    names_good = [identity(one) for one in good[begin : begin + LONGEST]]
    names_bad = [identity(one) for one in bad[begin : begin + LONGEST]]
    codes = SequenceMatcher(None, names_good, names_bad, autojunk=False).get_opcodes()
    moved_good, moved_bad = _moves(names_good, names_bad, codes)
    for tag, start_good, end_good, start_bad, end_bad in codes:
        if tag == "equal":
            for one, other in zip(
                range(begin + start_good, begin + end_good),
                range(begin + start_bad, begin + end_bad),
                strict=True,
            ):
                same = outcome(good[one]) == outcome(bad[other])
                pairs.append(Pair(Mark.SAME if same else Mark.DIFFERS, one, other))
            continue
        for one in range(start_good, end_good):
            partner = moved_good.get(one, -1)
            mark = Mark.GONE if partner < 0 else Mark.MOVED
            pairs.append(Pair(mark, good=begin + one, partner=_shifted(partner, begin)))
        for other in range(start_bad, end_bad):
            partner = moved_bad.get(other, -1)
            mark = Mark.NEW if partner < 0 else Mark.MOVED
            pairs.append(Pair(mark, bad=begin + other, partner=_shifted(partner, begin)))
    # The bad order ends where it broke: what the good one did after that is compared with nothing.
    last = max((pair.good for pair in pairs if pair.mark is not Mark.GONE), default=-1)
    return [pair for pair in pairs if pair.good <= last]


def first_outcome(
    good: Sequence[Recorded], bad: Sequence[Recorded], pairs: Sequence[Pair]
) -> Outcome:
    """Where the two orders first make something else of the same event, in the bad one's order."""
    for pair in pairs:
        if pair.mark is Mark.DIFFERS:
            return Outcome(pair.good, pair.bad)
        moved_here = pair.mark is Mark.MOVED and pair.bad >= 0
        if moved_here and outcome(good[pair.partner]) != outcome(bad[pair.bad]):
            return Outcome(pair.partner, pair.bad)
    return Outcome()


def common_start(good: Sequence[Recorded], bad: Sequence[Recorded]) -> int:
    """How many entries at the beginning are equal, with all that was made of them."""
    for at, (one, other) in enumerate(zip(good, bad, strict=False)):
        if one is other:
            continue
        if identity(one) != identity(other) or outcome(one) != outcome(other):
            return at
    return min(len(good), len(bad))


def identity(recorded: Recorded) -> bytes:
    """What an event is recognised by in another order."""
    entry = recorded.entry
    return entry.origin.actor.encode() + b" " + msgspec.json.encode(entry.event)


def outcome(recorded: Recorded) -> tuple[object, ...]:
    """What was made of an entry, without what moves along with its index and its time."""
    return (
        recorded.rejection,
        bool(recorded.duplicate_of),
        tuple(_without_places(decision) for decision in recorded.decisions),
    )


def _without_places(decision: msgspec.Struct) -> tuple[object, ...]:
    named = [name for name in decision.__struct_fields__ if name != "causes"]
    return (
        type(decision).__name__,
        *(getattr(decision, name) for name in named if not name.endswith("_ms")),
    )


def _shifted(partner: int, begin: int) -> int:
    return partner if partner < 0 else partner + begin


def _moves(
    names_good: list[bytes], names_bad: list[bytes], codes: Sequence[tuple[str, int, int, int, int]]
) -> tuple[dict[int, int], dict[int, int]]:
    """Offsets of entries that stand on both sides but not in line, paired in order."""
    alone_good = [at for tag, a, b, _, _ in codes if tag != "equal" for at in range(a, b)]
    alone_bad = [at for tag, _, _, a, b in codes if tag != "equal" for at in range(a, b)]
    waiting: dict[bytes, list[int]] = {}
    for other in alone_bad:
        waiting.setdefault(names_bad[other], []).append(other)
    moved_good: dict[int, int] = {}
    for one in alone_good:
        partners = waiting.get(names_good[one])
        if partners:
            moved_good[one] = partners.pop(0)
    return moved_good, {other: one for one, other in moved_good.items()}
