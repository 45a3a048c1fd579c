"""Whether the kernel's out-of-memory killer was at work.

What is certain: that it killed `n` processes since the last reading, within the agent's cgroup
(cgroup v2, `memory.events`) or, where that cannot be read, on the whole machine (`/proc/vmstat`).
What is inferred: that a task which ended by a SIGKILL nobody here sent, within moments of such a
kill, was one of them. Each kill explains one task. A child killed under a main process that then
exits with a code of its own is not recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

KILL_EXPLAINS_S = 5.0
"""A kill older than this explains no exit."""


def counter_file(cgroup: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> Path:
    """The file that counts out-of-memory kills as close to us as can be read."""
    for line in Path(cgroup).read_text().splitlines():
        if line.startswith("0::"):
            events = Path(mount + line.removeprefix("0::")) / "memory.events"
            if events.is_file():
                return events
    return Path("/proc/vmstat")


def read_kills(path: Path) -> int:
    """The count in such a file; 0 where the kernel keeps none."""
    for line in path.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0


class OomWatch:
    """Attributes kills to exits. `now` is in seconds and only grows."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._counted = read()
        self._unexplained: list[float] = []

    def look(self, now: float) -> None:
        """Note kills since the last look."""
        count = self._read()
        self._unexplained += [now] * (count - self._counted)
        self._counted = max(count, self._counted)
        self._unexplained = [at for at in self._unexplained if now - at <= KILL_EXPLAINS_S]

    def explains(self, now: float) -> bool:
        """Whether a SIGKILL that just ended a task was such a kill; uses that kill up."""
        self.look(now)
        if not self._unexplained:
            return False
        self._unexplained.pop(0)
        return True
