"""Disks for tests, and processes on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jepsen_lite.disks.machine import Disks, MachineDisk
from jepsen_lite.disks.port import LOSE_UNSYNCED

WRITER = str(Path(__file__).with_name("disk_writer.py"))


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    """The disks of a module, all that it opens; the shim is built once."""
    made = Disks(tmp_path_factory.mktemp("disks"), environ={})
    yield made
    made.close()


@pytest.fixture
def disk(disks: Disks) -> Iterator[MachineDisk]:
    """A disk whose syncs can be slow or lost; the test is skipped where that cannot be."""
    if LOSE_UNSYNCED in disks.missing:
        pytest.skip(disks.missing[LOSE_UNSYNCED])
    opened = disks.open(f"s{len(disks.disks) + 1}")
    yield opened
    opened.close()


class Writer:
    """A process of disk_writer.py on a disk. Leaving kills it."""

    def __init__(self, disk: MachineDisk, kind: str = "files") -> None:
        flags = ["-S"] if kind == "files" else []
        command = [sys.executable, *flags, WRITER, kind, str(disk.directory)]
        self._process = subprocess.Popen(
            command,
            env=os.environ | disk.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def do(self, *statements: str) -> None:
        """Have it execute each statement."""
        assert self._process.stdin is not None
        for statement in statements:
            self._process.stdin.write(statement + "\n")
            self._process.stdin.flush()
            assert self.line() == "done", statement

    def line(self) -> str:
        """The next that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> list[str]:
        """SIGKILL; what it had printed and nobody read."""
        self._process.kill()
        assert self._process.stdout is not None
        rest = [] if self._process.stdout.closed else self._process.stdout.read().split()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        return rest
