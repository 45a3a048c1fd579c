"""Where simulated servers put what must be a real file: a directory of this process, in memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def scratch_directory(seed: int) -> Iterator[str]:
    """A real directory for snapshot files, in memory if there is such a place."""
    directory = tempfile.mkdtemp(prefix=f"{_mark(os.getpid())}{seed}-", dir=_where())
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def remove_scratch(pid: int) -> None:
    """What a process left that was killed in the middle of a run. For whoever killed it, after it
    has been waited for."""
    where = _where() or Path(tempfile.gettempdir())
    for directory in sorted(where.glob(f"{_mark(pid)}*")):
        shutil.rmtree(directory, ignore_errors=True)


def _mark(pid: int) -> str:
    return f"coord-sim-{pid}-"


def _where() -> Path | None:
    return MEMORY if MEMORY.is_dir() else None
