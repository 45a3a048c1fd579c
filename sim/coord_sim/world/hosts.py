"""Simulated hosts: the real agent on simulated hardware, and whatever can befall it.

Processes of a host outlive its agent and end with its power. An agent that died is started again
after a moment, as by systemd, unless it was told to stay away.
"""

from __future__ import annotations

import asyncio
import functools
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from coord import __version__
from coord.agent.config import AgentConfig
from coord.agent.daemon import Daemon
from coord.agent.exits import ExitNotes
from coord.agent.lease import LeaseFile
from coord.agent.ports import HostPorts, LaunchError, LaunchSpec
from coord.agent.records import Process, Records
from coord.client.agent import Agent
from coord.client.channel import Dialer
from coord.model.events import PreemptionNoticed
from coord.model.settings import Settings
from coord_sim.kernel import Kernel, SimProcess, current_process
from coord_sim.world.agent_disk import AgentDisk, SimFiles, SimOutput
from coord_sim.world.collectives import Collective
from coord_sim.world.habits import (
    JobHabits,
    RankHabits,
    draw_job_habits,
    draw_rank_habits,
    fixed_by,
)
from coord_sim.world.host_keeper import SimKeeper, SimKeeperPost
from coord_sim.world.ranks import SimRank
from coord_sim.world.runner import SimRunner
from coord_sim.world.violation import Violation
from coord_sim.world.worker_socket import SimWorkerSocket

PORTS = tuple(range(20_000, 20_032))
AGENT_RESTART_S = (0.2, 2.0)
"""From the death of an agent to the next one."""


class HostNetwork(Protocol):
    """What a host's faults need of the network of agents (`channels.Channels`)."""

    def unplug(self, caller: str) -> None: ...

    def cut(self, caller: str, server: int) -> None: ...

    def cut_silently(
        self, caller: str, server: int, *, to_server: bool = True, to_caller: bool = True
    ) -> None: ...

    def heal(self, caller: str, server: int) -> None: ...


class RankWatcher(Protocol):
    """Told, at once and by no process, of what truly happens to ranks."""

    def started(self, rank: SimRank) -> None: ...

    def ended(self, rank: SimRank) -> None:
        """Its main process is over."""

    def gone(self, rank: SimRank) -> None:
        """No process of it is left."""

    def saved(self, rank: SimRank, step: int, path: str, digest: str) -> None:
        """Its shard of this checkpoint is durable."""


class SimHost:
    """One machine. Made by `SimHosts.add`."""

    def __init__(self, fleet: SimHosts, name: str, config: AgentConfig) -> None:
        self.fleet = fleet
        self.kernel: Kernel = fleet.kernel
        self.name = name
        self.labels = config.labels
        self.data_dir = config.data_dir
        self.rng = self.kernel.rng(f"host/{name}")
        self.disk = AgentDisk(self.kernel.rng(f"agent disk/{name}"))
        self.powered = False
        self.gone = False
        """Its machine was taken away: no power comes back to it."""
        self.boots = 0
        self.agent: SimProcess | None = None
        self.daemon: Daemon | None = None
        self.channel: Agent | None = None
        """The conversation of the agent that runs."""
        self.runner: SimRunner | None = None
        self.workers: SimWorkerSocket | None = None
        self.keeper: SimKeeper | None = None
        self.runs: list[SimRank] = []
        """Ranks of which some process lives, oldest first."""
        self.fabric_up = True
        """Whether its ranks reach those of other hosts."""
        self.network_cut = False
        self.launch_failures: list[LaunchError] = []
        """What the next launches end with."""
        self.busy_ports: dict[int, None] = {}
        """Taken by strangers."""
        self.kernel_tells = self.rng.random() < 0.7
        """Whether its kernel tells how somebody else's child ended."""
        self._config = config
        self._stop = asyncio.Event()
        self._may_restart = True
        self._next_pid = 0
        self._ticks = 0

    @property
    def boot(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    @property
    def caller(self) -> str:
        """Under which name it dials."""
        return self.name

    @property
    def ranks(self) -> dict[str, SimRank]:
        """Those whose main process lives, by task key."""
        return {rank.task: rank for rank in self.runs if rank.alive}

    @property
    def agent_up(self) -> bool:
        return self.agent is not None and self.agent.alive

    @property
    def holds_exclusive(self) -> bool:
        """Whether some process of an exclusive task lives here, or may start any moment."""
        return any(self.fleet.is_exclusive(rank) for rank in self.runs) or (
            self.daemon is not None
            and any(record.order.exclusive for record in self.daemon.tasks.holding())
        )

    # Power

    def power_on(self) -> None:
        """Boot, and start the agent. Idempotent."""
        if self.powered or self.gone:
            return
        self.powered = True
        self.boots += 1
        self._next_pid, self._ticks = self.rng.randrange(300, 400), 0
        self._note("on", boot=self.boots)
        self._may_restart = True
        self.agent_start()

    def power_off(self) -> None:
        """Every process ends, and what was not synced is lost or torn. Idempotent."""
        if not self.powered:
            return
        self.powered = False
        self._note("off")
        if self.fleet.network is not None:
            self.fleet.network.unplug(self.caller)
        for process in (self.agent, self.keeper.process if self.keeper else None):
            if process is not None:
                process.kill()
        self.keeper = None
        for rank in list(self.runs):
            rank.lose_power()
        assert not self.runs, f"survived the loss of power: {[rank.task for rank in self.runs]}"
        self.disk.lose_power()

    def power_cycle(self, off_s: float) -> None:
        """Off, and on again after a while."""
        self.power_off()
        self.kernel.call_later(off_s, self.power_on)

    def freeze(self, seconds: float) -> None:
        """All of it stands still, as a virtual machine that is moved, and then goes on."""
        self._note("frozen", ms=round(seconds * 1000))
        keepers = [self.keeper.process] if self.keeper else []
        agents = [self.agent] if self.agent else []
        for process in (*agents, *keepers, *(rank.sim for rank in self.runs)):
            process.stall(seconds)

    # The agent

    def agent_start(self) -> None:
        """Unless one runs, or there is no power."""
        if self.powered and not self.agent_up:
            self._may_restart = True
            self._stop = asyncio.Event()
            self.agent = self.kernel.spawn(f"{self.name}:agent", self._agent_main)
            self.agent.on_death.append(functools.partial(self._agent_died, self.agent))

    def agent_kill(self, away_s: float | None = None) -> None:
        """kill -9. The next one comes after `away_s`: drawn if None, never if it is infinite."""
        if self.agent is None or not self.agent.alive:
            return
        self._note("agent killed")
        self._may_restart = away_s is None
        self.agent.kill()
        if away_s is not None and away_s < math.inf:
            self.kernel.call_later(away_s, self.agent_start)

    def agent_stop(self) -> None:
        """SIGTERM, as for an upgrade: it leaves its tasks, and the next one comes soon."""
        if self.agent is not None and self.agent.alive:
            self._note("agent stopped")
            self.agent.call_soon(self._stop.set)

    def agent_pause(self) -> None:
        if self.agent is not None:
            self._note("agent paused")
            self.agent.pause()

    def agent_resume(self) -> None:
        if self.agent is not None and self.agent.paused:
            self._note("agent resumed")
            self.agent.resume()

    def notice_preemption(self, grace_s: float) -> None:
        """Its owner will take the machine away; the agent hears of it, and tells."""
        if self.agent is not None and self.agent.alive:
            self.agent.call_soon(self._tell_preemption, round(grace_s * 1000))

    # The network

    def cut_network(self, *, to_server: bool = True, to_caller: bool = True) -> None:
        """From and to the servers, nobody being told; ranks still reach each other."""
        self._note("cut", to_server=to_server, to_caller=to_caller)
        self.network_cut = True
        for number in self.fleet.server_numbers:
            if self.fleet.network is not None:
                self.fleet.network.cut_silently(
                    self.caller, number, to_server=to_server, to_caller=to_caller
                )

    def heal_network(self) -> None:
        """To the servers and among ranks."""
        if self.network_cut:
            self._note("healed")
            for number in self.fleet.server_numbers:
                if self.fleet.network is not None:
                    self.fleet.network.heal(self.caller, number)
        self.network_cut = False
        self.set_fabric(True)

    def set_fabric(self, up: bool) -> None:
        """Whether ranks here reach those elsewhere."""
        if up != self.fabric_up:
            self._note("fabric", up=up)
            self.fabric_up = up
            self.fleet.look_at_collectives()

    # For the runner and ranks

    def take_launch_failure(self) -> LaunchError | None:
        return self.launch_failures.pop(0) if self.launch_failures else None

    def start_rank(self, spec: LaunchSpec) -> SimRank:
        """A process in a session of its own."""
        job, own, collective = self.fleet.habits_of(spec)
        process = Process(self._pid(), self._tick(), self.boot)
        child_pid = self._pid() if own.child else 0
        rank = self.fleet.make_rank(self, process, child_pid, spec, (job, own), collective)
        self.runs.append(rank)
        self._note("rank started", task=rank.task, pid=process.pid)
        for watcher in self.fleet.watchers:
            watcher.started(rank)
        return rank

    def rank_ended(self, rank: SimRank) -> None:
        assert rank.status is not None
        code, number = rank.status.exit_code, rank.status.signal
        self._note("rank ended", task=rank.task, code=code, signal=number)
        for watcher in self.fleet.watchers:
            watcher.ended(rank)
        if self.workers is not None:
            self.workers.rank_died(rank.task)
        if self.runner is not None:
            self.runner.rank_ended(rank)
        if self.keeper is not None:
            self.keeper.rank_ended(rank)

    def rank_gone(self, rank: SimRank) -> None:
        if rank in self.runs:
            self.runs.remove(rank)
            for watcher in self.fleet.watchers:
                watcher.gone(rank)

    def rank_saved(self, rank: SimRank, step: int, path: str, digest: str) -> None:
        for watcher in self.fleet.watchers:
            watcher.saved(rank, step, path, digest)

    def is_free(self, port: int) -> bool:
        """Whether a TCP port can be listened on."""
        return port not in self.busy_ports and all(rank.port != port for rank in self.runs)

    # Inside

    async def _agent_main(self) -> None:
        process = current_process()
        assert process is not None
        config = self._config
        files = SimFiles(self.disk, config.data_dir, process)
        records = Records(files, self.name, f"{self.rng.getrandbits(128):032x}", self.boot)
        notes = ExitNotes(files)
        self.runner = SimRunner(self, records.identity.agent, process, notes)
        self.workers = SimWorkerSocket(config.data_dir / "worker.sock", process)
        ports = HostPorts(
            records=records,
            notes=notes,
            lease=LeaseFile(files, self.boot),
            output=SimOutput(self.disk, config.data_dir / "logs"),
            workers=self.workers,
            keeper=SimKeeperPost(self),
            runner=self.runner,
            is_free=self.is_free,
        )
        agent = Agent(
            config.servers,
            host=self.name,
            agent_id=records.identity.agent,
            boot=self.boot,
            address=config.address,
            next_seq=records.next_registration,
            devices=config.devices,
            cpu_millis=config.cpu_millis,
            memory_mib=config.memory_mib,
            labels=config.labels,
            ports=PORTS,
            version=__version__,
            place=config.place,
            rails=config.rails,
            dialer=self.fleet.dial(self),
            rng=self.kernel.rng(f"agent/{self.name}"),
        )
        self.channel = agent
        async with agent:
            self.daemon = Daemon(config, ports, agent)
            await self.daemon.run(self._stop)

    def _agent_died(self, agent: SimProcess) -> None:
        self._note("agent ended")
        self.daemon = self.channel = self.runner = self.workers = None
        if agent.crashed is not None and not all(
            isinstance(error, OSError) and self.disk.was_full for error in leaves(agent.crashed)
        ):
            self.fleet.violated(
                "an agent ends only when it is told to, or when its disk is full",
                f"{self.name}: {'; '.join(repr(error) for error in leaves(agent.crashed))}",
                agent.crashed,
            )
        if self.powered and self._may_restart:
            self.kernel.call_later(self.rng.uniform(*AGENT_RESTART_S), self._start_again)

    def _start_again(self) -> None:
        if self._may_restart:
            self.agent_start()

    def _tell_preemption(self, grace_ms: int) -> None:
        channel = self.channel
        if channel is not None and channel.incarnation:
            channel.report(PreemptionNoticed(self.name, channel.incarnation, grace_ms, "spot"))

    def _pid(self) -> int:
        self._next_pid += self.rng.randrange(1, 5)
        return self._next_pid

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _note(self, what: str, **facts: object) -> None:
        self.kernel.trace.note(f"host.{what.replace(' ', '_')}", host=self.name, **facts)


class SimHosts:
    """The fleet. `dial` gives each agent its way to the servers, `network` is where it is cut."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        dial: Callable[[SimHost], Dialer],
        settings: Settings,
        servers: tuple[str, ...],
        network: HostNetwork | None = None,
    ) -> None:
        self.kernel = kernel
        self.dial = dial
        self.settings = settings
        self.servers = servers
        self.network = network
        self.server_numbers = tuple(
            int(found[1]) for found in (re.search(r"-(\d+)", url) for url in servers) if found
        )
        self.pace = 1.0
        """What every step's duration is multiplied with."""
        self.hosts: dict[str, SimHost] = {}
        self.watchers: list[RankWatcher] = []
        self.make_rank: Callable[..., SimRank] = SimRank
        """What becomes of a launch; takes what `SimRank` takes."""
        self.exclusive_roles: dict[tuple[str, str], None] = {}
        """(job, role) of those whose tasks may never run twice at once, as soon as that is said."""
        self._jobs: dict[tuple[str, str], JobHabits] = {}
        self._collectives: dict[tuple[str, str, int], Collective] = {}

    def add(
        self,
        name: str,
        devices: int = 2,
        cpu_millis: int = 8_000,
        memory_mib: int = 16_384,
        labels: dict[str, str] | None = None,
        make: Callable[[SimHosts, str, AgentConfig], SimHost] = SimHost,
    ) -> SimHost:
        """A host without power. Labels `rack` and `switch` say with whom it shares its fate. `make`
        is for a host that runs another agent than ours."""
        config = AgentConfig(
            servers=self.servers,
            data_dir=Path("/var/lib/coord") / name,
            host=name,
            address=f"{name}.sim",
            devices=devices,
            cpu_millis=cpu_millis,
            memory_mib=memory_mib,
            labels=dict(labels or {}),
            environment={},
        )
        host = self.hosts[name] = make(self, name, config)
        return host

    def sharing(self, label: str) -> dict[str, list[SimHost]]:
        """Hosts by the value of a label; those without it are not there."""
        found: dict[str, list[SimHost]] = {}
        for name in sorted(self.hosts):
            value = self.hosts[name].labels.get(label)
            if value:
                found.setdefault(value, []).append(self.hosts[name])
        return found

    def live_ranks(self) -> list[SimRank]:
        """All whose main process lives, by host and age."""
        return [rank for name in sorted(self.hosts) for rank in self.hosts[name].runs if rank.alive]

    def is_exclusive(self, rank: SimRank) -> bool:
        return (rank.env["COORD_JOB"], rank.env["COORD_ROLE"]) in self.exclusive_roles

    def habits_of(self, spec: LaunchSpec) -> tuple[JobHabits, RankHabits, Collective]:
        """What a program does, and with whom."""
        env = spec.env
        role = (env["COORD_JOB"], env["COORD_ROLE"])
        if role not in self._jobs:
            rng = self.kernel.rng(f"habits/{'/'.join(role)}")
            self._jobs[role] = fixed_by(env, draw_job_habits(rng, spec.command))
        own = draw_rank_habits(self.kernel.rng(f"rank/{spec.task}"), env)
        size = int(env.get("WORLD_SIZE") or 1)
        if size == 1:
            return self._jobs[role], own, Collective(1)
        key = (*role, int(env["COORD_GENERATION"]))
        collective = self._collectives.get(key)
        if collective is None or collective.size != size:
            collective = self._collectives[key] = Collective(size)
        return self._jobs[role], own, collective

    def look_at_collectives(self) -> None:
        """The network among ranks has changed."""
        for collective in {rank.collective: None for rank in self.live_ranks()}:
            collective.look()

    def violated(self, sentence: str, detail: str, cause: BaseException | None = None) -> None:
        """End the simulation with a violation, from whatever process this is found in."""
        self.kernel.trace.note("violation", detail=detail, property=sentence)
        violation = Violation(sentence, detail)
        violation.__cause__ = cause
        self.kernel.fail(violation)


def leaves(error: BaseException) -> Iterable[BaseException]:
    """The errors in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in leaves(one)]
    return [error]
