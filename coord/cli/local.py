"""A whole cluster as processes of this machine: what `up`, `demo`, tests and benchmarks start.

Every process gets a session of its own, so that Ctrl-C reaches only us, and carries a mark in its
environment by which it and its descendants are found again. A guard process outlives us by the
moment it needs to end whatever carries the mark: nothing is left behind even after kill -9.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil

from coord.cli.exits import Failure
from coord.model.settings import Settings

MARK = "COORD_LOCAL_CLUSTER"
LOWEST_FREE_PORT = 15_000
HIGHEST_FREE_PORT = 32_000
"""Below the kernel's range for outgoing connections, so that nobody takes a probed port by chance."""
AGENT_PORTS = 64
"""How many rendezvous ports each agent gets."""
STOP_TIMEOUT_S = 10.0


class Layout(msgspec.Struct, frozen=True):
    """What a data directory was made for. Kept there, because members know each other by address."""

    cluster: str
    api_ports: tuple[int, ...]
    peer_ports: tuple[int, ...]
    agent_ports: tuple[tuple[int, int], ...]
    """First and last rendezvous port of each agent."""


class Child:
    """One process of ours: a server or an agent. Started again only when told to."""

    def __init__(self, name: str, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.command = command
        self.log = log
        self._env = env
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def last_lines(self, count: int = 5) -> str:
        """The end of its log, indented."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(f"    {line}" for line in text.splitlines()[-count:])


class LocalCluster:
    """Servers `1..nodes` and agents `host-1..host-<agents>` below one directory.

    Use as a context manager: leaving it ends every process, tasks included.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        agents: int = 5,
        devices: int = 1,
        settings: Settings | None = None,
        first_port: int = 0,
        workdir: Path | None = None,
    ) -> None:
        """`first_port` 0 picks free ports. `workdir` is where agents, and so tasks, start."""
        self.directory = directory.resolve()
        self.layout = _layout(self.directory, nodes, agents, first_port)
        self.mark = f"{os.getpid()}-{random.SystemRandom().randrange(1 << 62):x}"
        self._settings = settings
        self._devices = devices
        self._env = {**os.environ, MARK: self.mark, "PYTHONUNBUFFERED": "1"}
        self._workdir = workdir
        self._guard: subprocess.Popen[bytes] | None = None
        self.servers = {node: self._server(node) for node in range(1, nodes + 1)}
        self.agents = {f"host-{number}": self._agent(number) for number in range(1, agents + 1)}

    def __enter__(self) -> LocalCluster:
        self._guard = start_guard(self.mark)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.layout.api_ports]

    @property
    def children(self) -> list[Child]:
        return [*self.servers.values(), *self.agents.values()]

    def start(self) -> None:
        """Start everything. Ready only after `wait_ready`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "layout.json").write_bytes(msgspec.json.encode(self.layout))
        for child in self.children:
            child.start()

    def wait_ready(self, timeout_s: float = 30.0, agents: bool = True) -> None:
        """Until every server answers and every agent is registered. Failure says who is not."""
        servers = {f"server {node}": url for node, url in enumerate(self.urls, 1)}
        wait_for(
            lambda: not self.ended_early() and all(is_ready(url) for url in servers.values()),
            timeout_s,
            lambda: self._not_ready([name for name, url in servers.items() if not is_ready(url)]),
            give_up=lambda: bool(self.ended_early()),
        )
        if agents:
            wait_for(
                lambda: len(self.hosts_up()) == len(self.agents),
                timeout_s,
                lambda: self._not_ready([h for h in self.agents if h not in self.hosts_up()]),
                give_up=lambda: bool(self.ended_early()),
            )

    def hosts_up(self) -> list[str]:
        """Hosts that count as up, as the first server that answers sees it."""
        for url in self.urls:
            try:
                answer = get_json(f"{url}/v1/hosts")
            except OSError:
                continue
            return [host["host"] for host in answer["hosts"] if host["status"] == "up"]
        return []

    def ended_early(self) -> list[Child]:
        """Children that were started and have ended by themselves or by a signal."""
        return [child for child in self.children if child.process and not child.running]

    def kill_agent_with_tasks(self, host: str) -> list[int]:
        """SIGKILL to an agent and every process of its tasks, as when a machine dies; their pids."""
        agent = self.agents[host]
        family = _family(agent.pid)
        agent.kill()
        for process in family:
            kill(process)
        return [process.pid for process in family]

    def stop(self) -> None:
        """End everything: agents and servers in good order, then whatever else carries our mark."""
        agents, servers = list(self.agents.values()), list(self.servers.values())
        for children in (agents, servers):
            for child in children:
                child.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for child in children:
                if child.process is not None:
                    try:
                        child.process.wait(max(0.01, deadline - time.monotonic()))
                    except subprocess.TimeoutExpired:
                        child.kill()
            if children is agents:
                sweep(self.mark, spare=[child.pid for child in servers])
        sweep(self.mark)
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def _not_ready(self, names: list[str]) -> str:
        ended = self.ended_early()
        for child in ended:
            assert child.process is not None
            return (
                f"{child.name} ended with exit code {child.process.returncode}. "
                f"Its log is {child.log}; the last lines:\n{child.last_lines()}"
            )
        return f"not ready in time: {', '.join(names)}; see the logs in {self.directory / 'logs'}"

    def _child(self, name: str, arguments: list[str]) -> Child:
        command = [sys.executable, "-m", "coord.cli.main", *arguments]
        return Child(name, command, self.directory / "logs" / f"{name}.log", self._env)

    def _server(self, node: int) -> Child:
        raise NotImplementedError

    def _agent(self, number: int) -> Child:
        raise NotImplementedError


def _layout(directory: Path, nodes: int, agents: int, first_port: int) -> Layout:
    """That of the directory if it has one, which must fit; else a new one."""
    path = directory / "layout.json"
    if path.exists():
        found = msgspec.json.decode(path.read_bytes(), type=Layout)
        if len(found.api_ports) != nodes:
            raise Failure(
                f"{directory} holds a cluster of {len(found.api_ports)} servers, not {nodes}: "
                f"pass --nodes {len(found.api_ports)}, or another --data directory"
            )
        missing = agents - len(found.agent_ports)
        if missing <= 0:
            return found
        more = tuple(_ranges(missing, found.agent_ports))
        return msgspec.structs.replace(found, agent_ports=(*found.agent_ports, *more))
    ports = (
        list(range(first_port, first_port + nodes)) + list(range(first_port + 100, first_port + 100 + nodes))
        if first_port
        else free_ports(2 * nodes)
    )
    for port in ports:
        if not is_free(port):
            raise Failure(
                f"port {port} on 127.0.0.1 is in use: end what listens there, or pass --first-port"
            )
    return Layout(
        cluster=f"local-{random.SystemRandom().randrange(1 << 32):08x}",
        api_ports=tuple(ports[:nodes]),
        peer_ports=tuple(ports[nodes:]),
        agent_ports=tuple(_ranges(agents, ())),
    )


def _ranges(count: int, taken: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    """Rendezvous ports that no two agents share, for all of them are on this machine."""
    raise NotImplementedError


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nobody listens now, each another, in no particular order."""
    chosen: list[int] = []
    random_port = random.SystemRandom().randrange
    while len(chosen) < count:
        port = random_port(LOWEST_FREE_PORT, HIGHEST_FREE_PORT)
        if port not in chosen and is_free(port):
            chosen.append(port)
    return chosen


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
