"""A finding and a whole exploration as data to be told: what text, page and JSON all say."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from coord.cli.timeline import Line, Narrowing, Timeline
from coord.core.state import State
from coord.model.entry import Recorded

from .alignment import Mark, Outcome, Pair, aligned, first_outcome
from .change_words import ChangeTold, change_told
from .findings import Finding, Status
from .found import Progress, StrategyProgress
from .order import PartialOrder

CONTEXT = 2
"""Equal entries told around whatever differs; more of them are counted."""

MEANING = {
    Status.CANDIDATE: (
        "The state machine breaks in this order, and nothing in the log forbids the order. "
        "That a whole cluster can come to it was not shown: a rule outside the log may keep it "
        "from happening, or the simulation was not led closely enough along it."
    ),
    Status.CONFIRMED: (
        "The simulation of a whole cluster, with its servers, agents and network, came to it too."
    ),
}


class Decided(msgspec.Struct, frozen=True):
    """One decision in words. `what` is its name."""

    what: str
    text: str


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry in words: when, what, and what was made of it."""

    index: int
    at_ms: int
    actor: str
    what: str
    text: str
    decisions: tuple[Decided, ...] = ()
    refused: str = ""
    duplicate_of: int = 0


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the comparison. `partner` is the index that a moved entry has on the other side;
    `folded` says for how many equal entries the row stands; `key` marks the first of which
    something else was made."""

    mark: Mark
    good: Entry | None = None
    bad: Entry | None = None
    partner: int = 0
    folded: int = 0
    key: bool = False


class FindingTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finding in words."""

    number: int
    sentence: str
    detail: str
    status: Status
    kinds: tuple[str, ...]
    fields: tuple[str, ...]
    count: int
    strategy: str
    found_after: int
    """Schedules until it was first met."""
    entries_before: int
    entries: int
    """Of the log explored, and of the smallest in which it still breaks."""
    changes: tuple[ChangeTold, ...]
    rows: tuple[Row, ...]
    broken_at: int
    """Index, in the bad order, of the entry after which the property does not hold."""
    first_good: Entry | None = None
    first_bad: Entry | None = None
    """The first event of both orders of which something else was made; without one
    (`first_differs` is false), the event that broke the property, in both."""
    first_differs: bool = False
    repeat: str = ""
    files: tuple[str, ...] = ()
    shrunk: bool = False
    """Nothing more can be taken away."""
    tried: str = ""
    """How the simulation of a whole cluster was led along it, in words."""


class Coverage(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one strategy came. Shares are in thousandths."""

    strategy: str
    schedules: int
    found: int
    consumed_median: int
    consumed_min: int
    bound: str
    finished: bool
    share: int = 0
    """Of the schedules of the whole search."""
    took_s: float | None = None
    budget_s: float | None = None


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole exploration. What depends on the machine's speed is left out where the budget was
    given in schedules, so that the same seed gives the same bytes."""

    file: str
    cluster: str
    coord_version: str
    first_index: int
    entries: int
    """Those that were taken apart."""
    entries_in_file: int
    verified: int
    """Of the whole file."""
    lasted_ms: int
    seed: int
    budget: str
    schedules: int
    findings: tuple[FindingTold, ...]
    coverage: tuple[Coverage, ...]
    notes: tuple[str, ...] = ()
    beyond: int = 0
    """Findings beyond those kept."""
    interrupted: bool = False
    took_s: float | None = None


def finding_told(
    finding: Finding,
    number: int,
    entries_before: int,
    *,
    repeat: str = "",
    files: tuple[str, ...] = (),
) -> FindingTold:
    """Both orders side by side, what was changed, and why it may be."""
    incident, run = finding.incident, finding.run
    good, bad = incident.records, run.records
    if run.violation is not None:
        bad = bad[: run.violation.at + 1]
    pairs = aligned(good, bad)
    outcome = first_outcome(good, bad, pairs)
    start = incident.start_state()
    told_good, told_bad = _Teller(good, start), _Teller(bad, start)
    rows = tuple(
        _row(pair, told_good, told_bad, outcome) if isinstance(pair, Pair) else pair
        for pair in _folded(pairs)
    )
    step = outcome if outcome.bad >= 0 else _breaking(pairs)
    order = PartialOrder(incident)
    return FindingTold(
        number=number,
        sentence=finding.sentence,
        detail=finding.detail,
        status=finding.status,
        kinds=finding.key.kinds,
        fields=finding.key.fields,
        count=finding.count,
        strategy=finding.strategy,
        found_after=finding.schedules_so_far,
        entries_before=entries_before,
        entries=len(good),
        changes=tuple(change_told(incident, order, one) for one in finding.schedule.changes),
        rows=rows,
        broken_at=bad[-1].entry.index if bad else 0,
        first_good=told_good.entry(step.good),
        first_bad=told_bad.entry(step.bad),
        first_differs=outcome.bad >= 0,
        repeat=repeat,
        files=files,
        shrunk=finding.shrunk,
        tried=finding.tried,
    )


def coverage_told(progress: Progress, timed: bool) -> tuple[Coverage, ...]:
    """What each strategy did; `timed` with the seconds it took."""
    total = max(progress.schedules, 1)
    return tuple(_coverage(one, total, timed) for one in progress.strategies)


def _coverage(one: StrategyProgress, total: int, timed: bool) -> Coverage:
    return Coverage(
        strategy=one.name,
        schedules=one.schedules,
        found=one.found,
        consumed_median=one.consumed_median,
        consumed_min=one.consumed_min,
        bound=one.bound.removeprefix(f"{one.name}: "),
        finished=one.finished,
        share=1000 * one.schedules // total,
        took_s=round(one.cpu_s, 2) if timed else None,
        budget_s=round(one.share_s, 2) if timed else None,
    )


def _breaking(pairs: Sequence[Pair]) -> Outcome:
    """The last step of the bad order, with the place of the same event in the good one."""
    last = max((pair for pair in pairs if pair.bad >= 0), key=lambda pair: pair.bad, default=None)
    if last is None:
        return Outcome()
    return Outcome(last.partner if last.good < 0 else last.good, last.bad)


class _Teller:
    """The entries of one order in words, in the words of `coordctl replay`."""

    def __init__(self, records: Sequence[Recorded], start: State) -> None:
        self._records = records
        self._told: list[Entry] = []
        self._timeline = Timeline(
            Narrowing(everything=True),
            start_ms=start.meta.now_ms,
            task_hosts={key: task.host for key, task in start.tasks.items()},
        )

    def entry(self, at: int) -> Entry | None:
        """The entry at an offset; None at -1."""
        if at < 0:
            return None
        while len(self._told) <= at:
            record = self._records[len(self._told)]
            items = self._timeline.add(record)
            self._told.append(_entry(record, [item for item in items if isinstance(item, Line)]))
        return self._told[at]

    def index(self, at: int) -> int:
        return self._records[at].entry.index if at >= 0 else 0


def _entry(record: Recorded, lines: list[Line]) -> Entry:
    event = lines[0]
    return Entry(
        event.index,
        event.at_ms,
        record.entry.origin.actor,
        event.what,
        _words(event),
        tuple(Decided(line.what, _words(line)) for line in lines[1:]),
        event.rejection,
        event.duplicate_of,
    )


def _words(line: Line) -> str:
    return " ".join(word for word in (line.subject, line.text) if word)


def _row(pair: Pair, good: _Teller, bad: _Teller, outcome: Outcome) -> Row:
    partner = 0
    if pair.mark is Mark.MOVED:
        partner = bad.index(pair.partner) if pair.bad < 0 else good.index(pair.partner)
    key = outcome.bad >= 0 and pair.bad == outcome.bad
    return Row(pair.mark, good.entry(pair.good), bad.entry(pair.bad), partner, key=key)


def _folded(pairs: Sequence[Pair]) -> list[Pair | Row]:
    """Long stretches of equal entries, away from what differs, become one row each."""
    near: dict[int, None] = {}
    for at, pair in enumerate(pairs):
        if pair.mark is not Mark.SAME or at == len(pairs) - 1:
            near.update(dict.fromkeys(range(at - CONTEXT, at + CONTEXT + 1)))
    told: list[Pair | Row] = []
    count = 0
    for at, pair in enumerate(pairs):
        if at not in near:
            count += 1
            continue
        if count:
            told.append(Row(Mark.SAME, folded=count))
            count = 0
        told.append(pair)
    return told
