"""Three whole servers in one loop: real sockets, real storage, PySyncObj."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import pytest

from coord.core.state import state_from_rows, take_changes
from coord.node.server import EXIT_HALTED, ServerConfig, run_server
from coord.raft.ports import Member
from coord.raft.timings import RaftTimings
from coord.store.environment import Environment, Identity
from coord.store.events import LmdbEventStore
from tests.free_ports import free_address

FORGETFUL = RaftTimings(keep_entries=10)
"""Hardly any tail behind a snapshot, so that who was away needs the snapshot itself."""


class Servers:
    """Started and stopped one by one; leaving ends all."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        members = tuple(
            Member(number, free_address(), free_address()) for number in range(1, size + 1)
        )
        self.configs = {
            member.node: ServerConfig(
                node=member.node,
                data_dir=str(directory / f"server-{member.node}"),
                api_listen=member.api_address,
                peer_listen=member.peer_address,
                members=members,
                timings=FORGETFUL,
            )
            for member in members
        }
        self._stops: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[int]] = {}
        self._stack = AsyncExitStack()
        self.http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self.http = await self._stack.enter_async_context(aiohttp.ClientSession())
        for number in self.configs:
            await self.start(number)
        for number in self.configs:
            await self.ready(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in list(self._tasks):
            await self.stop(number)
        await self._stack.aclose()

    async def start(self, number: int) -> None:
        stop, listening = asyncio.Event(), asyncio.Event()
        self._stops[number] = stop
        self._tasks[number] = asyncio.create_task(
            run_server(self.configs[number], lambda _: listening.set(), stop, handle_signals=False)
        )
        async with asyncio.timeout(20):
            await listening.wait()

    async def stop(self, number: int) -> None:
        self._stops.pop(number).set()
        assert await self._tasks.pop(number) == 0

    def give_up(self, number: int) -> asyncio.Task[int]:
        """Its task, which is expected to end by itself."""
        del self._stops[number]
        return self._tasks.pop(number)

    async def ready(self, number: int) -> None:
        async def answers() -> bool:
            return (await self.ask("GET", number, "/readyz"))[0] == 200

        await self.until(answers)

    async def until(self, condition: Callable[[], Awaitable[object]]) -> None:
        async with asyncio.timeout(30):
            while not await condition():  # noqa: ASYNC110 what is waited for is in a server
                await asyncio.sleep(0.02)

    async def ask(
        self, method: str, number: int, path: str, body: object = None
    ) -> tuple[int, dict[str, Any]]:
        url = f"http://{self.configs[number].api_listen}{path}"
        async with self.http.request(method, url, json=body) as answer:
            return answer.status, await answer.json()

    async def accepts(self, method: str, path: str, **body: object) -> bool:
        return (await self.ask(method, 1, path, body))[0] == 200

    async def leader(self) -> int:
        for number in self._tasks:
            _, cluster = await self.ask("GET", number, "/v1/cluster?stale=1")
            if cluster["leader"]:
                return int(cluster["leader"])
        raise AssertionError("no server knows a leader")

    async def follower(self) -> int:
        leader = await self.leader()
        return next(number for number in (1, 2, 3) if number != leader)

    async def write(self, number: int, count: int) -> None:
        for at in range(count):
            status, answer = await self.ask("POST", number, "/v1/notes", {"text": f"n{at}"})
            assert status == 201, answer

    async def same_log(self) -> int:
        """Every running server holds the same entries with the same digests; returns how many."""
        _, cluster = await self.ask("GET", next(iter(self._tasks)), "/v1/cluster")
        last = cluster["applied_index"]
        logs = []
        for number in self._tasks:
            _, page = await self.ask("GET", number, f"/v1/events?from=1&limit={last}")
            logs.append(page["events"])
        assert all(log == logs[0] for log in logs)
        return len(logs[0])


async def test_a_server_that_was_away_gets_the_snapshot_and_the_whole_history(
    tmp_path: Path,
) -> None:
    """The others have shortened their journals meanwhile; afterwards all hold the same log."""
    async with Servers(tmp_path) as servers:
        away = await servers.follower()
        await servers.write(away, 5)
        await servers.stop(away)
        here = [number for number in (1, 2, 3) if number != away]
        await servers.write(here[0], 80)
        for number in here:
            status, made = await servers.ask("POST", number, "/v1/cluster/snapshot")
            assert status == 200, made
        await servers.write(here[1], 5)
        _, shown = await servers.ask("GET", await servers.leader(), "/v1/cluster")
        assert shown["raft"]["first_index"] > 30
        await servers.start(away)
        await servers.ready(away)
        await servers.write(away, 5)
        assert await servers.same_log() > 95


async def test_a_server_joins_leads_and_is_removed(tmp_path: Path) -> None:
    """By commands to any server; the log goes with it."""
    async with Servers(tmp_path) as servers:
        await servers.write(1, 20)
        joining = msgspec.structs.replace(
            servers.configs[1],
            node=4,
            data_dir=str(tmp_path / "server-4"),
            api_listen=free_address(),
            peer_listen=free_address(),
            members=(),
        )
        servers.configs[4] = joining
        await servers.start(4)
        member = {
            "node": 4,
            "peer_address": joining.peer_listen,
            "api_address": joining.api_listen,
        }
        follower = await servers.follower()
        status, answer = await servers.ask("POST", follower, "/v1/cluster/members", member)
        assert status == 200, answer
        assert [one["node"] for one in answer["members"]] == [1, 2, 3, 4]
        await servers.ready(4)
        await servers.write(4, 5)
        status, answer = await servers.ask("POST", follower, "/v1/cluster/transfer", {"node": 4})
        assert (status, answer.get("leader")) == (200, 4), answer
        await servers.write(follower, 5)
        assert await servers.same_log() > 30
        status, answer = await servers.ask("POST", 4, "/v1/cluster/transfer", {"node": 1})
        assert status == 200, answer
        status, answer = await servers.ask("DELETE", follower, "/v1/cluster/members/4")
        assert status == 200, answer
        assert [one["node"] for one in answer["members"]] == [1, 2, 3]
        await servers.write(follower, 5)
        await servers.stop(4)


class Door:
    """Passes connections on, as a proxy before a server does, and remembers how each began."""

    def __init__(self, leads_to: str) -> None:
        self.address = free_address()
        self.began: list[bytes] = []
        self._host, _, self._port = leads_to.rpartition(":")
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        self._server = await asyncio.start_server(self._pass, host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65_536)
        self.began.append(first)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        inner_writer.write(first)
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while some := await reader.read(65_536):
            writer.write(some)
            await writer.drain()
    writer.close()


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_server_behind_a_proxy_is_asked_for_its_snapshot_there(
    tmp_path: Path, restarts: bool
) -> None:
    """Where it listens is nobody else's business: the address it was added under counts."""
    async with Servers(tmp_path) as servers:
        joining = msgspec.structs.replace(
            servers.configs[1],
            node=4,
            data_dir=str(tmp_path / "server-4"),
            api_listen=free_address(),
            peer_listen=free_address(),
            members=(),
        )
        servers.configs[4] = joining
        await servers.start(4)
        async with Door(joining.peer_listen) as door:
            member = {"node": 4, "peer_address": door.address, "api_address": joining.api_listen}
            await servers.until(lambda: servers.accepts("POST", "/v1/cluster/transfer", node=1))
            await servers.stop(3)
            status, answer = await servers.ask("POST", 1, "/v1/cluster/members", member)
            assert status == 200, answer
            await servers.ready(4)
            if restarts:
                await servers.stop(4)
                await servers.start(4)
                await servers.ready(4)
            await servers.until(lambda: servers.accepts("POST", "/v1/cluster/transfer", node=4))
            await servers.write(4, 80)
            for number in (1, 2, 4):
                assert (await servers.ask("POST", number, "/v1/cluster/snapshot"))[0] == 200
            await servers.write(4, 5)
            assert not [one for one in door.began if b"snapshot" in one]
            await servers.start(3)
            await servers.ready(3)
            assert await servers.same_log() > 85
            assert [one for one in door.began if b"snapshot" in one]
            await servers.stop(4)


async def test_a_server_whose_state_has_gone_wrong_ends_with_the_code_for_it(
    tmp_path: Path,
) -> None:
    """Its digest is another than the others': it stops itself, they go on."""
    async with Servers(tmp_path) as servers:
        wrong = await servers.follower()
        await servers.write(wrong, 5)
        await servers.stop(wrong)
        falsify_digest(servers.configs[wrong].data_dir, wrong)
        await servers.start(wrong)
        task = servers.give_up(wrong)
        others = [number for number in (1, 2, 3) if number != wrong]
        await servers.write(others[0], 5)
        async with asyncio.timeout(20):
            assert await task == EXIT_HALTED
        await servers.write(others[1], 5)
        await servers.same_log()


def falsify_digest(directory: str, node: int) -> None:
    """As if a defect had changed the state behind everybody's back."""
    environment = Environment.open(directory, identity=Identity("coord", node))
    store = LmdbEventStore(environment)
    state = state_from_rows(store.load_state()[1])
    state.meta.digest = "f" * 32
    store.put_state(take_changes(state))
    store.flush()
    environment.close()


async def test_a_leader_that_stops_hands_over(tmp_path: Path) -> None:
    """Nobody waits for an election: the next write succeeds through either of the others."""
    async with Servers(tmp_path) as servers:
        leader = await servers.leader()
        await servers.stop(leader)
        others = [number for number in (1, 2, 3) if number != leader]
        await servers.write(others[0], 3)
        await servers.write(others[1], 3)
        assert await servers.leader() != leader
        await servers.same_log()
