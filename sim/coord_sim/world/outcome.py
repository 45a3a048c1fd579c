"""How one seed ended."""

from __future__ import annotations

import msgspec

from coord_sim.world.options import WorldOptions
from coord_sim.world.violation import Violation

__all__ = ["Outcome", "Violation", "added"]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The same for the same seed and options, to the byte, wherever and whenever it runs."""

    seed: int
    options: WorldOptions
    climate: str
    """What this seed drew, in one line."""
    digest: str
    """Of the trace: every delivery, fault, entry and process of the run went into it."""
    state_digest: str = ""
    """Of the state at the last entry that any node applied."""
    virtual_ms: int = 0
    entries: int = 0
    broken: str = ""
    """What broke, as the sentence that should be true; empty when all held."""
    detail: str = ""
    faults: dict[str, int] = {}
    """How often each fault really happened."""
    counts: dict[str, int] = {}
    """What else happened: elections, snapshots installed, restarts, checkpoints and so on."""

    @property
    def ok(self) -> bool:
        return not self.broken

    def repeat_line(self, commit: str) -> str:
        """One command that does it all again, and the commit it was seen at."""
        line = f"coordctl sim run --seeds 1 --seed {self.seed} {self.options.command_line()}"
        return f"{line}  # at {commit}" if commit else line


def added(totals: dict[str, int], more: dict[str, int]) -> None:
    """Sum counts up, name by name."""
    for name, count in more.items():
        totals[name] = totals.get(name, 0) + count
