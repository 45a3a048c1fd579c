"""Through the proxy a stream stays a stream: complete and in order, or a beginning of it."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jepsen_lite.cluster.leftovers import new_mark
from jepsen_lite.cluster.parties import CLIENTS
from jepsen_lite.network.proxied import Proxied

PORT = 7101
STREAMS = 12
SIZE_BYTES = 150_000
PATIENCE_S = 60.0


class Echo:
    """A server that sends back what it gets, and keeps what each connection brought."""

    def __init__(self, host: str) -> None:
        self.brought: list[bytearray] = []
        self._listener = socket.create_server((host, PORT), backlog=64)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # Closed.
            while True:
                connection, _ = self._listener.accept()
                self.brought.append(bytearray())
                talk = threading.Thread(target=self._talk, args=(connection, self.brought[-1]))
                self._threads.append(talk)
                talk.start()

    def _talk(self, connection: socket.socket, brought: bytearray) -> None:
        with connection, contextlib.suppress(OSError):
            while piece := connection.recv(5_000):
                brought += piece
                connection.sendall(piece)


class Stream:
    """Sends numbered lines on a connection, and reads the echo."""

    def __init__(self, address: str, number: int) -> None:
        lines = (b"%d.%d\n" % (number, line) for line in range(SIZE_BYTES // 8))
        self.sent = b"".join(lines)
        self.echo = bytearray()
        self.is_reset = False
        self._connection = socket.create_connection((address, PORT), PATIENCE_S)
        self._threads = [threading.Thread(target=work) for work in (self._send, self._read)]
        for thread in self._threads:
            thread.start()

    @property
    def going(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self._connection.close()

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # The reader sees the reset.
            for at in range(0, len(self.sent), 3_000):
                self._connection.sendall(self.sent[at : at + 3_000])
            self._connection.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        try:
            while piece := self._connection.recv(5_000):
                self.echo += piece
        except OSError:
            self.is_reset = True


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Proxied]:
    network = Proxied(new_mark(), seed=7, log=tmp_path / "proxy.log")
    network.open()
    network.add(CLIENTS)
    yield network
    network.close()
    assert (tmp_path / "proxy.log").read_text() == ""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_stream_is_whole_or_a_beginning_whatever_happens(proxied: Proxied, seed: int) -> None:
    """Cuts, delays, losses and throttles leave all of it; a reset leaves a beginning."""
    rng = random.Random(seed)
    place = proxied.add("s1", (PORT,))
    with contextlib.closing(Echo(place.listens)) as server:
        proxied.throttle(CLIENTS, "s1", 400_000)
        streams = [Stream(place.address, number) for number in range(STREAMS)]
        never = threading.Event()
        for _ in range(40):
            misfortunes: tuple[Callable[[str, str], None], ...] = (
                proxied.cut,
                lambda one, other: proxied.delay(one, other, 30.0, 30.0),
                lambda one, other: proxied.lossy(one, other, 0.2),
                lambda one, other: proxied.throttle(one, other, 400_000),
                lambda one, other: proxied.throttle(one, other, 2_000_000),
            )
            source, target = rng.sample((CLIENTS, "s1"), 2)
            rng.choice(misfortunes)(source, target)
            if rng.random() < 0.3:
                proxied.mend("s1", CLIENTS)
            never.wait(0.02)
        proxied.reset(CLIENTS, "s1")
        proxied.heal()
        again = [Stream(place.address, number) for number in range(STREAMS, 2 * STREAMS)]
        proxied.delay("s1", CLIENTS, 20.0, 20.0)
        proxied.lossy(CLIENTS, "s1", 0.1)
        never.wait(0.3)
        proxied.heal()
        for stream in (*streams, *again):
            stream.join()
    assert any(stream.is_reset for stream in streams)
    assert not any(stream.is_reset for stream in again)
    assert all(stream.echo == stream.sent for stream in again)
    assert all(stream.sent.startswith(stream.echo) for stream in streams)
    everything = [stream.sent for stream in (*streams, *again)]
    for brought in server.brought:
        assert any(sent.startswith(brought) for sent in everything)
    assert proxied.connections() == {}
