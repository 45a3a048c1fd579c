"""TCP ports of 127.0.0.1 that are kept for whoever is to listen at them.

A port that is merely seen to be free may be taken by somebody else before it is used. A socket that
is bound and does not listen keeps a port: the kernel gives it to nobody by itself, no other keeper
finds it free, and a server that binds with SO_REUSEADDR, as servers do, can still listen there.
"""

from __future__ import annotations

import random
import socket

FREE_PORTS = range(10_000, 20_000)
"""Below what agents keep for rendezvous and what the kernel gives to outgoing connections."""
HOST = "127.0.0.1"

_random = random.SystemRandom()


class KeptPorts:
    """Kept until `close`. Keeping again what this machine's servers once had is allowed."""

    def __init__(self) -> None:
        self._keepers: dict[int, socket.socket] = {}

    def choose(self, count: int) -> list[int]:
        """So many ports which nobody listens at, is bound to, or keeps."""
        chosen: list[int] = []
        while len(chosen) < count:
            port = _random.choice(FREE_PORTS)
            if self.keep(port, shared=False):
                chosen.append(port)
        return chosen

    def keep(self, port: int, *, shared: bool = True) -> bool:
        """This one, unless somebody listens at it; or, not `shared`, is bound to it in any way,
        through connections that linger or as another keeper."""
        if port in self._keepers:
            return shared
        keeper = socket.socket()
        try:
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shared))
            keeper.bind((HOST, port))
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            keeper.close()
            return False
        self._keepers[port] = keeper
        return True

    def close(self) -> None:
        """Give back all of them."""
        while self._keepers:
            self._keepers.popitem()[1].close()
