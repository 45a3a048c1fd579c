"""The product's logs, silenced while it is simulated: thousands of lines a virtual minute."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import structlog


class _Silent:
    """A bound logger that says nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes what structlog gives every bound logger."""

    def bind(self, **_: Any) -> _Silent:
        return self

    new = bind

    def debug(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    info = warning = error = critical = exception = log = debug


@contextlib.contextmanager
def quiet_logs() -> Iterator[None]:
    """Within, nothing is logged; afterwards the configuration is what it was."""
    before, was_configured = structlog.get_config(), structlog.is_configured()
    level = logging.root.manager.disable
    logging.disable()
    structlog.configure(wrapper_class=_Silent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        structlog.reset_defaults()
        if was_configured:
            structlog.configure(**before)
        logging.disable(level)
