"""How servers and agents write their own log: a line an event, on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import click

LEVELS = ("debug", "info", "warning", "error")


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--log-format and --log-level."""
    command = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        envvar="COORD_LOG_LEVEL",
    )(command)
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        envvar="COORD_LOG_FORMAT",
        help="name=value pairs, or one JSON object a line.",
    )(command)


def configure_logs(log_format: str, log_level: str) -> None:
    """Everything logged from now on goes to stderr in this format, from this level up."""
    import structlog

    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    )
    level: int = getattr(logging, log_level.upper())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(level, logging.WARNING), stream=sys.stderr)
