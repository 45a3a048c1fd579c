"""What an exit means, who pays for it, and whether there is another try."""

from __future__ import annotations

import msgspec

from coord.model.entities import FailureCause, FailureReason, Gang
from coord.model.events import TaskExited
from coord.model.spec import RestartPolicy

DO_NOT_RESTART = 93
"""Exit code by which a program asks not to be started again (design.md, Worker contract)."""

_SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS",
    8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE",
    14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip
FROM_OUTSIDE = (1, 2, 3, 9, 15)
"""Signals that a program does not get by its own fault: somebody or something sent them."""

FREE_CAUSES = (
    FailureCause.PREEMPTION,
    FailureCause.DRAIN,
    FailureCause.RESIZE,
    FailureCause.ROLLBACK,
)
"""Planned interruptions cost no budget and say nothing about the program."""


class Verdict(msgspec.Struct, frozen=True):
    """Of one exit: who pays, in words, and whether a restart is ruled out."""

    cause: FailureCause
    detail: str
    final: bool = False


def classify_exit(event: TaskExited, preempted: bool) -> Verdict:
    """Who pays for an exit without success.

    | exit                                  | cause          |
    | ------------------------------------- | -------------- |
    | while its host is being taken away    | preemption     |
    | killed for lack of memory             | user           |
    | code 93                               | user, final    |
    | not observed                          | unknown        |
    | SIGKILL, SIGTERM, SIGINT, SIGQUIT, SIGHUP from outside | infrastructure |
    | any other signal (SIGSEGV, SIGABRT, SIGBUS, ...)       | user |
    | any other code                        | user           |

    From logic version 2 on, what the exit says of itself comes on top (`attribution.py`):

    | exit                                                     | cause          |
    | -------------------------------------------------------- | -------------- |
    | words of a machine that failed (uncorrectable memory)    | infrastructure |
    | words of somebody else's end (time-out, closed by peer)  | unknown        |
    | an unknown error of CUDA, a file that cannot be read     | unknown        |
    | words of SIGTERM that nobody here sent                   | infrastructure |
    | within a minute of a fault of a device on its host       | infrastructure |
    | the same of a code that programs cause, if unknown       | user           |
    """
    detail = describe_exit(event)
    if preempted:
        return Verdict(FailureCause.PREEMPTION, detail)
    if event.oom:
        return Verdict(FailureCause.USER, detail)
    if not event.observed:
        return Verdict(FailureCause.UNKNOWN, detail)
    if event.signal in FROM_OUTSIDE:
        return Verdict(FailureCause.INFRASTRUCTURE, detail)
    if event.exit_code == DO_NOT_RESTART and not event.signal:
        return Verdict(FailureCause.USER, detail, final=True)
    return Verdict(FailureCause.USER, detail)


def describe_exit(event: TaskExited) -> str:
    """`exit code 1: ...`, `SIGKILL (out of memory)`, with the first line of its error if it left
    one."""
    if not event.observed:
        text = "gone, exit not observed"
    elif event.signal:
        text = _SIGNALS.get(event.signal, f"signal {event.signal}")
    else:
        text = f"exit code {event.exit_code}"
    if event.oom:
        text += " (out of memory)"
    error = event.error.strip().split("\n", 1)[0]
    return f"{text}: {error}" if error else text


class Try(msgspec.Struct, frozen=True):
    """Whether a gang may start again after a failure.

    `attempt` counts restarts for this cause, this one included, of `limit` (0: free). A non-empty
    `reason` (`FailureReason`) says why there is none.
    """

    attempt: int
    limit: int
    backoff_ms: int
    reason: str = ""
    detail: str = ""


def next_try(
    policy: RestartPolicy, gang: Gang, cause: FailureCause, barren: int, *, required: bool = True
) -> Try:
    """`gang` as before this failure; `barren` counts failures in a row without progress, this one
    included. One that its job does not require has no limit."""
    attempt = restarts_of(gang, cause) + 1
    if cause in FREE_CAUSES:
        return Try(attempt, 0, 0)
    limit = limit_of(policy, cause)
    backoff_ms = 0
    if barren > 1:
        # The shift is bounded: 2**30 times anything is beyond every maximum.
        backoff_ms = min(policy.backoff_ms << min(barren - 2, 30), policy.backoff_max_ms)
    if not required:
        return Try(attempt, 0, backoff_ms)
    if attempt > limit:
        detail = f"{cause}: {limit} of {limit} restarts used"
        return Try(attempt, limit, backoff_ms, FailureReason.BUDGET, detail)
    if policy.no_progress_limit and barren > policy.no_progress_limit:
        detail = f"no progress beyond step {gang.best_step} in {barren} generations"
        return Try(attempt, limit, backoff_ms, FailureReason.NO_PROGRESS, detail)
    return Try(attempt, limit, backoff_ms)


def final_of(reason: str, required: bool) -> str:
    """`Gang.stop_final` of a gang that is not to start again for this reason, if for any."""
    if not reason:
        return ""
    return "fail" if required else "give_up"


def restarts_of(gang: Gang, cause: FailureCause) -> int:
    """Restarts on this account so far. Drains and resizes have none."""
    if cause == FailureCause.USER:
        return gang.restarts_user
    if cause == FailureCause.INFRASTRUCTURE:
        return gang.restarts_infrastructure
    if cause == FailureCause.UNKNOWN:
        return gang.restarts_unknown
    return gang.restarts_preemption if cause == FailureCause.PREEMPTION else 0


def count_restart(gang: Gang, cause: FailureCause) -> Gang:
    """The gang with one more restart on that account. Drains and resizes have none."""
    return _add_restarts(gang, cause, 1)


def uncount_restart(gang: Gang, cause: FailureCause) -> Gang:
    """The gang with one restart less on an account that was charged by mistake."""
    return _add_restarts(gang, cause, -1)


def _add_restarts(gang: Gang, cause: FailureCause, count: int) -> Gang:
    counted = msgspec.structs.replace
    if cause == FailureCause.USER:
        return counted(gang, restarts_user=gang.restarts_user + count)
    if cause == FailureCause.INFRASTRUCTURE:
        return counted(gang, restarts_infrastructure=gang.restarts_infrastructure + count)
    if cause == FailureCause.UNKNOWN:
        return counted(gang, restarts_unknown=gang.restarts_unknown + count)
    if cause == FailureCause.PREEMPTION:
        return counted(gang, restarts_preemption=gang.restarts_preemption + count)
    return gang


def limit_of(policy: RestartPolicy, cause: FailureCause) -> int:
    """Restarts allowed for this cause; 0 for one that costs nothing."""
    if cause in FREE_CAUSES:
        return 0
    if cause == FailureCause.USER:
        return policy.user_limit
    if cause == FailureCause.INFRASTRUCTURE:
        return policy.infrastructure_limit
    return policy.unknown_limit
