"""What one generation of the gang gets done: training, checkpoints, standing still.

Exact arithmetic in milliseconds. Once all ranks run, a generation trains for an interval, stands
still while a checkpoint is written, and so on; a link that flaps makes all of it wait. Progress is
measured in milliseconds of training at full size: half the ranks make half of it.
"""

from __future__ import annotations

import msgspec


class Pace(msgspec.Struct, frozen=True):
    """How training goes, from the policy; milliseconds."""

    interval_ms: int
    write_ms: int
    step_ms: int
    """Between two steps, which workers report; also the unit of the core's step numbers."""


class Spent(msgspec.Struct, frozen=True):
    """Where a generation's time went, up to some moment."""

    trained_ms: int
    written_ms: int
    stalled_ms: int


class Generation:
    """One placed gang in truth. Times are those of the model's clock; -1 for what was not yet."""

    def __init__(
        self, number: int, hosts: tuple[str, ...], desired: int, pace: Pace, progress_ms: int
    ) -> None:
        self.number = number
        self.hosts = hosts
        self.members = dict.fromkeys(hosts)
        self.desired = desired
        self.pace = pace
        self.restored_ms = progress_ms
        self.processes = 0
        """Launched so far."""
        self.running_ms = -1
        """Since when it trains."""
        self.broken_ms = -1
        """Since when it cannot go on."""
        self.broken_by = ""
        self.stopping = False
        """The coordinator has decided its end."""
        self.reported_step = progress_ms // pace.step_ms
        self.reported_ms = -1
        """The moment as of which it was looked whether there is a step to report."""
        self.committed = 0
        """Checkpoints of this generation that the core knows of."""
        self._stalled_ms = 0
        self._stalled_until_ms = 0

    @property
    def runs(self) -> bool:
        return self.running_ms >= 0 and self.broken_ms < 0

    def begin(self, now_ms: int) -> None:
        self.running_ms = now_ms
        self.reported_ms = now_ms
        self._stalled_until_ms = now_ms

    def end(self, now_ms: int, cause: str) -> None:
        """It gets nothing more done."""
        self.broken_ms = now_ms
        self.broken_by = cause

    def stall(self, now_ms: int, lasts_ms: int) -> int:
        """Everybody waits for a link; two at once are waited for together. Until when?"""
        begins_ms = max(now_ms, self._stalled_until_ms)
        ends_ms = max(now_ms + lasts_ms, self._stalled_until_ms)
        self._stalled_ms += ends_ms - begins_ms
        self._stalled_until_ms = ends_ms
        return ends_ms

    def active_ms(self, at_ms: int) -> int:
        """Training and writing, since it began. For moments from the last stall's begin on."""
        if self.running_ms < 0:
            return 0
        at_ms = at_ms if self.broken_ms < 0 else min(at_ms, self.broken_ms)
        waiting_ms = max(self._stalled_until_ms - at_ms, 0)
        return max(at_ms - self.running_ms - self._stalled_ms + waiting_ms, 0)

    def checkpoints(self, at_ms: int) -> int:
        """How many it has written whole."""
        return self.active_ms(at_ms) // (self.pace.interval_ms + self.pace.write_ms)

    def trained_ms(self, at_ms: int) -> int:
        """Of wall time."""
        pace = self.pace
        whole, rest = divmod(self.active_ms(at_ms), pace.interval_ms + pace.write_ms)
        return whole * pace.interval_ms + min(rest, pace.interval_ms)

    def scaled(self, trained_ms: int) -> int:
        """Wall time of training as time at full size."""
        return trained_ms * len(self.hosts) // self.desired

    def progress_ms(self, at_ms: int) -> int:
        return self.restored_ms + self.scaled(self.trained_ms(at_ms))

    def step(self, at_ms: int) -> int:
        return self.progress_ms(at_ms) // self.pace.step_ms

    def saved_ms(self, checkpoint: int) -> int:
        """The progress that the n-th checkpoint of this generation holds, from 1."""
        return self.restored_ms + self.scaled(checkpoint * self.pace.interval_ms)

    def tick_at_or_before(self, at_ms: int) -> int:
        """The last moment by then at which a step is reported."""
        since_ms = at_ms - self.running_ms
        return at_ms - since_ms % self.pace.step_ms

    def next_turn_ms(self, now_ms: int) -> tuple[int, bool]:
        """(when, whether a checkpoint is whole then, else one begins), if nothing comes between."""
        pace = self.pace
        rest = self.active_ms(now_ms) % (pace.interval_ms + pace.write_ms)
        waiting_ms = max(self._stalled_until_ms - now_ms, 0)
        whole = rest >= pace.interval_ms or not pace.write_ms
        goal_ms = pace.interval_ms + pace.write_ms if whole else pace.interval_ms
        return now_ms + waiting_ms + goal_ms - rest, whole

    def spent(self, at_ms: int) -> Spent:
        if self.running_ms < 0:
            return Spent(0, 0, 0)
        at_ms = at_ms if self.broken_ms < 0 else min(at_ms, self.broken_ms)
        active_ms, trained_ms = self.active_ms(at_ms), self.trained_ms(at_ms)
        stalled_ms = at_ms - self.running_ms - active_ms
        return Spent(trained_ms, active_ms - trained_ms, stalled_ms)
