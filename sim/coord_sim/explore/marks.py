"""Numbers that stand for contents. Two stages with the same numbers go on in the same way, so what
followed on one need not be executed on the other.

A state's numbers are kept up row by row while entries are applied, so that to compare two states
costs no more than to compare two numbers, however large they are.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from coord.core.state import TABLES, State

from .agents import Agent
from .fork import RowKey, essence

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def mark_of(content: Any) -> int:
    """64 bits that stand for anything that msgpack can hold, within this process alone: marks are
    asked whether they are equal and nothing else, so which numbers they are tells nowhere."""
    # A cryptographic hash took four times as long, and most of all marks are of small contents.
    return hash(_encode(content))


def number_of(text: str) -> int:
    """64 bits that stand for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(_encode(text), digest_size=8).digest())


class Marks:
    """Of the rows of one state. Moments are taken as they are, so two states can only be compared
    at the same log time; what has passed of them by then is not told apart from what is to come.

    A row is looked at when a number is asked for, however often it was written until then.
    """

    __slots__ = ("_each", "_requests", "_rows", "_written", "_written_requests")

    def __init__(self, state: State) -> None:
        self._each: dict[RowKey, int] = {}
        self._rows = 0
        self._requests = 0
        self._written: dict[RowKey, None] = {}
        self._written_requests: dict[RowKey, None] = {}
        self.note([(name, key) for name in TABLES for key in state.table(name)])

    def fork(self) -> Marks:
        copy = Marks.__new__(Marks)
        copy._each = self._each.copy()
        copy._rows = self._rows
        copy._requests = self._requests
        copy._written = self._written.copy()
        copy._written_requests = self._written_requests.copy()
        return copy

    def note(self, changed: list[RowKey]) -> None:
        """These rows were written."""
        for row in changed:
            if row[0] == "requests":
                self._written_requests[row] = None
            else:
                self._written[row] = None

    def rows(self, state: State) -> int:
        """Of all tables but the log of requests, as the state is now."""
        if self._written:
            self._rows ^= self._looked_at(state, self._written)
            self._written = {}
        return self._rows

    def requests(self, state: State) -> int:
        """Of the log of requests, as the state is now."""
        if self._written_requests:
            self._requests ^= self._looked_at(state, self._written_requests)
            self._written_requests = {}
        return self._requests

    def _looked_at(self, state: State, written: dict[RowKey, None]) -> int:
        """By what the number of all changes."""
        each = self._each
        change = 0
        for row in written:
            name, key = row
            change ^= each.pop(row, 0)
            if key in state.table(name):
                each[row] = mark = mark_of((name, key, essence(state, row)))
                change ^= mark
        return change


class AgentMarks:
    """Of all agents. They are replaced and never edited, so each is looked at once."""

    __slots__ = ("_each",)

    def __init__(self) -> None:
        self._each: dict[str, tuple[Agent, int]] = {}

    def fork(self) -> AgentMarks:
        copy = AgentMarks.__new__(AgentMarks)
        copy._each = self._each.copy()
        return copy

    def of(self, agents: dict[str, Agent], state: State) -> list[object]:
        """What all of them know, and by how much the count of decided reports is ahead of the
        state's, of whom it is."""
        each, hosts = self._each, state.hosts
        whole = 0
        ahead: list[object] = []
        for host, agent in agents.items():
            known = each.get(host)
            if known is None or known[0] is not agent:
                each[host] = known = (agent, mark_of(_essence(agent)))
            whole ^= known[1]
            row = hosts.get(host)
            seq = row.report_seq if row is not None else 0
            if agent.seq != seq:
                ahead.append((host, agent.seq - seq))
        if len(ahead) > 1:
            ahead.sort(key=str)
        return [whole, *ahead]


def _essence(agent: Agent) -> tuple[Any, ...]:
    """What of an agent decides what follows: all but the numbers of plans and reports."""
    return (
        agent.host,
        agent.registered,
        agent.incarnation,
        agent.outbox,
        list(agent.records.items()),
        sorted((task, sorted(said.sent)) for task, said in agent.reported.items()),
        sorted(agent.withheld),
        sorted(agent.burying),
        orders(agent),
    )


def orders(agent: Agent) -> list[tuple[str, str]]:
    """What its plan orders. Details of an order are in the rows that it was made of."""
    if agent.plan is None:
        return []
    return [(order.task, order.action) for order in agent.plan.tasks]


class Kept:
    """Remembers the mark of one thing that is replaced and never edited."""

    __slots__ = ("_mark", "_thing")

    def __init__(self) -> None:
        self._thing: object = None
        self._mark = 0

    def of(self, thing: object) -> int:
        if self._thing is not thing:
            self._thing, self._mark = thing, mark_of(thing)
        return self._mark


def derived(state: State) -> tuple[Any, ...]:
    """What a state keeps beside its rows and follows from them, if all is well."""
    return (
        len(state.last_seen_ms),
        state.slots,
        state.live_incarnations,
        list(state.relay_of.items()),
        list(state.waiting),
        list(state.finished),
        list(state.checkpoints_by_gang.values()),
    )


def heard(state: State) -> list[int]:
    """By slot, when its host was heard last; 0 where nobody waits for it."""
    return [
        seen_ms if incarnation else 0
        for seen_ms, incarnation in zip(state.last_seen_ms, state.live_incarnations, strict=True)
    ]


def alarms(state: State) -> int:
    """Of when the leader looks at its deadlines. Rows do not tell: an alarm may be early, and
    a look at the clock lets log time pass although nothing is due."""
    return hash(frozenset(state.timers._due.items()))
