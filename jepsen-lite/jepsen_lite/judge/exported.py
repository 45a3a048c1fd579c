"""The exported log against what clients were told: nothing acknowledged is lost, nothing happened
twice, nothing that was refused happened, and the log grew in the order of real time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from coord.model.entry import Recorded
from coord.model.events import JobSubmitted
from coord.model.rejections import Rejection
from coord.store.incident import IncidentCorrupt, IncidentError, IncidentReader
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.verdict import Judgement

ONCE = "every acknowledged write is in the log once, at its index"
REFUSED = "what the state refused is in the log as it was answered"
NOWHERE = "what certainly failed has no effect"
AT_MOST_ONCE = "what may have happened has at most one effect"
WHOLE = "the log has every index once, and reads from end to end"
ORDERED = "indexes follow real time"

TOKEN_VARIABLE = "JEPSEN_TOKEN"

_NOT_DECIDED = (Rejection.NOT_CONFIGURED, Rejection.REQUEST_TOO_OLD)
"""Such a request is sent again, and may be decided then."""


class ExportedLog:
    """An exported log in memory: entries by index, and where a token took part in the state."""

    def __init__(
        self,
        records: Sequence[Recorded],
        *,
        start_state: bytes = b"",
        start_index: int = 1,
        cut_off: str = "",
        damage: str = "",
    ) -> None:
        """`start_state` is that before `start_index`, empty for index 1; `cut_off` and `damage` say
        what ended the reading early."""
        self.records = records
        self.start_state = start_state
        self.start_index = start_index
        self.cut_off = cut_off
        self.damage = damage
        self._by_index: dict[int, Recorded] = {}
        self._taken: dict[str, list[Recorded]] = {}
        for record in records:
            token = token_of(record)
            decided = not record.duplicate_of and record.rejection not in _NOT_DECIDED
            if token and decided:
                self._taken.setdefault(token, []).append(record)

    @property
    def last_index(self) -> int:
        return self.records[-1].entry.index if self.records else self.start_index - 1

    @property
    def whole(self) -> bool:
        """Nothing of it is elsewhere or lost: what it has not, never was."""
        return self.start_index == 1 and not self.cut_off and not self.damage

    def at(self, index: int) -> Recorded | None:
        """The entry there; None where the log has none."""
        if not self._by_index:
            self._by_index.update((each.entry.index, each) for each in self.records)
        return self._by_index.get(index)

    def decided(self, token: str) -> Sequence[Recorded]:
        """Entries with this token that the state decided upon, refused ones too, ascending."""
        return self._taken.get(token, ())

    def indexes_of(self, token: str) -> Sequence[int]:
        """See `judge.verdict.Log`."""
        return [record.entry.index for record in self.decided(token)]


def token_of(record: Recorded) -> str:
    """The unique text that a write of this suite carries: the first word of a note's text or of a
    reason, or what a job's first role has as TOKEN_VARIABLE. Empty for whatever else there is."""
    event = record.entry.event
    if isinstance(event, JobSubmitted):
        return event.spec.roles[0].env.get(TOKEN_VARIABLE, "") if event.spec.roles else ""
    text: str = getattr(event, "text", "") or getattr(event, "reason", "")
    return text.partition(" ")[0]


def read_exported(path: Path) -> ExportedLog:
    """The log in an incident file. A file that is cut off or damaged gives what stands before, and
    says so. Raises IncidentError when not even its header can be read."""
    records: list[Recorded] = []
    cut_off = damage = ""
    with path.open("rb") as file:
        reader = IncidentReader(file, path.name)
        try:
            records.extend(located.record for located in reader)
        except IncidentCorrupt as error:
            damage = str(error)
        except IncidentError as error:
            cut_off = str(error)
        return ExportedLog(
            records,
            start_state=reader.start_state(),
            start_index=reader.header.start_index,
            cut_off=cut_off,
            damage=damage,
        )


def judge_exported(operations: Iterable[Operation], log: ExportedLog) -> list[Judgement]:
    """Every write of the history, found by its token in the log; and the log's own wholeness."""
    writes = [each for each in operations if each.token]
    done = [each for each in writes if each.outcome is Outcome.OK and each.result is None]
    refused = [each for each in writes if each.outcome is Outcome.OK and each.result is not None]
    failed = [each for each in writes if each.outcome is Outcome.FAIL]
    doubtful = [each for each in writes if each.outcome is Outcome.INFO]
    entries = f"entries, index {log.start_index} to {log.last_index}"
    return [
        judged(WHOLE, _gaps(log), seen=len(log.records), of=entries),
        judged(ONCE, _each(done, log, _not_once), seen=len(done), of="writes"),
        judged(REFUSED, _each(refused, log, _not_as_told), seen=len(refused), of="refusals"),
        judged(NOWHERE, _each(failed, log, _somewhere), seen=len(failed), of="failures"),
        judged(AT_MOST_ONCE, _each(doubtful, log, _twice), seen=len(doubtful), of="in doubt"),
    ]


def judge_order(operations: Iterable[Operation]) -> Judgement:
    """An operation that began after another was acknowledged stands after it in the log; a read
    reflects at least what was acknowledged before it began. Over all keys together."""
    known = [each for each in operations if each.outcome is Outcome.OK and each.index]
    return judged(ORDERED, _out_of_order(known), seen=len(known), of="operations with an index")


def _out_of_order(known: list[Operation]) -> Iterator[Finding]:
    finished = sorted(known, key=lambda each: each.completed_ns)
    times = [each.completed_ns for each in finished]
    newest: list[Operation] = []
    """The one with the highest index among those finished up to here."""
    for each in finished:
        newest.append(each if not newest or each.index > newest[-1].index else newest[-1])
    for each in known:
        before = bisect_right(times, each.invoked_ns - 1)
        if not before:
            continue
        earlier = newest[before - 1]
        # A write has an entry of its own; what is read may be what was written last.
        at_least = earlier.index + (1 if each.token else 0)
        if each.index < at_least:
            yield Finding(
                f"{named(each)} is of index {each.index}, but {named(earlier)} was answered "
                f"before it began and is of index {earlier.index}",
                (earlier, each),
            )


def named(operation: Operation) -> str:
    """The operation in a few words."""
    return (
        f"operation {operation.number} ({operation.action} {operation.key} of {operation.client})"
    )


def _gaps(log: ExportedLog) -> Iterator[Finding]:
    if log.damage:
        yield Finding(log.damage)
    expected = log.start_index
    for record in log.records:
        if record.entry.index != expected:
            yield Finding(f"index {record.entry.index} stands where {expected} must")
        expected = record.entry.index + 1
    if log.cut_off:
        yield Finding(f"the export was cut off: {log.cut_off}", undecided=True)


def _each(
    operations: list[Operation], log: ExportedLog, look: Callable[[Operation, ExportedLog], str]
) -> Iterator[Finding]:
    """`look` says what is wrong with an operation; empty when nothing is."""
    for operation in operations:
        wrong = look(operation, log)
        if wrong:
            missing = not log.decided(operation.token) and _may_be_elsewhere(operation, log)
            text = f"{named(operation)}, token {operation.token}: {wrong}"
            yield Finding(text, (operation,), undecided=missing)


def _may_be_elsewhere(operation: Operation, log: ExportedLog) -> bool:
    """Whether its entry may stand in a part of the log that this file does not hold."""
    if log.start_index == 1 and not log.cut_off:
        return False
    return not log.start_index <= operation.index <= log.last_index


def _accepted(operation: Operation, log: ExportedLog) -> list[int]:
    found = log.decided(operation.token)
    return [record.entry.index for record in found if record.accepted]


def _not_once(operation: Operation, log: ExportedLog) -> str:
    accepted = _accepted(operation, log)
    if not accepted:
        refusals = {record.rejection for record in log.decided(operation.token)}
        return f"acknowledged, but {'refused: ' + ', '.join(refusals) if refusals else 'lost'}"
    if len(accepted) > 1:
        return f"took effect {len(accepted)} times, at {_listed(accepted)}"
    if operation.index and accepted != [operation.index]:
        return f"acknowledged at index {operation.index}, but stands at {accepted[0]}"
    return ""


def _not_as_told(operation: Operation, log: ExportedLog) -> str:
    accepted = _accepted(operation, log)
    if accepted:
        return f"answered {operation.result!r}, but took effect at {_listed(accepted)}"
    if not operation.index:
        return ""  # Refused before it came to the log.
    for record in log.decided(operation.token):
        if record.entry.index == operation.index:
            if record.rejection == operation.result:
                return ""
            return f"answered {operation.result!r}, recorded as {record.rejection!r}"
    return f"answered {operation.result!r} at index {operation.index}, where the log has it not"


def _somewhere(operation: Operation, log: ExportedLog) -> str:
    accepted = _accepted(operation, log)
    return f"failed for certain, but took effect at {_listed(accepted)}" if accepted else ""


def _twice(operation: Operation, log: ExportedLog) -> str:
    accepted = _accepted(operation, log)
    many = len(accepted) > 1
    return f"took effect {len(accepted)} times, at {_listed(accepted)}" if many else ""


def _listed(indexes: Sequence[int]) -> str:
    return "index " + ", ".join(str(index) for index in indexes)
