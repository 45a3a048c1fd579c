"""What raft promises, checked on everything that simulated servers say, store and apply."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from coord.raft.guard_append import Message
from coord.raft.journal import HardState
from coord.raft.ports import Committed, Member, NotCommitted, ProposeOutcome, RaftStatus, Role
from coord_sim.kernel import SimProcess
from coord_sim.world.disk import SimDisk
from coord_sim.world.violation import Violation

ONE_LEADER = "a term has one leader"
ELECTED = "a leader was voted for by a majority"
CAN_WRITE = "a leader that cannot write steps down"
TERM_MONOTONE = "a node's term never goes back, not even over a crash"
ONE_VOTE = "a node votes for one candidate in a term, and remembers it over a crash"
NEVER_CHANGES = "what was applied at an index never changes, on any node"
IN_ORDER = "a node applies each index once, in order"
MAJORITY = "nothing is committed without being durable on a majority"
DURABLE = "what is acknowledged is durable on a majority"
STAYS = "a committed entry never leaves a disk that holds it"
KEPT = "what a node acknowledged stays in its log for as long as that leader's term lasts"
OFFERABLE = "a snapshot that a node offers can be fetched from it"
ONCE = "what was proposed once is applied at one index"
AS_SAID = "an acknowledged proposal stands at the index that was said"
REFUSED = "what was refused is never applied"
ANSWERED = "every proposal is answered within its deadline"
SAME_DIGEST = "nodes have the same digest at the same index"
HALTED = "no server halts by itself"
CATCHES_UP = "after the last fault every member catches up"
REFUSES_DAMAGE = "damaged data is never used"

PROPERTIES = (
    ONE_LEADER,
    ELECTED,
    CAN_WRITE,
    TERM_MONOTONE,
    ONE_VOTE,
    NEVER_CHANGES,
    IN_ORDER,
    MAJORITY,
    DURABLE,
    STAYS,
    KEPT,
    OFFERABLE,
    ONCE,
    AS_SAID,
    REFUSED,
    ANSWERED,
    SAME_DIGEST,
    HALTED,
    CATCHES_UP,
    REFUSES_DAMAGE,
)

SLACK_S = 0.001
"""Timers of one instant run one after another."""


class Asked(msgspec.Struct):
    """A proposal that is not answered yet."""

    number: int
    process: SimProcess
    until_s: float
    """Moves on by what the process stands still meanwhile."""
    blocked_s: float
    payload: bytes
    deadline_s: float
    """As the caller said; `until_s` is sooner once the node leads no more."""

    def late_s(self, now_s: float) -> float:
        """Seconds past the deadline, not counting when the process could not answer."""
        if self.process.blocked:
            return 0.0
        return now_s - self.until_s - (self.process.blocked_s - self.blocked_s)


class RaftChecks:
    """Told by `SimServers` of everything; tells `broken` of each violation."""

    def __init__(self, servers: dict[int, Any], broken: Callable[[Violation], None]) -> None:
        self.leaders: dict[int, int] = {}
        """Term to leader."""
        self.applied: dict[int, tuple[int, bytes]] = {}
        """Raft index to (term, digest of the payload)."""
        self.digests: dict[int, str] = {}
        """Index of the log to running digest."""
        self.acknowledged = 0
        self.unknown = 0
        self.refused: dict[bytes, str] = {}
        self._servers = servers
        self._broken = broken
        self._terms: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        """(node, term) to whom it voted for, as it told others."""
        self._told_terms: dict[int, int] = {}
        self._kept: dict[int, tuple[int, int]] = {}
        """Node to the newest term in which it acknowledged entries, and the last of them."""
        self._positions: dict[int, int] = {}
        """The raft index that a running node last applied."""
        self._where: dict[bytes, int] = {}
        self._members: dict[int, list[tuple[Member, ...]]] = {}
        self._outstanding: dict[int, Asked] = {}
        self._asked = 0
        self._times: dict[bytes, int] = {}
        """How often a payload was proposed: barriers of one instant are alike."""

    # A node's life

    def started(self, number: int, disk: SimDisk) -> None:
        """Its process opens the disk: what it told others must be remembered there."""
        self._positions.pop(number, None)
        if any(where.startswith("raft_meta") for where in disk.flipped):
            return  # It must refuse them, which `SimServers` looks at.
        stored = disk.tables["raft_meta"].values.get(b"hard_state")
        told = self._told_terms.get(number, 0)
        if stored is None:
            if told:
                self._break(TERM_MONOTONE, f"node {number} told of term {told} and has none")
            return
        state = msgspec.json.decode(stored, type=HardState)
        if state.term < told:
            self._break(TERM_MONOTONE, f"node {number} told of term {told}, has {state.term}")
        vote = self._votes.get((number, state.term))
        if vote is not None and state.vote != vote:
            self._break(
                ONE_VOTE, f"node {number}, term {state.term}: told {vote}, has {state.vote}"
            )

    def forgotten(self, number: int) -> None:
        """Its disk was wiped, and its number is never used again."""
        self._told_terms.pop(number, None)

    def status(
        self, number: int, status: RaftStatus, now_s: float = 0.0, answers_s: float = 1e9
    ) -> None:
        """A change of role, term, leader, members or of whether it can write. One that leads no
        more answers what waits at it within `answers_s`."""
        self._hurry(number, status, now_s + answers_s)
        if status.term < self._told_terms.get(number, 0):
            self._break(
                TERM_MONOTONE,
                f"node {number} told of term {self._told_terms[number]}, now {status.term}",
            )
        known = self._members.setdefault(number, [])
        if not known or known[-1] != status.members:
            known.append(status.members)
            del known[:-3]
        if status.role is Role.LEADER:
            before = self.leaders.get(status.term)
            if before is None:
                self.leaders[status.term] = number
                self._check_votes(number, status)
            elif before != number:
                self._break(ONE_LEADER, f"term {status.term}: nodes {before} and {number}")

    def _hurry(self, number: int, status: RaftStatus, until_s: float) -> None:
        """Who waits at a node that was replaced need not wait for his deadline; a node that cannot
        write takes no turns until it can."""
        for asked in self._outstanding.values():
            if asked.number == number and status.read_only:
                asked.until_s = asked.deadline_s
            elif asked.number == number and status.role is not Role.LEADER:
                asked.until_s = min(
                    asked.until_s, until_s + asked.process.blocked_s - asked.blocked_s
                )

    def _check_votes(self, number: int, status: RaftStatus) -> None:
        """Whoever leads got votes, its own among them, of a majority of the members it knows."""
        members = [member.node for member in status.members]
        voters = [
            node
            for node in members
            if node == number or self._votes.get((node, status.term)) == number
        ]
        if 2 * len(voters) <= len(members):
            self._break(ELECTED, f"node {number}, term {status.term}: {voters} of {members}")

    def sent(self, sender: int, receiver: int, message: Message) -> None:
        """A message left: what it says of term, vote and log is public."""
        term = message.get("term")
        kind = message["type"]
        if kind == "next_node_idx" and message["success"]:
            kept = self._kept.get(sender, (0, 0))
            self._kept[sender] = max(kept, (message["term"], message["next_node_idx"] - 1))
        # A reply carries the term of the append that it answers, which may be an older one.
        if term is None or kind in ("next_node_idx", "alive", "bus"):
            return
        if term > self._told_terms.get(sender, 0):
            self._told_terms[sender] = term
        if kind == "response_vote":
            before = self._votes.setdefault((sender, term), receiver)
            if before != receiver:
                self._break(ONE_VOTE, f"node {sender}, term {term}: {before} and {receiver}")

    # What is applied

    def apply(self, number: int, index: int, term: int, payload: bytes) -> None:
        """A node applied a payload."""
        digest = _digest(payload)
        before = self.applied.get(index)
        if before is None:
            self.applied[index] = (term, digest)
            self._applied_first(number, index, digest)
        elif before != (term, digest):
            self._break(NEVER_CHANGES, f"raft index {index} on node {number}: {before}, now {term}")
        last = self._positions.get(number, 0)
        if index <= last:
            self._break(IN_ORDER, f"node {number} applied {index} after {last}")
        self._positions[number] = index

    def installed(self, number: int, index: int) -> None:
        """A snapshot took the place of a node's state."""
        last = self._positions.get(number, 0)
        if index < last:
            self._break(IN_ORDER, f"node {number} went from {last} back to a snapshot at {index}")
        self._positions[number] = index

    def digest(self, number: int, index: int, digest: str) -> None:
        """A node's running digest after an entry."""
        before = self.digests.setdefault(index, digest)
        if before != digest:
            self._break(SAME_DIGEST, f"index {index}: {before}, on node {number} {digest}")

    def removed(self, number: int, disk: SimDisk, entries: list[tuple[bytes, bytes]]) -> None:
        """A node took entries out of its log: off the front, which a state covers, or because a
        leader of a newer term never had them."""
        kept_term, kept_index = self._kept.get(number, (0, 0))
        if _stored_term(disk) != kept_term:
            kept_index = 0
        for key, stored in entries:
            index = int.from_bytes(key, "big")
            known = self.applied.get(index)
            term = int.from_bytes(stored[:8], "big")
            if known is not None and known[0] == term and not covers(disk, index):
                self._break(STAYS, f"node {number}: raft index {index} of term {term}")
            elif index <= kept_index and not covers(disk, index):
                self._break(KEPT, f"node {number}: raft index {index}, leader's term {kept_term}")

    def _applied_first(self, number: int, index: int, digest: bytes) -> None:
        other = self._where.setdefault(digest, index)
        if other != index and self._times.get(digest, 0) == 1:
            self._break(ONCE, f"one payload stands at raft index {other} and at {index}")
        if digest in self.refused and self._times.get(digest, 0) == 1:
            self._break(REFUSED, f"{self.refused[digest]}, and stands at raft index {index}")
        self._check_majority(MAJORITY, number, index)

    # Proposals

    def proposed(self, number: int, process: SimProcess, payload: bytes, until_s: float) -> int:
        """A proposal begins; the number it has here."""
        digest = _digest(payload)
        self._times[digest] = self._times.get(digest, 0) + 1
        self._asked += 1
        self._outstanding[self._asked] = Asked(
            number, process, until_s, process.blocked_s, digest, until_s
        )
        return self._asked

    def answered(self, asked: int, outcome: ProposeOutcome, now_s: float) -> None:
        """It has its outcome."""
        question = self._outstanding.pop(asked)
        number, digest = question.number, question.payload
        late_s = question.late_s(now_s)
        if late_s > SLACK_S:
            self._break(ANSWERED, f"node {number} answered {late_s:.3f} s late")
        if isinstance(outcome, Committed):
            self.acknowledged += 1
            found = self.applied.get(outcome.raft_index)
            if found is None or found[1] != digest:
                self._break(AS_SAID, f"node {number} said raft index {outcome.raft_index}")
            self._check_majority(DURABLE, number, outcome.raft_index)
        elif not isinstance(outcome, NotCommitted):
            self.unknown += 1
        elif self._times[digest] == 1:
            if digest in self._where:
                self._break(
                    REFUSED, f"{outcome.reason}, and stands at raft index {self._where[digest]}"
                )
            self.refused[digest] = outcome.reason

    def died(self, number: int) -> None:
        """Nobody waits for its answers any more."""
        for asked in [asked for asked, one in self._outstanding.items() if one.number == number]:
            del self._outstanding[asked]

    def overdue(self, now_s: float) -> None:
        """Look for proposals that nobody answered."""
        for question in self._outstanding.values():
            late_s = question.late_s(now_s)
            if late_s > SLACK_S:
                self._break(ANSWERED, f"node {question.number} is {late_s:.3f} s late")

    # Inside

    def _check_majority(self, property: str, number: int, index: int) -> None:
        """Of the members by which the node may have counted."""
        configurations = self._members.get(number) or []
        holders = self._holders(number, index)
        for members in configurations:
            nodes = [member.node for member in members]
            if 2 * len([node for node in nodes if node in holders]) > len(nodes):
                return
        if configurations:
            told = [[member.node for member in members] for members in configurations]
            self._break(property, f"raft index {index} on node {number}: on {holders} of {told}")

    def _holders(self, number: int, index: int) -> list[int]:
        """Nodes on whose disks the entry, or a state that covers it, would survive a crash. Of its
        own, a leader counts what it has committed, however slowly the disk takes it, since nothing
        leaves it before; a follower commits in the same turn in which it applies. A bit that turns
        over later does not unsay what a node said."""
        key = index.to_bytes(8, "big")
        server = self._servers[number]
        own = server.disk
        entry = own.opened.get("raft_log", key) if own.opened is not None else None
        leads = server.node is not None and server.node.leading
        counts_itself = entry is not None and (
            not leads or own.tables["raft_log"].values.get(key) == entry
        )
        found = []
        for node in sorted(self._servers):
            disk = self._servers[node].disk
            held = disk.undamaged("raft_log", key)
            holds = covers(disk, index) if held is None else entry is None or held == entry
            if holds or (node == number and counts_itself):
                found.append(node)
        return found

    def _break(self, property: str, detail: str) -> None:
        self._broken(Violation(property, detail))


def covers(disk: SimDisk, index: int) -> bool:
    """The log on the disk begins after this index: a state that holds it is durable there."""
    first = disk.tables["raft_log"].first()
    return first is not None and int.from_bytes(first[0], "big") > index


def _stored_term(disk: SimDisk) -> int:
    stored = disk.tables["raft_meta"].values.get(b"hard_state")
    return 0 if stored is None else msgspec.json.decode(stored, type=HardState).term


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()
