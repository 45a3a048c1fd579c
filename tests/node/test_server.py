"""A whole server: what it refuses to start with, what it keeps, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from coord.model.settings import Settings
from coord.node.config import Retention
from coord.node.server import (
    EXIT_HALTED,
    ServerConfig,
    StartFailed,
    close_environment,
    run_server,
)
from coord.raft.ports import Member
from coord.raft.timings import RaftTimings
from coord.store.environment import Environment, Identity
from coord.store.events import LmdbEventStore
from tests.free_ports import free_address
from tests.store.test_crash import spoil_pages


def config(directory: Path, **changes: Any) -> ServerConfig:
    given = {"node": 1, "data_dir": str(directory / "data"), "api_listen": free_address()}
    return ServerConfig(**{**given, **changes})


@asynccontextmanager
async def running(server: ServerConfig) -> AsyncIterator[str]:
    """The server's URL, once it is ready; it must end with 0."""
    stop, listening = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            run_server(server, lambda _: listening.set(), stop, handle_signals=False)
        )
        async with asyncio.timeout(20):
            await listening.wait()
            url = f"http://{server.api_listen}"
            while (await fetch(f"{url}/readyz"))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        try:
            yield url
        finally:
            stop.set()
    assert task.result() == 0


async def fetch(url: str, method: str = "GET", body: object = None) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, json=body) as answer,
    ):
        return answer.status, await answer.json()


async def refusal(server: ServerConfig) -> str:
    """Why it does not start."""
    with pytest.raises(StartFailed) as caught:
        await run_server(server, None, asyncio.Event(), handle_signals=False)
    return str(caught.value)


async def wait_for_commits_counted(url: str) -> None:
    """Until the metrics tell of a durable commit, which a timer of the node looks for."""
    count = 0
    async with asyncio.timeout(10), aiohttp.ClientSession() as session:
        while not count:
            async with session.get(f"{url}/metrics") as answer:
                counted = re.search(r"fsync_duration_seconds_count (\d+)", await answer.text())
            assert counted is not None
            count = int(counted[1])


@pytest.mark.parametrize("peer", [False, True], ids=["single", "pysyncobj"])
async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path, peer: bool) -> None:
    """Jobs, events and their digests; whichever log carries them."""
    server = config(tmp_path)
    if peer:
        peer_address = free_address()
        members = (Member(1, peer_address, server.api_listen),)
        server = config(
            tmp_path, api_listen=server.api_listen, peer_listen=peer_address, members=members
        )
    role = {"name": "trainer", "command": ["true"]}
    async with running(server) as url:
        status, made = await fetch(f"{url}/v1/jobs", "POST", {"name": "digits", "roles": [role]})
        assert status == 201
        index = made["index"]
        _, before = await fetch(f"{url}/v1/events?from={index}&limit=1")
        await wait_for_commits_counted(url)
    async with running(server) as url:
        _, job = await fetch(f"{url}/v1/jobs/digits")
        assert job["submitted"] == index
        _, after = await fetch(f"{url}/v1/events?from={index}&limit=1")
        assert after["events"] == before["events"]
        _, again = await fetch(f"{url}/v1/jobs", "POST", {"name": "digits", "roles": [role]})
        assert again["error"]["code"] == "duplicate_job"


async def test_a_damaged_entry_is_refused_and_the_next_server_asked(tmp_path: Path) -> None:
    """The reader hears what is wrong, and 503 sends a client on to another server."""
    server = config(tmp_path)
    async with running(server) as url:
        for number in range(3):
            await fetch(f"{url}/v1/notes", "POST", {"text": str(number)})
        await wait_for_commits_counted(url)
    environment = Environment.open(server.data_dir)
    environment.stage("events", (2).to_bytes(8, "big"), None)
    environment.commit()
    environment.close()
    async with running(server) as url:
        status, answer = await fetch(f"{url}/v1/events?from=1")
    assert (status, answer["error"]["code"]) == (503, "storage_corrupt")
    assert "entry 2 is missing" in answer["error"]["message"]


async def test_a_damaged_base_state_is_no_defect(tmp_path: Path) -> None:
    """An export that begins later replays from it."""
    server = config(tmp_path)
    async with running(server) as url:
        for number in range(3):
            await fetch(f"{url}/v1/notes", "POST", {"text": str(number)})
        await wait_for_commits_counted(url)
    damage(server, "store_meta", b"base_state", b"\xff\xff")
    async with running(server) as url:
        status, answer = await fetch(f"{url}/v1/incident.log?from=3")
    assert (status, answer["error"]["code"]) == (503, "storage_corrupt")
    assert "coordctl cluster remove NODE" in answer["error"]["message"]


def damage(server: ServerConfig, database: str, key: bytes, value: bytes) -> None:
    environment = Environment.open(server.data_dir)
    environment.stage(database, key, value)
    environment.commit()
    environment.close()


@pytest.mark.parametrize("database", ["raft_log", "events", "state"])
async def test_a_server_whose_data_is_damaged_does_not_start_and_says_what_to_do(
    tmp_path: Path, database: str
) -> None:
    server = config(tmp_path)
    async with running(server) as url:
        await fetch(f"{url}/v1/notes", "POST", {"text": "one"})
        await wait_for_commits_counted(url)
    damage(server, database, b"zz\xff", b"of something else, and long enough")
    said = await refusal(server)
    assert server.data_dir in said
    assert "coordctl cluster remove NODE" in said


@pytest.mark.parametrize("peer", [False, True], ids=["single", "pysyncobj"])
async def test_a_server_that_meets_a_damaged_page_stops_and_says_what_to_do(
    tmp_path: Path, peer: bool
) -> None:
    """It does not go on with what it cannot write down, and whoever looks finds the way back."""
    peer_address, api_address = free_address(), free_address()
    server = config(tmp_path, api_listen=api_address)
    if peer:
        members = (Member(1, peer_address, api_address),)
        server = config(tmp_path, api_listen=api_address, peer_listen=peer_address, members=members)
    listening = asyncio.Event()
    running_one = asyncio.create_task(
        run_server(server, lambda _: listening.set(), asyncio.Event(), handle_signals=False)
    )
    async with asyncio.timeout(20):
        await listening.wait()
        while (await fetch(f"http://{api_address}/readyz"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with capture_logs() as told:
            spoil_pages(server.data_dir)
            with contextlib.suppress(aiohttp.ClientError):  # it may stop before it answers
                await fetch(f"http://{api_address}/v1/notes", "POST", {"text": "one"})
            assert await running_one == EXIT_HALTED
    (halted,) = [one for one in told if one["event"] == "node_halted"]
    assert "coordctl cluster remove NODE" in halted["error"]


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """With the option to change."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = await refusal(config(tmp_path, api_listen=address))
        assert f"api_listen is '{address}'" in said
        members = (Member(1, address, "127.0.0.1:1"),)
        said = await refusal(config(tmp_path, peer_listen=address, members=members))
        assert f"peer_listen is '{address}'" in said


async def test_a_data_directory_of_another_is_refused_by_name(tmp_path: Path) -> None:
    """Of another node, or of another cluster; and one that is open already."""
    async with running(config(tmp_path, cluster="one")):
        said = await refusal(config(tmp_path, cluster="one"))
        assert "is open in the process" in said
    said = await refusal(config(tmp_path, cluster="other"))
    assert "belongs to cluster 'one', not 'other'" in said
    said = await refusal(config(tmp_path, cluster="one", node=2))
    assert "belongs to node 1, not 2" in said


OWN = Member(1, "127.0.0.1:1", "127.0.0.1:2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"api_listen": "0.0.0.0:7101"}, "api_listen is '0.0.0.0:7101', which others can reach"),
        ({"api_listen": "10.1.2.3:7101"}, "only loopback addresses such as 127.0.0.1"),
        ({"peer_listen": "0.0.0.0:1"}, "peer_listen is '0.0.0.0:1', which others can reach"),
        ({"api_listen": "7101"}, "api_listen is '7101'; it must be HOST:PORT"),
        ({"cluster": ""}, "cluster is empty"),
        ({"node": 0}, "node is 0"),
        (
            {"peer_listen": "127.0.0.1:1", "members": (Member(2, "127.0.0.1:1", "127.0.0.1:2"),)},
            "node 1 is not among the members [2]",
        ),
        (
            {
                "peer_listen": "127.0.0.1:1",
                "members": (OWN, Member(2, "10.0.0.2:1", "127.0.0.1:3")),
            },
            "the peer address of node 2 is '10.0.0.2:1', which others can reach",
        ),
        ({"settings": Settings(lease_ms=1)}, "must grow in this order"),
        ({"timings": RaftTimings(heartbeat_ms=0)}, "heartbeat_ms is 0; it must be at least 1"),
        ({"timings": RaftTimings(election_min_ms=1)}, "more than three times heartbeat_ms, which"),
        ({"timings": RaftTimings(election_max_ms=600)}, "more than election_min_ms, which is 600"),
        ({"timings": RaftTimings(orphan_min_ms=900)}, "orphan_min_ms is 900; it must be 1 to"),
        ({"retention": Retention(max_age_s=-5)}, "max_age_s is -5; it must be at least 0"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_touched(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """Plaintext stays on this machine; every message names the value."""
    assert message in await refusal(config(tmp_path, **changes))
    assert not directory_exists(tmp_path / "data")


async def test_a_data_directory_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    """In words, not as an error number."""
    (tmp_path / "data").write_text("a file")
    said = await refusal(config(tmp_path))
    assert "File exists; name a directory that this process may make" in said


def directory_exists(path: Path) -> bool:
    return path.exists()


async def test_a_stored_state_that_cannot_be_read_is_no_start(tmp_path: Path) -> None:
    """The message says what to do."""
    server = config(tmp_path)
    environment = Environment.open(server.data_dir, identity=Identity("coord", 1))
    store = LmdbEventStore(environment)
    store.put_state({"meta": {"meta": msgspec.msgpack.encode("nonsense")}})
    store.flush()
    environment.close()
    said = await refusal(server)
    assert "cannot be read" in said
    assert "it fetches everything from its peers" in said


async def test_a_reader_in_a_worker_does_not_spoil_the_end(tmp_path: Path) -> None:
    """The storage is closed when an export or a snapshot has read to its end, and not before."""
    environment = Environment.open(str(tmp_path / "data"), identity=Identity("coord", 1))
    with environment.read_transaction():
        closing = asyncio.create_task(close_environment(environment))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="readers"):
            await close_environment(environment, patience_s=0.0)
        assert not closing.done()
    await closing


async def test_snapshots_and_exports_of_a_real_server(tmp_path: Path) -> None:
    """Both work on a real disk, beside each other, and the server ends with 0 and starts again."""
    server = config(tmp_path)
    for _ in range(3):
        async with running(server) as url:
            for number in range(20):
                await fetch(f"{url}/v1/notes", "POST", {"text": f"n{number}"})
            async with aiohttp.ClientSession() as session:
                export = asyncio.create_task(read_all(session, f"{url}/v1/incident.log?from=5"))
                snapshot = asyncio.create_task(fetch(f"{url}/v1/cluster/snapshot", "POST"))
                await asyncio.sleep(0)
                status, _ = await snapshot
                assert status == 200
                assert await export


async def read_all(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        return await answer.read()
