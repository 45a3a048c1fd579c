"""Parts of a scenario by name, with what can befall them as plain methods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from coord.agent.ports import LaunchError
from coord.core.state import State
from coord_sim.world.hosts import SimHost
from coord_sim.world.ranks import SimRank

if TYPE_CHECKING:
    from coord_sim.scenario.led import LedWorld


class HostHandle:
    """A host. Faults begin at once, and last until they are undone or the world is healed."""

    def __init__(self, host: SimHost) -> None:
        self.name = host.name
        self._host = host

    def __repr__(self) -> str:
        return f"<host {self.name}>"

    # Looking

    @property
    def powered(self) -> bool:
        return self._host.powered

    @property
    def agent_up(self) -> bool:
        """Whether its agent's process lives."""
        return self._host.agent_up

    @property
    def boot(self) -> str:
        return self._host.boot

    @property
    def ranks(self) -> list[RankHandle]:
        """Those whose main process lives here in truth, oldest first."""
        return [RankHandle(rank) for rank in self._host.runs if rank.alive]

    # The machine

    def power_on(self) -> None:
        """Boot, and start the agent. Idempotent."""
        self._host.power_on()

    def power_off(self) -> None:
        """Every process ends, what was not synced is lost or torn. Idempotent."""
        self._host.power_off()

    def power_cycle(self, off_s: float = 1.0) -> None:
        """Off now, on again by itself."""
        self._host.power_cycle(off_s)

    def freeze(self, seconds: float) -> None:
        """All its processes stand still, then go on as if nothing was."""
        self._host.freeze(seconds)

    def fill_disk(self, full: bool = True) -> None:
        """Nothing more can be written below the agent's data directory."""
        self._host.disk.full = full

    def fail_launch(
        self, error: str = "Resource temporarily unavailable", *, user_error: bool = False
    ) -> None:
        """The next launch ends with this LaunchError; call again for more of them."""
        self._host.launch_failures.append(LaunchError(error, user_error=user_error))

    def preempt(self, grace_s: float = 5.0) -> None:
        """The agent hears, and tells, that the machine will be taken away; it is not."""
        self._host.notice_preemption(grace_s)

    # Its network

    def cut(self, *, to_servers: bool = True, from_servers: bool = True) -> None:
        """Nothing passes between its agent and any server, and nobody is told. Ranks still reach
        each other."""
        self._host.cut_network(to_server=to_servers, to_caller=from_servers)

    def cut_ranks(self) -> None:
        """Its ranks no longer reach those on other hosts."""
        self._host.set_fabric(False)

    def mend(self) -> None:
        """End both; what was held up arrives."""
        self._host.heal_network()

    # Its agent

    def kill_agent(self, away_s: float | None = None) -> None:
        """kill -9; its ranks live on. Another starts after `away_s`: drawn (0.2 to 2 s) if None,
        never before `start_agent` if it is infinite."""
        self._host.agent_kill(away_s)

    def keep_agent_down(self) -> None:
        """Kill it, and let no other start until `start_agent`."""
        self._host.agent_kill(math.inf)

    def start_agent(self) -> None:
        """Unless one runs, or there is no power."""
        self._host.agent_start()

    def stop_agent(self) -> None:
        """SIGTERM, as for an upgrade; another starts soon after it has ended."""
        self._host.agent_stop()

    def pause_agent(self, seconds: float = 0.0) -> None:
        """SIGSTOP: until `resume_agent`, or for so long."""
        self._host.agent_pause()
        if seconds:
            self._host.kernel.call_later(seconds, self._host.agent_resume)

    def resume_agent(self) -> None:
        self._host.agent_resume()


class RankHandle:
    """One run of a task: its process is never another's, even after a restart."""

    def __init__(self, rank: SimRank) -> None:
        self.task = rank.task
        """Task key with its generation: `job/role/index#generation`."""
        self.pid = rank.process.pid
        self.host = rank.host.name
        self._rank = rank

    def __repr__(self) -> str:
        return f"<rank {self.task}, pid {self.pid} on {self.host}>"

    @property
    def alive(self) -> bool:
        return self._rank.alive

    @property
    def step(self) -> int:
        """The newest that it has finished."""
        return self._rank.step

    def exit(self, code: int = 1, words: str = "") -> None:
        """The program ends by itself; `words` are its last on stderr."""
        if self._rank.alive:
            self._rank.exit(code, words)

    def kill(self, number: int = 9, *, oom: bool = False) -> None:
        """It dies by a signal that no agent sent."""
        if self._rank.alive:
            self._rank.die(number, oom=oom)

    def hang(self) -> None:
        """It lives and does nothing any more, until `go_on`."""
        self._rank.hang()

    def slow(self, factor: float) -> None:
        """Its steps take so many times as long, until `go_on`. A worker of your own keeps its own
        time."""
        self._rank.slowness = factor

    def make_unkillable(self) -> None:
        """SIGKILL does nothing to it, until `go_on`."""
        self._rank.unkillable = True

    def go_on(self) -> None:
        """End all of that."""
        self._rank.go_on()
        self._rank.let_die()


class ServerHandle:
    """A server, by number."""

    def __init__(self, world: LedWorld, number: int) -> None:
        self.number = number
        self._servers = world.servers

    def __repr__(self) -> str:
        return f"<server {self.number}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServerHandle) and other.number == self.number

    def __hash__(self) -> int:
        return self.number

    @property
    def running(self) -> bool:
        """Whether its node has started."""
        return self._servers.node(self.number) is not None

    @property
    def leads(self) -> bool:
        """By its own word; one that was cut off may think so for a while."""
        node = self._servers.node(self.number)
        return node is not None and node.leading

    @property
    def applied_index(self) -> int:
        """Of the newest entry that it applied; 0 while it does not run."""
        node = self._servers.node(self.number)
        return node.state.meta.applied_index if node is not None else 0

    @property
    def state(self) -> State:
        """A copy of what it has applied; an empty one while it does not run."""
        node = self._servers.node(self.number)
        return node.state.view() if node is not None else State()

    def kill(self, *, lose_unsynced: bool = True) -> None:
        """kill -9, with its power unless `lose_unsynced` is false. Down until `start`."""
        self._servers.crash(self.number, lose_unsynced=lose_unsynced)

    def start(self) -> None:
        self._servers.start(self.number)

    def pause(self, seconds: float = 0.0) -> None:
        """SIGSTOP: until `resume`, or for so long."""
        if seconds:
            self._servers.stall(self.number, seconds)
        else:
            self._servers.pause(self.number)

    def resume(self) -> None:
        self._servers.resume(self.number)

    def isolate(self) -> None:
        """Nothing passes between it and the other servers; agents and clients still reach it."""
        self._servers.peers.isolate(self.number)

    def jump_clock(self, ms: int) -> None:
        """Its wall clock, forward or back."""
        self._servers.clock(self.number).jump(ms)

    def fill_disk(self, full: bool = True) -> None:
        self._servers.disk(self.number).faults.full = full
