"""What the agent knows of each task, kept on disk so that its own restart loses nothing.

One JSON file a task, replaced atomically. A record exists before its process does, so a crash of
the agent at any point leaves either nothing, or a record whose process can be searched for.

Records are not synced: what the kernel has taken survives any death of the agent, and a death of
the machine ends every process they speak of, which the boot id shows. Only who the agent is, and
how often it has registered, must survive that too, and is synced.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from coord.agent.files import AgentFiles, AlreadyRunning, DataDirectory, WrongDirectory
from coord.model.plans import TaskOrder

__all__ = [
    "AlreadyRunning", "ExitFacts", "Identity", "Phase", "Process", "Records", "TaskRecord",
    "WrongDirectory", "record_name", "without_secrets",
]  # fmt: skip

FORMAT = 1
IDENTITY = "agent.json"
SEEN = "seen.json"
TASKS = "tasks"


class Phase(enum.StrEnum):
    """How far one run of a task has come. Only ever moves down this list."""

    LAUNCHING = "launching"
    """The record is written; the process may exist or not."""
    RUNNING = "running"
    EXITED = "exited"
    """The main process ended; processes it left behind may live."""
    GONE = "gone"
    """No process of it is there, nor will be."""


class Process(msgspec.Struct, frozen=True):
    """A process for ever: pids are used again, but not within one clock tick of one boot."""

    pid: int
    start_ticks: int
    boot: str


class ExitFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the main process ended; the fields are those of `events.TaskExited`."""

    exit_code: int = 0
    signal: int = 0
    observed: bool = True
    expected: bool = False
    oom: bool = False
    error: str = ""
    stderr_tail: str = ""
    failed_at_ms: int = 0


class TaskRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of one task. `order` lacks `env` and `command`, which may be large or secret."""

    order: TaskOrder
    phase: Phase
    process: Process | None = None
    exit: ExitFacts | None = None
    launch_error: str = ""
    """Why there never was a process; empty when there was one, or when none was tried."""
    user_error: bool = False
    stopping: bool = False
    stop_grace_ms: int = 0
    """The shortest grace it was given; meaningful while `stopping`."""
    unkillable_pid: int = 0
    """A process that outlived SIGKILL, or 0."""
    ended_by_us: str = ""
    """Why its agent ends it without a plan that says so; empty while it does not. On disk before
    the first signal, for an orderly exit on it must not pass for success with the next agent."""

    @property
    def holds(self) -> bool:
        """Whether its devices and ports are taken."""
        return self.phase is not Phase.GONE


def without_secrets(order: TaskOrder) -> TaskOrder:
    """The part of an order that a record keeps."""
    return msgspec.structs.replace(order, env={}, command=())


class Identity(msgspec.Struct, omit_defaults=True):
    """The file `agent.json`: who this agent is. Synced."""

    agent: str
    host: str
    format: int = FORMAT
    registrations: int = 0
    """How many times it has registered; the seq of the newest registration."""


class Seen(msgspec.Struct, frozen=True):
    """The file `seen.json`: the newest registration and the newest plan obeyed, in this boot."""

    boot: str
    incarnation: int = 0
    version: int = 0


class Records:
    """What an agent has kept in its files (`files.AgentFiles`). Raises WrongDirectory.

    `new_agent_id` is taken where there is none yet. OSError: it is not kept.
    """

    def __init__(self, files: AgentFiles, host: str, new_agent_id: str, boot: str) -> None:
        self.files = files
        self._boot = boot
        self.identity = self._read_identity(host, new_agent_id)
        self._same_boot = self._read_seen()

    @classmethod
    def open(cls, directory: Path, host: str, new_agent_id: str, boot: str) -> Records:
        """Those of a data directory, which is held until `close`. Raises AlreadyRunning too."""
        files = DataDirectory(directory)
        try:
            return cls(files, host, new_agent_id, boot)
        except BaseException:
            files.close()
            raise

    def _read_identity(self, host: str, new_agent_id: str) -> Identity:
        content, path = self.files.read(IDENTITY), self.files.where(IDENTITY)
        if content is None:
            identity = Identity(agent=new_agent_id, host=host)
            self.files.replace(IDENTITY, msgspec.json.encode(identity), synced=True)
            return identity
        try:
            identity = msgspec.json.decode(content, type=Identity)
        except msgspec.DecodeError as error:
            raise WrongDirectory(
                f"{path} cannot be read ({error}); if no task runs on this host, remove the "
                "directory and start again"
            ) from None
        if identity.format > FORMAT:
            raise WrongDirectory(
                f"{path} has format {identity.format}, this release knows up to {FORMAT}; "
                "start a release at least as new as the one that wrote it"
            )
        if identity.host != host:
            raise WrongDirectory(
                f"data directory {self.files.where('')} belongs to host {identity.host!r}, not "
                f"{host!r}; use that host id, or another directory"
            )
        return identity

    def close(self) -> None:
        """Let another agent use the directory."""
        self.files.close()

    def _read_seen(self) -> bool:
        """Whether an agent has run here since the machine's boot."""
        self._seen = Seen(self._boot)
        content = self.files.read(SEEN)
        if content is None:
            return False
        try:
            seen = msgspec.json.decode(content, type=Seen)
        except msgspec.DecodeError:
            return False
        if seen.boot == self._boot:
            self._seen = seen
        return seen.boot == self._boot

    @property
    def seen(self) -> tuple[int, int]:
        """(incarnation, version): no plan older than this is to be obeyed."""
        return (self._seen.incarnation, self._seen.version)

    def note_seen(self, incarnation: int, version: int) -> None:
        """Remember the newest plan obeyed, or with version 0 the newest registration."""
        if (incarnation, version) > self.seen:
            self._seen = Seen(self._boot, incarnation, version)
            self.files.replace(SEEN, msgspec.json.encode(self._seen), synced=False)

    def next_registration(self) -> int:
        """A number that no registration of this agent has had; durable on return."""
        self.identity.registrations += 1
        self.files.replace(IDENTITY, msgspec.json.encode(self.identity), synced=True)
        return self.identity.registrations

    def write(self, record: TaskRecord) -> None:
        """Keep the record, whatever becomes of this process after the return."""
        name = record_name(record.order.task)
        self.files.replace(name, msgspec.json.encode(record), synced=False)

    def delete(self, task: str) -> None:
        self.files.remove(record_name(task))

    def load(self) -> Iterator[TaskRecord]:
        """Every record, by task key. A file that cannot be decoded stops the agent, as it may stand
        for a process that holds a device; unless the machine was booted since, which may have cut
        it off and certainly ended the process."""
        for name in self.files.names(TASKS):
            try:
                yield msgspec.json.decode(self.files.read(name) or b"", type=TaskRecord)
            except msgspec.DecodeError as error:
                if not self._same_boot:
                    self.files.remove(name)
                    continue
                raise WrongDirectory(
                    f"record {self.files.where(name)} cannot be read ({error}); see whether its "
                    "process runs (`ps`), end it, and remove the file"
                ) from None


def record_name(task: str) -> str:
    """The file with the record of this run."""
    return f"{TASKS}/{quote(task, safe='')}.json"
