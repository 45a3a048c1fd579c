"""The one connection upwards, to a server or to a relay above: made again whenever it is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import structlog

from coord.client.backoff import Backoff
from coord.client.channel import (
    Channel,
    ChannelClosed,
    ChannelRefused,
    Dialer,
    stop_if_cancelled,
)
from coord.client.servers import ServerRing
from coord.model.channel import Hello, LeaderChanged, RelayDown, Welcome
from coord.model.entry import RELAY_ACTOR
from coord.relay.relay import Relay

DIAL_TIMEOUT_S = 2.0
BACKOFF_FIRST_S = 0.05
BACKOFF_LIMIT_S = 1.0
PATIENCE_SHARE = 4
"""A server that decides no frame for this part of the lease is left for the next."""
LOOK_S = 0.1

log = structlog.get_logger()


class Upstream:
    """Keeps the relay connected, for as long as `run` runs. `dialer` opens connections; it is the
    port that tests and simulators replace."""

    def __init__(self, relay: Relay, dialer: Dialer, rng: random.Random, version: str = "") -> None:
        self._relay = relay
        self._dialer = dialer
        self._ring = ServerRing(relay.config.servers)
        self._ring.skip(rng.randrange(len(self._ring.urls)))
        self._backoff = Backoff(rng, BACKOFF_FIRST_S, BACKOFF_LIMIT_S)
        actor = f"{RELAY_ACTOR}{relay.config.name}"
        self._hello = Hello(actor, relay.config.cluster, version=version)
        self.connected_to = ""

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stay_connected())
            group.create_task(self._tick())

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        lost_s = loop.time()
        while True:
            if await self._connect_once():
                lost_s = loop.time()
            stop_if_cancelled()
            self._ring.advance()
            if loop.time() - lost_s > self._relay.config.limits.upstream_s:
                said = f"this relay has reached no server for {loop.time() - lost_s:.1f} s"
                self._relay.refuse_all("stopping", f"{said}; connect to another")
                self._relay.welcome = None
            await asyncio.sleep(self._backoff.next_s())

    async def _connect_once(self) -> bool:
        """Whether there was a connection, which is over now."""
        try:
            channel = await self._dialer.dial(self._ring.current, self._hello, DIAL_TIMEOUT_S)
        except (ChannelClosed, ChannelRefused) as error:
            self._complain("upstream_not_reached", error)
            return False
        self.connected_to = channel.server
        log.info("upstream_connected", server=channel.server, node=channel.welcome.node)
        self._relay.upstream_connected(channel.welcome)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send(channel))
                group.create_task(self._watch(channel))
                while True:
                    self._hear(channel, await channel.receive())
        except* (ChannelClosed, ChannelRefused) as lost:
            log.info("upstream_lost", server=channel.server, error=str(lost.exceptions[0]))
        finally:
            self.connected_to = ""
            self._relay.upstream_lost()
            await channel.close()
        return True

    def _hear(self, channel: Channel, message: object) -> None:
        if isinstance(message, RelayDown):
            if message.seen:
                self._backoff.reset()
            self._relay.hear(message)
        elif isinstance(message, Welcome):
            changed = LeaderChanged(*[getattr(message, name) for name in Welcome.__struct_fields__])
            self._relay.hear_leader(changed)
        else:
            raise ChannelClosed(f"{channel.server} sent a {type(message).__name__} to a relay")

    async def _send(self, channel: Channel) -> None:
        while True:
            await self._relay.up_ready.wait()
            message = self._relay.take_up()
            if message is not None:
                await channel.send(message)

    async def _watch(self, channel: Channel) -> None:
        """A server cut off from the others takes frames and decides none: try the next one."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            settings = self._relay.welcome.settings if self._relay.welcome is not None else None
            waiting_s = self._relay.beating.waiting_since_s
            if settings is None or waiting_s is None:
                continue
            patience_s = settings.lease_ms / 1000 / PATIENCE_SHARE
            patience_s *= 2 ** min(self._backoff.failures, 1)
            if loop.time() - waiting_s > patience_s:
                raise ChannelClosed(f"{channel.server} decided no frame for {patience_s:g} s")

    async def _tick(self) -> None:
        relay = self._relay
        while True:
            relay.sooner.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(relay.next_window_s()):
                    await relay.sooner.wait()
            await relay.tick()

    def _complain(self, cause: str, error: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        self._relay.complaints.tell(cause, now_s, error=str(error))
