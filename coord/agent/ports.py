"""What the agent needs of the world: a host with its files and processes, and a channel to the
coordinator.

All have twins in memory (`coord_sim`, `tests/agent`), so that everything between them is tested
without them. All methods are called on the event loop's thread, and none of those that are not
`async` waits for anything but the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from coord.agent.exits import ExitNotes
from coord.agent.health import HealthHook
from coord.agent.kernel_log import KernelLog
from coord.agent.lease import LeaseFile
from coord.agent.records import Process, Records
from coord.agent.socket import Spawn, WorkerDesk
from coord.client.agent import ReadLog
from coord.client.inbox import Superseded
from coord.client.views import Decided
from coord.model.channel import LogChunk, LogRead
from coord.model.events import AnyEvent, TaskFound
from coord.model.plans import HostPlan
from coord.model.settings import Settings


class LaunchSpec(msgspec.Struct, frozen=True):
    """A process to start. `env` is complete: nothing is inherited."""

    task: str
    command: tuple[str, ...]
    env: dict[str, str]
    workdir: str
    stdout: Path
    stderr: Path


class LaunchError(Exception):
    """There is no process and there will be none. `user_error`: the command itself cannot run."""

    def __init__(self, message: str, *, user_error: bool) -> None:
        super().__init__(message)
        self.user_error = user_error


class ExitStatus(msgspec.Struct, frozen=True):
    """How a main process ended. `observed` is false when nobody could say."""

    exit_code: int = 0
    signal: int = 0
    observed: bool = True
    oom: bool = False


ExitCallback = Callable[[str, ExitStatus], None]


class ProcessRunner(Protocol):
    """Starts processes, notices their ends, and reaches every process they left behind.

    A task is known to the runner from `launch` or `adopt` until `release`.
    """

    def on_exit(self, callback: ExitCallback) -> None:
        """Call back, on the loop, once for each known task whose main process has ended."""

    def launch(self, spec: LaunchSpec) -> Process:
        """Start a process in a session of its own. On return its program is being executed."""

    def find(self, task: str) -> Process | None:
        """The main process of a task that some earlier agent with this identity started."""

    def adopt(self, task: str, process: Process) -> None:
        """Take a process over from an earlier agent. If it is gone, the callback says so."""

    def survivors(self, task: str, process: Process | None) -> tuple[int, ...]:
        """Pids of every live process of the task: the main one, its descendants, its session, and
        whatever carries its mark in the environment. Zombies are not alive."""

    def signal(self, task: str, process: Process | None, number: int) -> tuple[int, ...]:
        """Send a signal to every survivor; returns the pids that there were."""

    def release(self, task: str) -> None:
        """Forget a task without touching its processes. Idempotent."""

    def collect(self) -> None:
        """Reap what was orphaned into our care. Called now and then."""

    def close(self) -> None:
        """Forget all tasks; their processes go on."""


class LastWords(NamedTuple):
    """What a run left behind to explain its end; each empty where there is nothing."""

    error: str
    stderr_tail: str
    failed_at_ms: int = 0
    """When the error happened, as its file says; 0: not known."""


class TaskOutput(Protocol):
    """What tasks write, one directory a run."""

    def make_room(self, task: str, live: frozenset[str]) -> Path:
        """Make the run's directory and delete the oldest others, but for those of tasks in `live`.
        Raises LaunchError."""

    def last_words(self, task: str) -> LastWords:
        """Of a run that has ended."""

    async def read(self, request: LogRead, *, live: bool) -> LogChunk:
        """Answer one read. OSError: it cannot be read."""

    async def trim(self, task: str) -> None:
        """Give back what is older than the limits. Where that cannot be done, say so once."""


class WorkerListener(Protocol):
    """Where the workers of this host reach the agent. What they said while nobody listened was
    refused to them."""

    @property
    def path(self) -> Path:
        """What workers find in COORD_SOCKET."""

    async def start(self, desk: WorkerDesk, spawn: Spawn) -> None:
        """Hear workers from now on. `spawn` runs, under an owner, what an answer waits for."""

    async def drain(self, task: str) -> None:
        """Return when all that a task had said when it ended has reached the desk."""

    async def close(self) -> None:
        """Hear nobody any more."""


class KeeperPost(Protocol):
    """The keeper of this host (see `keeper`), which outlives the agent."""

    def fill(self) -> None:
        """See that there is one. Called now and then."""

    def leave(self) -> None:
        """The agent ends; the keeper goes on."""


class HostPorts(NamedTuple):
    """All that one agent has of its host. The first three stand on its files (`files.AgentFiles`).
    `is_free` tells whether a TCP port can be listened on."""

    records: Records
    notes: ExitNotes
    lease: LeaseFile
    output: TaskOutput
    workers: WorkerListener
    keeper: KeeperPost
    runner: ProcessRunner
    is_free: Callable[[int], bool]
    health: HealthHook | None = None
    """None: nobody checks this host."""
    kernel_log: KernelLog | None = None


class AgentChannel(Protocol):
    """The agent's side of the coordinator: what is used here of `coord.client.agent.Agent`, whose
    docstrings hold for it."""

    settings: Settings
    on_log_read: ReadLog | None

    @property
    def lease_deadline(self) -> float | None:
        """Loop time, in seconds, by which exclusive tasks must be gone."""

    async def register(self, tasks: Iterable[TaskFound] = ()) -> int:
        """Announce the host with what it has; waits through outages. Returns the incarnation."""

    def plans(self) -> AsyncIterator[HostPlan | Superseded]:
        """Plans as they arrive, and the news that this incarnation is over."""

    def report(self, event: AnyEvent) -> asyncio.Future[Decided]:
        """Send a report, in the order of the calls, until it is decided."""

    async def flush(self, timeout_s: float) -> bool:
        """Wait until every report so far is decided; False when time ran out first."""
