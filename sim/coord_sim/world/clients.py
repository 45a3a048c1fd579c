"""Simulated people: each a process with the real `coord.client.Client`, asking at random.

Writes go over the simulated channels and are sent again as the library does it. Reads go over HTTP
in the product; here a read asks a server's node for the barrier and looks at its state, in the
server's own process, over ways that share the cuts and delays of the channels. What each call was
told is kept in `calls` and `reads`, for `client_checks`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec

from coord.client.client import Client
from coord.client.errors import NotDone, OutcomeUnknown, Rejected
from coord.model.channel import LogChunk, Result
from coord.model.entry import Origin, Submission
from coord.model.events import AnyEvent, JobSubmitted
from coord.node.node import Node, NodeStopped
from coord.node.reads import ReadUnavailable
from coord_sim.kernel import Kernel, SimProcess
from coord_sim.world.channels import Channels
from coord_sim.world.requests import Asker, Look, Mix, Seen, seen_in
from coord_sim.world.violation import Violation

FAILED = "a client never ends by itself"
RESTART_S = (0.5, 5.0)
"""Somebody starts a client that has died after a time drawn from here."""
BY_HTTP, LOOKS_AFTER = 0.2, 0.3
"""How often a request goes to one server as a script sends it, and how often whoever was told that
something is done looks at it at once."""
READ_S = 3.0
"""What a read is given; a server's barrier, a little less."""
PENDING, OK, REJECTED, NOT_DONE, UNKNOWN, DIED = (
    "pending",
    "ok",
    "rejected",
    "not_done",
    "unknown",
    "died",
)

T = TypeVar("T")


class Call(msgspec.Struct, eq=False):
    """One write: what was asked, when, and what its caller was told.

    The event carries `tag` as its actor, by which the log shows what became of it; calls that ask
    the same under one key share it. `outcome` is one of the words above; `died` means that there is
    nobody any more to be told. `floor` is the highest index that anybody had been told before.
    """

    tag: str
    client: str
    event: AnyEvent
    invoked_s: float
    deadline_s: float
    floor: int
    keyed: bool = False
    completed_s: float = 0.0
    outcome: str = PENDING
    index: int = 0
    result: int = 0
    rejection: str = ""
    detail: str = ""

    @property
    def pending(self) -> bool:
        return self.outcome == PENDING


class Read(msgspec.Struct):
    """One read that was answered. `floor` as in Call."""

    client: str
    server: int
    began_s: float
    completed_s: float
    floor: int
    index: int


class Servers(Protocol):
    """Whom clients talk to; `servers.SimServers` is one."""

    def node(self, n: int) -> Node | None: ...

    def process(self, n: int) -> SimProcess | None: ...

    def numbers(self) -> list[int]: ...

    def url(self, n: int) -> str: ...

    async def ask(
        self, n: int, question: Callable[[Node], Coroutine[Any, Any, T]], limit_s: float
    ) -> T | None: ...


class SimClients:
    """All clients, `client-1` to `client-<count>`, and an operator who only does as he is told.

    `removable` names hosts whose machines will never come back (see `requests.Asker`).
    """

    def __init__(
        self,
        kernel: Kernel,
        channels: Channels,
        servers: Servers,
        *,
        count: int = 2,
        mix: Mix | None = None,
        removable: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.kernel = kernel
        self.channels = channels
        self.servers = servers
        self.mix = mix if mix is not None else Mix()
        self.removable = removable
        self.quiet = False
        """Nobody begins anything new, but the operator when told."""
        self.calls: list[Call] = []
        self.reads: list[Read] = []
        self.on_answer: list[Callable[[Call], None]] = []
        self.on_read: list[Callable[[Read], None]] = []
        self.told_index = 0
        """The highest log index that anybody was told."""
        self.counts = dict.fromkeys(("calls", "reads", "unread", "outputs", "lives"), 0)
        names = [f"client-{number}" for number in range(1, count + 1)]
        self.all = {name: SimClient(self, name) for name in names}
        self.operator = SimClient(self, "operator", idle=True)
        self._rng = kernel.rng("clients")

    # Life

    def start_all(self) -> None:
        for client in (*self.all.values(), self.operator):
            client.start()

    def crash(self, name: str) -> None:
        """Kill a client with whatever it has under way; another life follows."""
        process = self.all[name].process
        if process is not None:
            process.kill()

    def pause(self, name: str) -> None:
        """Stop a client, as with SIGSTOP."""
        process = self.all[name].process
        if process is not None:
            process.pause()

    def resume(self, name: str) -> None:
        """Let it go on. Idempotent."""
        client = self.all[name]
        client.runs_since_s = self.kernel.now_s()
        if client.process is not None:
            client.process.resume()

    # What is asked

    async def ask(self, event: AnyEvent, timeout_s: float = 10.0) -> Call:
        """Have the operator ask this, for the simulation's own code; returns how it ended."""
        call = self.operator.begin(event, timeout_s)
        while call.pending:  # noqa: ASYNC110 there is no event that outlives the operator
            await asyncio.sleep(0.05)
        return call

    def burst(self, name: str, count: int) -> list[Call]:
        """Have a client ask for so many things at once, of which at most one is a job."""
        client = self.all[name]
        seen, jobs, calls = client.seen, 0, []
        for _ in range(count):
            event = client.asker.draw(seen)
            jobs += isinstance(event, JobSubmitted)
            if isinstance(event, Look) or (isinstance(event, JobSubmitted) and jobs > 1):
                event = client.asker.note(seen)
            calls.append(client.begin(event))
        return calls

    def ask_twice(self, name: str, event: AnyEvent, numbers: Sequence[int]) -> list[Call]:
        """Send one request under one key to several servers at once, as a script does over HTTP
        that gets no answer and tries elsewhere."""
        client = self.all[name]
        return client.begin_keyed(event, numbers)

    def pending(self) -> list[Call]:
        """Calls that nobody has been told the end of."""
        return [call for call in self.calls if call.pending]

    async def settled(self) -> None:
        """Return once no call is pending."""
        while self.pending():  # noqa: ASYNC110 calls end in many ways
            await asyncio.sleep(0.1)

    # For clients

    def new_call(
        self, client: SimClient, event: AnyEvent, timeout_s: float, *, keyed: bool = False
    ) -> Call:
        """A call that begins now. Its event gets a tag of its own."""
        self.counts["calls"] += 1
        tag = f"{client.name}/{self.counts['calls']}"
        now_s = self.kernel.now_s()
        event = msgspec.structs.replace(event, actor=tag)
        call = Call(tag, client.name, event, now_s, now_s + timeout_s, self.told_index, keyed)
        self.add_call(call)
        return call

    def add_call(self, call: Call) -> None:
        self.calls.append(call)
        self.kernel.trace.note("asked", tag=call.tag, what=type(call.event).__name__)

    def ended(self, call: Call, outcome: str, **said: Any) -> None:
        """A call's caller was told this."""
        if not call.pending:
            return
        call.outcome, call.completed_s = outcome, self.kernel.now_s()
        for name, value in said.items():
            setattr(call, name, value)
        self.told_index = max(self.told_index, call.index)
        self.kernel.trace.note(
            "answered", tag=call.tag, outcome=outcome, index=call.index, reason=call.rejection
        )
        for heard in self.on_answer:
            heard(call)

    def answered(self, read: Read) -> None:
        """A read was answered."""
        self.counts["reads"] += 1
        self.reads.append(read)
        self.told_index = max(self.told_index, read.index)
        for heard in self.on_read:
            heard(read)

    def died(self, client: SimClient, process: SimProcess) -> None:
        """A client's process ended: its calls have nobody to be told, and a new life follows."""
        for call in client.open_calls:
            self.ended(call, DIED)
        client.open_calls.clear()
        if process.crashed is not None:
            raised = Violation(FAILED, f"{client.name}: {process.crashed!r}")
            raised.__cause__ = process.crashed
            self.kernel.fail(raised)
        else:
            self.kernel.call_later(self._rng.uniform(*RESTART_S), client.start)


class SimClient:
    """One person at a terminal, over many lives of their program."""

    def __init__(self, clients: SimClients, name: str, *, idle: bool = False) -> None:
        self.name = name
        self.process: SimProcess | None = None
        self.runs_since_s = 0.0
        """When it last began to run, or to run again."""
        self.open_calls: list[Call] = []
        self.seen = Seen()
        self.lives = 0
        self._clients = clients
        self._kernel = clients.kernel
        self._idle = idle
        self._rng = self._kernel.rng(f"client/{name}")
        self.asker = Asker(name, self._rng, clients.mix, clients.removable)
        self._library: Client | None = None
        self._group: asyncio.TaskGroup | None = None

    def start(self) -> None:
        """A life of its program. Does nothing while there is one."""
        if self.process is not None and self.process.alive:
            return
        self.lives += 1
        self._clients.counts["lives"] += 1
        self.runs_since_s = self._kernel.now_s()
        self.process = process = self._kernel.spawn(self.name, self._main())
        process.on_death.append(lambda: self._clients.died(self, process))

    def begin(self, event: AnyEvent, timeout_s: float = 0.0) -> Call:
        """Have its program ask this, from wherever; where there is none, nobody is told."""
        call = self._clients.new_call(self, event, timeout_s or self._clients.mix.timeout_s)
        self._run(call, lambda: self._write(call))
        return call

    def begin_keyed(self, event: AnyEvent, numbers: Sequence[int]) -> list[Call]:
        """The same, under one key, through these servers and not over the channel."""
        calls: list[Call] = []
        for number in numbers:
            timeout_s = self._clients.mix.timeout_s
            if calls:
                call = msgspec.structs.replace(calls[0])
                self._clients.add_call(call)
            else:
                call = self._clients.new_call(self, event, timeout_s, keyed=True)
            calls.append(call)
            self._run(call, functools.partial(self._post, call, number))
        return calls

    @property
    def runs(self) -> bool:
        """Its program can be asked to do something."""
        return self.process is not None and self.process.alive and self._group is not None

    def begin_read(self, number: int) -> None:
        """Have its program look at what a server has; does nothing where it does not run."""
        if self.runs:
            assert self.process is not None
            self.process.call_soon(self._start_read, number)

    # In its process

    def _start_read(self, number: int) -> None:
        if self._group is not None:
            self._group.create_task(self._read(number))

    async def _main(self) -> None:
        clients = self._clients
        urls = [clients.servers.url(number) for number in clients.servers.numbers()]
        async with (
            Client(
                urls,
                actor=self.name,
                timeout_s=clients.mix.timeout_s,
                dialer=clients.channels.dialer(self.name),
                rng=self._kernel.rng(f"client/{self.name}/{self.lives}"),
            ) as self._library,
            asyncio.TaskGroup() as self._group,
        ):
            while True:
                await asyncio.sleep(self.asker.wait_s())
                if not (self._idle or clients.quiet):
                    self._ask_something(self._group)

    def _ask_something(self, group: asyncio.TaskGroup) -> None:
        if len(self.open_calls) >= self._clients.mix.in_flight:
            return
        event = self.asker.draw(self.seen)
        if event is Look.STATE:
            group.create_task(self._read())
        elif event is Look.OUTPUT:
            group.create_task(self._read_output())
        elif self._rng.random() < BY_HTTP:
            number = self._rng.choice(self._clients.servers.numbers())
            self.begin_keyed(event, [number])
        else:
            self.begin(event)

    def _run(self, call: Call, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have its program work on a call as soon as it comes to it."""
        process = self.process
        if process is None or not process.alive:
            self._clients.ended(call, DIED)
            return

        def begin() -> None:
            assert self._group is not None, "the program's main task runs before all others"
            self._group.create_task(work())

        self.open_calls.append(call)
        process.call_soon(begin)

    async def _write(self, call: Call) -> None:
        assert self._library is not None
        timeout_s = call.deadline_s - self._kernel.now_s()
        try:
            decided = await self._library.submit(call.event, timeout_s=max(timeout_s, 0.0))
        except Rejected as error:
            self._end(call, REJECTED, index=error.index, rejection=error.rejection)
        except OutcomeUnknown as error:
            self._end(call, UNKNOWN, detail=error.reason)
        except NotDone as error:
            self._end(call, NOT_DONE, detail=error.reason)
        else:
            self._end(call, OK, index=decided.index, result=decided.result)
            if not self._idle and self._rng.random() < LOOKS_AFTER:
                await self._read()

    async def _post(self, call: Call, number: int) -> None:
        """As `POST` with an `Idempotency-Key`."""
        seen_index = self.seen.index
        origin = Origin(f"client:key:{call.tag}", 0, 1, seen_index)
        limit_s = call.deadline_s - self._kernel.now_s()

        async def submit(node: Node) -> Result:
            return await node.submit(Submission(origin, call.event), limit_s * 0.8)

        answer = await self._over_http(number, submit, limit_s)
        if answer is None or answer.outcome == "unknown":
            self._end(call, UNKNOWN, detail=answer.reason if answer else "no answer")
        elif answer.outcome == "not_committed":
            self._end(call, NOT_DONE, detail=answer.reason)
        elif answer.rejection:
            self._end(call, REJECTED, index=answer.index, rejection=answer.rejection)
        else:
            self._end(call, OK, index=answer.index, result=answer.result)

    def _end(self, call: Call, outcome: str, **said: Any) -> None:
        self.open_calls.remove(call)
        self._clients.ended(call, outcome, **said)

    async def _read(self, of: int = 0) -> None:
        """Of any server, if none is named."""
        clients = self._clients
        number = of or self._rng.choice(clients.servers.numbers())
        began_s, floor = self._kernel.now_s(), clients.told_index

        async def look(node: Node) -> tuple[Seen, list[str]] | None:
            with suppress(ReadUnavailable, NodeStopped):
                await node.read_index(READ_S * 0.8)
                return seen_in(node.state), [one.api_address for one in node.status.members]
            return None

        answer = await self._over_http(number, look, READ_S)
        if answer is None:
            clients.counts["unread"] += 1
            return
        self.seen, addresses = answer
        if self._library is not None:
            self._library.learn_servers(addresses)
        completed_s = self._kernel.now_s()
        clients.answered(Read(self.name, number, began_s, completed_s, floor, self.seen.index))

    async def _read_output(self) -> None:
        """As `GET /v1/jobs/<name>/logs`, for which servers ask each other until one has the agent's
        session."""
        clients = self._clients
        if not self.seen.hosts:
            return
        host = self._rng.choice(self.seen.hosts).name
        numbers = clients.servers.numbers()
        limit_bytes = self._rng.choice((10, 4_096))

        async def read(node: Node) -> LogChunk | None:
            session, known = node.sessions.agent_of(host), node.state.hosts.get(host)
            if session is None or known is None or not known.tasks:
                return None
            return await node.sessions.read_log(
                session, known.tasks[-1], "stdout", offset=0, limit=limit_bytes,
                timeout_s=READ_S * 0.5,
            )  # fmt: skip

        for number in self._rng.sample(numbers, len(numbers)):
            chunk = await self._over_http(number, read, READ_S)
            if chunk is not None:
                clients.counts["outputs"] += 1
                clients.kernel.trace.note("output", host=host, there=chunk.exists, to=number)
                return

    async def _over_http(
        self, number: int, question: Callable[[Node], Coroutine[Any, Any, T]], limit_s: float
    ) -> T | None:
        """Ask a server's node in its process; None when nothing comes back in time."""
        ways = self._clients.channels.ways(self.name, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await _passes(ways.to_server.cut, ways.to_server.delay.draw(self._rng))
                answer = await self._clients.servers.ask(number, question, limit_s)
                await _passes(ways.to_caller.cut, ways.to_caller.delay.draw(self._rng))
                return answer
        return None


async def _passes(cut: bool, delay_s: float) -> None:
    if cut:
        await asyncio.Event().wait()
    await asyncio.sleep(delay_s)
