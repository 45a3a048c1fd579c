"""What /proc says about processes: who descends from whom, who lives, who carries our mark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import msgspec

from coord.agent.records import Process

TASK_MARK = "COORD_TASK"
AGENT_MARK = "COORD_AGENT"
KERNEL_THREADS = 2
"""The parent of all kernel threads."""


class Entry(msgspec.Struct, frozen=True):
    """One line of the process table. `exit_status` is as from wait(2), 0 while it lives or when the
    kernel does not let us see it."""

    pid: int
    parent: int
    session: int
    start_ticks: int
    zombie: bool
    exit_status: int = 0


def boot_id() -> str:
    """Changes with every boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def read_entry(pid: int) -> Entry | None:
    """One process, or None when there is none of this pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses and may itself hold any character, so split after the last one.
    fields = line[line.rindex(b")") + 2 :].split()
    state, threads = fields[0], int(fields[17])
    return Entry(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        # A leader whose other threads still run is shown as a zombie, but the process lives.
        zombie=state == b"X" or (state == b"Z" and threads <= 1),
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def read_table() -> dict[int, Entry]:
    """Every process that can be seen, by pid."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            entry = read_entry(int(name))
            if entry is not None:
                table[entry.pid] = entry
    return table


def read_marks(pid: int) -> tuple[str, str]:
    """The task and the agent that a process's environment names; empty where it names none, or
    where it may not be read. A zombie has no environment any more."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return "", ""
    marks = {TASK_MARK: "", AGENT_MARK: ""}
    for line in environment.split(b"\0"):
        name, _, value = line.partition(b"=")
        key = name.decode(errors="replace")
        if key in marks and not marks[key]:
            marks[key] = value.decode(errors="replace")
    return marks[TASK_MARK], marks[AGENT_MARK]


def is_running(process: Process, boot: str) -> bool:
    """Whether exactly this process lives."""
    if process.boot != boot:
        return False
    entry = read_entry(process.pid)
    return entry is not None and entry.start_ticks == process.start_ticks and not entry.zombie


def family(
    table: Mapping[int, Entry],
    process: Process,
    marked: Callable[[int], bool],
    never: Iterable[int],
) -> tuple[int, ...]:
    """Pids of every live process that belongs to the task with this main process, ascending.

    Those are the main process itself, its session, whatever `marked` recognises, and all their
    descendants. Nothing older than the main process can belong to it, so nothing older is asked.
    `never` names pids that are not ours whatever they look like.
    """
    excluded = {0, 1, KERNEL_THREADS, *never}
    younger = [
        entry
        for entry in table.values()
        if entry.start_ticks >= process.start_ticks and entry.pid not in excluded
    ]
    leader = table.get(process.pid)
    # A pid is not given out again while a session bears its number. So where the pid now stands for
    # a younger process, the session of that number is not ours either.
    session = -1 if leader and leader.start_ticks != process.start_ticks else process.pid
    members = {
        entry.pid
        for entry in younger
        if entry.session == session
        or (not entry.zombie and entry.parent != KERNEL_THREADS and marked(entry.pid))
    }
    children: dict[int, list[int]] = {}
    for entry in younger:
        children.setdefault(entry.parent, []).append(entry.pid)
    unseen = sorted(members)
    while unseen:
        for child in children.get(unseen.pop(), ()):
            if child not in members:
                members.add(child)
                unseen.append(child)
    return tuple(sorted(pid for pid in members if not table[pid].zombie))
