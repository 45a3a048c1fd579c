"""Where the job's time went: every millisecond of the run is in exactly one account."""

from __future__ import annotations

import enum

import msgspec

from coord_sim.fleet.causes import FIRST_START, FLAP
from coord_sim.fleet.training import Generation


class Loss(enum.StrEnum):
    """The accounts of time that did not count, in the order they are told."""

    DETECT = "detect"
    """From the failure to the decision to stop."""
    RESTART = "restart"
    """From the decision to the next training: stop, back-off, launch, load."""
    WAITING = "waiting"
    """For hosts to place it on."""
    REDONE = "redone"
    """Trained, and lost with the generation: after its last checkpoint."""
    STALLED = "stalled"
    """Training stood still, and went on."""
    WRITING = "writing"
    """Checkpoints being written."""
    SMALLER = "smaller"
    """Trained with fewer ranks than wanted: the part that was missing."""
    ENDED = "ended"
    """After the job had failed for good."""


class Ledger:
    """`training` is True while a generation trains; its time is entered when it ends."""

    def __init__(self) -> None:
        self.effective_ms = 0
        """Trained at full size, and kept. What is redone later is taken off again."""
        self.by_replicas_ms = 0
        """The same, times the ranks that trained."""
        self.lost: dict[tuple[Loss, str], int] = {}
        self.loss = Loss.RESTART
        self.cause = FIRST_START
        self.training = False
        self._since_ms = 0

    def turn(self, now_ms: int, loss: Loss, cause: str = "") -> None:
        """From now on time is lost so; the cause stays what it was unless given."""
        self._enter(now_ms)
        self.loss = loss
        self.cause = cause or self.cause

    def trains(self, now_ms: int) -> None:
        """From now on a generation trains."""
        self._enter(now_ms)
        self.training = True

    def trained(self, now_ms: int, generation: Generation) -> None:
        """It has ended, or the run has: enter all that it did."""
        spent = generation.spent(now_ms)
        full_ms = generation.scaled(spent.trained_ms)
        self.effective_ms += full_ms
        self.add(Loss.SMALLER, "", spent.trained_ms - full_ms)
        self.add(Loss.WRITING, "", spent.written_ms)
        self.add(Loss.STALLED, FLAP, spent.stalled_ms)
        self.training = False
        self._since_ms = now_ms

    def rolled_back(self, lost_ms: int) -> None:
        """Training since the checkpoint that the next generation starts from was for nothing."""
        self.effective_ms -= lost_ms
        self.add(Loss.REDONE, self.cause, lost_ms)

    def add(self, loss: Loss, cause: str, lasted_ms: int) -> None:
        if lasted_ms:
            self.lost[loss, cause] = self.lost.get((loss, cause), 0) + lasted_ms

    def of(self, loss: Loss) -> int:
        """All that is in an account, in milliseconds."""
        return sum(lasted for (kind, _), lasted in self.lost.items() if kind == loss)

    def total_ms(self) -> int:
        """Everything entered so far."""
        return self.effective_ms + sum(self.lost.values())

    def _enter(self, now_ms: int) -> None:
        if not self.training:
            self.add(self.loss, self.cause, now_ms - self._since_ms)
        self._since_ms = now_ms


class Tally(msgspec.Struct):
    """What happened how often. Restarts are counted by what had truly failed (`restarts`) and by
    what the core took it for (`charged`)."""

    restarts: dict[str, int] = {}
    charged: dict[str, int] = {}
    faults: dict[str, int] = {}
    """That found something to break."""
    generations: int = 0
    spares_used: int = 0
    hosts_suspected: int = 0
    hosts_lost: int = 0
    hosts_lost_falsely: int = 0
    hangs: int = 0
    hangs_falsely: int = 0
    launches_given_up: int = 0
    launches_given_up_falsely: int = 0
    quarantined_rightly: int = 0
    quarantined_wrongly: int = 0
    retired_rightly: int = 0
    """Not taken back after repairs, and truly failing more often than others."""
    retired_wrongly: int = 0
    frozen: int = 0
    cascades: int = 0
    cascade_exits: int = 0
    """Ranks that gave up because a peer was gone."""
    relapses: int = 0
    repairs: int = 0

    def count(self, table: str, key: str) -> None:
        counts: dict[str, int] = getattr(self, table)
        counts[key] = counts.get(key, 0) + 1
