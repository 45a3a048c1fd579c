"""Many agents of the client library in one process, for tests with real relays and servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import AsyncExitStack
from itertools import count

from coord.client.agent import Agent
from coord.client.inbox import Superseded


class Fleet:
    """`size` hosts that register, read their plans and count what ended their registrations."""

    def __init__(
        self,
        size: int,
        servers: Iterable[str],
        relays: Iterable[str],
        *,
        relay_again_s: float = 240.0,
        name: str = "h",
    ) -> None:
        self.superseded: list[tuple[str, str]] = []
        self.agents: list[Agent] = []
        self._stack = AsyncExitStack()
        for number in range(size):
            numbers = count(1)
            agent = Agent(
                servers,
                host=f"{name}{number}",
                agent_id=f"agent-{name}{number}",
                boot="boot",
                address="127.0.0.1",
                cpu_millis=1_000,
                memory_mib=1_000,
                next_seq=numbers.__next__,
                relays=relays,
                relay_again_s=relay_again_s,
                rng=random.Random(number),
            )
            self.agents.append(agent)

    async def __aenter__(self) -> Fleet:
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        for agent in self.agents:
            await self._stack.enter_async_context(agent)
            self._group.create_task(self._live(agent))
        return self

    async def _live(self, agent: Agent) -> None:
        await agent.register()
        async for item in agent.plans():
            if isinstance(item, Superseded):
                self.superseded.append((agent.host, item.reason))
                await agent.register()

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def registered(self) -> int:
        return sum(agent.incarnation > 0 for agent in self.agents)

    def through(self, url: str) -> int:
        """How many are connected to that URL."""
        return sum(agent.connected_to == url for agent in self.agents)

    def leases_run(self, now_s: float) -> bool:
        """Every agent has a lease that has not run out."""
        return all((agent.lease_deadline or 0.0) > now_s for agent in self.agents)

    def acknowledged_since(self, at_s: float) -> int:
        """How many have an acknowledged beat that they sent after that."""
        return sum(
            (agent.lease_deadline or 0.0) - agent.settings.lease_ms / 1000 > at_s
            for agent in self.agents
        )


async def until(condition: object, timeout_s: float, what: str) -> None:
    """Poll until it holds; fails with `what` when time is up."""
    assert callable(condition)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline_s, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.02)
