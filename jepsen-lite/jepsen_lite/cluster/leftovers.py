"""Nothing of a run outlives it: its processes, namespaces and mounts are found by a mark and ended.

The mark names the process that answers for the run, and stands in the environment of every process
of it and in a file above its mounts. Namespaces have no name and end with their processes. Run as a
program this module is the guard: it holds the other end of a pipe, and when its parent is gone, by
whatever death, it clears what carries the parent's mark.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil

from coord.cli import processes
from coord.cli.processes import MARK, marked
from jepsen_lite.disks import capped

MARK_FILE = "run.mark"
"""In the directory of a run, with its mark: whose the mounts below it are."""

_PREFIX = "jepsen-lite"
_FORM = re.compile(rf"{_PREFIX}\.(\d+)\.(\d+)\.(\d+)\.[0-9a-f]+")
_ROUNDS = 20
_random = random.SystemRandom()


class Leftover(msgspec.Struct, frozen=True):
    """What a run that is over left behind: a process or a mount."""

    mark: str
    what: str


def new_mark() -> str:
    """A mark that names this process: its pid, when it started, and in which pid namespace."""
    return ".".join(
        (
            _PREFIX,
            str(os.getpid()),
            str(_started(os.getpid())),
            str(_pid_namespace()),
            f"{_random.getrandbits(48):x}",
        )
    )


def owner_lives(mark: str) -> bool | None:
    """Whether the process that a mark names runs; None when that cannot be told from here: the mark
    is not one of ours, or of another pid namespace, where numbers mean other processes."""
    found = _FORM.fullmatch(mark)
    if found is None or int(found[3]) != _pid_namespace():
        return None
    return _started(int(found[1])) == int(found[2])


def sign(directory: Path, mark: str) -> None:
    """Say whose mounts below this directory are. To be called before there is any."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK_FILE).write_text(mark + "\n")


def mounts(mark: str = "") -> list[tuple[str, Path]]:
    """(mark, where) of the mounts of one run, or of all that are signed; the newest first."""
    found = [(_signature(where), where) for where in reversed(capped.mounted())]
    return [(whose, where) for whose, where in found if whose and mark in ("", whose)]


def clear(mark: str, grace_s: float = 0.0) -> list[str]:
    """End every process and mount of a run; returns what would not go, as sentences."""
    processes.sweep(mark, grace_s)
    for _ in range(_ROUNDS):
        found = mounts(mark)
        if not found:
            break
        for _, where in found:
            capped.unmount(where)
    stays = [f"process {process.pid} does not end" for process in marked(mark)]
    return stays + [f"{where} is still mounted: umount -l {where}" for _, where in mounts(mark)]


def find() -> list[Leftover]:
    """What runs left behind whose own process is gone. Of this user, and of this pid namespace."""
    found = [
        Leftover(mark, f"process {process.pid} ({_name(process)})")
        for process, mark in _marked_by_anyone()
        if owner_lives(mark) is False
    ]
    return found + [
        Leftover(mark, f"mount at {where}")
        for mark, where in mounts()
        if owner_lives(mark) is False
    ]


def sweep() -> list[Leftover]:
    """End what earlier runs left behind that could not clear up, nothing of anybody else; returns
    what was found."""
    found = find()
    for mark in dict.fromkeys(leftover.mark for leftover in found):
        clear(mark)
    return found


def start_guard(mark: str) -> subprocess.Popen[bytes]:
    """A process that clears when we die. Close its stdin and wait for it to end it in peace."""
    return processes.start_guard(mark, "jepsen_lite.cluster.leftovers")


def _marked_by_anyone() -> list[tuple[psutil.Process, str]]:
    """Processes of this user that carry a mark of this suite, and the mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            mark = process.environ().get(MARK, "")
            if mark.startswith(_PREFIX) and process.uids().real == os.getuid():
                found.append((process, mark))
    return found


def _started(pid: int) -> int:
    """When a process started, in ticks since boot; 0 when there is none, or only a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return "gone meanwhile"


def _signature(where: Path) -> str:
    """The mark in the nearest directory above; empty when none is signed."""
    for directory in where.parents:
        with contextlib.suppress(OSError):
            return (directory / MARK_FILE).read_text().strip()
    return ""


if __name__ == "__main__":
    processes.guard(sys.argv[1], clear)
