"""A server process: storage, replicated log, node and API, put together, run and taken apart."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec
import structlog
from aiohttp import web

from coord import __version__
from coord.api.app import make_app
from coord.api.joining import WaitingRoom
from coord.model.settings import Settings
from coord.node.addresses import address_problem, split_address
from coord.node.config import Intervals, Limits, NodeConfig, Retention
from coord.node.node import Node
from coord.node.ports import Clock, SystemClock
from coord.raft.ports import Member, PeerBus, ReplicatedLog
from coord.raft.pysyncobj_log import PySyncObjLog
from coord.raft.single import SingleNodeLog
from coord.raft.timings import RaftTimings
from coord.store.environment import Environment, Identity
from coord.store.events import LmdbEventStore
from coord.store.ports import (
    DataDirectoryInUse,
    StorageCorrupt,
    StorageFull,
    WrongDataDirectory,
)

EXIT_HALTED = 70
"""The node stopped itself: its state, its storage or its code cannot be trusted."""
ADDRESS_ERRORS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
TRANSFER_S = 2.0
SHUTDOWN_S = 1.0
"""For answers under way when the server stops."""

log = structlog.get_logger()


class StartFailed(Exception):
    """The server did not start; the message names the value that is wrong and what to do."""


class ServerConfig(msgspec.Struct, frozen=True):
    """All of one server. Addresses are `host:port`.

    `members` is the first configuration of the cluster; once the data directory holds one, that
    counts. With `peer_listen` and no members the server waits until the leader of a running cluster
    adds it. Without `peer_listen` it is a cluster of one for good.
    """

    node: int
    data_dir: str
    api_listen: str
    peer_listen: str = ""
    members: tuple[Member, ...] = ()
    cluster: str = "coord"
    name: str = ""
    settings: Settings = Settings()
    timings: RaftTimings = RaftTimings()
    limits: Limits = Limits()
    intervals: Intervals = Intervals()
    retention: Retention = Retention()
    snapshot_entries: int = 100_000
    snapshot_bytes: int = 64 * 1024 * 1024
    joining: bool = False
    """`members` are those of a running cluster, and this server is about to be added."""
    api_ssl: ssl.SSLContext | None = None
    peer_ssl: ssl.SSLContext | None = None

    @property
    def joins(self) -> bool:
        """The server is no member of the first configuration."""
        return self.joining or bool(self.peer_listen and not self.members)


async def run_server(
    config: ServerConfig,
    ready: Callable[[str], None] | None,
    stop: asyncio.Event,
    *,
    handle_signals: bool = True,
    clock: Clock | None = None,
) -> int:
    """Run until `stop` is set, or SIGTERM or SIGINT comes; returns the exit code.

    `ready` is called with the API's URL once it listens: a leader may not be known yet, and a
    server that joins may still wait to be added. `clock` is the machine's if none is given. Raises
    StartFailed.
    """
    if not structlog.is_configured():
        configure_logs()
    url = f"{'https' if config.api_ssl else 'http'}://{config.api_listen}"
    async with AsyncExitStack() as stack:
        if handle_signals:
            _stop_on_signals(stop, stack)
        _check(config)
        api_socket = _listen(config)
        stack.callback(api_socket.close)
        environment = _open(config)
        stack.push_async_callback(close_environment, environment)
        if config.joins and not _knows_members(environment):
            if ready is not None:
                ready(url)
                ready = None
            config = await _wait_to_join(config, api_socket, stop)
            if stop.is_set():
                return 0
        node = await _start(config, clock or SystemClock(), api_socket, environment, stack)
        node.failure.add_done_callback(lambda _: stop.set())
        _settle_memory()
        log.info("server_ready", node=config.node, url=url, version=__version__)
        if ready is not None:
            ready(url)
        await stop.wait()
        if node.failure.done():
            return EXIT_HALTED
        await _hand_over(node)
    log.info("server_stopped", node=config.node)
    return 0


def configure_logs() -> None:
    """One line an event on stderr, for people and for machines alike."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def _knows_members(environment: Environment) -> bool:
    """Some earlier life of this server was told who the members are."""
    return environment.get("raft_meta", b"members") is not None


async def _wait_to_join(
    config: ServerConfig, api_socket: socket.socket, stop: asyncio.Event
) -> ServerConfig:
    """The same with the members that the leader has, once it wants to add this server: under which
    addresses is the leader's to say, as behind a proxy they are not those listened at."""
    log.info("waiting_to_join", node=config.node, api=config.api_listen, cluster=config.cluster)
    room = WaitingRoom(config.cluster, config.node)
    members = await room.wait(api_socket, config.api_ssl, stop)
    if config.node not in [member.node for member in members]:
        members = (*members, Member(config.node, config.peer_listen, config.api_listen))
    return msgspec.structs.replace(config, members=members, joining=True)


async def _start(
    config: ServerConfig,
    clock: Clock,
    api_socket: socket.socket,
    environment: Environment,
    stack: AsyncExitStack,
) -> Node:
    replicated, bus = _make_log(config, environment)
    try:
        node = Node(replicated, bus, LmdbEventStore(environment), clock, _node_config(config))
        stack.push_async_callback(node.stop)
        await node.start()
    except Exception as error:
        raise StartFailed(_explained(config, error)) from error
    runner = web.AppRunner(
        make_app(node, boot=os.urandom(8).hex()),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.SockSite(runner, api_socket, ssl_context=config.api_ssl).start()
    # Conversations must end before the runner waits for their handlers.
    stack.push_async_callback(node.end_conversations)
    return node


def _check(config: ServerConfig) -> None:
    problems = list(config.settings.problems())
    problems += timing_problems(config.timings)
    problems += config.retention.problems()
    if config.node < 1:
        problems.append(f"node is {config.node}; it must be at least 1")
    if not config.cluster:
        problems.append("cluster is empty; give the cluster an id")
    for name in ("api_listen", "peer_listen"):
        address = getattr(config, name)
        if not address and name == "peer_listen":
            continue
        secured = config.api_ssl if name == "api_listen" else config.peer_ssl
        problems.append(address_problem(name, address, secured is not None))
    for member in config.members:
        if config.peer_listen and config.peer_ssl is None and member.node != config.node:
            name = f"the peer address of node {member.node}"
            problems.append(address_problem(name, member.peer_address, False))
    known = [member.node for member in config.members]
    if config.peer_listen and config.members and config.node not in known:
        problems.append(
            f"node {config.node} is not among the members {known}; name it there with its addresses"
        )
    problems = [problem for problem in problems if problem]
    if problems:
        raise StartFailed("; ".join(problems))


def timing_problems(timings: RaftTimings) -> list[str]:
    """What the rules of an election would not work with, as sentences."""
    names = ("tick_ms", "heartbeat_ms", "election_min_ms", "keep_entries", "keep_bytes")
    found = [
        f"{name} is {getattr(timings, name)}; it must be at least 1"
        for name in names
        if getattr(timings, name) < 1
    ]
    if timings.election_min_ms <= 3 * timings.heartbeat_ms:
        found.append(
            f"election_min_ms is {timings.election_min_ms}; it must be more than three times "
            f"heartbeat_ms, which is {timings.heartbeat_ms}"
        )
    if timings.election_max_ms <= timings.election_min_ms:
        found.append(
            f"election_max_ms is {timings.election_max_ms}; it must be more than election_min_ms, "
            f"which is {timings.election_min_ms}"
        )
    if timings.orphan_max_ms and not 1 <= timings.orphan_min_ms <= timings.orphan_max_ms:
        found.append(
            f"orphan_min_ms is {timings.orphan_min_ms}; it must be 1 to orphan_max_ms, which is "
            f"{timings.orphan_max_ms}"
        )
    return found


def _listen(config: ServerConfig) -> socket.socket:
    host, port = split_address(config.api_listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    api_socket = socket.socket(family, socket.SOCK_STREAM)
    try:
        api_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        api_socket.bind((host, port))
        api_socket.listen(512)
        api_socket.setblocking(False)
    except OSError as error:
        api_socket.close()
        raise StartFailed(
            f"api_listen is {config.api_listen!r}: {error.strerror}; is another server using that "
            "port? Stop it, or choose another"
        ) from error
    return api_socket


def _open(config: ServerConfig) -> Environment:
    try:
        os.makedirs(config.data_dir, exist_ok=True)
        return Environment.open(
            config.data_dir, identity=Identity(config.cluster, config.node), create=True
        )
    except (DataDirectoryInUse, StorageCorrupt, StorageFull, WrongDataDirectory) as error:
        raise StartFailed(f"data_dir is {config.data_dir!r}: {error}") from error
    except OSError as error:
        raise StartFailed(
            f"data_dir is {config.data_dir!r}: {error.strerror or error}; name a directory that "
            "this process may make and write to"
        ) from error


async def close_environment(environment: Environment, patience_s: float = 10.0) -> None:
    """Close it once the workers that still read (an export, a snapshot) have ended."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        try:
            environment.close()
            return
        except RuntimeError:
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(0.02)


def _make_log(
    config: ServerConfig, environment: Environment
) -> tuple[ReplicatedLog, PeerBus | None]:
    if not config.peer_listen:
        own = [member for member in config.members if member.node == config.node]
        member = own[0] if own else Member(config.node, "", config.api_listen)
        return SingleNodeLog(member, environment), None
    joining = Member(config.node, config.peer_listen, config.api_listen)
    replicated = PySyncObjLog(
        config.node,
        config.members or (joining,),
        environment,
        config.timings,
        rng=random.Random(),
        ssl_context=config.peer_ssl,
        listen=config.peer_listen,
        joins=config.joins,
    )
    return replicated, replicated.bus


def _node_config(config: ServerConfig) -> NodeConfig:
    return NodeConfig(
        node=config.node,
        cluster=config.cluster,
        settings=config.settings,
        name=config.name or f"node-{config.node}",
        api_address=config.api_listen,
        dump_directory=config.data_dir,
        snapshot_entries=config.snapshot_entries,
        snapshot_bytes=config.snapshot_bytes,
        limits=config.limits,
        retention=config.retention,
        intervals=config.intervals,
        version=__version__,
    )


def _explained(config: ServerConfig, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in ADDRESS_ERRORS:
        return (
            f"peer_listen is {config.peer_listen!r}: {error}; is another server using that port? "
            "Stop it, or choose another"
        )
    if isinstance(error, OSError | StorageCorrupt | StorageFull | WrongDataDirectory):
        return f"data_dir is {config.data_dir!r}: {error}"
    log.error("start_failed", exc_info=error)
    return (
        f"what is in {config.data_dir!r} could not be applied: {type(error).__name__}: {error}; "
        "the log above has the details. Keep the directory for examination"
    )


def _stop_on_signals(stop: asyncio.Event, stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
        stack.callback(loop.remove_signal_handler, number)


def _settle_memory() -> None:
    """What lives as long as the server is not looked at by the collector again and again."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def _hand_over(node: Node) -> None:
    """A leader that goes leaves the office to another, so that nobody waits for an election."""
    status = node.log.status()
    if node.leading and status.connected:
        moved = await node.log.transfer_leadership(0, TRANSFER_S)
        log.info("leadership_handed_over", moved=moved)
