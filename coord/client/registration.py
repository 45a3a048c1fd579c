"""One registration of a host, until it is decided. Pure bookkeeping, no I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coord.client.errors import Rejected
from coord.model.channel import Result
from coord.model.entry import Origin, Submission
from coord.model.events import HostRegistered
from coord.model.rejections import Rejection


class Registration:
    """Sent again under the same number while its outcome is not known, so that it counts once."""

    def __init__(self, event: HostRegistered, next_seq: Callable[[], int]) -> None:
        self._event = event
        self._next_seq = next_seq
        self._submission: Submission | None = None
        self._to_send = True
        self.first_sent_s = 0.0
        """Loop time of the first sending under the current number."""
        self.incarnation: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def under_way(self) -> int:
        return int(not self._to_send)

    def take(self, now_s: float, seen_index: int) -> tuple[Submission, ...]:
        """What to send now; empty while an answer is awaited."""
        if not self._to_send or self.incarnation.done():
            return ()
        if self._submission is None:
            origin = Origin(f"client:{self._event.agent}", 0, self._next_seq(), seen_index)
            self._submission = Submission(origin, self._event)
            self.first_sent_s = now_s
        self._to_send = False
        return (self._submission,)

    def send_again(self) -> None:
        """The answer will not come."""
        self._to_send = True

    def on_result(self, result: Result) -> bool:
        """Take an answer in; True when the host is registered."""
        if self._submission is None or result.seq != self._submission.origin.seq:
            return False
        if result.outcome != "committed":
            self._to_send = True
        elif result.rejection == Rejection.NOT_CONFIGURED:
            # Decided, so another number; the first leader is about to record the settings.
            self._submission = None
            self._to_send = True
        elif result.rejection:
            subject = f"registration of host {self._event.host!r}"
            self.fail(Rejected(subject, result.rejection, result.index))
        elif not self.incarnation.done():
            self.incarnation.set_result(result.result)
            return True
        return False

    def fail(self, error: BaseException) -> None:
        """It will not be decided as hoped."""
        if not self.incarnation.done():
            self.incarnation.set_exception(error)
