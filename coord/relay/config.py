"""How one relay is set up."""

from __future__ import annotations

import socket

import msgspec

from coord.client.servers import base_url
from coord.model.entry import ACTOR_LENGTH_LIMIT

MIB = 1024 * 1024


class RelayLimits(msgspec.Struct, frozen=True):
    """Every bound of the relay. Beyond one, the sender is told, and it is counted."""

    agents: int = 4_096
    """Conversations at once; one more is sent elsewhere."""
    message_bytes: int = 4 * MIB
    """Of one frame from below."""
    agent_bytes: int = 2 * MIB
    """Of one frame of an agent: with `upward_bytes` beside it, it must fit into a message that a
    server takes (4 MiB)."""
    queue_bytes: int = 16 * MIB
    """Reports that wait for the server. Progress is refused from half of it on, commands from three
    quarters. What concerns leases has as much again."""
    upward_bytes: int = MIB
    """The most that goes up in one message, but for the last frame in it."""
    unread_bytes: int = 64 * MIB
    """What a slow reader may leave unread."""
    rate_per_s: float = 200.0
    """Beats and reports of one agent, in the long run..."""
    burst: float = 2_048.0
    """...and at once: an agent that comes back sends all that is undecided again."""
    upstream_s: float = 3.0
    """Without a server for so long, agents are sent elsewhere."""


class RelayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`servers` are URLs of servers or of relays above; `listen` is `host:port`."""

    servers: tuple[str, ...]
    listen: str = "127.0.0.1:7201"
    name: str = msgspec.field(default_factory=socket.gethostname)
    cluster: str = ""
    limits: RelayLimits = RelayLimits()

    def problems(self) -> list[str]:
        """What is wrong with it, as sentences; empty when it may be used."""
        found = []
        if not self.servers:
            found.append("no server is named; give --server")
        for server in self.servers:
            try:
                base_url(server)
            except ValueError as error:
                found.append(str(error))
        if not 0 < len(self.name) <= ACTOR_LENGTH_LIMIT:
            found.append(
                f"the name has {len(self.name)} characters; give --name with 1 to "
                f"{ACTOR_LENGTH_LIMIT}"
            )
        host, colon, port = self.listen.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65_535:
            found.append(f"it is to listen at {self.listen!r}; write host:port")
        return found
