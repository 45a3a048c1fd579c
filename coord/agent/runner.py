"""Real processes: starting, watching and ending them on Linux.

Every main process leads a session of its own and carries COORD_TASK and COORD_AGENT in its
environment, so its descendants are found by parentage, by session and by mark. Its output goes
straight to files: nothing of ours stands between, and it runs on when the agent dies.

An exit is noticed through a pidfd, for children and for processes that an earlier agent started
alike. A child's status comes from wait(2), that of an adopted one from the kernel or the keeper
(see `exits`); else it is not observed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable
from typing import IO

import msgspec

from coord.agent import kernel, proctable
from coord.agent.exits import REAP_WAIT_S, ExitNotes, learn
from coord.agent.oom import OomWatch, counter_file, read_kills
from coord.agent.ports import ExitCallback, ExitStatus, LaunchError, LaunchSpec
from coord.agent.records import Process

POLL_S = 0.02
"""How often a process without a pidfd is looked at."""

USER_ERRORS = (
    errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC, errno.E2BIG, errno.EISDIR, errno.ELOOP
)  # fmt: skip
"""Starting fails like this on any host, until somebody changes the job."""


class _Watched:
    """A known task's main process. `popen` is None for an adopted one; `pidfd` -1 without one."""

    def __init__(self, process: Process, popen: subprocess.Popen[bytes] | None) -> None:
        self.process = process
        self.popen = popen
        self.pidfd = -1
        self.killed = False
        self.timer: asyncio.Handle | None = None


class PosixRunner:
    """See `ports.ProcessRunner`. `owns_process` says that nothing else in this Python process
    starts processes in sessions of their own, so that zombies of unknown origin are orphans."""

    def __init__(
        self,
        agent: str,
        *,
        owns_process: bool,
        open_pidfd: Callable[[int], int] = os.pidfd_open,
        oom: OomWatch | None = None,
        notes: ExitNotes | None = None,
    ) -> None:
        self._agent = agent
        self._boot = proctable.boot_id()
        self._owns_process = owns_process
        self._open_pidfd = open_pidfd
        self._notes = notes
        self._watched: dict[str, _Watched] = {}
        self._callback: ExitCallback | None = None
        counter = counter_file()
        self._oom = oom or OomWatch(lambda: read_kills(counter))
        if owns_process:
            kernel.become_subreaper()
            if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
                # Inherited from whoever started us; children would vanish without a status.
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def on_exit(self, callback: ExitCallback) -> None:
        self._callback = callback

    def launch(self, spec: LaunchSpec) -> Process:
        try:
            out, err = _append(spec.stdout), _append(spec.stderr)
        except OSError as error:
            message = f"cannot write output of {spec.task}: {error.filename}: {error.strerror}"
            raise LaunchError(message, user_error=False) from error
        with out, err:
            popen = _start(spec, out, err)
        # Until we wait for it the child keeps its pid, even when it has ended already.
        entry = proctable.read_entry(popen.pid)
        start_ticks = entry.start_ticks if entry else 0
        process = Process(popen.pid, start_ticks, self._boot)
        self._watch(spec.task, _Watched(process, popen))
        return process

    def find(self, task: str) -> Process | None:
        table = proctable.read_table()
        found = [
            entry
            for entry in table.values()
            if not entry.zombie and entry.session == entry.pid and self._marked(entry.pid, task)
        ]
        if not found:
            return None
        # A grandchild may lead a session too; the main process is the one that came first.
        first = min(found, key=lambda entry: (entry.start_ticks, entry.pid))
        return Process(first.pid, first.start_ticks, self._boot)

    def adopt(self, task: str, process: Process) -> None:
        self._watch(task, _Watched(process, None))

    def survivors(self, task: str, process: Process | None) -> tuple[int, ...]:
        if process is None:
            process = Process(-1, 0, self._boot)
        if process.boot != self._boot:
            return ()
        return proctable.family(
            proctable.read_table(), process, lambda pid: self._marked(pid, task), (os.getpid(),)
        )

    def signal(self, task: str, process: Process | None, number: int) -> tuple[int, ...]:
        watched = self._watched.get(task)
        if watched is not None and number == signal.SIGKILL:
            watched.killed = True
        pids = self.survivors(task, process)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def release(self, task: str) -> None:
        watched = self._watched.pop(task, None)
        if watched is not None:
            self._unwatch(watched)

    def collect(self) -> None:
        self._oom.look(asyncio.get_running_loop().time())
        if not self._owns_process:
            return
        ours, session = os.getpid(), os.getsid(0)
        claimed = {watched.process.pid for watched in self._watched.values()}
        for entry in proctable.read_table().values():
            if (
                entry.parent == ours
                and entry.zombie
                and entry.session != session
                and entry.pid not in claimed
            ):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(entry.pid, os.WNOHANG)

    def close(self) -> None:
        for task in sorted(self._watched):
            self.release(task)

    def _marked(self, pid: int, task: str) -> bool:
        return proctable.read_marks(pid) == (task, self._agent)

    def _watch(self, task: str, watched: _Watched) -> None:
        self._watched[task] = watched
        loop = asyncio.get_running_loop()
        try:
            watched.pidfd = self._open_pidfd(watched.process.pid)
        except ProcessLookupError:
            loop.call_soon(self._ended, task, watched)
            return
        except OSError:
            self._poll(task, watched)
            return
        entry = proctable.read_entry(watched.process.pid)
        if watched.popen is None and (
            watched.process.boot != self._boot
            or entry is None
            or entry.start_ticks != watched.process.start_ticks
        ):
            # The pid stands for another process by now.
            os.close(watched.pidfd)
            watched.pidfd = -1
            loop.call_soon(self._ended, task, watched)
            return
        loop.add_reader(watched.pidfd, self._ended, task, watched)

    def _poll(self, task: str, watched: _Watched) -> None:
        if watched.popen is not None:
            alive = watched.popen.poll() is None
        else:
            alive = proctable.is_running(watched.process, self._boot)
        loop = asyncio.get_running_loop()
        if alive:
            watched.timer = loop.call_later(POLL_S, self._poll, task, watched)
        else:
            watched.timer = loop.call_soon(self._ended, task, watched)

    def _ended(self, task: str, watched: _Watched) -> None:
        """The pidfd is readable: the main process and all its threads are over."""
        if self._watched.get(task) is not watched:
            return
        loop = asyncio.get_running_loop()
        if watched.pidfd >= 0:
            loop.remove_reader(watched.pidfd)
        if watched.popen is not None:
            self._tell(task, watched, _from_returncode(watched.popen.wait()))
        else:
            self._learn(task, watched, loop.time() + REAP_WAIT_S)

    def _learn(self, task: str, watched: _Watched, deadline: float) -> None:
        """Find out how an adopted process ended: from the kernel, else from the keeper's note."""
        learned = learn(watched.process, watched.pidfd, self._boot)
        loop = asyncio.get_running_loop()
        if learned.status is None and not learned.final and loop.time() < deadline:
            watched.timer = loop.call_later(POLL_S, self._learn, task, watched, deadline)
            return
        status = learned.status
        if status is None and self._notes is not None:
            status = self._notes.read(task).status
        if status is None:
            self._tell(task, watched, ExitStatus(observed=False))
        else:
            self._tell(task, watched, _from_returncode(os.waitstatus_to_exitcode(status)))

    def _tell(self, task: str, watched: _Watched, status: ExitStatus) -> None:
        if status.signal == signal.SIGKILL and not watched.killed:
            oom = self._oom.explains(asyncio.get_running_loop().time())
            status = msgspec.structs.replace(status, oom=oom)
        self._unwatch(watched)
        if self._callback is not None:
            self._callback(task, status)

    def _unwatch(self, watched: _Watched) -> None:
        if watched.timer is not None:
            watched.timer.cancel()
            watched.timer = None
        if watched.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = -1
        if watched.popen is not None and watched.popen.returncode is None:
            # It goes on without us. Popen would warn that nobody waited for it.
            watched.popen.returncode = 0


def _append(path: os.PathLike[str]) -> IO[bytes]:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "ab", buffering=0)


def _start(spec: LaunchSpec, out: IO[bytes], err: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            spec.command,
            env=spec.env,
            cwd=spec.workdir or None,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        user_error = isinstance(error, ValueError) or error.errno in USER_ERRORS
        if isinstance(error, OSError):
            why = f"{error.filename or spec.command[0]}: {error.strerror}"
        else:
            why = str(error)
        shown = " ".join(spec.command)[:200]
        raise LaunchError(f"cannot start {shown!r}: {why}", user_error=user_error) from error


def _from_returncode(returncode: int) -> ExitStatus:
    if returncode < 0:
        return ExitStatus(signal=-returncode)
    return ExitStatus(exit_code=returncode)
