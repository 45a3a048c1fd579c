"""Processes that we start and answer for: found again by a mark, ended whatever happens to us.

Run as a program this module is the guard: it holds the other end of a pipe, and when its parent is
gone, by whatever death, it ends every process that carries the parent's mark.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

MARK = "LOCAL_COORD_CLUSTER"
"""Environment variable that every process of a local cluster inherits. Tasks do as well: an agent
keeps from them only what begins with COORD_."""


class Child:
    """One process of ours: a server or an agent. It starts again only when told to.

    It gets a session of its own, so that Ctrl-C in the terminal reaches us and not it.
    """

    def __init__(
        self, name: str, command: list[str], log: Path, env: dict[str, str], workdir: Path | None
    ) -> None:
        self.name = name
        self.command = command
        self.log = log
        self._env = env
        self._workdir = workdir
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its output goes to the end of its log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                cwd=self._workdir,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """0 while it never ran."""
        return self.process.pid if self.process else 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def terminate(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def wait(self, timeout_s: float) -> bool:
        """True once it has ended, false when it has not within the time."""
        if self.process is not None:
            try:
                self.process.wait(max(0.01, timeout_s))
            except subprocess.TimeoutExpired:
                return False
        return True

    def epitaph(self, lines: int = 8) -> str:
        """How it ended, where its log is, and the end of that."""
        code = self.process.returncode if self.process else None
        how = f"was ended by signal {-code}" if code and code < 0 else f"ended with code {code}"
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        tail = "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
        return f"{self.name} {how}; the end of {self.log}:\n{tail}"


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to each that is still the process it was; psutil compares start times."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def marked(mark: str) -> list[psutil.Process]:
    """Every process, but for this one and the guard, that carries the mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def sweep(mark: str, grace_s: float = 0.0) -> None:
    """End whatever carries the mark: SIGTERM if there is a grace, then SIGKILL until none is left.

    Repeats, because a process may start another while it is being killed.
    """
    if grace_s:
        found = marked(mark)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(found, timeout=grace_s)
    for _ in range(10):
        found = marked(mark)
        if not found:
            return
        kill(found)
        psutil.wait_procs(found, timeout=1.0)


def start_guard(mark: str, module: str = "coord.cli.processes") -> subprocess.Popen[bytes]:
    """A process that sweeps when we die. Close its stdin and wait for it to end it in peace.

    `module`, run as a program with the mark, calls `guard`.
    """
    env = {name: value for name, value in os.environ.items() if name != MARK}
    return subprocess.Popen(
        [sys.executable, "-m", module, mark],
        stdin=subprocess.PIPE,
        env=env,
        start_new_session=True,
    )


def guard(mark: str, clear: Callable[[str], object] = sweep) -> None:
    """Wait for the end of our parent, then clear what carries the mark."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clear(mark)


if __name__ == "__main__":
    guard(sys.argv[1])
