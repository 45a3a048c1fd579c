"""The relay's heartbeats: the roster, what was sent of it, and who is told of that."""

from __future__ import annotations

from collections.abc import Callable

from coord.model.channel import Beat, RelayBeatsSeen
from coord.model.rejections import Rejection
from coord.model.roster import LAG_SHARE
from coord.model.settings import Settings
from coord.relay.metrics import Metrics
from coord.relay.queues import Urgent
from coord.relay.roster import Attendance, Vouched
from coord.relay.table import Place
from coord.relay.wheel import Wheel

SENT_LIMIT = 64
"""Frames without an answer that are remembered."""


class Beating:
    """Times are seconds of one monotonic clock. Before `begin` nobody is heard."""

    def __init__(self, relay: str, incarnation: int, metrics: Metrics) -> None:
        self._relay = relay
        self._incarnation = incarnation
        self._metrics = metrics
        self._settings = Settings()
        self._attendance: Attendance | None = None
        self._sent: dict[int, tuple[float, Vouched]] = {}
        self._disputed: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._attendance or ())

    @property
    def waiting_since_s(self) -> float | None:
        """When the oldest frame without an answer was sent."""
        return next((at_s for at_s, _ in self._sent.values()), None)

    @property
    def deaf(self) -> bool:
        return self._attendance is not None and self._attendance.deaf

    @property
    def limit_ms(self) -> int:
        return self._settings.lease_ms // LAG_SHARE

    def listen(self) -> None:
        if self._attendance is not None:
            self._attendance.listen()

    def due_s(self, now_s: float) -> float:
        """When a window is over."""
        if self._attendance is None:
            return now_s + 1.0
        if self._attendance.deaf:
            return now_s
        return self._attendance.due_ms / 1000

    # Beats

    def beat(
        self,
        number: int,
        actor: str,
        beat: Beat,
        now_s: float,
        place_of: Callable[[int], Place | None],
    ) -> bool:
        """Whether the server is to be shown it. While two hosts claim one slot, neither counts: the
        server will end the conversation of the one that lies."""
        attendance = self._attendance
        if attendance is None:
            return False
        slot = beat.slot
        claims = self._disputed.get(slot)
        if claims is not None:
            if all(place_of(claim) is not None for claim in claims):
                return True
            del self._disputed[slot]
        owner = attendance.session_of(slot)
        place = place_of(owner) if owner != number else None
        if place is not None and place.actor != actor:
            self._disputed[slot] = (owner, number)
            self._metrics.refused.labels("disputed_slot").inc()
            attendance.leave(owner)
            return True
        return attendance.beat(number, slot, beat.incarnation, beat.sequence, round(now_s * 1000))

    def leave(self, number: int) -> None:
        if self._attendance is not None:
            self._attendance.leave(number)

    def close(self, now_s: float, connected: bool) -> Vouched | None:
        """What is to be said of windows that are over."""
        attendance = self._attendance
        if attendance is None:
            return None
        pauses = attendance.pauses
        vouched = attendance.close(round(now_s * 1000), connected)
        if attendance.pauses != pauses:
            self._metrics.pauses.inc()
        return vouched

    # What becomes of frames

    def may_go(self, item: Urgent, now_s: float) -> bool:
        """A frame of ours that waited too long is left out; others than frames always go."""
        if not isinstance(item, Vouched):
            return True
        now_ms = round(now_s * 1000)
        if item.is_older_than(self.limit_ms, now_ms):
            self._metrics.frames.labels("too_old_to_send").inc()
            if item.frame.changes and self._attendance is not None:
                self._attendance.begin_anew()
            return False
        self._metrics.frames.labels("sent").inc()
        self._sent[item.frame.sequence] = (now_s, item)
        while len(self._sent) > SENT_LIMIT:
            del self._sent[next(iter(self._sent))]
        return True

    def seen(self, seen: RelayBeatsSeen) -> list[tuple[int, int]]:
        """(conversation, sequence of the beat) of whom is to be told."""
        attendance = self._attendance
        if seen.incarnation != self._incarnation or attendance is None:
            return []
        self._metrics.frames.labels(seen.rejection or "counted").inc()
        found = self._sent.get(seen.sequence)
        for sequence in [one for one in self._sent if one <= seen.sequence]:
            # What was decided before it, and not answered, never will be.
            del self._sent[sequence]
        attendance.drop(seen.dropped_slots, seen.sequence)
        if seen.rejection:
            if seen.rejection == Rejection.STALE_ROSTER:
                attendance.stale(seen.sequence)
            return []
        dropped = dict.fromkeys(seen.dropped_slots)
        beats = found[1].beats if found is not None else ()
        return [(number, sequence) for number, slot, sequence in beats if slot not in dropped]

    # The connection upwards

    def learn(self, settings: Settings, now_s: float) -> None:
        """The cluster's settings: periods and units follow from them."""
        old = self._attendance
        if old is not None and settings == self._settings:
            return
        self._settings = settings
        now_ms = round(now_s * 1000)
        self._attendance = Attendance(
            self._relay,
            self._incarnation,
            Wheel(settings.heartbeat_ms, now_ms),
            self.limit_ms,
            now_ms,
            old.sequence if old is not None else 1,
            old.number if old is not None else 0,
        )

    def begin(self, settings: Settings, now_s: float) -> None:
        """On a new connection, the whole roster anew."""
        self.learn(settings, now_s)
        self._sent.clear()
        if self._attendance is not None:
            self._attendance.begin_anew()

    def lost(self) -> None:
        """Nothing that was sent will be answered."""
        self._sent.clear()
