"""One execution of an incident with changes: the log as it is up to the first change, and from
there on a simulation in which the log is the environment.

What nobody but the outside world decides stays as it was recorded: requests, exits by themselves,
silences, boots, notices, elections, the clock's advances. What somebody did because of something
else is done when there is reason to, under the plans of this execution, and takes as long as it was
recorded to take; what was done upon orders that the log does not have takes what is typical. As
soon as state and agents are what they were at the same place of the log, the rest is the log's.
"""

from __future__ import annotations

import heapq
from typing import NoReturn

from coord.core.invariants import INVARIANTS
from coord.core.machine import apply, log_time_ms, next_due_ms
from coord.model.decisions import HostLost
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import AnyEvent, ClockAdvanced

from . import convergence, faults
from .changes import script_of
from .fork import changed_rows
from .healing import heal
from .incident import Incident
from .judge import DECIDED_ONCE, NEVER_RAISES, RESTORED_SAME, Broken, Sight
from .playing import play
from .prefixes import Prefixes, Trail
from .reacting import FIRES, Pending, Reacting
from .recording import Recording
from .run import Run, Violation
from .schedule import Schedule, SnapshotRestore
from .stage import Baseline

__all__ = ["Execution", "Explored", "Run", "Violation", "execute"]

ENTRIES_LIMIT = 20_000
"""Entries beyond those of the log that an execution may take; more would be a loop."""
HOSTS_PER_LOOK = 64
"""With so many hosts more it is looked one entry less often whether another execution was here."""
KNOWN_LIMIT = 300_000
"""Places that are remembered."""
FOLLOWED = 64
"""Entries that a restored server is compared for."""


class Explored:
    """An incident made ready to be executed many times."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.recording = Recording(incident)
        self.baseline = Baseline(self.recording)
        self.order = self.recording.order
        self.known: dict[int, int] = {}
        """Where executions were that came to a good end, and how many of the log's entries they
        used as they were from there on."""
        self.prefixes: Prefixes[Execution] = Prefixes(len(self.baseline.end.agents))


def execute(explored: Explored | Incident, schedule: Schedule, *, to_the_end: bool = False) -> Run:
    """Execute an incident with these changes.

    An execution ends at the first violation, or where it is as recorded again (with `to_the_end`
    it goes on), or once all has healed after the end of the log.
    """
    if isinstance(explored, Incident):
        explored = Explored(explored)
    return Execution(explored, schedule, to_the_end=to_the_end).run()


def _when(pending: Pending) -> tuple[int, int]:
    return pending[:2]


class _Stopped(Exception):
    """A property is broken: nothing that follows counts."""


class Execution(Reacting):
    """One run. Its parts: what the log says (`playing`), what is changed (`faults`), what agents
    do (`reacting`), and the end (`healing`)."""

    def __init__(self, explored: Explored, schedule: Schedule, *, to_the_end: bool = False) -> None:
        recording = explored.recording
        self.explored = explored
        self.script = script_of(schedule, recording.order, recording.size)
        self.to_the_end = to_the_end
        self.prefix = recording.records[: self.script.first]
        changes = schedule.changes
        self.restoring = len(changes) == 1 and isinstance(changes[0], SnapshotRestore)
        self.visited: list[tuple[int, int]] = []
        self.natural = self.script.last
        """The next position after the script's sequence."""
        self.violation: Violation | None = None
        self.converged_at: int | None = None
        self.trail = self.way()
        at, kept = explored.prefixes.nearest(self.trail) if self.trail else (0, None)
        self.resumed = kept is not None
        self.parting = self.trail.parting(at) if self.trail else 0
        if kept is None:
            self._begin()
        else:
            self._take(kept)
            self.script.skip(at)

    def _begin(self) -> None:
        """As the log was before the first change."""
        recording = self.recording = self.explored.recording
        self.become(self.explored.baseline.before(self.script.first))
        self.begin_reacting()
        self.applied: list[Recorded] = []
        self.decided_here: dict[tuple[str, int, int], None] = {}
        self.delivered: dict[int, Entry] = {}
        """What became of the log's events: position -> the entry here."""
        self.cursor = 0
        """Place in the script's sequence."""
        self.now_ms = self.state.meta.now_ms
        self.wall_ms = self.state.meta.wall_ms or recording.records[0].entry.wall_ms
        self.stamped_ms = self.now_ms
        self.jumped_ms = 0
        self.jumps = 0
        self.diverged_at: int | None = None
        self.consumed = self.script.first
        self.every = 1 + len(self.state.hosts) // HOSTS_PER_LOOK

    def _take(self, other: Execution) -> None:
        """All that came about in another one so far, which is not touched by what follows."""
        self.become(other)
        self.react_as(other)
        self.applied = other.applied.copy()
        self.decided_here = other.decided_here.copy()
        self.delivered = other.delivered.copy()
        self.cursor = other.cursor
        self.now_ms = other.now_ms
        self.wall_ms = other.wall_ms
        self.stamped_ms = other.stamped_ms
        self.jumped_ms = other.jumped_ms
        self.jumps = other.jumps
        self.diverged_at = other.diverged_at
        self.consumed = other.consumed
        self.every = other.every

    def way(self) -> Trail | None:
        """What of the script others took before; None where that does not count."""
        if self.to_the_end or self.restoring:
            return None
        return self.explored.prefixes.trail(self.script)

    def _keep(self) -> None:
        """Where two parted, more are likely to."""
        self.parting = 0
        copy = Execution.__new__(Execution)
        copy._take(self)
        assert self.trail is not None, "who keeps something is on its way"
        self.explored.prefixes.keep(self.trail.steps[self.cursor], copy)

    def run(self) -> Run:
        try:
            if self.trail is not None and self.trail.consumed >= 0:
                self.consumed = self.trail.consumed
            else:
                self._run()
                self._remember()
        except _Stopped:
            pass_on = self.violation
            assert pass_on is not None, "an execution stops for a violation"
        return Run(
            (*self.prefix, *self.applied),
            self.violation,
            self.diverged_at,
            self.consumed,
            self.converged_at,
            self.state,
            len(self.applied),
        )

    def _run(self) -> None:
        if self.restoring:
            self._follow_restored()
            return
        if self.resumed and self._over():
            return
        while (position := self.upcoming()) is not None:
            arrival_ms = max(self.now_ms, self.recording.times_ms[position])
            if self.pending and self.pending[0][0] < arrival_ms:
                self._fire()
                continue
            if self._tick_before(arrival_ms):
                continue
            if self.pending_faults():
                self._with_faults(position, arrival_ms)
            else:
                self.now_ms = max(self.now_ms, arrival_ms)
                self._step()
                play(self, position)
                self.settle()
            if self.cursor == self.parting and self.parting:
                self._keep()
            if self._over():
                return
        heal(self)

    def _over(self) -> bool:
        """Whether nothing more is to be learnt."""
        return not self.pending_faults() and (self._converged() or self._known())

    def _with_faults(self, position: int, arrival_ms: int) -> None:
        """Let the log's event happen with what strikes before, upon and after it."""
        script = self.script
        for change in script.before.pop(position, ()):
            faults.strike(self, change)
            self.settle()
        self.now_ms = max(self.now_ms, arrival_ms)
        self._step()
        if script.dropped.pop(position, False):
            faults.drop(self, position)
        else:
            play(self, position)
        self.settle()
        for change in script.after.pop(position, ()):
            faults.strike(self, change)
            self.settle()
        for copied in script.copies.pop(position, ()):
            faults.repeat(self, copied)
            self.settle()

    def _follow_restored(self) -> None:
        """A restored server gets the very entries that the others got."""
        first = self.script.first
        for change in self.script.before.pop(first, ()):
            faults.strike(self, change)
        self._hold_invariants()
        for position in range(first, min(first + FOLLOWED, self.recording.size)):
            entry = self.recording.records[position].entry
            record = apply(self.state, entry)
            self.applied.append(record)
            if record != self.explored.baseline.records[position]:
                self.diverged_at = position
                self.breaks((RESTORED_SAME, f"entry {entry.index}, {type(entry.event).__name__}"))
        self._hold_invariants()
        self.converged_at = first
        self.consumed = self.recording.size

    def _hold_invariants(self) -> None:
        for sentence, check in INVARIANTS.items():
            for offender in check(self.state):
                self.breaks((sentence, offender))

    def upcoming(self) -> int | None:
        """The position of the log that comes next; None after the last."""
        if self.cursor < len(self.script.sequence):
            return self.script.sequence[self.cursor]
        return self.natural if self.natural < self.recording.size else None

    def _step(self) -> None:
        if self.cursor < len(self.script.sequence):
            self.cursor += 1
        else:
            self.natural += 1

    def ahead(self, position: int) -> bool:
        """Whether the log's event at this position is still to come."""
        if position >= self.script.last:
            return position >= self.natural
        return self.script.place.get(position, -1) >= self.cursor

    def _fire(self) -> None:
        due_ms, _, kind, host, about = heapq.heappop(self.pending)
        self.now_ms = max(self.now_ms, due_ms)
        if host in self.down and kind not in ("resume", "restart"):
            self.put_off(kind, host, about)
        elif kind == "replay":
            play(self, about)
        else:
            FIRES[kind](self, host, about)
        self.settle()

    def put_off(self, kind: str, host: str, about: object) -> None:
        """Until the agent is up again."""
        self.later(max(self.down[host] - self.now_ms, 0), kind, host, about)

    def known_from_here(self) -> bool:
        """Whether another execution was in the same place, and came to a good end."""
        if self.to_the_end:
            return False
        key = convergence.fingerprint(self, [self._place(), self._still_pending(), self._moments()])
        rest = self.explored.known.get(key)
        if rest is None:
            self.visited.append((key, self.consumed))
            return False
        self.consumed += rest
        return True

    def _place(self) -> list[object]:
        """How far the log has come, and what of it is still to arrive in another order."""
        script, term = self.script, self.state.meta.term
        left = script.sequence[self.cursor :]
        terms = [term, *script.elections] if left else [term - script.terms_gained(self.natural)]
        return [self.natural, self.healed, terms, left]

    def _remember(self) -> None:
        if self.trail is not None:
            self.explored.prefixes.ended(self.trail, self.consumed)
        known = self.explored.known
        for key, consumed in self.visited:
            if len(known) < KNOWN_LIMIT:
                known[key] = self.consumed - consumed

    def _moments(self) -> list[object]:
        """What stands in no row and has to do with time."""
        now_ms = self.now_ms
        return [
            now_ms,
            self.state.meta.now_ms,
            self.wall_ms + now_ms - self.stamped_ms - self.jumped_ms,
            self.state.meta.wall_ms - self.jumped_ms,
            self.jumps,
            self._since(self.beats),
            self._since(self.renewed),
            sorted(self.unheard),
            sorted(self.forgetful),
            sorted(self.down.items()),
            sorted(self.dead),
            sorted(self.mute),
        ]

    def _since(self, heard_ms: dict[str, int]) -> list[tuple[str, int]]:
        """Whose lease may not be over; that of all others is, however long they are silent."""
        over_ms = self.now_ms - self.state.meta.settings.lease_ms
        return sorted([(host, at_ms) for host, at_ms in heard_ms.items() if at_ms > over_ms])

    def _still_pending(self) -> list[object]:
        """What is put off."""
        return [
            (due_ms, kind, host, about if about is None or isinstance(about, str) else repr(about))
            for due_ms, _, kind, host, about in sorted(self.pending, key=_when)
        ]

    def fire_until(self, until_ms: int) -> None:
        """Let everything happen that is due by then."""
        while self.pending and self.pending[0][0] <= until_ms:
            self._fire()

    def _tick_before(self, arrival_ms: int) -> bool:
        """The leader notices a deadline that stood for as long as the log shows at the most."""
        due_ms = next_due_ms(self.state)
        if due_ms is None:
            return False
        late_ms = self.recording.late_ms + 1
        noticed_ms = self.now_ms + max(due_ms + late_ms - self.state.meta.now_ms, 0)
        if noticed_ms >= arrival_ms:
            return False
        if self.pending and self.pending[0][0] < noticed_ms:
            return False
        self.now_ms = noticed_ms
        self.advance_clock()
        self.settle()
        return True

    def advance_clock(self) -> None:
        meta = self.state.meta
        origin = Origin(f"node:{meta.leader}", meta.term, self.number())
        self.apply(ClockAdvanced(), origin)

    # Entries

    def stamp(self, position: int | None) -> int:
        """The leader's clock. An event that is on time has the stamp it was recorded with, unless
        log time would pass faster by it than time does here: where the log was silent for longer
        than an entry may move log time, and something else has come to pass meanwhile."""
        passed_ms = self.wall_ms + self.now_ms - self.stamped_ms
        self.wall_ms = passed_ms
        self.stamped_ms = self.now_ms
        if position is not None and self.now_ms == self.recording.times_ms[position]:
            recorded_ms = self.recording.records[position].entry.wall_ms + self.jumped_ms
            if recorded_ms <= passed_ms or (
                log_time_ms(self.state, recorded_ms) <= log_time_ms(self.state, passed_ms)
            ):
                self.wall_ms = recorded_ms
        return self.wall_ms

    def apply(
        self,
        event: AnyEvent,
        origin: Origin,
        position: int | None = None,
        term: int | None = None,
    ) -> Recorded:
        """Make it the next entry. `position` is that of the log's own entry for it."""
        if len(self.applied) > self.recording.size + ENTRIES_LIMIT:
            raise RuntimeError(f"an execution of {len(self.applied)} entries never comes to rest")
        state = self.state
        index = state.meta.applied_index + 1
        entry = Entry(
            index, state.meta.term if term is None else term, self.stamp(position), origin, event
        )
        actor = origin.actor
        host_before = state.hosts.get(actor[5:]) if actor.startswith("host:") else None
        before_ms = state.meta.now_ms
        try:
            record = apply(state, entry)
        except Exception as error:
            self.breaks((NEVER_RAISES, f"{type(event).__name__} at index {index}: {error!r}"))
        changed = changed_rows(state)
        self.applied.append(record)
        self._compare(record, position)
        self._decided_once(record)
        for table, key in changed:
            if table == "hosts":
                self.stirred[key] = None
        silent_ms = self._silences(record) if record.decisions else {}
        slack_ms = self.jumps * state.meta.settings.max_step_ms
        broken = self._judged(record, changed, Sight(host_before, silent_ms, slack_ms, before_ms))
        if broken is not None:
            self.breaks(broken)
        return record

    def _decided_once(self, record: Recorded) -> None:
        entry = record.entry
        origin = entry.origin
        if record.rejection or record.duplicate_of or origin.actor.startswith("node:"):
            return
        key = (origin.actor, origin.incarnation, origin.seq)
        known = self.recording.decided.get(key, self.script.first)
        again = known < self.script.first or key in self.decided_here
        if again and len(self.state.requests) < self.state.meta.settings.request_clients:
            self.breaks((DECIDED_ONCE, f"number {origin.seq} of {origin.actor}"))
        self.decided_here[key] = None

    def _silences(self, record: Recorded) -> dict[str, int]:
        return {
            decision.host: self.now_ms
            - max(self.beats.get(decision.host, -1), self.renewed.get(decision.host, -1))
            for decision in record.decisions
            if isinstance(decision, HostLost)
        }

    def breaks(self, broken: Broken) -> NoReturn:
        """Stop: a property does not hold after the newest entry."""
        at = len(self.prefix) + len(self.applied) - 1
        self.violation = Violation(broken[0], broken[1], max(at, 0))
        raise _Stopped

    def _compare(self, record: Recorded, position: int | None) -> None:
        """Where this execution parts from the log, and how much of the log it uses as it is."""
        at = len(self.prefix) + len(self.applied) - 1
        recorded = self.recording.records
        if position is not None:
            self.delivered[position] = record.entry
            entry = recorded[position].entry
            ours = record.entry
            # Numbers of reports and indexes are left out, as where two executions are compared.
            if entry.event == ours.event and entry.origin.actor == ours.origin.actor:
                self.consumed += 1
        if self.diverged_at is None and (at >= len(recorded) or record != recorded[at]):
            self.diverged_at = at

    # As recorded again

    def _known(self) -> bool:
        if self.natural % self.every:
            return False
        return self.known_from_here()

    def pending_faults(self) -> bool:
        """Whether the schedule has more than another order of the log's events to come."""
        script = self.script
        return bool(script.before or script.after or script.copies or script.dropped)

    def _converged(self) -> bool:
        if self.cursor < len(self.script.sequence) or self.pending or self.disturbed():
            return False
        theirs = self.explored.baseline.at(self.natural)
        if theirs is None or not convergence.same_stage(self, theirs):
            return False
        if self.converged_at is None:
            self.converged_at = self.natural
            self.consumed += self.recording.size - self.natural
        return not self.to_the_end
