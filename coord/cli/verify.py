"""Applying recorded entries anew and comparing what comes out with what was recorded."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from coord.core.machine import LogGap, apply
from coord.core.state import State
from coord.model.entry import Recorded


class Verdict(enum.StrEnum):
    MATCHES = "matches"
    """Every digest is what the replay derived."""
    NOT_VERIFIED = "not verified"
    """Nothing differs, but not every entry had a digest to compare with."""
    INCOMPLETE = "incomplete"
    """What is there matches, but the file ends early."""
    CORRUPT = "corrupt"
    """The file is damaged; what stood before matches."""
    DIFFERS = "differs"
    """The replay derived something else than was recorded."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where record and replay part. `recorded` and `derived` hold the fields that differ."""

    index: int
    offset: int
    recorded: dict[str, Any] = {}
    derived: dict[str, Any] = {}
    gap: str = ""
    """Set when the entry does not follow on the one before."""


class Replayer:
    """The state machine fed from a file.

    After `apply` answered with a Difference, nothing more may be applied.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.verified = 0
        self.unverified = 0

    def apply(self, recorded: Recorded, offset: int) -> Recorded | Difference:
        """What this entry leads to now, or how that differs from what was recorded."""
        try:
            derived = apply(self.state, recorded.entry)
        except LogGap as gap:
            return Difference(recorded.entry.index, offset, gap=str(gap))
        if derived == recorded:
            self.verified += 1
            return derived
        if not recorded.digest:
            self.unverified += 1
            differing = _differing(_given(recorded), derived)
        else:
            differing = _differing(_compared(recorded), derived) or {"digest": recorded.digest}
        if not differing:
            return derived
        return Difference(
            recorded.entry.index,
            offset,
            differing,
            {name: getattr(derived, name) for name in differing},
        )

    def final_digest(self) -> str:
        """After the last entry applied."""
        return self.state.meta.digest


COMPARED = ("now_ms", "decisions", "rejection", "duplicate_of", "result")


def _compared(recorded: Recorded) -> dict[str, Any]:
    return {name: getattr(recorded, name) for name in COMPARED}


def _given(recorded: Recorded) -> dict[str, Any]:
    """What somebody wrote by hand: the fields that are not left at nothing."""
    given = {name: value for name, value in _compared(recorded).items() if value}
    if recorded.now_ms < 0:
        del given["now_ms"]
    return given


def _differing(expected: dict[str, Any], derived: Recorded) -> dict[str, Any]:
    return {name: value for name, value in expected.items() if getattr(derived, name) != value}


def difference_text(difference: Difference) -> str:
    """The difference as a paragraph: where, what was recorded, what was derived."""
    where = f"entry {difference.index} at byte {difference.offset}"
    if difference.gap:
        return f"{where} does not follow on the one before ({difference.gap}): entries are missing"
    lines = [f"{where} does not replay to what was recorded:"]
    if set(difference.recorded) == {"digest"}:
        lines.append("  all that was made of it is equal: the entry itself, or what came before")
        lines.append("  this file, is not what was recorded")
    for name, recorded in difference.recorded.items():
        lines.append(f"  {name} recorded: {_json(recorded)}")
        lines.append(f"  {name} derived:  {_json(difference.derived[name])}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
