"""The way of a request from here to the leader, wherever that is.

On the leader it goes to the proposer. On a follower it is forwarded, and sent again when the
leader changes or stays silent: a request decided twice takes effect once, by its origin. While no
leader is known it waits here, until its deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from coord.model.entry import Submission
from coord.node.config import NodeConfig
from coord.node.peers import SUBMIT_TOPIC, Peers, SubmitRefused
from coord.node.proposer import Proposer
from coord.node.requests import Request, RequestTable, key_of
from coord.raft.ports import NotCommitted, ProposeOutcome, RaftStatus, Role

RETRY_AFTER_MS = 200


class Router:
    """Owned by the node, on the loop's thread."""

    def __init__(
        self, config: NodeConfig, table: RequestTable, proposer: Proposer, peers: Peers
    ) -> None:
        self._config = config
        self._table = table
        self._proposer = proposer
        self._peers = peers
        self._outbox: deque[Request] = deque()
        self._in_flight: deque[tuple[float, Request]] = deque()
        self._leader = 0
        self._term = 0
        self._leading = False
        self._flush_scheduled = False

    @property
    def waiting(self) -> int:
        """Requests that have no leader to go to yet."""
        return len(self._outbox)

    def status_changed(self, status: RaftStatus) -> None:
        """Another leader, or another term: whatever is under way starts again."""
        leading = status.role == Role.LEADER
        if (status.leader, status.term, leading) == (self._leader, self._term, self._leading):
            return
        self._leader, self._term, self._leading = status.leader, status.term, leading
        held = self._proposer.drain()
        self._proposer.lead(status.term if self._leading else 0)
        self._refuse_forwarded([request for request in held if request.source], "not_leader")
        again = [request for at, request in self._in_flight if request.sent_at == at]
        again += [request for request in held if not request.source]
        self._in_flight.clear()
        self._outbox.extendleft(reversed(again))
        self._schedule()

    def route(self, requests: Iterable[Request]) -> None:
        """Send local requests on their way, in this order."""
        if self._leading and not self._outbox:
            self._proposer.enqueue(requests)
            return
        self._outbox.extend(requests)
        self._schedule()

    def forwarded(self, sender: int, submissions: tuple[Submission, ...], size_bytes: int) -> None:
        """A follower's requests arrived. What cannot be taken is refused at once."""
        reason = ""
        retry_after_ms = 0
        if not self._leading:
            reason = "not_leader"
        elif self._proposer.queued + len(submissions) > self._config.limits.pending_events:
            reason, retry_after_ms = "busy", RETRY_AFTER_MS
        if reason:
            keys = tuple(key_of(submission.origin) for submission in submissions)
            self._peers.send(sender, SubmitRefused(keys, reason, retry_after_ms))
            return
        each = size_bytes // max(1, len(submissions))
        self._proposer.enqueue(
            Request(submission, each, source=sender) for submission in submissions
        )

    def refused(self, message: SubmitRefused) -> None:
        """The leader did not propose these. Try elsewhere, or say so if nothing else happened."""
        again = []
        for key in message.keys:
            request = self._table.get(key)
            if request is None or not request.sent_at:
                continue
            request.attempts = max(0, request.attempts - 1)
            request.sent_at = 0.0
            if message.reason == "not_leader" or request.attempts:
                again.append(request)
            else:
                self._table.refuse(request, message.reason, message.retry_after_ms)
        self._outbox.extendleft(reversed(again))

    def handed_back(self, requests: tuple[Request, ...], outcome: ProposeOutcome) -> None:
        """The proposer's command with these was not seen to commit."""
        refusal = outcome.reason if isinstance(outcome, NotCommitted) else ""
        if refusal:
            self._refuse_forwarded([request for request in requests if request.source], refusal)
        again = []
        for request in requests:
            if request.source or request.done:
                continue
            if refusal in ("read_only", "too_large") and not request.attempts:
                self._table.refuse(request, refusal, RETRY_AFTER_MS)
            else:
                again.append(request)
        self._outbox.extendleft(reversed(again))
        self._schedule()

    def tick(self, now: float) -> None:
        """Forget what is decided, resend what is not after so long, retry what could not leave."""
        resend_before = now - self._config.intervals.resend_s
        again = []
        while self._in_flight:
            at, request = self._in_flight[0]
            if request.done or request.sent_at != at:
                self._in_flight.popleft()
            elif at <= resend_before:
                self._in_flight.popleft()
                again.append(request)
            else:
                break
        self._outbox.extendleft(reversed(again))
        if self._outbox:
            self.flush()

    def flush(self) -> None:
        """Send what waits, if there is somewhere to send it."""
        self._flush_scheduled = False
        if self._leading:
            self._proposer.enqueue(request for request in self._outbox if not request.done)
            self._outbox.clear()
        elif self._leader:
            self._forward()

    def _schedule(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def _forward(self) -> None:
        """One frame a turn of the loop, so that a long queue does not hold up the rest."""
        limits = self._config.limits
        now = asyncio.get_running_loop().time()
        frame: list[Request] = []
        size_bytes = 0
        while self._outbox and len(frame) < limits.forward_events:
            request = self._outbox[0]
            if not request.done:
                size_bytes += request.size_bytes
                if size_bytes > limits.forward_bytes and frame:
                    break
                frame.append(request)
            self._outbox.popleft()
        submissions = tuple(request.submission for request in frame)
        if frame and not self._peers.send_events(self._leader, SUBMIT_TOPIC, submissions):
            self._outbox.extendleft(reversed(frame))
            return
        for request in frame:
            request.attempts += 1
            request.sent_at = now
            self._in_flight.append((now, request))
        if self._outbox:
            self._schedule()

    def _refuse_forwarded(self, requests: list[Request], reason: str) -> None:
        by_source: dict[int, list[Request]] = {}
        for request in requests:
            by_source.setdefault(request.source, []).append(request)
        for source, of_source in sorted(by_source.items()):
            keys = tuple(request.key for request in of_source)
            self._peers.send(source, SubmitRefused(keys, reason, RETRY_AFTER_MS))
