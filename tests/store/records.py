"""Records for the store's tests."""

from __future__ import annotations

from coord.model.decisions import TasksStopping
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import AnyEvent, NoteAdded


def record(index: int, event: AnyEvent | None = None) -> Recorded:
    """The entry at this index; its digest and its decision tell it from any other."""
    note = event or NoteAdded("ann", "note", f"text {index}")
    entry = Entry(index, 1, 1_700_000_000_000 + index, Origin("client:ann", seq=index), note)
    stopping = TasksStopping((str(index),), "j", "j/r", 1, "user", "exit", (f"j/r/{index}#1",))
    return Recorded(entry, index * 10, f"{index:032x}", (stopping,))


def records(first: int, last: int) -> tuple[Recorded, ...]:
    return tuple(record(index) for index in range(first, last + 1))
