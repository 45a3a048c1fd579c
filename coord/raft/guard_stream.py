"""The leader's half of the guard: what is sent to each follower, and what its replies count for
(rules G3, G6). The idea is etcd raft's Progress.

A stream starts as a probe: one append in flight until a success tells where the follower's log
agrees. Then entries are streamed, each sent once, until a reject, a new connection or a new term.
"""

from __future__ import annotations

from collections import deque

from coord.raft.guard_append import LogView, Message
from coord.raft.timings import DEFAULT_TIMINGS, RaftTimings


class Stream:
    """Where one follower stands, in one term, over one connection. `limits` says how much an append
    carries, and how much may be in flight."""

    def __init__(self, limits: RaftTimings = DEFAULT_TIMINGS) -> None:
        self.limits = limits
        self.term = 0
        self.streaming = False
        self.next_index = 1
        """The first entry to send next."""
        self.sequence = 0
        """Of the newest append sent."""
        self.probe = 0
        """Sequence of the probe in flight, 0 for none."""
        self.changed_at = 0
        """Sequence at the last change of mode: older rejects say nothing any more."""
        self._in_flight: deque[tuple[int, int]] = deque()
        self._in_flight_bytes = 0

    def start(self, term: int, next_index: int) -> None:
        """A new term: all is to be found out anew. Sequences go on, the connection is the same."""
        self.term = term
        self.to_probe(next_index)

    def to_probe(self, next_index: int) -> None:
        self.streaming = False
        self.probe = 0
        self.next_index = max(1, next_index)
        self.changed_at = self.sequence
        self._in_flight.clear()
        self._in_flight_bytes = 0

    def to_stream(self, next_index: int) -> None:
        self.streaming = True
        self.probe = 0
        self.next_index = next_index
        self.changed_at = self.sequence

    def number(self) -> int:
        """The sequence number of the next append."""
        self.sequence += 1
        return self.sequence

    def sent(self, sequence: int, size_bytes: int) -> None:
        self._in_flight.append((sequence, size_bytes))
        self._in_flight_bytes += size_bytes

    def answered(self, sequence: int) -> None:
        """Replies come in order: with this one, all before it are answered or lost."""
        while self._in_flight and self._in_flight[0][0] <= sequence:
            self._in_flight_bytes -= self._in_flight.popleft()[1]
        if self.probe and sequence > self.probe:
            self.probe = 0

    @property
    def window_bytes(self) -> int:
        return self.limits.window_bytes - self._in_flight_bytes


def sign_of_life(stream: Stream, term: int, commit_index: int) -> Message:
    """An append that claims nothing and is answered by `alive`."""
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": commit_index,
        "sequence": stream.number(),
    }


def appends(stream: Stream, log: LogView, term: int, commit_index: int) -> list[Message] | None:
    """Everything that may be sent now, at least one message. None when the entry before the next
    one is no longer in the log: only a snapshot can help."""
    if stream.streaming and log.term_at(stream.next_index - 1) is None:
        stream.to_probe(stream.next_index)
    if stream.probe:
        return [sign_of_life(stream, term, commit_index)]
    if log.term_at(stream.next_index - 1) is None:
        if stream.next_index <= log.first_index:
            return None
        stream.to_probe(log.last_index + 1)
    if not stream.streaming:
        message = _append(stream, log, term, commit_index)
        stream.probe = message["sequence"]
        return [message]
    messages: list[Message] = []
    while not messages or (stream.next_index <= log.last_index and stream.window_bytes > 0):
        message = _append(stream, log, term, commit_index)
        if message["entries"]:
            stream.next_index = message["entries"][-1][1] + 1
        messages.append(message)
    return messages


def _append(stream: Stream, log: LogView, term: int, commit_index: int) -> Message:
    entries = []
    if stream.next_index <= log.last_index and (not stream.streaming or stream.window_bytes > 0):
        entries = log.entries(stream.next_index, stream.limits.append_bytes)
    message: Message = {
        "type": "append_entries",
        "term": term,
        "commit_index": commit_index,
        "prevLogIdx": stream.next_index - 1,
        "prevLogTerm": log.term_at(stream.next_index - 1),
        "entries": entries,
        "sequence": stream.number(),
    }
    stream.sent(message["sequence"], sum(len(entry[0]) for entry in entries))
    return message


def has_more(stream: Stream, log: LogView) -> bool:
    """Whether a reply lets more be sent at once."""
    if stream.probe:
        return False
    return not stream.streaming or (stream.next_index <= log.last_index and stream.window_bytes > 0)


def counts(reply: Message, term: int, leads: bool) -> bool:
    """Rule G3: a reply counts only for the leader of the term whose append it answers."""
    return leads and reply["term"] == term


def clamp(reply: Message, last_index: int) -> Message:
    """Rule G3: no follower's log goes further than the leader's own."""
    if reply["type"] != "next_node_idx":
        return reply
    return {**reply, "next_node_idx": max(1, min(reply["next_node_idx"], last_index + 1))}


def take_reply(stream: Stream, reply: Message, last_index: int) -> list[Message]:
    """Rule G6: move the stream by a reply that counts; what the library is told of it."""
    stream.answered(reply["sequence"])
    if reply["type"] == "alive":
        if reply["sequence"] == stream.probe:
            stream.probe = 0
        return [seen_alive(last_index)]
    next_index = reply["next_node_idx"]
    if reply["success"]:
        if stream.streaming:
            stream.next_index = max(stream.next_index, next_index)
        elif reply["sequence"] > stream.changed_at:
            stream.to_stream(next_index)
        success = {
            "type": "next_node_idx",
            "next_node_idx": next_index,
            "reset": False,
            "success": True,
        }
        return [success, restated(last_index)]
    if reply["sequence"] > stream.changed_at:
        stream.to_probe(next_index)
    return [seen_alive(last_index)]


def seen_alive(last_index: int) -> Message:
    """For the library: the follower lives, and nothing else."""
    return {**restated(last_index), "reset": False}


def restated(last_index: int) -> Message:
    """For the library: everything was sent. It keeps one number for what to send next and for what
    was acknowledged; the first is the stream's business."""
    return {
        "type": "next_node_idx",
        "next_node_idx": last_index + 1,
        "reset": True,
        "success": False,
    }
