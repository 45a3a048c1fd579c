"""A cluster in memory that answers like servers do, and misbehaves when told to.

The real state machine decides, so that duplicates, gaps and incarnations are judged as in earnest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from coord.client.channel import ChannelClosed, ChannelRefused, frames_of
from coord.core.machine import apply
from coord.core.plans import host_plan
from coord.core.state import State, new_state
from coord.model.channel import (
    Beat,
    BeatSeen,
    Hello,
    LeaderChanged,
    LogChunk,
    Refused,
    Result,
    Results,
    Submit,
    ToClient,
    ToServer,
    Welcome,
)
from coord.model.entry import Entry, Origin, Recorded, Submission
from coord.model.events import AnyEvent, ClusterConfigured, HeartbeatsSeen, HostRegistered
from coord.model.rejections import Rejection
from coord.model.settings import Settings

Fault = Callable[["FakeServer", Submission], str]
"""Says what happens to a submission: empty (decided and answered), `lost` (neither), `cut_before`
and `cut_after` (the connection goes before or after it is decided), `unanswered` (decided only),
`busy`, `not_leader`, `unknown_before`, `unknown_after`, `read_only`."""


class FakeSession:
    """The server's end of one connection."""

    def __init__(self, server: FakeServer, hello: Hello) -> None:
        self.server = server
        self.hello = hello
        self.inbox: asyncio.Queue[ToClient | None] = asyncio.Queue()
        self.open = True
        self.received: list[ToServer] = []

    def say(self, message: ToClient) -> None:
        if self.open:
            self.inbox.put_nowait(message)

    def cut(self) -> None:
        """The connection is gone; what is under way in either direction is lost."""
        if self.open:
            self.open = False
            while not self.inbox.empty():
                self.inbox.get_nowait()
            self.inbox.put_nowait(None)


class FakeServer:
    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.url = f"http://server-{node}:7101"
        self.up = True
        self.mute = False
        """Takes connections and messages, and says nothing any more."""
        self.cut_off = False
        """Hears of no leader: what it is given it refuses only once the time allowed is up."""
        self.sessions: list[FakeSession] = []
        self.dialled = 0

    def welcome(self) -> Welcome:
        cluster = self.cluster
        leader = 0 if self.cut_off else cluster.leader
        api = cluster.servers[leader - 1].url.removeprefix("http://") if leader else ""
        index = cluster.state.meta.applied_index
        return Welcome(cluster.name, self.node, leader, api, index, cluster.settings)

    def attach(self, hello: Hello) -> FakeSession:
        session = FakeSession(self, hello)
        self.sessions.append(session)
        return session

    def stop(self) -> None:
        """kill -9."""
        self.up = False
        for session in self.sessions:
            session.cut()
        self.sessions.clear()

    def handle(self, session: FakeSession, message: ToServer) -> None:
        session.received.append(message)
        if self.mute or not session.open:
            return
        if isinstance(message, Submit):
            if self.cut_off:
                self._out_of_time(session, message)
            elif self.cluster.leader:
                self._submitted(session, message)
            else:
                self.cluster.held.append((self, session, message))
        elif isinstance(message, Beat):
            self._beat(session, message)
        elif isinstance(message, LogChunk):
            self.cluster.chunks.append(message)

    def _out_of_time(self, session: FakeSession, submit: Submit) -> None:
        results = [_refusal(one, "not_committed", "timeout") for one in submit.submissions]
        asyncio.get_running_loop().call_later(
            submit.timeout_ms / 1000, self.cluster.answer, session, results
        )

    def _submitted(self, session: FakeSession, submit: Submit) -> None:
        results = []
        for submission in submit.submissions:
            fault = self.cluster.fault(self, submission)
            if fault == "cut_before":
                session.cut()
                break
            if fault in ("", "cut_after", "unanswered", "unknown_after"):
                result = self.cluster.decide(submission)
                if fault == "":
                    results.append(result)
            if fault == "cut_after":
                session.cut()
                break
            if fault in ("busy", "not_leader", "read_only", "timeout"):
                results.append(_refusal(submission, "not_committed", fault))
            elif fault.startswith("unknown"):
                results.append(_refusal(submission, "unknown", "timeout"))
        self.cluster.answer(session, results)

    def _beat(self, session: FakeSession, beat: Beat) -> None:
        cluster = self.cluster
        cluster.beats.append((asyncio.get_running_loop().time(), self.node, beat))
        host = session.hello.actor.removeprefix("host:")
        if not cluster.takes_beats(self):
            return
        if cluster.state.hosts[host].incarnation != beat.incarnation:
            session.say(Refused("stale_incarnation", "registered again since"))
            session.open = False
            return
        cluster.record(
            Origin(f"node:{self.node}", 1),
            HeartbeatsSeen("test", (beat.slot,), (beat.incarnation,)),
        )
        session.say(BeatSeen(beat.sequence, cluster.state.meta.applied_index))


class FakeCluster:
    """Servers 1 to `nodes`, all of which see every decision at once."""

    def __init__(self, nodes: int = 3, settings: Settings | None = None) -> None:
        self.name = "test"
        self.settings = settings or Settings()
        self.state: State = new_state()
        self.records: list[Recorded] = []
        self.wall_ms = 1_000_000
        self.servers = [FakeServer(self, node) for node in range(1, nodes + 1)]
        self.leader = 1
        self.faults: deque[str] = deque()
        """One for each submission to come; then all is well."""
        self.always = ""
        """The fault of every submission, while `faults` is empty."""
        self.fault: Fault = self._scripted
        self.shuffle: Callable[[list[Result]], list[Result]] = lambda results: results
        self.held: list[tuple[FakeServer, FakeSession, Submit]] = []
        """What waits for a leader, as a server lets it."""
        self.beats: list[tuple[float, int, Beat]] = []
        self.takes_beats: Callable[[FakeServer], bool] = lambda server: True
        self.chunks: list[LogChunk] = []
        self.record(Origin("node:1", 1), ClusterConfigured(self.name, self.settings))

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def _scripted(self, server: FakeServer, submission: Submission) -> str:
        return self.faults.popleft() if self.faults else self.always

    def record(self, origin: Origin, event: AnyEvent) -> Recorded:
        self.wall_ms += 1
        index = self.state.meta.applied_index + 1
        recorded = apply(self.state, Entry(index, 1, self.wall_ms, origin, event))
        self.records.append(recorded)
        return recorded

    def decide(self, submission: Submission) -> Result:
        recorded = self.record(submission.origin, submission.event)
        origin, event = submission.origin, submission.event
        host = self.state.hosts.get(getattr(event, "host", ""))
        gap = recorded.rejection == Rejection.REPORT_GAP
        self.offer_plans()
        return Result(
            seq=origin.seq,
            outcome="committed",
            incarnation=origin.incarnation,
            index=recorded.duplicate_of or recorded.entry.index,
            rejection=recorded.rejection,
            result=recorded.result,
            last_report_seq=host.report_seq if host and gap else 0,
            slot=host.slot if host and isinstance(event, HostRegistered) else 0,
        )

    def answer(self, session: FakeSession, results: list[Result]) -> None:
        results = self.shuffle(results)
        if results:
            session.say(Results(tuple(results), self.state.meta.applied_index))

    def offer_plans(self) -> None:
        for session in self.agents():
            plan = host_plan(self.state, session.hello.actor.removeprefix("host:"))
            if plan.incarnation:
                session.say(plan)

    def agents(self) -> list[FakeSession]:
        return [
            session
            for server in self.servers
            for session in server.sessions
            if session.open and session.hello.actor.startswith("host:")
        ]

    def elect(self, leader: int) -> None:
        """Every server that lives learns of another leader (0: of none)."""
        self.leader = leader
        for server in self.servers:
            welcome = server.welcome()
            for session in server.sessions:
                session.say(
                    LeaderChanged(
                        welcome.cluster, welcome.node, welcome.leader, welcome.leader_api,
                        welcome.applied_index, welcome.settings,
                    )
                )  # fmt: skip
        if leader:
            held, self.held = self.held, []
            for server, session, submit in held:
                server.handle(session, submit)

    def accepted(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        """Events of this kind that took effect, in order: not refused, not repeated."""
        return [
            recorded.entry.event
            for recorded in self.records
            if isinstance(recorded.entry.event, kind)
            and recorded.accepted
            and not recorded.duplicate_of
        ]


def _refusal(submission: Submission, outcome: str, reason: str) -> Result:
    return Result(
        seq=submission.origin.seq,
        outcome=outcome,
        incarnation=submission.origin.incarnation,
        reason=reason,
        retry_after_ms=200 if reason == "busy" else 0,
    )


class FakeChannel:
    """The client's end. See coord.client.channel.Channel."""

    def __init__(self, session: FakeSession) -> None:
        self.server = session.server.url
        self.welcome = session.server.welcome()
        self.session = session

    async def send(self, message: ToServer) -> None:
        if not self.session.open:
            raise ChannelClosed(f"{self.server} went away")
        frames_of(message)
        self.session.server.handle(self.session, message)

    async def receive(self) -> ToClient:
        message = await self.session.inbox.get()
        if message is None:
            raise ChannelClosed(f"{self.server} closed the connection")
        if isinstance(message, Refused):
            raise ChannelRefused(self.server, message)
        return message

    async def close(self) -> None:
        self.session.cut()
        if self.session in self.session.server.sessions:
            self.session.server.sessions.remove(self.session)


class FakeDialer:
    """See coord.client.channel.Dialer. Remembers when each attempt was made."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.attempts: list[tuple[float, str]] = []

    async def dial(self, server: str, hello: Hello, timeout_s: float) -> FakeChannel:
        self.attempts.append((asyncio.get_running_loop().time(), server))
        await asyncio.sleep(0.001)
        found = [one for one in self.cluster.servers if one.url == server]
        if not found or not found[0].up:
            raise ChannelClosed(f"{server} cannot be reached: connection refused")
        found[0].dialled += 1
        if found[0].mute:
            await asyncio.sleep(timeout_s)
            raise ChannelClosed(f"{server} did not answer within {timeout_s:g} s")
        if hello.cluster and hello.cluster != self.cluster.name:
            raise ChannelRefused(server, Refused("wrong_cluster", f"this is {self.cluster.name}"))
        channel = FakeChannel(found[0].attach(hello))
        if hello.actor.startswith("host:"):
            plan = host_plan(self.cluster.state, hello.actor.removeprefix("host:"))
            if plan.incarnation:
                channel.session.say(plan)
        return channel

    async def close(self) -> None:
        pass
