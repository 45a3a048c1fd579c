"""Writes: pipelined over one channel to the leader, each exactly once by its origin.

A write keeps its number for life, so that sending it again is safe; whatever is decided twice
is decided once. What is written in one turn of the loop leaves in one message. There is one timer
for all deadlines and resendings, and one task.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import suppress

from coord.client.backoff import Backoff
from coord.client.channel import (
    Channel,
    ChannelClosed,
    ChannelRefused,
    Dialer,
    EventUnsendable,
    stop_if_cancelled,
)
from coord.client.errors import (
    Busy,
    ClientClosed,
    CoordError,
    InvalidRequest,
    NotDone,
    OutcomeUnknown,
    Rejected,
    ServerRefused,
    Unavailable,
)
from coord.client.pending import ATTEMPT_S, UNDECIDED, PendingWrite
from coord.client.servers import ServerRing
from coord.client.views import Decided
from coord.model.channel import Hello, Result, Results, Submit, ToClient, Welcome
from coord.model.entry import Origin, Submission
from coord.model.events import AnyEvent
from coord.model.rejections import Rejection
from coord.sites import reach

DIAL_TIMEOUT_S = 1.0
LOOK_TIMEOUT_S = 0.3
"""For a server to say whether it knows a leader, while one that knows none is at hand."""
BACKOFF_FIRST_S = 0.02
BACKOFF_LIMIT_S = 1.0
AVOID_S = 1.0
"""How long a server that could not be reached is dialled after the others."""
AVOID_LEFT_S = 10.0
"""The same for one that was left because it had nothing decided."""
FINAL = {
    "too_large": "the event is larger than a server takes; shorten its longest field",
    "malformed": "the server cannot read it; use a client as new as the servers",
    "not_allowed": "only servers record such events",
    "read_only": "the server's disk is full; free space there, or name only other servers",
}
"""Reasons for which asking again at once changes nothing, and what to do."""


class Writer:
    """Owned by one Client, on its loop."""

    def __init__(self, ring: ServerRing, dialer: Dialer, hello: Hello, rng: random.Random) -> None:
        self._ring = ring
        self._dialer = dialer
        self._hello = hello
        self._rng = rng
        self._backoff = Backoff(rng, BACKOFF_FIRST_S, BACKOFF_LIMIT_S)
        self._waiting: deque[PendingWrite] = deque()
        """Without a number yet."""
        self._outbox: deque[PendingWrite] = deque()
        """Numbered, to be sent."""
        self._numbered: dict[int, PendingWrite] = {}
        """By number, in this order, until answered."""
        self._next_seq = 1
        self._window = 256
        self._applied_index = 0
        self._server = ""
        """URL of the one in use, or used last."""
        self._undecided = ""
        """Why it is to be left, once it owes no answer any more; empty while it is not."""
        self._leader_url = ""
        self._avoid: dict[str, float] = {}
        self._problem = "no server was tried"
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stalled = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def applied_index(self) -> int:
        """The newest log index that a server named."""
        return self._applied_index

    async def write(self, event: AnyEvent, timeout_s: float) -> Decided:
        """Have the event decided. Raises Rejected, OutcomeUnknown, Unavailable, Busy and more."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="coord client writer")
            self._task.add_done_callback(self._on_end)
        if self._task.done():
            raise ClientClosed from _defect(self._task)
        now_s = self._loop.time()
        future: asyncio.Future[Decided] = self._loop.create_future()
        write = PendingWrite(event, now_s, timeout_s, future)
        self._waiting.append(write)
        due_s = min(write.deadline_s, now_s + write.stall_s)
        if not self._timer_s or due_s < self._timer_s:
            self._arm(due_s)
        self._wake.set()
        return await future

    async def close(self) -> None:
        """End the conversation; writes under way end with OutcomeUnknown or ClientClosed."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        defect = _defect(task)
        for write in [*self._numbered.values(), *self._waiting]:
            if write.future.done():
                continue
            if _maybe_done(write):
                write.future.set_exception(OutcomeUnknown(f"{write.name}: the client was closed"))
            else:
                write.future.set_exception(defect or ClientClosed("the client was closed"))
        self._numbered.clear()
        self._waiting.clear()

    # Finding the leader

    async def _run(self) -> None:
        while True:
            if self._idle():
                self._wake.clear()
                await self._wake.wait()
            channel = await self._connect()
            if channel is None:
                await asyncio.sleep(self._backoff.next_s())
                continue
            try:
                await self._converse(channel)
            except* ChannelClosed as closed:
                self._problem = str(closed.exceptions[0])
            except* ChannelRefused as refused:
                self._problem = str(refused.exceptions[0])
            finally:
                await channel.close()
            stop_if_cancelled()
            if not self._leader_url:
                await asyncio.sleep(self._backoff.next_s())

    def _idle(self) -> bool:
        return not (self._waiting or self._numbered)

    async def _connect(self) -> Channel | None:
        """A channel to the leader, or to a server that will pass writes on to it."""
        leader_url, self._leader_url = self._leader_url, ""
        if leader_url and (leading := await self._dial(leader_url, DIAL_TIMEOUT_S)):
            return leading
        dialled: list[Channel] = []
        found: Channel | None = None
        try:
            found = await self._look_round(dialled)
        finally:
            for channel in dialled:
                if channel is not found:
                    await channel.close()
        return found

    async def _look_round(self, dialled: list[Channel]) -> Channel | None:
        """As `_connect`. A server that knows no leader may be cut off from the others: it is taken
        only when no other one knows better. Whatever was opened is in `dialled`."""
        spare: Channel | None = None
        for url in sorted(self._ring.round(), key=self._avoided_until_s):
            if spare is not None and self._avoided(url):
                break
            channel = await self._dial(url, LOOK_TIMEOUT_S if spare else DIAL_TIMEOUT_S)
            if channel is None:
                continue
            dialled.append(channel)
            if not channel.welcome.leader:
                spare = spare or channel
                continue
            leader_url = self._other_leader(channel.welcome)
            if leader_url and (leading := await self._dial(leader_url, DIAL_TIMEOUT_S)):
                return leading
            return channel
        return spare

    def _other_leader(self, welcome: Welcome) -> str:
        """URL of the leader when it is not the server that says so; empty when not worth a try."""
        if welcome.leader in (0, welcome.node):
            return ""
        url = self._ring.url_of(welcome.leader_api)
        return "" if self._avoided(url) else url

    def _avoided(self, url: str) -> bool:
        return self._loop.time() < self._avoid.get(url, 0.0)

    def _avoided_until_s(self, url: str) -> float:
        return self._avoid[url] if self._avoided(url) else 0.0

    async def _dial(self, url: str, timeout_s: float) -> Channel | None:
        try:
            return await self._dialer.dial(url, self._hello, timeout_s)
        except ChannelClosed as error:
            self._problem = str(error)
        except ChannelRefused as error:
            self._problem = str(error)
            if error.code in ("wrong_cluster", "protocol"):
                self._fail_all(error)
        self._avoid[url] = self._loop.time() + AVOID_S
        return None

    def _fail_all(self, refused: ChannelRefused) -> None:
        for write in [*self._numbered.values(), *self._waiting]:
            if _maybe_done(write):
                self._end(write, OutcomeUnknown(f"{write.name}: {refused}", refused.code))
            else:
                self._end(write, ServerRefused(f"{write.name}: {refused}", refused.code))
        self._waiting.clear()

    # One conversation

    async def _converse(self, channel: Channel) -> None:
        self._stalled.clear()
        self._server, self._undecided = channel.server, ""
        self._problem = f"{channel.server} gave no answer"
        self._on_welcome(channel.welcome)
        self._outbox.clear()
        for write in self._numbered.values():
            self._interrupt(write)
            self._outbox.append(write)
        self._wake.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(channel))
                group.create_task(self._watch_for_stall(channel))
                while True:
                    self._on_message(await channel.receive())
        finally:
            for write in self._numbered.values():
                self._interrupt(write)

    def _interrupt(self, write: PendingWrite) -> None:
        """No answer will come to the attempt under way."""
        write.uncertain = write.uncertain or write.sent_s > 0.0
        write.sent_s = write.resend_s = 0.0

    async def _send(self, channel: Channel) -> None:
        while True:
            self._wake.clear()
            writes = self._take()
            if not writes:
                self._leave_if_answered()
                await self._wake.wait()
                continue
            submissions = tuple([write.submission for write in writes if write.submission])
            reach("client.write.numbered")
            try:
                await channel.send(Submit(submissions, self._attempt_ms(writes)))
            except EventUnsendable as error:
                self._give_up_unsendable(writes, error)

    async def _watch_for_stall(self, channel: Channel) -> None:
        """A server that stays silent beyond its own deadline may hang for ever."""
        await self._stalled.wait()
        self._avoid[channel.server] = self._loop.time() + AVOID_LEFT_S
        raise ChannelClosed(f"{channel.server} owes an answer for too long")

    def _leave_if_answered(self) -> None:
        """Leave a server that has nothing decided. Not before it answered everything: a definite
        "not done" is worth more than to be elsewhere a little sooner."""
        if self._undecided and not any(write.sent_s for write in self._numbered.values()):
            self._avoid[self._server] = self._loop.time() + AVOID_LEFT_S
            raise ChannelClosed(f"{self._server} had nothing decided: {self._undecided}")

    def _take(self) -> list[PendingWrite]:
        """What to send now. Numbers stay within the window that servers remember."""
        if self._undecided:
            return []
        now_s = self._loop.time()
        taken = []
        while self._outbox:
            write = self._outbox.popleft()
            if write.submission is not None and not write.sent_s:
                write.sent_s = now_s
                write.resend_s = 0.0
                taken.append(write)
        oldest = next(iter(self._numbered), self._next_seq)
        while self._waiting and self._next_seq - oldest < self._window:
            write = self._waiting.popleft()
            if write.future.done():
                continue
            seq = self._next_seq
            self._next_seq += 1
            origin = Origin(self._hello.actor, 0, seq, self._applied_index)
            write.submission = Submission(origin, write.event)
            write.sent_s = now_s
            self._numbered[seq] = write
            taken.append(write)
        return taken

    def _attempt_ms(self, writes: list[PendingWrite]) -> int:
        remaining_s = max(write.deadline_s for write in writes) - self._loop.time()
        attempt_s = min(write.attempt_s for write in writes)
        return max(1, int(min(attempt_s, remaining_s) * 1000))

    def _give_up_unsendable(self, writes: list[PendingWrite], error: EventUnsendable) -> None:
        """Nothing of the message was sent: one event fails, the others go again."""
        bad = writes[error.position]
        for write in writes:
            write.sent_s = 0.0
            if write is not bad:
                self._outbox.append(write)
        self._end(bad, InvalidRequest(f"{bad.name}: {error}", "unsendable"))
        self._wake.set()

    # Answers

    def _on_message(self, message: ToClient) -> None:
        if isinstance(message, Results):
            self._applied_index = max(self._applied_index, message.applied_index)
            for result in message.results:
                self._on_result(result)
            if self._waiting or self._undecided:
                self._wake.set()
        elif isinstance(message, Welcome):
            self._on_leader_changed(message)

    def _on_welcome(self, welcome: Welcome) -> None:
        self._window = welcome.settings.request_window
        self._applied_index = max(self._applied_index, welcome.applied_index)

    def _on_leader_changed(self, welcome: Welcome) -> None:
        self._on_welcome(welcome)
        leader_url = self._other_leader(welcome)
        if leader_url:
            self._leader_url = leader_url
            raise ChannelClosed(f"the leader is now node {welcome.leader} at {leader_url}")

    def _on_result(self, result: Result) -> None:
        write = self._numbered.get(result.seq)
        if write is None:
            return
        if result.reason not in UNDECIDED:
            self._backoff.reset()
        elif any(url != self._server for url in self._ring.urls):
            self._undecided = result.reason
        if result.outcome == "committed":
            self._on_committed(write, result)
            return
        write.sent_s = 0.0
        write.refusal = result.reason
        write.retry_after_ms = result.retry_after_ms
        if result.outcome == "unknown":
            write.uncertain = True
        if result.reason in FINAL:
            self._end(write, _verdict(write, result.reason))
            return
        wait_s = max(result.retry_after_ms / 1000, self._rng.uniform(0.02, 0.06))
        write.resend_s = self._loop.time() + wait_s
        if not self._timer_s or write.resend_s < self._timer_s:
            self._arm(write.resend_s)

    def _on_committed(self, write: PendingWrite, result: Result) -> None:
        reach("client.answer.received")
        del self._numbered[result.seq]
        future = write.future
        if future.done():
            return
        if not result.rejection:
            future.set_result(Decided(result.index, result.result))
        elif result.rejection == Rejection.REQUEST_TOO_OLD and write.uncertain:
            future.set_exception(
                OutcomeUnknown(f"{write.name}: its outcome is no longer remembered")
            )
        else:
            future.set_exception(Rejected(write.name, result.rejection, result.index))

    # Deadlines

    def _arm(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._sweep)

    def _sweep(self) -> None:
        """End what is out of time, send again what is due, and see when to look next."""
        self._timer_s = 0.0
        now_s = self._loop.time()
        next_s = now_s + ATTEMPT_S
        stalled = False
        for write in list(self._numbered.values()):
            if write.deadline_s <= now_s:
                self._end(write, self._out_of_time(write))
                continue
            if write.resend_s and write.resend_s <= now_s:
                write.resend_s = 0.0
                self._outbox.append(write)
                self._wake.set()
            elif write.sent_s:
                stall_s = write.sent_s + write.stall_s
                stalled = stalled or stall_s <= now_s
                next_s = min(next_s, stall_s)
            next_s = min(next_s, write.deadline_s, write.resend_s or next_s)
        next_s = min(next_s, self._sweep_waiting(now_s, next_s))
        if stalled:
            self._stalled.set()
        if self._undecided:
            self._wake.set()
        if not self._idle():
            self._arm(next_s)

    def _sweep_waiting(self, now_s: float, next_s: float) -> float:
        still = deque[PendingWrite]()
        for write in self._waiting:
            if write.deadline_s <= now_s:
                self._end(write, self._out_of_time(write))
            else:
                still.append(write)
                next_s = min(next_s, write.deadline_s)
        self._waiting = still
        return next_s

    def _out_of_time(self, write: PendingWrite) -> CoordError:
        if write.refusal == "busy" and not _maybe_done(write):
            return Busy(
                f"{write.name}: the servers answered busy until the deadline, the last asking to "
                f"wait {write.retry_after_ms} ms; write slower or allow more time",
                write.retry_after_ms,
            )
        return _verdict(write, write.refusal or self._problem)

    def _end(self, write: PendingWrite, error: CoordError) -> None:
        """Answer the caller; the number is not used again."""
        if write.submission is not None:
            self._numbered.pop(write.submission.origin.seq, None)
            write.submission = None
        if not write.future.done():
            write.future.set_exception(error)


def _defect(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


def _maybe_done(write: PendingWrite) -> bool:
    return write.uncertain or write.sent_s > 0.0


def _verdict(write: PendingWrite, reason: str) -> CoordError:
    if _maybe_done(write):
        return OutcomeUnknown(f"{write.name}: no server said what became of it ({reason})", reason)
    if reason in FINAL:
        return NotDone(f"{write.name}: {reason}: {FINAL[reason]}", reason)
    if reason == "timeout":
        message = "no leader took it in time; a majority of the servers must be up"
        return Unavailable(f"{write.name}: {message}", "no_leader")
    return Unavailable(f"{write.name}: no server could take it in time: {reason}", "unavailable")
