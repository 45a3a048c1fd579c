"""Keeps watch over a host's tasks while its agent may be dead or stopped.

A small process of its own, started by the agent, that outlives it and does two things. It kills
`exclusive` tasks when the lease deadline that the agent wrote down comes near and no later one is
there, for an agent that is dead or stopped fences nothing. And it notes how tasks end, so that an
agent started anew can tell success from failure. It ends when there is neither an agent nor a task.

It reads the agent's files and holds a pidfd of each main process; it writes nothing but `exits/`.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from coord.agent import proctable
from coord.agent.exits import REAP_WAIT_S, ExitNotes, Note, learn
from coord.agent.files import Folder
from coord.agent.lease import LeaseFile
from coord.agent.records import Identity, Phase, Process, TaskRecord

LOOK_S = 0.25
"""How often records and the lease are looked at."""
LINGER_S = 2.0
"""How long it stays without an agent and without tasks."""


class _Watched:
    """A main process. `ended_at` is when its end was seen, while its status is not known."""

    def __init__(self, task: str, process: Process, pidfd: int) -> None:
        self.task = task
        self.process = process
        self.pidfd = pidfd
        self.ended_at: float | None = None


class Keeper:
    """One data directory's. `step` is to be called again and again."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._boot = proctable.boot_id()
        files = Folder(data_dir)
        self._notes = ExitNotes(files)
        self._lease = LeaseFile(files, self._boot)
        identity = msgspec.json.decode((data_dir / "agent.json").read_bytes(), type=Identity)
        self._agent = identity.agent
        self._files: dict[str, tuple[int, int]] = {}
        self._records: dict[str, TaskRecord] = {}
        self._watched: dict[int, _Watched] = {}
        self._fenced: dict[str, None] = {}
        self._fence_pending = False
        self._poll = select.poll()
        self._needed_at = time.monotonic()

    def step(self) -> bool:
        """Look once and wait a little; returns whether there is a reason to go on."""
        now = time.monotonic()
        self._read_records()
        self._watch_new()
        wait_s = min(LOOK_S, self._fence(now))
        if self._watched or self._fence_pending or _is_locked(self._data_dir / "lock"):
            self._needed_at = now
        elif now - self._needed_at > LINGER_S:
            return False
        pending = any(watched.ended_at is not None for watched in self._watched.values())
        for pidfd, _ in self._poll.poll(20.0 if pending else wait_s * 1000):
            self._poll.unregister(pidfd)
            self._watched[pidfd].ended_at = time.monotonic()
        self._learn_ends()
        return True

    def _read_records(self) -> None:
        """The records that are not gone; only files that changed are read."""
        files, records = {}, {}
        for entry in os.scandir(self._data_dir / "tasks"):
            if not entry.name.endswith(".json"):
                continue
            try:
                status = entry.stat()
                mark = (status.st_ino, status.st_mtime_ns)
                record = self._records.get(entry.name)
                if record is None or self._files.get(entry.name) != mark:
                    content = Path(entry.path).read_bytes()
                    record = msgspec.json.decode(content, type=TaskRecord)
            except (FileNotFoundError, msgspec.DecodeError):
                # Forgotten this moment; or damaged, which the agent says when it starts.
                continue
            files[entry.name] = mark
            if record.holds:
                records[entry.name] = record
        self._files, self._records = files, records

    def _watch_new(self) -> None:
        running = {
            record.order.task: record.process
            for record in self._records.values()
            if record.phase is Phase.RUNNING and record.process is not None
        }
        for watched in list(self._watched.values()):
            if watched.task not in running:
                self._forget(watched)
        known = {watched.task for watched in self._watched.values()}
        for task, process in running.items():
            if task not in known and proctable.is_running(process, self._boot):
                self._watch(task, process)

    def _watch(self, task: str, process: Process) -> None:
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            return
        if not proctable.is_running(process, self._boot):
            os.close(pidfd)
            return
        self._watched[pidfd] = _Watched(task, process, pidfd)
        self._poll.register(pidfd, select.POLLIN)

    def _forget(self, watched: _Watched) -> None:
        if watched.ended_at is None:
            self._poll.unregister(watched.pidfd)
        del self._watched[watched.pidfd]
        os.close(watched.pidfd)

    def _learn_ends(self) -> None:
        now = time.monotonic()
        for watched in list(self._watched.values()):
            if watched.ended_at is None:
                continue
            learned = learn(watched.process, watched.pidfd, self._boot)
            waited_s = now - watched.ended_at
            if learned.status is None and not learned.final and waited_s < REAP_WAIT_S:
                continue
            fenced = watched.task in self._fenced
            try:
                self._notes.write(watched.task, Note(learned.status, fenced))
            except OSError:
                # A full disk, and our log is on it. Tried again with each look; whoever else is
                # watched must not go unwatched for it.
                continue
            del self._watched[watched.pidfd]
            os.close(watched.pidfd)

    def _fence(self, now: float) -> float:
        """Kill exclusive tasks whose time has come; returns in how many seconds to look again."""
        exclusive = [record for record in self._records.values() if record.order.exclusive]
        kill_at = self._lease.read_keeper_kill() if exclusive else None
        self._fence_pending = kill_at is not None and now < kill_at
        if kill_at is None or now < kill_at:
            return LOOK_S if kill_at is None else kill_at - now
        left = sum(self._kill(record) for record in exclusive)
        return 0.02 if left else LOOK_S

    def _kill(self, record: TaskRecord) -> int:
        """SIGKILL to all processes of the task; how many there were."""
        task = record.order.task
        process = record.process or Process(-1, 0, self._boot)
        if process.boot != self._boot:
            return 0
        mark = (task, self._agent)
        pids = proctable.family(
            proctable.read_table(),
            process,
            lambda pid: proctable.read_marks(pid) == mark,
            (os.getpid(),),
        )
        if pids:
            self._fenced[task] = None
        for pid in pids:
            _kill_one(pid)
        return len(pids)


def _kill_one(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_locked(path: Path) -> bool:
    """Whether an agent holds its data directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_there(data_dir: Path) -> bool:
    """Whether a keeper watches over this directory."""
    path = data_dir / "keeper.lock"
    return path.exists() and _is_locked(path)


def start(data_dir: Path) -> subprocess.Popen[bytes]:
    """Start a keeper; it ends at once where there is one already."""
    with (data_dir / "keeper.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "coord.agent.keeper", str(data_dir)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def main() -> int:
    """`python -m coord.agent.keeper DATA_DIR`"""
    data_dir = Path(sys.argv[1])
    # Held for ever; the number is not needed again.
    lock = os.open(data_dir / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    keeper = Keeper(data_dir)
    while keeper.step():
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
