"""What every part of the suite may use: golden files, rewritten by `pytest --rewrite`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in the background like that, and children would never hear of Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what was produced into the golden files instead of comparing; review the diff",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(path, text)` fails unless the file holds exactly the text; `--rewrite` writes it."""
    rewrite = bool(request.config.getoption("--rewrite"))

    def compare(path: Path, text: str) -> None:
        if rewrite:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"there is no {path}; run pytest --rewrite and review it"
        assert path.read_text() == text

    return compare
