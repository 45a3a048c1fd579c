"""Where warnings of the suite go: not among what a command prints."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


class _Once:
    """Lets a line pass once: what a machine lacks is the same in each of many runs."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(
        self, logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        line = repr(sorted(event.items()))
        if line in self._said:
            raise structlog.DropEvent
        self._said.add(line)
        return event


def logs_to_stderr() -> None:
    """Warnings and worse, each once, to what is stderr now: a moving line may have replaced it."""
    structlog.configure(
        processors=[
            _Once(),
            structlog.processors.add_log_level,
            structlog.processors.LogfmtRenderer(key_order=["level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
