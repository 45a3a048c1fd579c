"""How a process ended that is not our child, and notes of it for an agent that was not there."""

from __future__ import annotations

import os
from urllib.parse import quote

import msgspec

from coord.agent import kernel, proctable
from coord.agent.files import AgentFiles
from coord.agent.records import Process

REAP_WAIT_S = 2.0
"""How long to wait for the parent of a process to reap it, where only that tells its status."""


class Learned(msgspec.Struct, frozen=True):
    """A wait status, None while it is not known; `final` when waiting longer would not help."""

    status: int | None
    final: bool = True


def learn(process: Process, pidfd: int, boot: str) -> Learned:
    """Ask the kernel how a process ended: its zombie shows it, and once its parent, whoever that
    is, has reaped it, its pidfd does (Linux 6.15 or newer). `pidfd` is -1 where there is none."""
    entry = proctable.read_entry(process.pid) if process.boot == boot else None
    if entry is not None and entry.start_ticks == process.start_ticks and entry.zombie:
        if entry.exit_status or os.geteuid() == 0:
            return Learned(entry.exit_status)
        # Zero may also mean that we are not allowed to see it. Wait until it is reaped.
        return Learned(None, final=pidfd < 0)
    return Learned(kernel.reaped_status(pidfd) if pidfd >= 0 else None)


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a task's main process ended. `fenced`: the keeper ended it, as its lease had run out."""

    status: int | None = None
    fenced: bool = False


class ExitNotes:
    """Files `exits/<task>.json`, written by the keeper, read by an agent that was not there."""

    def __init__(self, files: AgentFiles) -> None:
        self._files = files

    def write(self, task: str, note: Note) -> None:
        self._files.replace(_name(task), msgspec.json.encode(note), synced=False)

    def read(self, task: str) -> Note:
        """An empty note where there is none."""
        try:
            return msgspec.json.decode(self._files.read(_name(task)) or b"", type=Note)
        except msgspec.DecodeError:
            return Note()

    def delete(self, task: str) -> None:
        self._files.remove(_name(task))


def _name(task: str) -> str:
    return f"exits/{quote(task, safe='')}.json"
