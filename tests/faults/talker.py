"""A process of one party, told over pipes to listen, dial, send and read.

`Talker` is the side of the test; run as a program this module is the process.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from jepsen_lite.cluster.parties import PARTY
from jepsen_lite.network.port import Place

from coord.cli.processes import MARK

ROOT = Path(__file__).resolve().parent.parent.parent
ANSWER_S = 30.0


class Talker:
    """A process at a place of the network. Ends with `close`."""

    def __init__(self, place: Place, mark: str) -> None:
        self.place = place
        self.process = subprocess.Popen(
            [*place.prefix, sys.executable, "-m", "tests.faults.talker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, MARK: mark, PARTY: place.party},
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def listen(self, port: int) -> None:
        self._ask("listen", host=self.place.listens, port=port)

    def dial(self, other: Talker, port: int, timeout_s: float = 5.0) -> int:
        """The number of the connection; 0 when there was no answer in time."""
        return self._ask("dial", host=other.place.address, port=port, timeout_s=timeout_s)

    def accept(self, timeout_s: float = 5.0) -> int:
        """The number of the connection; 0 when nobody came."""
        return self._ask("accept", timeout_s=timeout_s)

    def send(self, number: int, size_bytes: int, letter: str = "x") -> int:
        """Send so many of a letter, as far as the kernel takes them; returns how many it took."""
        return self._ask("send", number=number, size_bytes=size_bytes, letter=letter)

    def read(self, number: int, size_bytes: int, timeout_s: float = 5.0) -> tuple[str, str]:
        """Read until so many bytes came, or the end, or nothing more in time: (text, how it ended:
        `enough`, `silent`, `closed` or `reset`)."""
        text, end = self._ask("read", number=number, size_bytes=size_bytes, timeout_s=timeout_s)
        return text, end

    def hang_up(self, number: int) -> None:
        """Close the connection."""
        self._ask("hang_up", number=number)

    def _ask(self, do: str, **given: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **given}).encode() + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        assert ready, f"{self.place.party} did not answer to {do}"
        return json.loads(self.process.stdout.readline())


class Conversation:
    """What the process has open."""

    def __init__(self) -> None:
        self.listener = socket.socket()
        self.open: dict[int, socket.socket] = {}

    def listen(self, host: str, port: int) -> None:
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, port))
        self.listener.listen()

    def dial(self, host: str, port: int, timeout_s: float) -> int:
        try:
            return self._keep(socket.create_connection((host, port), timeout_s))
        except TimeoutError:
            return 0

    def accept(self, timeout_s: float) -> int:
        self.listener.settimeout(timeout_s)
        try:
            return self._keep(self.listener.accept()[0])
        except TimeoutError:
            return 0

    def send(self, number: int, size_bytes: int, letter: str) -> int:
        self.open[number].setblocking(False)
        sent = 0
        try:
            while sent < size_bytes:
                sent += self.open[number].send(letter.encode() * (size_bytes - sent))
        except BlockingIOError:
            return sent
        return sent

    def read(self, number: int, size_bytes: int, timeout_s: float) -> tuple[str, str]:
        connection = self.open[number]
        connection.settimeout(timeout_s)
        text = b""
        while len(text) < size_bytes:
            try:
                piece = connection.recv(size_bytes - len(text))
            except TimeoutError:
                return text.decode(), "silent"
            except OSError:
                return text.decode(), "reset"
            if not piece:
                return text.decode(), "closed"
            text += piece
        return text.decode(), "enough"

    def hang_up(self, number: int) -> None:
        self.open.pop(number).close()

    def _keep(self, connection: socket.socket) -> int:
        number = len(self.open) + 1
        self.open[number] = connection
        return number


def main() -> None:
    """Obey stdin until it ends."""
    conversation = Conversation()
    for line in sys.stdin:
        asked = json.loads(line)
        answer = getattr(conversation, asked.pop("do"))(**asked)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
