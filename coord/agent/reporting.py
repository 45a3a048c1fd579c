"""What the coordinator is told, in which order, and what it has decided on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec
import structlog

from coord.agent.ports import AgentChannel
from coord.agent.reconcile import NOTHING_REPORTED, Fact, Reported
from coord.agent.records import TaskRecord
from coord.client.errors import Rejected
from coord.client.views import Decided
from coord.model.events import (
    AnyEvent,
    LaunchFailed,
    ProgressReported,
    TaskExited,
    TaskReaped,
    TaskStarted,
    TaskUnkillable,
)
from coord.model.rejections import Rejection

PROGRESS_PERIOD_S = 0.2
"""At most one report of a task's progress in this time."""
UNTOLD_LIMIT = 64
"""Reports of the host itself that wait for a decision; the oldest are dropped."""
ENDS_INCARNATION = (
    Rejection.STALE_INCARNATION,
    Rejection.HOST_NOT_LIVE,
    Rejection.UNKNOWN_HOST,
    Rejection.REPORT_GAP,
)

log = structlog.get_logger()


class _Progress:
    """A task's newest step, and what of it is on its way."""

    def __init__(self) -> None:
        self.waiting: int | None = None
        self.busy_us = 0
        """What its worker has worked so far, and what of it was reported."""
        self.told_us = 0
        self.sent_s = -PROGRESS_PERIOD_S
        self.under_way: asyncio.Future[Decided] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Reporter:
    """Facts of records and progress of workers, on their way to the log under one incarnation.

    `on_change` is called, on the loop, whenever the coordinator has decided on something.
    """

    def __init__(self, channel: AgentChannel, host: str, on_change: Callable[[], None]) -> None:
        self._channel = channel
        self._host = host
        self._on_change = on_change
        self._reported: dict[str, Reported] = {}
        self._progress: dict[str, _Progress] = {}
        self._registered = asyncio.Event()
        self._over = asyncio.Event()
        self._untold: dict[int, Callable[[int], AnyEvent]] = {}
        """What is to be told of the host, by number, until it is decided."""
        self._told = 0
        self.incarnation = 0
        """0 while not registered: nothing can be reported then."""

    @property
    def reported(self) -> Mapping[str, Reported]:
        return self._reported

    def begin(self, incarnation: int, started: Iterable[str] = ()) -> None:
        """Registered: everything is to be said again under this incarnation, except that the tasks
        in `started` have started, which the registration said."""
        said = frozenset([Fact.STARTED])
        self._reported = {task: Reported(said, said) for task in started}
        self.incarnation = incarnation
        self._over = asyncio.Event()
        self._registered.set()
        for number in sorted(self._untold):
            self._tell(number)
        for task in sorted(self._progress):
            self._progress[task].under_way = None
            self._send_progress_if_due(task)

    def end(self) -> None:
        """The incarnation is over."""
        self.incarnation = 0
        self._registered.clear()
        self._over.set()

    def fact(self, record: TaskRecord, fact: Fact) -> None:
        """Report what is true of a record."""
        task = record.order.task
        incarnation = self.incarnation
        if fact is Fact.EXITED:
            self.flush_progress(task)
        future = self._channel.report(fact_event(record, fact, self._host, incarnation))
        before = self._reported.get(task, NOTHING_REPORTED)
        self._reported[task] = msgspec.structs.replace(before, sent=before.sent | {fact})
        future.add_done_callback(lambda done: self._decided(task, fact, incarnation, done))

    def forget(self, task: str) -> None:
        self._reported.pop(task, None)
        progress = self._progress.pop(task, None)
        if progress is not None and progress.timer is not None:
            progress.timer.cancel()

    def _decided(
        self, task: str, fact: Fact, incarnation: int, done: asyncio.Future[Decided]
    ) -> None:
        if done.cancelled() or incarnation != self.incarnation:
            return
        before = self._reported.get(task)
        if before is None:
            return
        error = done.exception()
        if error is not None and not isinstance(error, Rejected):
            # Not in the log; said again with the next look at what there is to do.
            log.error("report not taken", task=task, fact=fact, error=str(error))
            self._reported[task] = msgspec.structs.replace(before, sent=before.sent - {fact})
            return
        if isinstance(error, Rejected):
            if error.rejection in ENDS_INCARNATION:
                return
            log.info("report refused", task=task, fact=fact, reason=error.rejection)
        self._reported[task] = msgspec.structs.replace(before, settled=before.settled | {fact})
        self._on_change()

    # Of the host

    def tell(self, event: Callable[[int], AnyEvent]) -> None:
        """Report what `event(incarnation)` makes, before whatever is reported next; under a later
        incarnation if this one ends before it is decided."""
        self._told += 1
        self._untold[self._told] = event
        while len(self._untold) > UNTOLD_LIMIT:
            del self._untold[min(self._untold)]
        if self.incarnation:
            self._tell(self._told)

    def _tell(self, number: int) -> None:
        future = self._channel.report(self._untold[number](self.incarnation))
        future.add_done_callback(lambda done: self._heard(number, done))

    def _heard(self, number: int, done: asyncio.Future[Decided]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Rejected) and error.rejection in ENDS_INCARNATION:
            return  # Told again by `begin`.
        if error is not None:
            log.error("report not taken", error=str(error))
        self._untold.pop(number, None)

    # Progress

    def progress(self, task: str, step: int, busy_us: int = 0) -> None:
        """A worker has finished a step. Of several in a short time only the newest is reported.
        `busy_us` is what it has worked on all of its steps."""
        progress = self._progress.setdefault(task, _Progress())
        progress.waiting = step
        progress.busy_us = max(busy_us, progress.busy_us)
        self._send_progress_if_due(task)

    def flush_progress(self, task: str) -> None:
        """Report the newest step now, before whatever is reported next."""
        progress = self._progress.get(task)
        if progress is not None and progress.waiting is not None and self.incarnation:
            self._send_progress(task, progress)

    def _send_progress_if_due(self, task: str) -> None:
        progress = self._progress.get(task)
        if progress is None or progress.waiting is None or not self.incarnation:
            return
        if progress.under_way is not None:
            return
        loop = asyncio.get_running_loop()
        due_s = progress.sent_s + PROGRESS_PERIOD_S
        if loop.time() >= due_s:
            self._send_progress(task, progress)
        elif progress.timer is None:
            progress.timer = loop.call_at(due_s, self._on_timer, task, progress)

    def _on_timer(self, task: str, progress: _Progress) -> None:
        progress.timer = None
        self._send_progress_if_due(task)

    def _send_progress(self, task: str, progress: _Progress) -> None:
        step, progress.waiting = progress.waiting, None
        assert step is not None
        progress.sent_s = asyncio.get_running_loop().time()
        busy_us, progress.told_us = progress.busy_us - progress.told_us, progress.busy_us
        event = ProgressReported(self._host, self.incarnation, task, step, busy_us)
        future = self._channel.report(event)
        progress.under_way = future
        future.add_done_callback(lambda done: self._progress_decided(task, progress, done))

    def _progress_decided(
        self, task: str, progress: _Progress, done: asyncio.Future[Decided]
    ) -> None:
        if not done.cancelled():
            # A refused step is in the log as refused, and a newer one follows.
            done.exception()
        if progress.under_way is done:
            progress.under_way = None
            if self._progress.get(task) is progress:
                self._send_progress_if_due(task)

    # Requests of workers

    async def request(self, event: Callable[[int], AnyEvent], timeout_s: float) -> Decided:
        """Report what `event(incarnation)` makes and wait for the decision, through a change of
        incarnation. Raises Rejected, or TimeoutError: it may then still be recorded."""
        async with asyncio.timeout(timeout_s):
            while True:
                await self._registered.wait()
                incarnation, over = self.incarnation, self._over
                try:
                    return await asyncio.shield(self._channel.report(event(incarnation)))
                except Rejected as rejected:
                    if rejected.rejection not in ENDS_INCARNATION:
                        raise
                # The news that the incarnation is over is on its way to us.
                await over.wait()


def fact_event(record: TaskRecord, fact: Fact, host: str, incarnation: int) -> AnyEvent:
    """The event that says so."""
    task = record.order.task
    pid = record.process.pid if record.process else 0
    if fact is Fact.STARTED:
        return TaskStarted(host, incarnation, task, pid)
    if fact is Fact.LAUNCH_FAILED:
        return LaunchFailed(host, incarnation, task, record.launch_error, record.user_error)
    if fact is Fact.UNKILLABLE:
        return TaskUnkillable(host, incarnation, task, record.unkillable_pid)
    if fact is Fact.REAPED:
        return TaskReaped(host, incarnation, task)
    facts = record.exit
    assert facts is not None, f"{task} has not exited"
    return TaskExited(
        host, incarnation, task, facts.exit_code, facts.signal, facts.observed, facts.expected,
        facts.oom, facts.error, facts.stderr_tail, facts.failed_at_ms,
    )  # fmt: skip
