"""What happened, line by line, and one digest of it all."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable


class Trace:
    """Notes in order. Two runs of one seed must end with one digest.

    The last `keep` lines stay readable; all of them where `keep` is None.
    """

    def __init__(self, keep: int | None = 2_000) -> None:
        self.count = 0
        self._lines: deque[str] = deque(maxlen=keep)
        self._hash = hashlib.blake2b(digest_size=16)
        self._where: Callable[[], tuple[float, str]] = lambda: (0.0, "")

    def attach(self, where: Callable[[], tuple[float, str]]) -> None:
        """From where a note takes the virtual time in seconds and the process's name."""
        self._where = where

    def note(self, kind: str, **facts: object) -> None:
        """One line: virtual milliseconds, process, kind, facts by name. Facts must look the same
        in every process: numbers, text and tuples of them, no sets, no addresses of objects."""
        now_s, process = self._where()
        told = "".join([f" {name}={facts[name]}" for name in sorted(facts)])
        line = f"{now_s * 1000:.3f} {process or '-'} {kind}{told}"
        self._hash.update(line.encode() + b"\n")
        self._lines.append(line)
        self.count += 1

    @property
    def digest(self) -> str:
        """Of every line so far."""
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """Those that are kept, oldest first."""
        return list(self._lines)
