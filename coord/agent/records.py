"""What the agent knows of each task, kept on disk so that its own restart loses nothing.

One JSON file a task, replaced atomically. A record exists before its process does, so a crash of
the agent at any point leaves either nothing, or a record whose process can be searched for.

Records are not synced: what the kernel has taken survives any death of the agent, and a death of
the machine ends every process they speak of, which the boot id shows. Only who the agent is, and
how often it has registered, must survive that too, and is synced.
"""

from __future__ import annotations

import enum
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from coord.model.plans import TaskOrder

FORMAT = 1


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


class AlreadyRunning(RuntimeError):
    """Another agent uses the data directory."""


SERVER_FILE = "data.mdb"
"""What a server begins its own data directory with."""


class WrongDirectory(RuntimeError):
    """The data directory belongs to another host or to a newer release, or cannot be read."""


class Records:
    """The agent's data directory. One process at a time, by an advisory lock on `lock`."""

    def __init__(self, directory: Path, host: str, new_agent_id: str, boot: str) -> None:
        if (directory / SERVER_FILE).exists():
            raise WrongDirectory(
                f"{directory} is the data directory of a server; give the agent one of its own"
            )
        self.directory = directory
        self._boot = boot
        self._tasks = directory / "tasks"
        self._tasks.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take_lock()
            self.identity = self._read_identity(host, new_agent_id)
            self._same_boot = self._read_seen()
        except BaseException:
            os.close(self._lock)
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise AlreadyRunning(
                f"data directory {self.directory} is in use by the agent with pid {holder}; "
                "stop that one first, or give this agent a --data directory of its own"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _read_identity(self, host: str, new_agent_id: str) -> Identity:
        path = self.directory / "agent.json"
        if not path.exists():
            identity = Identity(agent=new_agent_id, host=host)
            write_atomically(path, msgspec.json.encode(identity), durable=True)
            return identity
        try:
            identity = msgspec.json.decode(path.read_bytes(), type=Identity)
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
                f"data directory {self.directory} belongs to host {identity.host!r}, not "
                f"{host!r}; use that host id, or another directory"
            )
        return identity

    def close(self) -> None:
        """Let another agent use the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read_seen(self) -> bool:
        """Whether an agent has run here since the machine's boot."""
        self._seen = Seen(self._boot)
        try:
            seen = msgspec.json.decode((self.directory / "seen.json").read_bytes(), type=Seen)
        except (FileNotFoundError, msgspec.DecodeError):
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
            content = msgspec.json.encode(self._seen)
            write_atomically(self.directory / "seen.json", content, durable=False)

    def next_registration(self) -> int:
        """A number that no registration of this agent has had; durable on return."""
        self.identity.registrations += 1
        content = msgspec.json.encode(self.identity)
        write_atomically(self.directory / "agent.json", content, durable=True)
        return self.identity.registrations

    def write(self, record: TaskRecord) -> None:
        """Keep the record, whatever becomes of this process after the return."""
        path = self._path(record.order.task)
        write_atomically(path, msgspec.json.encode(record), durable=False)

    def delete(self, task: str) -> None:
        self._path(task).unlink(missing_ok=True)

    def load(self) -> Iterator[TaskRecord]:
        """Every record, by task key. A file that cannot be decoded stops the agent, as it may stand
        for a process that holds a device; unless the machine was booted since, which may have cut
        it off and certainly ended the process."""
        for path in sorted(self._tasks.glob("*.json")):
            try:
                yield msgspec.json.decode(path.read_bytes(), type=TaskRecord)
            except msgspec.DecodeError as error:
                if not self._same_boot:
                    path.unlink()
                    continue
                raise WrongDirectory(
                    f"record {path} cannot be read ({error}); see whether its process runs "
                    "(`ps`), end it, and remove the file"
                ) from None

    def _path(self, task: str) -> Path:
        return self._tasks / f"{quote(task, safe='')}.json"


def write_atomically(path: Path, content: bytes, *, durable: bool) -> None:
    """Replace the file's content in one step; synced on return if `durable`."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(descriptor)
    temporary.rename(path)
    if not durable:
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
