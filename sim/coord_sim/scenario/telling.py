"""What a scenario raises, told so that it can be repeated and looked into."""

from __future__ import annotations

from collections.abc import Sequence

from coord.model.entry import Recorded
from coord_sim.world.artefacts import told_entries
from coord_sim.world.violation import Violation

__all__ = ["NotReached", "RequestFailed", "ToldViolation", "Violation", "last_events"]

TOLD_EVENTS = 8


class NotReached(AssertionError):
    """What `Scenario.run_until` waited for did not come about in time."""


class RequestFailed(RuntimeError):
    """The cluster refused what was asked, or did not answer. `outcome` is `rejected`, `not_done`
    or `unknown` (then it may have happened); `reason` is the rejection or the library's word."""

    def __init__(self, what: str, outcome: str, reason: str) -> None:
        super().__init__(f"{what}: {outcome} ({reason})")
        self.outcome = outcome
        self.reason = reason


class ToldViolation(Violation):
    """A Violation with the seed, the virtual second since the start and the last events."""

    def __init__(
        self, found: Violation, *, seed: int, virtual_s: float, events: Sequence[str]
    ) -> None:
        super().__init__(found.property, found.detail)
        self.seed = seed
        self.virtual_s = virtual_s
        self.events = list(events)

    def __str__(self) -> str:
        lines = [
            f"{self.property}: {self.detail}",
            f"  seed {self.seed}, {self.virtual_s:.3f} virtual seconds after the start",
        ]
        if self.events:
            lines.append("  the last events:")
            lines += [f"    {line}" for event in self.events for line in event.splitlines()]
        lines.append(
            "  w.export('incident.log'), or pytest's --sim-artefacts DIR, writes the log for "
            "`coordctl replay` and `coordctl sim explore`"
        )
        return "\n".join(lines)


def last_events(records: Sequence[Recorded]) -> list[str]:
    """The newest entries in words, without what is only routine."""
    return told_entries(records)[-TOLD_EVENTS:]
