"""The agent's data directory: small files, replaced whole."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol


class AgentFiles(Protocol):
    """Files by name (`lease.json`, `tasks/x.json`), of one agent at a time; its keeper looks on.

    What is on return written `synced` survives a death of the machine. All else survives any death
    of the agent; after one of the machine it may be there, be as it was before, be cut off, or be
    gone. OSError: the file is as it was.
    """

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""

    def replace(self, name: str, content: bytes, *, synced: bool) -> None:
        """Replace the whole content in one step."""

    def remove(self, name: str) -> None:
        """Idempotent."""

    def names(self, folder: str) -> list[str]:
        """Names of its files, ascending, each with the folder in front."""

    def where(self, name: str) -> str:
        """The file, for people."""

    def close(self) -> None:
        """Let another agent have them. Idempotent."""


class AlreadyRunning(RuntimeError):
    """Another agent uses the data directory."""


class WrongDirectory(RuntimeError):
    """The data directory belongs to another host or to a newer release, or cannot be read."""


SERVER_FILE = "data.mdb"
"""What a server begins its own data directory with."""


class Folder:
    """Files below a path, without a claim to it. See `AgentFiles`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, name: str, content: bytes, *, synced: bool) -> None:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(path.name + ".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if synced:
                os.fsync(descriptor)
        temporary.rename(path)
        if synced:
            _sync_directory(path.parent)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        return sorted(f"{folder}/{path.name}" for path in (self.path / folder).glob("*.json"))

    def where(self, name: str) -> str:
        return str(self.path / name)

    def close(self) -> None:
        return


class DataDirectory(Folder):
    """The same for the one agent that holds the lock. Raises AlreadyRunning, WrongDirectory."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if (path / SERVER_FILE).exists():
            raise WrongDirectory(
                f"{path} is the data directory of a server; give the agent one of its own"
            )
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take_lock()
            (path / "tasks").mkdir(exist_ok=True)
        except BaseException:
            os.close(self._lock)
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise AlreadyRunning(
                f"data directory {self.path} is in use by the agent with pid {holder}; "
                "stop that one first, or give this agent a --data directory of its own"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
