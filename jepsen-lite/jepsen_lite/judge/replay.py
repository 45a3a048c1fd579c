"""The exported log, replayed by the rules of an unbroken `coord.core`.

What a server recorded must be what follows from the entries, and after every entry the invariants
of `coord.core.invariants` must hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from coord.core.invariants import violations
from coord.core.machine import LogGap, apply
from coord.core.state import TABLES, State, decode_state
from coord.model.entry import Recorded
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.verdict import Judgement

FOLLOWS = "what was recorded is what follows from the log"
INVARIANTS = "the state machine's invariants hold after every entry"

_FIELDS = ("now_ms", "decisions", "rejection", "duplicate_of", "result", "digest")
SPARSE = 50
_UNJUDGED = ("requests",)
"""Tables of which no invariant speaks."""


class Replayed(msgspec.Struct):
    """A log that was applied anew."""

    judgements: list[Judgement]
    state: State
    """After the last entry that could be applied."""


def replay(log: ExportedLog, budget_s: float = 120.0) -> Replayed:
    """Apply every entry. Stops comparing at the first difference, for all after it differ too; the
    invariants are judged on, upon the state that follows from the log.

    They are looked at after every entry that changed a row, for `budget_s`, and after every
    SPARSE-th of them from then on, which the judgement says: a look takes as long as the state is
    large, so a run keeps few ended jobs (`Settings.finished_jobs_kept`).
    """
    began_s = time.perf_counter()
    try:
        state = decode_state(log.start_state)
    except msgspec.MsgspecError as error:
        text = f"the state before index {log.start_index} cannot be read: {error}"
        return Replayed([judged(FOLLOWS, [Finding(text)], seen=0, of="entries")], State())
    differing: list[Finding] = []
    broken: list[Finding] = []
    looked = changes = 0
    for record in log.records:
        try:
            derived = apply(state, record.entry)
        except LogGap as gap:
            differing.append(Finding(f"index {record.entry.index} cannot be replayed: {gap}"))
            break
        if not differing:
            differing.extend(_difference(record, derived))
        if _took_changes(state):
            changes += 1
            dense = time.perf_counter() - began_s < budget_s
            if not broken and (dense or changes % SPARSE == 0):
                looked += 1
                where = f"after index {record.entry.index}: "
                broken.extend(Finding(where + each) for each in violations(state))
    entries, states = len(log.records), f"of {changes} states"
    return Replayed(
        [
            judged(FOLLOWS, differing, seen=entries, of="entries", began_s=began_s),
            judged(INVARIANTS, broken, seen=looked, of=states, began_s=began_s),
        ],
        state,
    )


def _difference(record: Recorded, derived: Recorded) -> Iterator[Finding]:
    wrong = [name for name in _FIELDS if getattr(record, name) != getattr(derived, name)]
    if wrong:
        name = wrong[0]
        yield Finding(
            f"index {record.entry.index} ({type(record.entry.event).__name__}): {name} recorded "
            f"as {getattr(record, name)!r}, the rules give {getattr(derived, name)!r}"
        )


def _took_changes(state: State) -> bool:
    """Whether a row changed of which some invariant speaks; forgets what changed."""
    changed = False
    for name in TABLES:
        table = state.table(name)
        if table.changed:
            table.changed = {}
            changed = changed or name not in _UNJUDGED
    return changed
