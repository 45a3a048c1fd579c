"""Addresses for the parties of one run, all of loopback: servers speak plaintext on nothing else.

Each run takes a subnet of its own, 127.X.Y.0/24, so that runs beside each other do not meet and
ports need not be looked for.
"""

from __future__ import annotations

import random

from jepsen_lite.cluster.parties import party_number

PEER_PORT = 7001
API_PORT = 7101
ROUTER_NUMBER = 254
_random = random.SystemRandom()


class Subnet:
    """127.X.Y.0/24, Y even. `random_subnet` draws one."""

    def __init__(self, second: int, third: int) -> None:
        if not (1 <= second <= 254 and 0 <= third <= 254 and third % 2 == 0):
            raise ValueError(
                f"127.{second}.{third}.0/24 cannot be used; X must be 1 to 254 and Y 0 to 254, even"
            )
        self._prefix = f"127.{second}.{third}"
        self._behind = f"127.{second}.{third + 1}"

    def __str__(self) -> str:
        return f"{self._prefix}.0/24"

    @property
    def router(self) -> str:
        return f"{self._prefix}.{ROUTER_NUMBER}"

    def address(self, party: str) -> str:
        """Where others reach the party."""
        return f"{self._prefix}.{party_number(party)}"

    def behind(self, server: str) -> str:
        """Where a server listens that is reached through a proxy."""
        return f"{self._behind}.{party_number(server)}"


def random_subnet() -> Subnet:
    """One that hardly anybody else has: addresses below 127.64 are left to people."""
    return Subnet(_random.randrange(64, 255), _random.randrange(0, 255, 2))
