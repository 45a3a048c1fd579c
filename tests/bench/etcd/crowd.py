"""The processes that play the agents, seen from the benchmark."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

AGENTS_A_PROCESS = 5_000
"""One process could play more; so it is never what limits."""
ANSWER_S = 30.0
CONNECT_S = 240.0


class CrowdFailed(Exception):
    """A process of agents ended, hung or said that something did not come."""


class Crowd:
    """`agents` hosts, each with a connection of its own, spread over `urls`. A context manager."""

    def __init__(self, urls: list[str], agents: int, period_ms: int) -> None:
        self.agents = agents
        self._urls = urls
        self._period_ms = period_ms
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        first = 0
        while first < self.agents:
            agents = min(AGENTS_A_PROCESS, self.agents - first)
            command = [sys.executable, "-m", "tests.bench.etcd.agents", ",".join(self._urls)]
            command += [str(first), str(agents), str(self._period_ms / 1_000)]
            pipe = subprocess.PIPE
            self._processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe))
            first += agents
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.communicate()

    def connect(self) -> float:
        """Connect and register all; returns the seconds that took."""
        return max(float(answer["connect_s"]) for answer in self._ask(CONNECT_S, "connect"))

    def window(self, seconds: float) -> list[dict[str, Any]]:
        """Let them beat; each process says how many were acknowledged."""
        return self._ask(seconds + ANSWER_S, "window", seconds=seconds)

    def expect(self, action: str) -> None:
        """Note when plans with this action arrive, at every agent."""
        self._ask(ANSWER_S, "expect", action=action)

    def die(self, numbers: list[int]) -> dict[str, float]:
        """Host to when it last beat, on the monotonic clock."""
        answers = self._ask(ANSWER_S, "die", agents=numbers)
        return {host: at_s for one in answers for host, at_s in one["last_beats"].items()}

    def arrived(self, seconds: float) -> float:
        """When the last agent had the plan that was expected, on the monotonic clock."""
        answers = self._ask(seconds + ANSWER_S, "arrived", seconds=seconds)
        return max(float(one["last_s"]) for one in answers)

    def superseded(self) -> int:
        """Agents that were told that their incarnation is over. Raises CrowdFailed if servers
        refused any for another reason."""
        told = 0
        for state in self._ask(ANSWER_S, "state"):
            told += state["refused"].pop("stale_incarnation", 0)
            if state["refused"]:
                raise CrowdFailed(f"servers refused agents: {state['refused']}")
        return told

    def _ask(self, within_s: float, do: str, **arguments: Any) -> list[dict[str, Any]]:
        """One answer from each process."""
        line = json.dumps({"do": do, **arguments}).encode() + b"\n"
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
        return [_answer(process, do, within_s) for process in self._processes]


def _answer(process: subprocess.Popen[bytes], do: str, within_s: float) -> dict[str, Any]:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(within_s):
            raise CrowdFailed(f"the agents gave no answer to {do!r} within {within_s:.0f} s")
    line = process.stdout.readline()
    if not line:
        raise CrowdFailed(f"the agents' process ended with code {process.wait()} upon {do!r}")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise CrowdFailed(f"{do}: {answer['error']}")
    return answer
