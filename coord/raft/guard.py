"""The guard: a pure filter between the wire and PySyncObj.

It sees every message in and out as a dict, and the log; it does no I/O, reads no clock and draws no
random number. `outgoing` turns a message of the library into what is sent; `incoming` turns what
arrived into steps: what the library is handed, what is sent, what is fetched. The rules (rules.py)
stand in the modules guard_append, guard_stream and guard_snapshot; this one puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from coord.raft import guard_append, guard_snapshot, guard_stream
from coord.raft.guard_append import LogView, Message
from coord.raft.guard_snapshot import OfferAnswer, SnapshotPoint
from coord.raft.guard_stream import Stream
from coord.raft.rules import ALL_RULES
from coord.raft.timings import DEFAULT_TIMINGS, RaftTimings

FORWARDED = ("apply_command", "apply_command_response")


class RaftView(Protocol):
    """What the guard reads of this node's raft."""

    @property
    def term(self) -> int: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def applied_index(self) -> int: ...
    @property
    def leads(self) -> bool: ...
    @property
    def voters(self) -> tuple[int, ...]:
        """Nodes of the present configuration."""


class Answering(msgspec.Struct, frozen=True):
    """The append that the library is being handed: its reply is stamped and limited by it."""

    term: int
    sequence: int
    covered: int | None
    next_if_rejected: int


class Deliver(msgspec.Struct, frozen=True):
    """Hand this to the library as coming from the peer."""

    message: Message
    answering: Answering | None = None


class Send(msgspec.Struct, frozen=True):
    """Send this to the peer that the message came from."""

    message: Message


class Fetch(msgspec.Struct, frozen=True):
    """Fetch this snapshot from the peer, unless that is under way."""

    point: SnapshotPoint


class Install(msgspec.Struct, frozen=True):
    """Hand this to the library; its loading must install the fetched snapshot."""

    point: SnapshotPoint
    message: Message
    answering: Answering


Step = Deliver | Send | Fetch | Install


class Guard:
    """The rules of one node. `snapshot` says what could be offered, `fetched` what was fetched."""

    def __init__(
        self,
        log: LogView,
        raft: RaftView,
        snapshot: Callable[[], SnapshotPoint | None],
        fetched: Callable[[], SnapshotPoint | None],
        rules: frozenset[str] = ALL_RULES,
        limits: RaftTimings = DEFAULT_TIMINGS,
    ) -> None:
        self.rules = rules
        self.answering: Answering | None = None
        """Set while the library handles an append."""
        self._log = log
        self._raft = raft
        self._snapshot = snapshot
        self._fetched = fetched
        self._limits = limits
        self._streams: dict[int, Stream] = {}
        self._voted: tuple[int, set[int]] = (0, set())

    def connected(self, peer: int) -> list[Message]:
        """A new connection: nothing is known of what the old one brought over.

        Returns what the library is told: that everything was sent. Else it would turn to its dump
        for a follower that was away while the log was shortened, again and again within one tick.
        """
        self._streams[peer] = Stream(self._limits)
        if "G6" not in self.rules or not self._raft.leads or peer not in self._raft.voters:
            return []
        return [guard_stream.restated(self._log.last_index)]

    # From the library to the wire

    def outgoing(self, peer: int, message: Message) -> list[Message]:
        """What to send for a message of the library's: nothing, itself, or several others."""
        kind = message["type"]
        if kind in FORWARDED and "G14" in self.rules:
            return []
        if kind == "next_node_idx":
            return [self._stamp(message)]
        if kind != "append_entries":
            return [message]
        if "G6" in self.rules:
            return self.pump(peer)
        return self._unstreamed(peer, message)

    def pump(self, peer: int) -> list[Message]:
        """Whatever may be sent to a follower now, at least a sign of life (rule G6)."""
        raft = self._raft
        stream = self._stream(peer)
        messages = guard_stream.appends(stream, self._log, raft.term, raft.commit_index)
        if messages is not None:
            return messages
        point = self._snapshot()
        if point is None:
            return [guard_stream.sign_of_life(stream, raft.term, raft.commit_index)]
        stream.probe = stream.number()
        return [guard_snapshot.offer(raft.term, raft.commit_index, stream.probe, point)]

    def _stream(self, peer: int) -> Stream:
        stream = self._streams.setdefault(peer, Stream(self._limits))
        if stream.term != self._raft.term:
            stream.start(self._raft.term, self._log.last_index)
        return stream

    def _unstreamed(self, peer: int, message: Message) -> list[Message]:
        """Without G6: as the library says, but snapshots as offers."""
        stream = self._streams.setdefault(peer, Stream(self._limits))
        if "serialized" in message:
            point = self._snapshot()
            chunk = message["serialized"]
            if point is None or not chunk or not chunk[1]:
                return []
            raft = self._raft
            return [guard_snapshot.offer(raft.term, raft.commit_index, stream.number(), point)]
        numbered = {**message, "sequence": stream.number()}
        if message.get("prevLogIdx", 0) is None:
            del numbered["prevLogIdx"], numbered["prevLogTerm"]
        return [numbered]

    def _stamp(self, reply: Message) -> Message:
        """Rules G3, G1.covered: a reply says which append it answers, and no more than that."""
        answering = self.answering
        if answering is None:
            return {**reply, "term": self._raft.term, "sequence": 0}
        next_index = reply["next_node_idx"]
        if not reply["success"]:
            next_index = min(next_index, answering.next_if_rejected)
        elif "G1.covered" in self.rules:
            next_index = guard_append.acknowledged(next_index, answering.covered)
        return {
            **reply,
            "next_node_idx": next_index,
            "term": answering.term,
            "sequence": answering.sequence,
        }

    # From the wire to the library

    def incoming(self, peer: int, message: Message) -> list[Step]:
        """The steps to take, in order. Raises GuardBroken."""
        kind = message["type"]
        if kind in FORWARDED and "G14" in self.rules:
            return []
        if kind in ("append_entries", "offer"):
            return self._incoming_append(message)
        if kind in ("next_node_idx", "alive"):
            return self._incoming_reply(peer, message)
        if kind == "response_vote":
            return [Deliver(message)] if self._vote_counts(peer, message) else []
        if kind in ("request_vote", "timeout_now"):
            return [Deliver(message)]
        return []

    def _incoming_append(self, message: Message) -> list[Step]:
        raft = self._raft
        if message["term"] < raft.term:
            return [Send(cannot_win(raft.term))] if "G10" in self.rules else []
        base = max(raft.commit_index, raft.applied_index, self._log.first_index)
        if message["type"] == "offer":
            return self._incoming_offer(message, base)
        if "prevLogIdx" not in message:
            return [self._sign_of_life(message), self._alive(message)]
        rejected = guard_append.next_after_reject(message, base, self._log.last_index)
        covered: int | None = guard_append.verified_end(message)
        if "G1" in self.rules:
            related = guard_append.relate_append(message, self._log, base)
            message, covered = related.message, related.covered
        return [self._deliver_append(message, covered, rejected)]

    def _deliver_append(self, message: Message, covered: int | None, rejected: int) -> Deliver:
        answering = Answering(message["term"], message["sequence"], covered, rejected)
        return Deliver(self._capped(message, covered), answering)

    def _incoming_offer(self, message: Message, base: int) -> list[Step]:
        point = guard_snapshot.point_of(message)
        answer = guard_snapshot.answer_offer(
            point, self._log, base, self._fetched(), "G7.tail" in self.rules
        )
        answering = Answering(message["term"], message["sequence"], point.index, base + 1)
        if answer is OfferAnswer.HELD:
            held = self._capped(guard_snapshot.held(message, self._log), point.index)
            return [Deliver(held, answering)]
        if answer is OfferAnswer.INSTALL:
            install = self._capped(guard_snapshot.installation(message), point.index)
            return [Install(point, install, answering)]
        return [self._sign_of_life(message), self._alive(message), Fetch(point)]

    def _sign_of_life(self, message: Message) -> Deliver:
        """What keeps the library following and claims nothing."""
        claimless = {
            "type": "append_entries",
            "term": message["term"],
            "commit_index": message["commit_index"],
        }
        return Deliver(self._capped(claimless, None))

    def _alive(self, message: Message) -> Send:
        return Send({"type": "alive", "term": message["term"], "sequence": message["sequence"]})

    def _capped(self, message: Message, covered: int | None) -> Message:
        if "G2" not in self.rules:
            return message
        return guard_append.cap_commit(message, covered, self._raft.commit_index)

    def _incoming_reply(self, peer: int, reply: Message) -> list[Step]:
        raft, last_index = self._raft, self._log.last_index
        if "G3" in self.rules:
            if not guard_stream.counts(reply, raft.term, raft.leads):
                return []
            reply = guard_stream.clamp(reply, last_index)
        if "G6" not in self.rules:
            told = guard_stream.seen_alive(last_index) if reply["type"] == "alive" else reply
            return [Deliver(told)]
        stream = self._stream(peer)
        steps: list[Step] = [
            Deliver(told) for told in guard_stream.take_reply(stream, reply, last_index)
        ]
        if raft.leads and reply["type"] != "alive" and guard_stream.has_more(stream, self._log):
            steps += [Send(more) for more in self.pump(peer)]
        return steps

    def _vote_counts(self, peer: int, message: Message) -> bool:
        """Rule G4: votes are counted by voter, not by message."""
        if "G4" not in self.rules:
            return True
        term, voted = self._voted
        if term != message["term"]:
            voted = set()
            self._voted = (message["term"], voted)
        if peer in voted or peer not in self._raft.voters:
            return False
        voted.add(peer)
        return True


def cannot_win(term: int) -> Message:
    """Rule G10: a vote request that everybody refuses, but whose term deposes a stale leader."""
    return {"type": "request_vote", "term": term, "last_log_index": 0, "last_log_term": 0}
