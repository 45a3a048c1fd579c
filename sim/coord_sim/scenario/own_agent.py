"""An agent of somebody else on a simulated host: what it is given, and the host that runs it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from coord.agent.config import AgentConfig
from coord.agent.exits import ExitNotes
from coord.agent.ports import WorkerListener
from coord.agent.records import Records
from coord.client.agent import Agent
from coord.client.channel import Dialer
from coord_sim.kernel import current_process
from coord_sim.scenario.machine import Machine
from coord_sim.world.agent_disk import SimFiles, SimOutput
from coord_sim.world.hosts import PORTS, SimHost, SimHosts
from coord_sim.world.runner import SimRunner
from coord_sim.world.worker_socket import SimWorkerSocket

OWN = "own"


class AgentFiles:
    """A small disk that outlives the agent and the host's power. Names are flat, like `tasks`."""

    def __init__(self, files: SimFiles) -> None:
        self._files = files

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""
        return self._files.read(f"{OWN}/{name}")

    def write(self, name: str, content: bytes, *, synced: bool = True) -> None:
        """Replace the file at once. What is not `synced` survives the agent but, when the power
        goes, may be lost, torn, or as it was before. OSError: the disk is full."""
        self._files.replace(f"{OWN}/{name}", content, synced=synced)

    def remove(self, name: str) -> None:
        self._files.remove(f"{OWN}/{name}")

    def names(self) -> list[str]:
        """Ascending."""
        return [name.removeprefix(f"{OWN}/") for name in self._files.names(OWN)]


class AgentContext:
    """What one life of an agent under test has. It gets a new one each time that it is started.

    The clock is asyncio's: `asyncio.sleep`, `asyncio.timeout`, `get_running_loop().time()`, all on
    virtual time. Sockets, threads that wait, `time.sleep` and subprocesses are of no use here.
    Tasks made with `asyncio.create_task` or a TaskGroup die with the agent's process.
    """

    def __init__(self, host: SimHost, config: AgentConfig, stop: asyncio.Event) -> None:
        process = current_process()
        assert process is not None, "an agent's context is made in its process"
        files = SimFiles(host.disk, config.data_dir, process)
        records = Records(files, host.name, f"{host.rng.getrandbits(128):032x}", host.boot)
        self.host = host.name
        self.servers: tuple[str, ...] = config.servers
        """URLs, to be dialled with `dialer` only."""
        self.dialer: Dialer = host.fleet.dial(host)
        self.rng: random.Random = host.kernel.rng(f"agent/{host.name}")
        """Draw from this one alone, so that a seed stays a seed."""
        self.boot = host.boot
        """Of the host; a new one with each return of its power."""
        self.agent_id = records.identity.agent
        """On disk: the same in every life of the agent."""
        self.next_seq: Callable[[], int] = records.next_registration
        """Counts up over all lives; on disk before it returns."""
        self.address = config.address
        self.devices = config.devices
        self.cpu_millis = config.cpu_millis
        self.memory_mib = config.memory_mib
        self.labels = dict(config.labels)
        self.ports: tuple[int, ...] = PORTS
        self.files = AgentFiles(files)
        self.stop = stop
        """Set by SIGTERM (`HostHandle.stop_agent`): end in order, leaving tasks alone."""
        self.workers: WorkerListener = SimWorkerSocket(config.data_dir / "worker.sock", process)
        """Where ranks reach the agent once it calls `start(desk, spawn)`; until then they are told
        that nobody listens, and go on without."""
        runner = SimRunner(host, self.agent_id, process, ExitNotes(files))
        output = SimOutput(host.disk, config.data_dir / "logs")
        self.machine = Machine(host, self.agent_id, runner, output, self.workers.path)
        self._host = host
        host.runner = runner
        assert isinstance(self.workers, SimWorkerSocket)
        host.workers = self.workers

    def agent(self, **changes: Any) -> Agent:
        """The conversation of this host, not opened yet; `changes` are arguments of
        `coord.client.agent.Agent` that are to be others. Use it as `async with context.agent()`."""
        arguments: dict[str, Any] = {
            "host": self.host,
            "agent_id": self.agent_id,
            "boot": self.boot,
            "address": self.address,
            "next_seq": self.next_seq,
            "devices": self.devices,
            "cpu_millis": self.cpu_millis,
            "memory_mib": self.memory_mib,
            "labels": self.labels,
            "ports": self.ports,
            "dialer": self.dialer,
            "rng": self.rng,
            **changes,
        }
        agent = Agent(arguments.pop("servers", self.servers), **arguments)
        self._host.channel = agent
        return agent


AgentMain = Callable[[AgentContext], Awaitable[object]]
"""An agent: started when its host has power, and again a moment after it ended or was killed. An
exception out of it is a violation."""


class OwnHost(SimHost):
    """A host that runs another agent than ours."""

    def __init__(self, main: AgentMain, fleet: SimHosts, name: str, config: AgentConfig) -> None:
        super().__init__(fleet, name, config)
        self._agent = main

    async def _agent_main(self) -> None:
        await self._agent(AgentContext(self, self._config, self._stop))
