"""`Proxied`: servers behind a user-space TCP proxy. It needs no rights, and Linux alone.

Whoever speaks to a server reaches the proxy, which tells the parties apart by the process that owns
the other end of the connection. What does not go to a server (tasks among themselves) does not pass
it. Unlike a real network it acknowledges what it holds, and accepts connections to a server that is
down before it breaks them.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from coord.cli.processes import MARK
from jepsen_lite.network.addresses import Subnet, random_subnet
from jepsen_lite.network.port import CAPABILITIES, NetworkFailed, Place, Shape, Shapes
from jepsen_lite.network.proxy import Answer, Command, Count, Listen, Reset, Reshape

ANSWER_S = 15.0


class Proxied:
    """A proxy process that carries `mark` and knows the processes that carry it. `seed` draws
    jitter and losses; `log` is where the proxy's own trouble goes."""

    name = "proxied"

    def __init__(
        self, mark: str, *, seed: int = 0, subnet: Subnet | None = None, log: Path | None = None
    ) -> None:
        self.can = frozenset(CAPABILITIES)
        self.missing: dict[str, str] = {}
        self.subnet = subnet or random_subnet()
        self._mark = mark
        self._seed = seed
        self._log = log or Path(os.devnull)
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._shapes = Shapes()
        self._places: dict[str, Place] = {}

    def open(self) -> None:
        if not sys.platform.startswith("linux"):
            raise NetworkFailed(
                f"the proxy tells parties apart by /proc, which {sys.platform} has not: use Linux"
            )
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jepsen_lite.network.proxy"),
                    *(MARK, self._mark, str(self._seed)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, MARK: self._mark},
                start_new_session=True,
            )

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def add(self, party: str, ports: tuple[int, ...] = ()) -> Place:
        if party in self._places:
            raise ValueError(f"{party} has a place already; add each party once")
        address = self.subnet.address(party)
        listens = self.subnet.behind(party) if ports else address
        for port in ports:
            self._ask(Listen(party, (address, port), (listens, port)))
        self._places[party] = Place(party, address, listens)
        return self._places[party]

    def cut(self, source: str, target: str) -> None:
        self._shape(source, target, cut=True)

    def delay(self, source: str, target: str, ms: float, jitter_ms: float = 0.0) -> None:
        self._shape(source, target, delay_ms=ms, jitter_ms=jitter_ms)

    def throttle(self, source: str, target: str, bytes_s: int) -> None:
        self._shape(source, target, bytes_s=bytes_s)

    def lossy(self, source: str, target: str, share: float) -> None:
        self._shape(source, target, share=share)

    def reset(self, source: str, target: str) -> None:
        self._check(source, target)
        self._ask(Reset(source, target))

    def mend(self, source: str, target: str) -> None:
        self._check(source, target)
        self._shapes.table.pop((source, target), None)
        self._tell()

    def heal(self) -> None:
        self._shapes.table.clear()
        self._tell()

    def connections(self) -> dict[tuple[str, str], int]:
        """How many are open, by who dialled and who was wanted."""
        return {(dialler, target): n for dialler, target, n in self._ask(Count()).connections}

    def _shape(self, source: str, target: str, **changes: float) -> None:
        self._check(source, target)
        self._shapes.change(source, target, **changes)
        self._tell()

    def _tell(self) -> None:
        table: list[tuple[str, str, Shape]] = [
            (one, other, shape) for (one, other), shape in self._shapes.table.items()
        ]
        self._ask(Reshape(table))

    def _check(self, *parties: str) -> None:
        for party in parties:
            if party not in self._places:
                raise ValueError(
                    f"{party!r} is no party of this network; there are {', '.join(self._places)}"
                )

    def _ask(self, command: Command) -> Answer:
        process = self._process
        if process is None:
            raise NetworkFailed("the proxy is not open; open it before use")
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(command) + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise NetworkFailed(f"the proxy has ended ({error}); see {self._log}") from error
        answer = msgspec.json.decode(self._line(process), type=Answer)
        if answer.problem:
            raise NetworkFailed(answer.problem)
        return answer

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        deadline = time.monotonic() + ANSWER_S
        while b"\n" not in self._unread:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([process.stdout], [], [], left_s)[0]:
                raise NetworkFailed(f"the proxy did not answer for {ANSWER_S:g} s; see {self._log}")
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise NetworkFailed(f"the proxy has ended; see {self._log}")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line
