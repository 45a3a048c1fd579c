"""A server process of its own for a test, and waiting for what it does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from coord.client.errors import Unavailable
from coord.client.sync import SyncClient
from tests.free_ports import free_ports

PATIENCE_S = 60.0
T = TypeVar("T")


class LoneServer:
    """A cluster of one. `kill` and `start` it as often as you like; leaving ends it."""

    def __init__(self, data: Path, log: Path, environ: Mapping[str, str]) -> None:
        (port,) = free_ports(1)
        self.log = log
        self._environ = {**os.environ, **environ}
        self.url = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "coord.cli.main", "server", "--data", str(data)]
        self._command += ["--api", f"127.0.0.1:{port}"]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LoneServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command, env=self._environ, stdout=output, stderr=output
            )

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self) -> SyncClient:
        return SyncClient([self.url], actor="tester")

    def wait_until_ready(self, client: SyncClient) -> None:
        """Until it answers; at once an error when it ended instead."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self.running, self.log.read_text()
            try:
                client.cluster()
                return
            except Unavailable:
                assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)


def wait_until(what: str, condition: Callable[[], T]) -> T:
    """What the condition gives once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s until {what}"
        time.sleep(0.01)
    return value
