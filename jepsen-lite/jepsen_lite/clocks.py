"""The wall clock of one server, bent through the server's own seam for it."""

from __future__ import annotations

import os
from pathlib import Path


class ClockSeam:
    """A file whose milliseconds a server adds to its wall clock, at once and while it runs.

    Agents have none: what they measure is monotonic.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def environ(self) -> dict[str, str]:
        """What the server must be started with."""
        return {"COORD_CLOCK_OFFSET": str(self.file)}

    @property
    def offset_ms(self) -> int:
        """How far the clock is off now; negative is behind."""
        try:
            return int(self.file.read_bytes())
        except FileNotFoundError:
            return 0

    def skew(self, offset_ms: int) -> None:
        """Be so far off the machine's clock from now on. A server never sees half a number."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(self.file.name + ".new")
        partial.write_text(f"{offset_ms}\n")
        os.replace(partial, self.file)

    def jump(self, by_ms: int) -> None:
        """Be farther off by so much."""
        self.skew(self.offset_ms + by_ms)

    def heal(self) -> None:
        """Be right again. Idempotent."""
        self.file.unlink(missing_ok=True)
