"""What a handler works with while one entry is applied, and how handlers are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from coord.core.state import State
from coord.model.decisions import Decision
from coord.model.entry import Entry
from coord.model.events import Event
from coord.model.ids import decision_cause, event_cause
from coord.model.rejections import Rejection


class Step:
    """The application of one entry. Handlers change `state` and append decisions through it."""

    __slots__ = (
        "cause",
        "decisions",
        "entry",
        "expired",
        "now_ms",
        "result",
        "scheduling",
        "state",
    )

    def __init__(self, state: State, entry: Entry) -> None:
        self.state = state
        self.entry = entry
        self.now_ms = state.meta.now_ms
        self.cause = event_cause(entry.index)
        """The entry itself, as a cause."""
        self.decisions: list[Decision] = []
        self.result = 0
        self.scheduling = False
        """Set when places or wishes changed: the queue is looked at once, after the handler."""
        self.expired = False
        """Set when a lease ran out: all that did are judged together."""

    def decide(self, decision: Decision) -> str:
        """Record a decision; returns its id, to be named as a cause of later ones."""
        self.decisions.append(decision)
        return decision_cause(self.entry.index, len(self.decisions) - 1)


EventT = TypeVar("EventT", bound=Event)
Handler = Callable[[Step, EventT], Rejection | None]

HANDLERS: dict[type[Event], Handler[Event]] = {}


def on(event_type: type[EventT]) -> Callable[[Handler[EventT]], Handler[EventT]]:
    """Register the one handler of an event."""

    def register(handler: Handler[EventT]) -> Handler[EventT]:
        if event_type in HANDLERS:
            raise TypeError(f"{event_type.__name__} has two handlers")
        HANDLERS[event_type] = handler  # type: ignore[assignment]
        return handler

    return register
