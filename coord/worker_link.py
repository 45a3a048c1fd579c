"""The worker library's connection to the agent: lines of JSON over a Unix socket. And how a hot
spare waits at it for a rank."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

ASK_PERIOD_S = 0.05
"""How often the agent is asked. It answers from memory."""
ANSWER_S = 2.0
AWAY_LIMIT_S = 1.0
"""How long it leaves an agent alone at most that is being replaced."""


class Away(Exception):
    """The agent cannot be reached, or does not answer in time."""


class Refused(Exception):
    """The agent answered no; the message says why."""


class Link:
    """One connection. Answers come in the order of the lines. Not for several threads at once."""

    def __init__(self, path: str, task: str) -> None:
        self._path = path
        self._task = task
        self._socket: socket.socket | None = None
        self._received = b""
        self.unanswered = 0

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def connect(self, deadline: float) -> None:
        """Raises Away, Refused (the agent knows no such running task)."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            link.connect(self._path)
        except OSError as error:
            link.close()
            raise Away(f"no agent at {self._path}: {error}") from error
        self._socket, self._received, self.unanswered = link, b"", 0
        self.send({"type": "hello", "task": self._task}, deadline)
        try:
            self.receive(deadline)
        except Refused:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._received, self.unanswered = None, b"", 0

    def send(self, request: dict[str, object], deadline: float | None) -> None:
        """Without a deadline: now or never."""
        import json

        assert self._socket is not None
        wait_s = 0.0 if deadline is None else max(deadline - time.monotonic(), 0.001)
        self._socket.settimeout(wait_s)
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            # Half a line may be on its way, so this connection can carry nothing more.
            self.close()
            raise Away(f"the agent takes nothing: {error}") from error
        self.unanswered += 1

    def receive(self, deadline: float | None) -> dict[str, object] | None:
        """The next answer; without a deadline None, unless it is here. Raises Refused for a no."""
        import json

        while b"\n" not in self._received:
            assert self._socket is not None
            wait_s = 0.0 if deadline is None else max(deadline - time.monotonic(), 0.001)
            self._socket.settimeout(wait_s)
            try:
                data = self._socket.recv(65_536)
            except BlockingIOError:
                return None
            except OSError as error:
                self.close()
                raise Away(f"the agent does not answer: {error}") from error
            if not data:
                self.close()
                raise Away("the agent has gone")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        self.unanswered -= 1
        answer: dict[str, object] = json.loads(line)
        if not answer.get("ok"):
            raise Refused(str(answer.get("error", "refused")))
        return answer


def await_rank(path: str, task: str, is_flagged: Callable[[], bool]) -> dict[str, str] | None:
    """The environment of the rank, or None: this process is to end. Waits for as long as it takes.

    Across restarts of the agent, too. Raises Refused: the agent knows of no such running task.
    """
    link = Link(path, task)
    wait_s = ASK_PERIOD_S
    try:
        while not is_flagged():
            try:
                answer = _ask(link)
            except Away:
                link.close()
                wait_s = min(wait_s * 2, AWAY_LIMIT_S)
            else:
                wait_s = ASK_PERIOD_S
                if answer.get("stop"):
                    return None
                env = answer.get("env")
                if isinstance(env, dict) and env:
                    return {str(name): str(value) for name, value in env.items()}
            time.sleep(wait_s)
        return None
    finally:
        link.close()


def _ask(link: Link) -> dict[str, object]:
    deadline = time.monotonic() + ANSWER_S
    if not link.connected:
        link.connect(deadline)
    link.send({"type": "stand_by"}, deadline)
    answer = link.receive(deadline)
    assert answer is not None, "a deadline was given"
    return answer
