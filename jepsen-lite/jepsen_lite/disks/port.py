"""What nemeses and clusters need of a process's disk."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

FULL = "full"
SLOW_FSYNC = "slow_fsync"
LOSE_UNSYNCED = "lose_unsynced"
DAMAGE = "damage"


class DiskError(Exception):
    """A fault of the disk cannot be brought about; the message says why and what to do."""


class Disk(Protocol):
    """The disk of one machine: of one server, or of an agent with its keeper.

    What `can` does not hold raises DiskError. `crash` and `damage` want every process that was
    started with `environ()` to be gone, by SIGKILL in the case of `crash`.
    """

    directory: Path
    """Where the process keeps its data; it exists."""
    can: frozenset[str]
    """Of "full", "slow_fsync", "lose_unsynced", "damage"."""

    def environ(self) -> dict[str, str]:
        """What the process must be started with."""

    def fill(self) -> None:
        """Leave no room. Again takes what was freed meanwhile."""

    def free(self) -> None:
        """Give the room back. Idempotent."""

    def slow_fsync(self, ms: int) -> None:
        """Let every wait for the disk take so much longer, at once; 0 is as fast as it is."""

    def crash(self, rng: random.Random) -> str:
        """Take back what a power cut takes: all or some of what was not synced. Says what."""

    def damage(self, rng: random.Random) -> str:
        """Flip or tear bytes of the journal of a server that does not run. Says which."""

    def heal(self) -> None:
        """Room again, and no delay. What is lost or damaged stays so."""

    def close(self) -> None:
        """Give the disk up, with all that is on it. Idempotent."""
