"""Who is connected here, and what each is still to be told.

A session holds no queue of plans or acknowledgements: it knows that a plan, a leader or a beat is
due and reads the newest when it sends (level-triggered). Only answers and reads of task output
queue up, and those are bounded: a reader that leaves too many unread is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from coord.core.plans import host_plan
from coord.core.state import State
from coord.model.channel import (
    BeatSeen,
    LeaderChanged,
    LogChunk,
    LogRead,
    Refused,
    Result,
    Results,
    ToClient,
    Welcome,
)
from coord.model.entry import HOST_ACTOR
from coord.node.config import Limits

RESULTS_PER_MESSAGE = 4_096


MENDED_AT_ONCE = 256
"""Hosts whose plans are looked at in one go, whether they changed or not."""


class Ready(Protocol):
    """Set when a session has something to send, or was refused; cleared when it is taken."""

    def set(self) -> None: ...
    def clear(self) -> None: ...


class Session:
    """One connection of an agent (`host:<id>`), a client or a relay, or a conversation of an agent
    behind a relay. Lives on the loop's thread."""

    __slots__ = ("_beat", "_leader_due", "_limits", "_log_reads", "_plan_due", "_results", "actor",
                 "host", "incarnation", "number", "plan_sent", "ready", "refused")  # fmt: skip

    def __init__(self, number: int, actor: str, limits: Limits, ready: Ready) -> None:
        self.number = number
        self.actor = actor
        self.host = actor[len(HOST_ACTOR) :] if actor.startswith(HOST_ACTOR) else ""
        self.ready = ready
        self.refused: Refused | None = None
        self.incarnation = 0
        """Of the newest beat: proof that this is the registered agent."""
        self.plan_sent = (0, 0)
        """(incarnation, version) of the plan last taken."""
        self._limits = limits
        self._results: list[Result] = []
        self._beat = 0
        self._plan_due = False
        self._leader_due = False
        self._log_reads: list[LogRead] = []

    def deliver(self, result: Result) -> None:
        """An answer to something this session submitted."""
        self._results.append(result)
        self.ready.set()
        if len(self._results) > self._limits.session_results:
            self.refuse(
                "too_slow",
                f"{len(self._results)} answers are unread; the limit is "
                f"{self._limits.session_results}. Connect again and send what is undecided again",
            )

    def beat_seen(self, sequence: int) -> None:
        self._beat = max(self._beat, sequence)
        self.ready.set()

    def plan_changed(self) -> None:
        self._plan_due = True
        self.ready.set()

    def leader_changed(self) -> None:
        self._leader_due = True
        self.ready.set()

    def read_log(self, read: LogRead) -> None:
        self._log_reads.append(read)
        self.ready.set()

    def refuse(self, code: str, message: str) -> None:
        """End the conversation; the first reason stands."""
        if self.refused is None:
            self.refused = Refused(code, message)
            self._results.clear()
            self.ready.set()

    def take(self, state: State, welcome: Callable[[], Welcome]) -> list[ToClient]:
        """Everything to be sent now, in order; nothing more once the session is refused."""
        self.ready.clear()
        if self.refused is not None:
            return []
        messages: list[ToClient] = []
        applied_index = state.meta.applied_index
        if self._leader_due:
            self._leader_due = False
            messages.append(_leader_changed(welcome()))
        if self._results:
            results, self._results = self._results, []
            for start in range(0, len(results), RESULTS_PER_MESSAGE):
                part = tuple(results[start : start + RESULTS_PER_MESSAGE])
                messages.append(Results(part, applied_index))
        if self._plan_due:
            self._plan_due = False
            if self.host in state.hosts:
                plan = host_plan(state, self.host)
                self.plan_sent = (plan.incarnation, plan.version)
                messages.append(plan)
        if self._beat:
            messages.append(BeatSeen(self._beat, applied_index))
            self._beat = 0
        if self._log_reads:
            messages += self._log_reads
            self._log_reads = []
        return messages


def _leader_changed(welcome: Welcome) -> LeaderChanged:
    return LeaderChanged(
        welcome.cluster,
        welcome.node,
        welcome.leader,
        welcome.leader_api,
        welcome.applied_index,
        welcome.settings,
    )


class Sessions:
    """All sessions of this node, and the way to a host's agent."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._numbers = count(1)
        self._all: dict[int, Session] = {}
        self._by_host: dict[str, dict[int, Session]] = {}
        self._to_mend: list[str] = []
        """Hosts whose agents' plans are looked at in this round."""
        self._reads: dict[int, tuple[int, asyncio.Future[LogChunk | None]]] = {}
        self._read_numbers = count(1)

    def __len__(self) -> int:
        return len(self._all)

    def agents(self) -> int:
        return len(self._by_host)

    def attach(self, actor: str, ready: Ready | None = None) -> Session:
        """A new conversation. An agent's first plan is due at once."""
        session = Session(next(self._numbers), actor, self._limits, ready or asyncio.Event())
        self._all[session.number] = session
        if session.host:
            self._by_host.setdefault(session.host, {})[session.number] = session
            session.plan_changed()
        return session

    def detach(self, session: Session) -> None:
        """The connection is gone. Idempotent."""
        self._all.pop(session.number, None)
        of_host = self._by_host.get(session.host)
        if of_host is not None:
            of_host.pop(session.number, None)
            if not of_host:
                del self._by_host[session.host]
        for owner, future in list(self._reads.values()):
            if owner == session.number and not future.done():
                future.set_result(None)

    def all(self) -> Iterable[Session]:
        return list(self._all.values())

    def offer_plans(self, state: State, hosts: Iterable[str]) -> None:
        """Tell the agents of these hosts, if the plan is another than the one they were sent."""
        by_host = self._by_host
        for host_id in hosts:
            if host_id in by_host:
                self._offer_plan(state, host_id)

    def offer_all_plans(self, state: State) -> None:
        """The same for everybody: a snapshot was installed."""
        self.offer_plans(state, list(self._by_host))

    def mend_plans(self, state: State) -> None:
        """The same for a few hosts, others each time: whatever was missed is found in a while."""
        if not self._to_mend:
            self._to_mend = list(self._by_host)
        few = self._to_mend[-MENDED_AT_ONCE:]
        del self._to_mend[-MENDED_AT_ONCE:]
        self.offer_plans(state, few)

    def _offer_plan(self, state: State, host_id: str) -> None:
        host = state.hosts.get(host_id)
        if host is None:
            return
        newest = (host.incarnation, host.plan_version)
        for session in self._by_host[host_id].values():
            if session.plan_sent != newest:
                session.plan_changed()

    def leader_changed(self) -> None:
        for session in self._connected():
            session.leader_changed()

    def refuse_all(self, code: str, message: str) -> None:
        for session in self._connected():
            session.refuse(code, message)

    def _connected(self) -> list[Session]:
        """Those with a connection of their own: whoever is behind a relay hears it from there."""
        return [one for one in self._all.values() if isinstance(one.ready, asyncio.Event)]

    def agent_of(self, host: str) -> Session | None:
        """The session to ask about a host's files: the newest that has shown its incarnation."""
        found = sorted(
            self._by_host.get(host, {}).values(),
            key=lambda session: (session.incarnation, session.number),
        )
        return found[-1] if found else None

    async def read_log(
        self, session: Session, task: str, stream: str, *, offset: int, limit: int, timeout_s: float
    ) -> LogChunk | None:
        """Ask the agent for a piece of a task's output; None when it does not answer in time."""
        number = next(self._read_numbers)
        future: asyncio.Future[LogChunk | None] = asyncio.get_running_loop().create_future()
        self._reads[number] = (session.number, future)
        session.read_log(LogRead(number, task, stream, offset, limit))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._reads[number]

    def chunk_arrived(self, chunk: LogChunk) -> None:
        """The agent's answer; one that nobody waits for any more is dropped."""
        found = self._reads.get(chunk.request)
        if found is not None and not found[1].done():
            found[1].set_result(chunk)
