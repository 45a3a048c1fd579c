"""From a finding to the smallest incident in which the same property still breaks.

Delta debugging (Zeller and Hildebrandt, 2002) over what an incident is made of, coarse to fine:
changes, the end of the log, jobs, hosts, events by sender, single events, values. A step is kept
only when the execution still breaks the same property, and the smaller log as it is does not. The
same finding shrinks to the same bytes; how far is bounded by a number of executions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from coord.cli.describe import job_of_task
from coord.model.events import AnyEvent

from .findings import Finding, Key, differing_fields, kinds_of
from .incident import Incident
from .plainer import generations_of, plainer_events, without_generation
from .reduction import moved, needed_positions, reduced
from .run import Run
from .schedule import AnyChange, ClockJump, Delay, Flip, Pause, Reorder, Schedule

Execute = Callable[[Incident, Schedule], Run]
TRIALS = 2_000
"""Executions that shrinking one finding may take unless told otherwise."""


def shrink(
    finding: Finding,
    execute: Execute,
    trials: int = TRIALS,
    go_on: Callable[[], bool] = lambda: True,
) -> Finding:
    """Shrink with at most so many executions, and for as long as `go_on` says.

    `Finding.shrunk` then says whether nothing more could be taken away.

    `execute` is `coord_sim.explore.execute.execute` or behaves so. A finding that does not break
    when executed again, which no deterministic execution does, is returned as it is.
    """
    shrinker = _Shrinker(finding, execute, trials, go_on)
    complete = shrinker.run()
    return shrinker.finding(complete)


class _Spent(Exception):
    """No execution is left."""


class _Shrinker:
    def __init__(
        self, finding: Finding, execute: Execute, trials: int, go_on: Callable[[], bool]
    ) -> None:
        self._finding = finding
        self._execute = execute
        self._left = trials
        self._go_on = go_on
        self._incident = finding.incident
        self._schedule = finding.schedule
        self._run = finding.run
        self._seen: dict[bytes, None] = {}
        self._good_before: bool | None = None

    def run(self) -> bool:
        """Until no step helps any more; False when executions ran out before."""
        try:
            before = None
            while before != self._size():
                before = self._size()
                self._shrink_changes()
                self._cut_the_end()
                self._drop_groups(self._by_job)
                self._drop_groups(self._by_host)
                self._drop_generations()
                self._drop_groups(self._by_sender)
                self._drop_singles()
                self._simplify_changes()
                self._simplify_events()
        except _Spent:
            return False
        return True

    def finding(self, complete: bool) -> Finding:
        """What it has come to, with the key that it has now."""
        violation = self._run.violation
        key = Key(
            self._finding.sentence,
            kinds_of(self._incident, self._schedule),
            differing_fields(self._incident, self._run),
        )
        return replace(
            self._finding,
            key=key,
            detail=violation.detail if violation else self._finding.detail,
            incident=self._incident,
            schedule=self._schedule,
            run=self._run,
            origin=self._finding.origin or self._finding.schedule,
            shrunk=complete,
        )

    def _size(self) -> tuple[int, bytes]:
        said = [record.entry.event for record in self._incident.records]
        return len(said), msgspec.json.encode((self._schedule, said))

    # One trial

    def _try(self, incident: Incident, schedule: Schedule | None) -> bool:
        """Keep this smaller pair if it still breaks the same property."""
        if schedule is None or not self._tried_first(incident, schedule):
            return False
        try:
            run = self._executed(incident, schedule)
            smaller_log = incident is not self._incident
            if not self._breaks(run) or (smaller_log and not self._good(incident)):
                return False
        except _Spent:
            raise
        except Exception:
            return False  # Whatever an execution raises is another finding than this one.
        self._incident, self._schedule, self._run = incident, schedule, run
        return True

    def _good(self, incident: Incident) -> bool:
        """Whether the log as it is keeps the property, as far as the log explored does."""
        if self._good_before is None:
            self._good_before = not self._breaks(self._executed(self._finding.incident, Schedule()))
        return not self._good_before or not self._breaks(self._executed(incident, Schedule()))

    def _breaks(self, run: Run) -> bool:
        return run.violation is not None and run.violation.sentence == self._finding.sentence

    def _executed(self, incident: Incident, schedule: Schedule) -> Run:
        if self._left <= 0 or not self._go_on():
            raise _Spent
        self._left -= 1
        return self._execute(incident, schedule)

    def _tried_first(self, incident: Incident, schedule: Schedule) -> bool:
        digest = incident.records[-1].digest.encode()
        name = digest + msgspec.json.encode((len(incident.records), schedule))
        fresh = name not in self._seen
        self._seen[name] = None
        return fresh

    def _try_without(self, gone: Sequence[int]) -> bool:
        """Without the events at these positions and what depends on them."""
        dropped = dict.fromkeys(gone)
        if not dropped or any(at in dropped for at in needed_positions(self._schedule)):
            return False
        everything = range(len(self._incident.records))
        return self._try_keeping(tuple(at for at in everything if at not in dropped), {})

    def _try_keeping(self, kept: tuple[int, ...], said: dict[int, AnyEvent]) -> bool:
        try:
            smaller = reduced(self._incident, kept, said)
        except Exception:
            return False  # as in `_try`
        if smaller is None:
            return False
        return self._try(smaller.incident, moved(self._schedule, smaller.positions))

    # Changes

    def _shrink_changes(self) -> None:
        """Fewer changes; then one inversion in place of many."""
        changes = self._schedule.changes
        for start, stop in _halves_to_singles(len(changes)):
            left = (*changes[:start], *changes[stop:])
            if left and self._try(self._incident, Schedule(left)):
                return self._shrink_changes()
        for at, change in enumerate(changes):
            for simpler in _simpler(change):
                again = (*changes[:at], simpler, *changes[at + 1 :])
                if self._try(self._incident, Schedule(again)):
                    return self._shrink_changes()
        return None

    def _simplify_changes(self) -> None:
        """Shorter distances and smaller numbers."""
        for at in range(len(self._schedule.changes)):
            while any(
                self._try(self._incident, self._with_change(at, nearer))
                for nearer in _nearer(self._schedule.changes[at])
            ):
                continue

    def _with_change(self, at: int, change: AnyChange) -> Schedule:
        changes = self._schedule.changes
        return Schedule((*changes[:at], change, *changes[at + 1 :]))

    # Events

    def _cut_the_end(self) -> None:
        """Nothing of the log after what is needed; halves first."""
        step = len(self._incident.records) // 2
        while step:
            size = len(self._incident.records)
            if size - step < 2 or not self._try_without(range(size - step, size)):
                step //= 2

    def _drop_groups(self, grouped: Callable[[], dict[str, list[int]]]) -> None:
        """Whole groups: halves of them together, then quarters, then each alone."""
        names = list(grouped())
        size = max(len(names) // 2, 1)
        while size and names:
            at = 0
            while at < len(names):
                groups = grouped()  # positions move with all that is taken out
                some = names[at : at + size]
                if self._try_without([one for name in some for one in groups.get(name, ())]):
                    left = grouped()
                    names = [name for name in names if name in left]
                else:
                    at += size
            size //= 2

    def _drop_generations(self) -> None:
        """Generations that came and went: what came after them is told as if they had not been."""
        for job in self._jobs():
            for generation in range(self._last_generation(job), 0, -1):
                gone: dict[int, None] = {}
                said: dict[int, AnyEvent] = {}
                for at, event in self._events():
                    if generation in generations_of(event, job):
                        gone[at] = None
                    else:
                        again = without_generation(event, job, generation)
                        if again is not event:
                            said[at] = again
                if any(at in gone for at in needed_positions(self._schedule)):
                    continue
                everything = range(len(self._incident.records))
                self._try_keeping(tuple(at for at in everything if at not in gone), said)

    def _jobs(self) -> list[str]:
        specs = [getattr(event, "spec", None) for _, event in self._events()]
        return [spec.name for spec in specs if spec is not None]

    def _last_generation(self, job: str) -> int:
        found = [one for _, event in self._events() for one in generations_of(event, job)]
        return max(found, default=0)

    def _by_job(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for at, event in self._events():
            spec = getattr(event, "spec", None)
            job = spec.name if spec else getattr(event, "job", "")
            job = job or job_of_task(getattr(event, "task", ""))
            if job:
                groups.setdefault(f"job {job}", []).append(at)
        return groups

    def _by_host(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for at, event in self._events():
            host = getattr(event, "host", "")
            if host:
                groups.setdefault(f"host {host}", []).append(at)
        return groups

    def _by_sender(self) -> dict[str, list[int]]:
        """By sender and kind, so that all heartbeats of a node can go at once."""
        groups: dict[str, list[int]] = {}
        for at, event in self._events():
            actor = self._incident.records[at].entry.origin.actor
            groups.setdefault(f"{actor} {type(event).__name__}", []).append(at)
        return groups

    def _events(self) -> Iterator[tuple[int, AnyEvent]]:
        return enumerate(record.entry.event for record in self._incident.records)

    def _drop_singles(self) -> None:
        """Runs of neighbours, halved until they are single events; the last first."""
        size = len(self._incident.records) // 2
        while size:
            stop = len(self._incident.records)
            while stop > 0:
                start = max(stop - size, 0)
                self._try_without(range(start, stop))
                stop = min(start, len(self._incident.records))
            size //= 2

    def _simplify_events(self) -> None:
        """All values at once, then one kind of simplification an event at a time."""
        everything = tuple(range(len(self._incident.records)))
        at_once = dict(self._events())
        for at, event in at_once.items():
            for plainer in plainer_events(event):
                at_once[at] = plainer
                break
        if self._try_keeping(everything, at_once):
            return self._simplify_events()
        at = len(self._incident.records) - 1
        while at >= 0:
            if at < len(self._incident.records):
                self._simplify_event(at)
            at -= 1
        return None

    def _simplify_event(self, at: int) -> None:
        everything = tuple(range(len(self._incident.records)))
        for plainer in plainer_events(self._incident.records[at].entry.event):
            if self._try_keeping(everything, {at: plainer}):
                if at < len(self._incident.records):
                    self._simplify_event(at)
                return


def _halves_to_singles(size: int) -> Iterator[tuple[int, int]]:
    """Spans to leave out: halves, quarters, ... single ones."""
    width = (size + 1) // 2
    while width and size > 1:
        for start in range(0, size, width):
            yield start, min(start + width, size)
        width = width // 2 if width > 1 else 0


def _simpler(change: AnyChange) -> Iterator[AnyChange]:
    """The same with less of it: one inversion of a new order, or one event put back."""
    if isinstance(change, Reorder):
        for place, early in enumerate(change.order):
            for late in change.order[place + 1 :]:
                if late < early:
                    yield Flip(late, early)
        for place, at in enumerate(change.order):
            left = (*change.order[:place], *change.order[place + 1 :])
            back = [*left]
            back.insert(next((n for n, other in enumerate(left) if other > at), len(left)), at)
            if tuple(back) != change.order and back != sorted(back):
                yield Reorder(change.start, tuple(back))
    elif isinstance(change, Delay):
        yield Flip(change.at, change.until_after)


def _nearer(change: AnyChange) -> Iterator[AnyChange]:
    if isinstance(change, Flip):
        for second in _between(change.first + 1, change.second):
            yield Flip(change.first, second)
    elif isinstance(change, Delay):
        for until_after in _between(change.at + 1, change.until_after):
            yield Delay(change.at, until_after)
    elif isinstance(change, Pause | ClockJump):
        for part in (change.ms // 10, change.ms // 2):
            if abs(part) >= 1 and part != change.ms:
                yield replace(change, ms=part)


def _between(smallest: int, current: int) -> list[int]:
    """Nearest first, then halfway, then the next one down."""
    halfway = (smallest + current) // 2
    return list(dict.fromkeys(at for at in (smallest, halfway, current - 1) if at < current))
