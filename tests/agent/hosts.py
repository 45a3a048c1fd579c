"""A host whose agent is a process of its own, to be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from coord.model.plans import TaskOrder
from tests.agent.support import PATIENCE_S, plan


class Host:
    """A data directory, a coordinator that is a directory, and at most one agent process."""

    def __init__(self, root: Path, lease_ms: int = 6_000, keeper: bool = False) -> None:
        self._how = [str(lease_ms), "keeper" if keeper else "alone"]
        self.data = root / "data"
        self.coordinator = root / "coordinator"
        self.data.mkdir()
        self.coordinator.mkdir()
        self.agent: subprocess.Popen[bytes] | None = None
        self._version = 0

    def start(self) -> None:
        with (self.data / "agent.log").open("ab") as output:
            self.agent = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=output,
            )

    def command(self) -> list[str]:
        """To start the agent."""
        program = [sys.executable, "-m", "tests.agent.agent_process"]
        return [*program, str(self.data), str(self.coordinator), *self._how]

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.agent is not None
        self.agent.send_signal(number)
        self.agent.wait(PATIENCE_S)
        self.agent = None

    def want(self, *orders: TaskOrder) -> None:
        self._version += 1
        path = self.coordinator / "plan.json"
        path.with_suffix(".new").write_bytes(
            msgspec.json.encode(plan(*orders, version=self._version))
        )
        path.with_suffix(".new").rename(path)

    def events(self) -> list[dict[str, Any]]:
        path = self.coordinator / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def of(self, kind: str, task: str = "") -> list[dict[str, Any]]:
        return [
            event
            for event in self.events()
            if event["type"] == kind and event.get("task", "") == task
        ]

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (value := condition()):
            assert time.monotonic() < deadline, (self.events(), self._log())
            time.sleep(0.005)
        return value

    def _log(self) -> str:
        return (self.data / "agent.log").read_text()

    def pid_of(self, task: str) -> int:
        return int(self.until(lambda: self.of("TaskStarted", task))[0]["pid"])

    def clean(self) -> None:
        """End what tests left: by the pids that were reported, and only if they are ours still."""
        if self.agent is not None:
            self.kill()
        for event in self.events():
            if event["type"] == "TaskStarted":
                _kill_marked(event["pid"], event["task"])


def _kill_marked(pid: int, task: str) -> None:
    try:
        process = psutil.Process(pid)
        if process.environ().get("COORD_TASK") == task:
            process.kill()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return
