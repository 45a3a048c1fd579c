"""A whole cluster of real processes, to be broken: servers, agents, disks, clocks and the network.

`async with Cluster(directory) as cluster: await cluster.start(); await cluster.wait_ready()`.
Leaving it ends every process, mount and namespace, and so does our death, whatever it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import Self

import structlog

from coord.cli import processes
from coord.client import Client
from coord.client.errors import CoordError
from coord.client.views import ClusterView
from coord.model.settings import Settings
from jepsen_lite.clocks import ClockSeam
from jepsen_lite.cluster import leftovers
from jepsen_lite.cluster.parties import CLIENTS, MOST_HOSTS, MOST_SERVERS, server_name
from jepsen_lite.cluster.processes import Host, Member, Role, Server
from jepsen_lite.disks.machine import Disks
from jepsen_lite.network.addresses import API_PORT, PEER_PORT
from jepsen_lite.network.choice import which_network
from jepsen_lite.network.port import Network

QUICK = Settings(
    lease_ms=4_000, suspect_ms=2_000, heartbeat_ms=400, fence_ms=1_000, breaker_window_ms=4_000
)
"""Losses are declared within seconds, and a busy machine still does not look like a dead one."""
CLUSTER_ID = "faults"
COORDCTL = (sys.executable, "-m", "coord.cli.main")
STOP_S = 10.0
TASK_GRACE_S = 0.5
ASK_S = 1.0
POLL_S = 0.05


log = structlog.get_logger()


class ClusterFailed(Exception):
    """The cluster is not as it should be; the message says who, and where its log is."""


class Cluster:
    """Servers `s1` to `s<servers>` and hosts `h1` to `h<hosts>` below one directory.

    `network` is `auto`, `namespaces` or `proxied`; `needs` are the capabilities of a network that
    the run is going to use. `coordctl` is the command under test, for builds other than this one.
    `raft` are timings by name, as of `coordctl server --raft`. `directory` keeps the logs; data is
    on disks that end with the cluster. `tell` hears what this machine cannot do.
    """

    def __init__(
        self,
        directory: Path,
        *,
        servers: int = 3,
        hosts: int = 3,
        devices: int = 1,
        settings: Settings = QUICK,
        raft: Mapping[str, int] | None = None,
        snapshot_entries: int = 100_000,
        network: str = "auto",
        needs: frozenset[str] = frozenset(),
        seed: int = 0,
        coordctl: tuple[str, ...] = COORDCTL,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        if not 1 <= servers <= MOST_SERVERS or not 0 <= hosts <= MOST_HOSTS:
            raise ValueError(
                f"{servers} servers and {hosts} hosts; there may be 1 to {MOST_SERVERS} servers "
                f"and 0 to {MOST_HOSTS} hosts"
            )
        self.directory = directory.resolve()
        self.settings = settings
        self.mark = leftovers.new_mark()
        self.network: Network = which_network(
            network,
            self.mark,
            needs=needs,
            seed=seed,
            trouble=self.directory / "logs" / "proxy.log",
            tell=tell,
        )
        self.disks: Disks | None = None
        self.servers: dict[str, Server] = {}
        self.hosts: dict[str, Host] = {}
        self._counts = (servers, hosts)
        self._tell = tell or log.warning
        self._devices = devices
        self._raft = dict(raft or {})
        self._snapshot_entries = snapshot_entries
        self._coordctl = coordctl
        self._first = ""
        self._next_node = 1
        self._guard: Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._open)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # Talking to it

    @property
    def urls(self) -> list[str]:
        """Of the servers, as clients reach them."""
        return [server.url for server in self.servers.values()]

    def client(self, actor: str, *, timeout_s: float = 10.0, stale: bool = False) -> Client:
        """A client on the network, not yet opened: `async with cluster.client("me") as client`."""
        return Client(self.urls, actor=actor, cluster=CLUSTER_ID, timeout_s=timeout_s, stale=stale)

    async def leader(self, timeout_s: float = 10.0) -> str | None:
        """Who leads: of those that think they do, the one of the newest term. None when nobody does
        within the time. Cuts between servers do not hide it; see `views`."""
        return await newest_leader(self.views, timeout_s)

    async def views(self) -> dict[str, ClusterView]:
        """The cluster as each server sees it that runs and answers at once. Past the proxy; but
        with namespaces a cut of `clients` from a server hides that server from here as well."""
        asked = [server for server in self.servers.values() if server.running]
        views = await asyncio.gather(*(_view(server.direct_url, stale=True) for server in asked))
        return {
            server.name: view for server, view in zip(asked, views, strict=True) if view is not None
        }

    # Its life

    async def start(self) -> None:
        """Start every server and agent that does not run. Usable after `wait_ready`."""
        for member in self._members():
            await asyncio.to_thread(member.start)

    async def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Until every running server answers reads and every running agent's host is up. Raises
        ClusterFailed, at once when a process has ended by itself."""
        deadline = time.monotonic() + timeout_s
        started = [member for member in self._members() if member.running]
        while lacking := await self._lacking():
            for member in started:
                if member.ended:
                    raise ClusterFailed(member.epitaph())
            if time.monotonic() > deadline:
                raise ClusterFailed(
                    f"not ready after {timeout_s:g} s: {', '.join(lacking)}; the logs are in "
                    f"{self.directory / 'logs'}"
                )
            await asyncio.sleep(POLL_S)

    def add_server(self) -> Server:
        """Start one more server, which waits to be made a member: `client.add_member(server.node,
        server.peer_address, server.api_address)`."""
        if self._next_node > MOST_SERVERS:
            raise ClusterFailed(
                f"all {MOST_SERVERS} servers of one cluster were used; start a new cluster"
            )
        server = self._server(self._next_node)
        server.start()
        return server

    async def join_server(self) -> Server:
        """`add_server`, off the event loop."""
        return await asyncio.to_thread(self.add_server)

    async def end_server(self, node: int) -> None:
        """End the process of a server that is no member, or no longer; its data goes with it."""
        server = self.servers.pop(server_name(node))
        server.retired = True
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.disk.close)

    async def dismiss(self, server: Server, timeout_s: float = 30.0) -> None:
        """Take a server out of the members and end it. Raises ClusterFailed when it is still a
        member after this time; it then runs on."""
        deadline = time.monotonic() + timeout_s
        while await self._is_member(server):
            if time.monotonic() > deadline:
                raise ClusterFailed(
                    f"{server.name} could not be removed within {timeout_s:g} s: heal the cluster "
                    "and ask again"
                )
            with contextlib.suppress(CoordError):  # It is looked whether it went.
                async with self._direct_client(server) as client:
                    await client.remove_member(server.node)
        await self.end_server(server.node)

    async def stop(self) -> None:
        """End agents and servers in good order, then whatever is left of them, then disks and
        network. Idempotent. Raises ClusterFailed when something would not end."""
        await asyncio.to_thread(self._end)

    def _open(self) -> None:
        for found in leftovers.sweep():
            self._tell(f"ended what a run left that crashed: {found.what}")
        leftovers.sign(self.directory, self.mark)
        self._guard = leftovers.start_guard(self.mark)
        self.disks = Disks(self.directory / "disks")
        self.network.open()
        self.network.add(CLIENTS)
        servers, hosts = self._counts
        for node in range(1, servers + 1):
            self._server(node)
        self._first = ",".join(
            f"{server.node}={server.peer_address}/{server.api_address}"
            for server in self.servers.values()
        )
        for number in range(1, hosts + 1):
            self._host(number)

    def _end(self) -> None:
        with contextlib.suppress(Exception):  # Ends below in any case, in worse order.
            self.network.heal()
        for members in (list(self.hosts.values()), list(self.servers.values())):
            for member in members:
                member.resume()
                member.terminate()
            deadline = time.monotonic() + STOP_S
            for member in members:
                if not member.wait(deadline - time.monotonic()):
                    member.kill()
        processes.sweep(self.mark, TASK_GRACE_S)
        self.network.close()
        if self.disks is not None:
            self.disks.close()
        stays = leftovers.clear(self.mark)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None
        if stays:
            raise ClusterFailed("; ".join(stays))

    # Its parts

    def _members(self) -> list[Member]:
        return [*self.servers.values(), *self.hosts.values()]

    async def _lacking(self) -> list[str]:
        servers = [server for server in self.servers.values() if server.running]
        views = await asyncio.gather(*(_view(server.direct_url) for server in servers))
        members = {one.node for view in views if view is not None for one in view.members}
        lacking = [
            f"{server.name} does not answer"
            for server, view in zip(servers, views, strict=True)
            # One that waits to be added answers nobody, and is not missed.
            if view is None and (server.node in members or not members)
        ]
        agents = [host.name for host in self.hosts.values() if host.running]
        if lacking or not agents:
            return lacking
        up = await self._hosts_up()
        return [f"{name} is not up" for name in agents if name not in up]

    async def _hosts_up(self) -> list[str]:
        with contextlib.suppress(CoordError):
            async with self._direct_client() as client:
                return [host.host for host in await client.hosts() if host.status == "up"]
        return []

    async def _is_member(self, server: Server) -> bool:
        """Also while nobody can tell."""
        with contextlib.suppress(CoordError):
            async with self._direct_client(server) as client:
                return server.node in [one.node for one in (await client.cluster()).members]
        await asyncio.sleep(POLL_S)
        return True

    def _direct_client(self, *but: Server) -> Client:
        """Past the proxy, to the others."""
        others = [server for server in self.servers.values() if server not in but]
        return Client([server.direct_url for server in others], timeout_s=ASK_S)

    def _server(self, node: int) -> Server:
        self._next_node = node + 1
        name = server_name(node)
        place = self.network.add(name, (PEER_PORT, API_PORT))
        assert self.disks is not None
        disk = self.disks.open(name)
        clock = ClockSeam(self.directory / "clocks" / name)
        joins = bool(self._first)

        def command() -> list[str]:
            members = "--join" if joins else f"--cluster={self._first}"
            return [
                *self._coordctl,
                "server",
                f"--node={node}",
                f"--data={disk.directory}",
                f"--api={place.listens}:{API_PORT}",
                f"--peer={place.listens}:{PEER_PORT}",
                members,
                f"--cluster-id={CLUSTER_ID}",
                f"--snapshot-entries={self._snapshot_entries}",
                *(f"--settings={key}={value}" for key, value in _changed(self.settings)),
                *(f"--raft={key}={value}" for key, value in self._raft.items()),
            ]

        log = self.directory / "logs" / f"{name}.log"
        role = Role(command, clock.environ, log, self.mark)
        server = Server(
            place, disk, role, node=node, peer_port=PEER_PORT, api_port=API_PORT, clock=clock
        )
        self.servers[name] = server
        return server

    def _host(self, number: int) -> None:
        name = f"h{number}"
        place = self.network.add(name)
        assert self.disks is not None
        disk = self.disks.open(name)

        def command() -> list[str]:
            # Each begins with another server, so that they do not all hang on one.
            at = number % len(self.urls)
            return [
                *self._coordctl,
                "agent",
                f"--host-id={name}",
                f"--data={disk.directory}",
                f"--address={place.listens}",
                f"--server={','.join(self.urls[at:] + self.urls[:at])}",
                f"--cluster-id={CLUSTER_ID}",
                f"--devices={self._devices}",
            ]

        log = self.directory / "logs" / f"{name}.log"
        self.hosts[name] = Host(place, disk, Role(command, dict, log, self.mark))


async def newest_leader(
    look: Callable[[], Awaitable[Mapping[str, ClusterView]]], timeout_s: float
) -> str | None:
    """Of the servers that say they lead, the one of the newest term; None if none does in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        views = await look()
        leaders = {name: view.term for name, view in views.items() if view.role == "leader"}
        if leaders:
            return max(leaders, key=lambda name: leaders[name])
        if time.monotonic() > deadline:
            return None
        await asyncio.sleep(POLL_S)


def _changed(settings: Settings) -> list[tuple[str, int]]:
    """What differs from the defaults."""
    default = Settings()
    pairs = [(name, getattr(settings, name)) for name in settings.__struct_fields__]
    return [(name, value) for name, value in pairs if value != getattr(default, name)]


async def _view(url: str, *, stale: bool = False) -> ClusterView | None:
    """As one server sees it; None when it does not answer at once."""
    with contextlib.suppress(CoordError):
        async with Client([url], timeout_s=ASK_S, stale=stale) as client:
            return await client.cluster()
    return None
