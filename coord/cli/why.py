"""Walking causes backwards: from one event or decision to all that led to it."""

from __future__ import annotations

from coord.model.entry import Recorded
from coord.model.ids import decision_cause, event_cause


class Causes:
    """What each decision named as its causes.

    Holds a few words for each decision read, so its memory grows with decisions, not with entries.
    """

    def __init__(self) -> None:
        self._causes: dict[str, tuple[str, ...]] = {}

    def add(self, recorded: Recorded) -> None:
        """Remember the decisions of this entry."""
        for ordinal, decision in enumerate(recorded.decisions):
            self._causes[decision_cause(recorded.entry.index, ordinal)] = decision.causes

    def behind(self, ref: str) -> frozenset[str]:
        """`17.0` or `17` (the event there and all decisions taken on it) with everything behind."""
        index, _, ordinal = ref.partition(".")
        at = event_cause(int(index))
        frontier = [ref] if ordinal else [at, *self._decisions_at(at)]
        found: dict[str, None] = {}
        while frontier:
            cause = frontier.pop()
            if cause not in found:
                found[cause] = None
                frontier += self._causes.get(cause, ())
        return frozenset(found)

    def _decisions_at(self, index: str) -> list[str]:
        refs: list[str] = []
        while (ref := f"{index}.{len(refs)}") in self._causes:
            refs.append(ref)
        return refs
