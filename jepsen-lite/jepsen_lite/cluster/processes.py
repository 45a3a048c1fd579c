"""Servers and hosts of a cluster: processes that are killed, stopped and started again."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import psutil

from coord.cli.processes import MARK, Child, kill, marked
from jepsen_lite.clocks import ClockSeam
from jepsen_lite.cluster.parties import PARTY, environment_of
from jepsen_lite.disks.port import Disk
from jepsen_lite.network.port import Place

GONE_S = 10.0
_ROUNDS = 10


class Role(msgspec.Struct, frozen=True):
    """What to start: `command` is asked for at every start, as is what the disk wants."""

    command: Callable[[], list[str]]
    environ: Callable[[], dict[str, str]]
    log: Path
    mark: str


class Member:
    """One process of the cluster with its place on the network and its disk."""

    def __init__(self, place: Place, disk: Disk, role: Role) -> None:
        self.name = place.party
        self.place = place
        self.disk = disk
        self._role = role
        self._child: Child | None = None
        self.retired = False
        """It is no part of the cluster any more: whoever still means to start it does nothing."""
        self._stopped: list[psutil.Process] = []

    @property
    def log(self) -> Path:
        return self._role.log

    @property
    def data(self) -> Path:
        return self.disk.directory

    @property
    def pid(self) -> int:
        """Of the last one started; 0 while there was none."""
        return self._child.pid if self._child else 0

    @property
    def running(self) -> bool:
        """It has been started and has not ended; it may be paused."""
        return self._child is not None and self._child.running

    @property
    def paused(self) -> bool:
        return self.running and bool(self._stopped)

    @property
    def ended(self) -> bool:
        """It was started, and has ended by itself or by us."""
        return self._child is not None and self._child.ended

    def start(self) -> None:
        """Start it with the data it has. Nothing happens when it runs, or is retired."""
        if self.running or self.retired:
            return
        self._stopped = []
        env = {
            **{name: value for name, value in os.environ.items() if _is_handed_on(name)},
            **self.disk.environ(),
            **self._role.environ(),
            PARTY: self.name,
            MARK: self._role.mark,
        }
        command = [*self.place.prefix, *self._role.command()]
        self._child = Child(self.name, command, self._role.log, env, None)
        self._child.start()

    def kill(self) -> None:
        """SIGKILL; it is gone on return. Nothing happens when it does not run."""
        if self._child is not None:
            self._child.kill()

    def terminate(self) -> None:
        """SIGTERM: it ends in good order, in its own time; see `wait`."""
        if self._child is not None:
            self._child.terminate()

    def wait(self, timeout_s: float) -> bool:
        """True once it has ended, false when it has not within the time."""
        return self._child is None or self._child.wait(timeout_s)

    def pause(self) -> None:
        """SIGSTOP: it stands still and answers nothing, until `resume`."""
        if self.running:
            self._stop([psutil.Process(self.pid)])

    def resume(self) -> None:
        """SIGCONT to whatever was paused."""
        for process in self._stopped:
            with contextlib.suppress(psutil.NoSuchProcess):  # Killed while it stood still.
                process.resume()
        self._stopped = []

    def epitaph(self) -> str:
        """How it ended, and the end of its log."""
        return self._child.epitaph() if self._child else f"{self.name} was not started"

    def _stop(self, processes: Iterable[psutil.Process]) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                self._stopped.append(process)


class Server(Member):
    """`s1` is node 1. Addresses are `host:port`, as others reach it."""

    def __init__(
        self,
        place: Place,
        disk: Disk,
        role: Role,
        *,
        node: int,
        peer_port: int,
        api_port: int,
        clock: ClockSeam,
    ) -> None:
        super().__init__(place, disk, role)
        self.node = node
        self.clock = clock
        self.damaged = ""
        """What was done to its store that it cannot undo; empty: nothing."""
        self.peer_address = f"{place.address}:{peer_port}"
        self.api_address = f"{place.address}:{api_port}"
        self.url = f"http://{self.api_address}"
        self.direct_url = f"http://{place.listens}:{api_port}"
        """Past the proxy, for those who must know how it is whatever is cut."""


class Host(Member):
    """A machine with an agent. `kill` and `pause` are of the agent alone."""

    def processes(self) -> list[psutil.Process]:
        """The agent, its keeper, tasks and whatever those started."""
        return [
            process
            for process in marked(self._role.mark)
            if environment_of(process.pid).get(PARTY) == self.name
        ]

    def ranks(self) -> list[int]:
        """The pids of the tasks' main processes, without what those started."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                task = environment_of(process.pid).get("COORD_TASK", "")
                if task and environment_of(process.ppid()).get("COORD_TASK", "") != task:
                    found.append(process.pid)
        return sorted(found)

    def kill_rank(self, pid: int) -> bool:
        """SIGKILL to one task's main process; false when it is gone already, or none of ours."""
        if pid not in self.ranks():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def kill_all(self) -> list[int]:
        """End everything of the machine as if its power had gone; returns the pids of its tasks'
        processes. Nothing has a moment to see the others die: all are stopped before."""
        dead: dict[int, None] = {}
        for _ in range(_ROUNDS):
            found = self.processes()
            if not found:
                break
            for process in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            dead.update(
                (process.pid, None)
                for process in found
                if "COORD_TASK" in environment_of(process.pid)
            )
            kill(found)
            # The agent is our child and is reaped here, all others by their own parents.
            if self._child is not None and self._child.pid in [one.pid for one in found]:
                self._child.wait(GONE_S)
            psutil.wait_procs(
                [one for one in found if one.pid != self.pid], timeout=GONE_S / _ROUNDS
            )
        self._stopped = []
        return list(dead)

    def pause_all(self) -> None:
        """SIGSTOP to the whole machine: agent, keeper and tasks, until `resume`."""
        self._stop(self.processes())


def _is_handed_on(name: str) -> bool:
    """What the user set for other servers and agents is not meant for these."""
    return not name.startswith("COORD_")
