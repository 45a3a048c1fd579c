"""Every error of the client library, and whether the request may have happened.

    CoordError
    ├── NotDone                certainly had no effect
    │   ├── Rejected           the state machine refused it; the refusal is in the log
    │   ├── Unavailable        no server could take it in time
    │   │   └── Busy           servers answered only "later"
    │   ├── NotFound           a read: there is no such job, host or log
    │   ├── EventsGone         a read: events this old are no longer kept
    │   ├── InvalidRequest     no server would ever take it: malformed or too large
    │   ├── ServerRefused      wrong cluster or protocol; check the addresses
    │   └── ClientClosed       the client was closed before it was sent
    ├── DoneButUnread          it HAS happened; only reading the result back failed
    └── OutcomeUnknown         it may or may not have happened, or may happen yet

`may_have_happened` says the same to a program. Only `OutcomeUnknown` leaves doubt: look at the
state before asking again.
"""

from __future__ import annotations

from coord.model.rejections import EXPLANATIONS, Rejection


class CoordError(Exception):
    """Base of all errors of this library."""

    may_have_happened: bool = False


class NotDone(CoordError):
    """The request certainly had no effect. `reason` is a word for programs."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class Rejected(NotDone):
    """The state machine refused it when its turn came. Asking again changes nothing by itself.

    `rejection` is a word of `coord.model.rejections.Rejection`; `index` is where the log holds the
    refusal, 0 when it was refused without reaching the log.
    """

    def __init__(self, subject: str, rejection: str, index: int = 0) -> None:
        at = f" (recorded at index {index})" if index else ""
        super().__init__(f"{subject}: {explanation(rejection)}{at}", rejection)
        self.subject = subject
        self.rejection = rejection
        self.index = index


class Unavailable(NotDone):
    """No server could take the request before its deadline; it was never in the log."""


class Busy(Unavailable):
    """Every attempt was answered with "later", the last with this `retry_after_ms`."""

    def __init__(self, message: str, retry_after_ms: int = 0) -> None:
        super().__init__(message, "busy")
        self.retry_after_ms = retry_after_ms


class NotFound(NotDone):
    """A read of something that does not exist."""


class EventsGone(NotDone):
    """Events from `start` on were asked for, but retention has deleted all before `first_index`."""

    def __init__(self, start: int, first_index: int) -> None:
        super().__init__(
            f"events from index {start} on were asked for, but the oldest kept is {first_index}; "
            f"start there, or read older ones from an exported incident file",
            "events_gone",
        )
        self.start = start
        self.first_index = first_index


class InvalidRequest(NotDone):
    """No server would ever take it: malformed, or larger than the limit that the message names."""


class ServerRefused(NotDone):
    """The server at that address ended the conversation: another cluster, another protocol."""


class ClientClosed(NotDone):
    """The client was closed, or not opened, when the request was made."""

    def __init__(self, message: str = "the client is closed; open it with `async with`") -> None:
        super().__init__(message, "closed")


class DoneButUnread(CoordError):
    """The write is decided at log index `index`; reading its result failed. Do not repeat it."""

    may_have_happened = True

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


class OutcomeUnknown(CoordError):
    """It may have happened, or may happen yet. Look at the state before asking again."""

    may_have_happened = True

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


def explanation(rejection: str) -> str:
    """`unknown_job: no such job; see ...`. A newer server's unknown word stands alone."""
    try:
        return f"{rejection}: {EXPLANATIONS[Rejection(rejection)]}"
    except ValueError:
        return rejection
