"""A whole cluster as processes of this machine: what `up`, `demo`, tests and benchmarks start."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from coord.cli.exits import Failure
from coord.cli.ports import KeptPorts
from coord.cli.processes import MARK, Child, kill, marked, start_guard, sweep
from coord.model.settings import Settings, numbers_of

STOP_TIMEOUT_S = 10.0
TASK_GRACE_S = 1.0
"""For tasks, which outlive their agents otherwise."""
POLL_S = 0.05

_random = random.SystemRandom()


class Layout(msgspec.Struct, frozen=True):
    """What a data directory was made for, kept in it: members know each other by address."""

    cluster: str
    api_ports: tuple[int, ...]
    peer_ports: tuple[int, ...]


class LocalCluster:
    """Servers 1 to `nodes` and agents host-1 to host-`agents` below one directory.

    A context manager: leaving it ends every process, tasks included, and so does our death.
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
        """`first_port` 0 picks free ports. `workdir` is where agents, and so tasks, begin."""
        self.directory = directory.resolve()
        self._ports = KeptPorts()
        self.layout = layout_for(self.directory, nodes, first_port, self._ports)
        self.mark = f"{os.getpid()}-{_random.randrange(1 << 62):x}"
        self._settings = settings or Settings()
        self._devices = devices
        self._workdir = workdir
        self._guard: Any = None
        self.servers = {node: self._server(node) for node in range(1, nodes + 1)}
        self.agents = {f"host-{number}": self._agent(number) for number in range(1, agents + 1)}

    def __enter__(self) -> LocalCluster:
        self._guard = start_guard(self.mark)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def urls(self) -> list[str]:
        """Of the servers, in the order of their numbers."""
        return [f"http://127.0.0.1:{port}" for port in self.layout.api_ports]

    @property
    def children(self) -> list[Child]:
        return [*self.servers.values(), *self.agents.values()]

    def start(self) -> None:
        """Start everything. Usable after `wait_ready`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "layout.json").write_bytes(msgspec.json.encode(self.layout))
        for child in self.children:
            child.start()

    def wait_ready(
        self, timeout_s: float = 30.0, give_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Until every started server answers and every started agent's host is up."""
        servers = {
            server.name: self.urls[node - 1] for node, server in self.servers.items() if server.pid
        }
        self.wait_until(
            lambda: give_up() or all(is_ready(url) for url in servers.values()),
            timeout_s,
            lambda: f"{listed(name for name in servers if not is_ready(servers[name]))} not ready",
        )
        agents = [host for host, agent in self.agents.items() if agent.pid]
        self.wait_until(
            lambda: give_up() or not [h for h in agents if h not in self.hosts_up()],
            timeout_s,
            lambda: f"{listed(h for h in agents if h not in self.hosts_up())} not registered",
        )

    def wait_until(
        self, condition: Callable[[], bool], timeout_s: float, complaint: Callable[[], str]
    ) -> None:
        """Poll until it holds. Failure when time is up, and at once when a child has ended."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            for child in self.children:
                if child.ended:
                    raise Failure(child.epitaph())
            if time.monotonic() > deadline:
                raise Failure(
                    f"{complaint()} after {timeout_s:.0f} s; the logs are in "
                    f"{self.directory / 'logs'}"
                )
            time.sleep(POLL_S)

    def hosts_up(self) -> list[str]:
        """Hosts that count as up, as the first server that answers sees it."""
        for url in self.urls:
            answer = get_json(f"{url}/v1/hosts?stale=1")
            if answer is not None:
                return [host["host"] for host in answer["hosts"] if host["status"] == "up"]
        return []

    def kill_host(self, host: str) -> list[int]:
        """SIGKILL to an agent, its keeper and every process of its tasks, as if the machine had
        died. Returns the pids of the tasks' processes.
        """
        data = str(self._agent_data(host))
        agent = self.agents[host]
        others, tasks = [], []
        for process in marked(self.mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.environ().get("COORD_HOST") == host:
                    tasks.append(process)
                elif data in process.cmdline() and process.pid != agent.pid:
                    others.append(process)
        agent.kill()
        kill([*others, *tasks])
        return [process.pid for process in tasks]

    def child(self, name: str, arguments: list[str], workdir: Path | None = None) -> Child:
        """One more `coordctl` process of this cluster, not yet started. `stop` ends it, but whoever
        asked for it has to wait for it."""
        command = [sys.executable, "-m", "coord.cli.main", *arguments]
        # What the user set for other servers and agents is not meant for these.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("COORD_")}
        env = {**kept, MARK: self.mark}
        return Child(name, command, self.directory / "logs" / f"{name}.log", env, workdir)

    def stop(self) -> None:
        """End agents and servers in good order, then whatever else carries our mark. Idempotent."""
        for children in (list(self.agents.values()), list(self.servers.values())):
            for child in children:
                child.terminate()
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for child in children:
                if not child.wait(deadline - time.monotonic()):
                    child.kill()
        sweep(self.mark, TASK_GRACE_S)
        self._ports.close()
        if self._guard is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def _server(self, node: int) -> Child:
        arguments = [
            "server",
            f"--node={node}",
            f"--data={self.directory / f'server-{node}'}",
            f"--api={self._api(node)}",
            f"--cluster-id={self.layout.cluster}",
            *(f"--settings={name}={value}" for name, value in _changed(self._settings)),
        ]
        if len(self.layout.api_ports) > 1:
            members = [
                f"{other}={self._peer(other)}/{self._api(other)}"
                for other in range(1, len(self.layout.api_ports) + 1)
            ]
            arguments.append(f"--cluster={','.join(members)}")
        return self.child(f"server-{node}", arguments)

    def _agent(self, number: int) -> Child:
        # Each begins with another server, so that they do not all hang on one.
        at = number % len(self.urls)
        arguments = [
            "agent",
            f"--host-id=host-{number}",
            f"--data={self._agent_data(f'host-{number}')}",
            f"--server={','.join(self.urls[at:] + self.urls[:at])}",
            f"--cluster-id={self.layout.cluster}",
            f"--devices={self._devices}",
        ]
        return self.child(f"host-{number}", arguments, self._workdir)

    def _agent_data(self, host: str) -> Path:
        return self.directory / host.replace("host", "agent")

    def _api(self, node: int) -> str:
        return f"127.0.0.1:{self.layout.api_ports[node - 1]}"

    def _peer(self, node: int) -> str:
        return f"127.0.0.1:{self.layout.peer_ports[node - 1]}"


def _changed(settings: Settings) -> list[tuple[str, int]]:
    """What differs from the defaults."""
    default = dict(numbers_of(Settings()))
    return [(name, value) for name, value in numbers_of(settings) if value != default[name]]


def layout_for(directory: Path, nodes: int, first_port: int, kept: KeptPorts) -> Layout:
    """That of the directory if it has one, which must fit; else a new one. `kept` has its ports."""
    path = directory / "layout.json"
    if not path.exists():
        ports = _server_ports(nodes, first_port, kept)
        return Layout(
            cluster=f"local-{_random.randrange(1 << 32):08x}",
            api_ports=tuple(ports[:nodes]),
            peer_ports=tuple(ports[nodes:]),
        )
    found = msgspec.json.decode(path.read_bytes(), type=Layout)
    if len(found.api_ports) != nodes:
        raise Failure(
            f"{directory} holds a cluster of {len(found.api_ports)} servers, not {nodes}: "
            f"pass --nodes {len(found.api_ports)}, or another --data directory"
        )
    _keep((*found.api_ports, *found.peer_ports), kept)
    return found


def _server_ports(nodes: int, first_port: int, kept: KeptPorts) -> list[int]:
    if not first_port:
        return kept.choose(2 * nodes)
    ports = [first_port + at for at in range(nodes)]
    ports += [first_port + 100 + at for at in range(nodes)]
    _keep(ports, kept)
    return ports


def _keep(ports: list[int] | tuple[int, ...], kept: KeptPorts) -> None:
    for port in ports:
        if not kept.keep(port):
            kept.close()
            raise Failure(
                f"port {port} of 127.0.0.1 is in use: end what listens there (another "
                "`coordctl up`?), or choose others with --first-port and a new --data directory"
            )


def is_ready(url: str) -> bool:
    """Whether the server there can answer reads and take writes."""
    return get_json(f"{url}/readyz") is not None


def get_json(url: str, timeout_s: float = 2.0) -> Any:
    """The answer's JSON, empty for one without; None for an error or no answer."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            body = answer.read()
    except (OSError, urllib.error.HTTPError):
        return None
    try:
        return json.loads(body)
    except ValueError:
        return {}


def listed(names: Any) -> str:
    return ", ".join(names)
