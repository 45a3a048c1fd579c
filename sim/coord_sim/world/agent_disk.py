"""The disk below an agent's data directory, and where its tasks write, in memory."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from pathlib import Path

from coord.agent.logs import run_path
from coord.agent.ports import LastWords, LaunchError
from coord.model.channel import LogChunk, LogRead
from coord_sim.kernel import ProcessKilled, SimProcess


class AgentDisk:
    """Files of one host. It outlives its agents and the host's boots."""

    def __init__(self, rng: random.Random) -> None:
        self.full = False
        """Nothing more can be written; to delete works."""
        self.was_full = False
        """A write was refused at some time."""
        self.version = 0
        """Grows with every change."""
        self.changed = asyncio.Event()
        """Set with every change; whoever waits for one clears it first."""
        self.words: dict[str, LastWords] = {}
        """What runs left in their error files and on stderr, by task key."""
        self._rng = rng
        self._files: dict[str, bytes] = {}
        self._synced: dict[str, bytes] = {}
        self._removed: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def replace(self, name: str, content: bytes, *, synced: bool) -> None:
        """See `files.AgentFiles`."""
        if self.full:
            self.was_full = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        self._files[name] = content
        self._removed.pop(name, None)
        if synced:
            self._synced[name] = content
        self._touch()

    def remove(self, name: str) -> None:
        content = self._files.pop(name, None)
        if content is not None:
            self._removed[name] = content
            self._touch()

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._files if name.startswith(f"{folder}/"))

    def _touch(self) -> None:
        self.version += 1
        self.changed.set()

    def lose_power(self) -> None:
        """What was synced stays. Of the rest each file is, by chance, as it was written last, cut
        off, or as it was when last synced; and what was deleted may be there again."""
        before = {**self._removed, **self._files}
        self._files = dict(self._synced)
        for name in sorted(before):
            content = before[name]
            if self._synced.get(name) == content:
                continue
            fate = self._rng.randrange(3)
            if fate == 0:
                self._files[name] = content
            elif fate == 1 and content:
                self._files[name] = content[: self._rng.randrange(len(content))]
        self._removed.clear()
        self._touch()


class SimFiles:
    """The disk as one process has it; see `files.AgentFiles`. A dead process writes nothing."""

    def __init__(self, disk: AgentDisk, directory: Path, process: SimProcess) -> None:
        self._disk = disk
        self._directory = directory
        self._process = process

    def read(self, name: str) -> bytes | None:
        return self._disk.read(name)

    def replace(self, name: str, content: bytes, *, synced: bool) -> None:
        self._check_alive()
        self._disk.replace(name, content, synced=synced)

    def remove(self, name: str) -> None:
        self._check_alive()
        self._disk.remove(name)

    def names(self, folder: str) -> list[str]:
        return self._disk.names(folder)

    def where(self, name: str) -> str:
        return str(self._directory / name)

    def close(self) -> None:
        """The lock is the process's, and ends with it."""

    def _check_alive(self) -> None:
        if not self._process.alive:
            raise ProcessKilled(self._process.name)


class SimOutput:
    """See `ports.TaskOutput`. What ranks print is their last words alone."""

    def __init__(self, disk: AgentDisk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def make_room(self, task: str, live: frozenset[str]) -> Path:
        path = run_path(task)
        assert path is not None, f"{task!r} is no task key"
        if self._disk.full:
            raise LaunchError(
                f"cannot make {self._directory / path} for the output of {task}: "
                f"{os.strerror(errno.ENOSPC)}",
                user_error=False,
            )
        return self._directory / path

    def last_words(self, task: str) -> LastWords:
        return self._disk.words.get(task, LastWords("", ""))

    async def read(self, request: LogRead, *, live: bool) -> LogChunk:
        text = self.last_words(request.task).stderr_tail.encode()
        data = text[request.offset : request.offset + max(request.limit, 1)]
        ended = not live and request.offset + len(data) >= len(text)
        return LogChunk(request.request, data, request.offset, exists=True, ended=ended)

    async def trim(self, task: str) -> None:
        """There is little of it."""
