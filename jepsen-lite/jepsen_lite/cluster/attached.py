"""Somebody else's cluster, which runs already: clients, and what its hooks allow.

It has the parts of a `Cluster` that workloads and nemeses use; what needs processes, disks or
clocks of ours is refused with the hook that would allow it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from coord.client import Client
from coord.client.errors import CoordError
from coord.client.servers import base_url
from coord.client.views import ClusterView
from jepsen_lite.cluster.cluster import newest_leader
from jepsen_lite.cluster.hooks import (
    HOST_ACTS,
    NETWORK_ACTS,
    SERVER_ACTS,
    Hooks,
    HostHooks,
    ServerHooks,
    read_hooks,
    run_hook,
)
from jepsen_lite.network.port import CAPABILITIES, NotPossible, Place, require

ASK_S = 2.0


class Unreachable(Exception):
    """No server of the cluster answers; the message says which were asked and what to do."""


class AttachedMember:
    """A server or host that is not ours. What it cannot do raises NotPossible."""

    acts: tuple[str, ...] = SERVER_ACTS

    def __init__(self, name: str, hooks: ServerHooks | HostHooks, where: str) -> None:
        self.name = name
        self.can = frozenset(act for act in self.acts if getattr(hooks, act))
        self.running = True
        self.paused = False
        self._hooks = hooks
        self._where = where

    def start(self) -> None:
        self._act("start")
        self.running, self.paused = True, False

    def kill(self) -> None:
        self._act("kill")
        self.running = False

    def terminate(self) -> None:
        self._act("terminate")
        self.running = False

    def pause(self) -> None:
        self._act("pause")
        self.paused = True

    def resume(self) -> None:
        """Nothing happens when it is not paused."""
        if self.paused:
            self._act("resume")
            self.paused = False

    def _act(self, act: str) -> None:
        command = getattr(self._hooks, act)
        if not command:
            raise NotPossible(
                f"{self.name} belongs to a cluster that is not ours, and there is no command to "
                f"{act} it: give one as {self._where}.{self.name}.{act} in the file of hooks"
            )
        run_hook(command)


class AttachedServer(AttachedMember):
    """`url` is empty when the hooks do not give it."""

    def __init__(self, name: str, hooks: ServerHooks) -> None:
        super().__init__(name, hooks, "servers")
        self.url = hooks.url


class AttachedHost(AttachedMember):
    """By its host id."""

    acts = HOST_ACTS

    def __init__(self, name: str, hooks: HostHooks) -> None:
        super().__init__(name, hooks, "hosts")

    def kill_all(self) -> list[int]:
        """The pids of its tasks are not known."""
        self._act("kill_all")
        self.running = False
        return []

    def pause_all(self) -> None:
        self._act("pause_all")
        self.paused = True

    def ranks(self) -> list[int]:
        raise NotPossible(
            f"the processes of {self.name} cannot be seen from here; run what kills single ranks "
            "on a cluster of the suite's own"
        )


class HookedNetwork:
    """A network that is broken by commands. `heal` without one does nothing: nothing was done."""

    name = "attached"

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks.network
        self.acts = given = frozenset(act for act in NETWORK_ACTS if getattr(hooks.network, act))
        self.can = (given & set(CAPABILITIES)) | (
            frozenset({"one_way"}) if "cut" in given else frozenset()
        )
        self.missing = {
            act: f"give a command as network.{'cut' if act == 'one_way' else act} in the hooks"
            for act in CAPABILITIES
            if act not in self.can
        }

    def open(self) -> None:
        """It is there already."""

    def close(self) -> None:
        """It stays."""

    def add(self, party: str, ports: tuple[int, ...] = ()) -> Place:
        raise NotPossible(f"{party} cannot be given a place in a network that is not ours")

    def cut(self, source: str, target: str) -> None:
        self._run("cut", source=source, target=target)

    def delay(self, source: str, target: str, ms: float, jitter_ms: float = 0.0) -> None:
        self._run("delay", source=source, target=target, ms=ms, jitter_ms=jitter_ms)

    def throttle(self, source: str, target: str, bytes_s: int) -> None:
        self._run("throttle", source=source, target=target, bytes_s=bytes_s)

    def lossy(self, source: str, target: str, share: float) -> None:
        self._run("lossy", source=source, target=target, share=share)

    def reset(self, source: str, target: str) -> None:
        self._run("reset", source=source, target=target)

    def mend(self, source: str, target: str) -> None:
        if not self._hooks.mend:
            raise NotPossible(
                "the network 'attached' cannot mend one direction: give a command as network.mend "
                "in the hooks, or heal everything"
            )
        run_hook(self._hooks.mend, {"source": source, "target": target})

    def heal(self) -> None:
        if self._hooks.heal:
            run_hook(self._hooks.heal)

    def _run(self, act: str, **values: object) -> None:
        require(self, act)
        run_hook(getattr(self._hooks, act), values)


class Attached:
    """`urls` are of the servers' APIs, `hooks` a file as `jepsen_lite.cluster.hooks` describes.

    Raises HooksError for a file that cannot be used, ValueError for URLs that cannot. Entering it
    raises Unreachable when nobody answers; leaving it heals, resumes and starts what hooks did, and
    ends nothing.
    """

    def __init__(
        self, urls: Iterable[str] = (), *, hooks: Path | None = None, timeout_s: float = 10.0
    ) -> None:
        given = read_hooks(hooks) if hooks else Hooks()
        self.servers = {
            name: AttachedServer(name, server) for name, server in given.servers.items()
        }
        self.hosts = {name: AttachedHost(name, host) for name, host in given.hosts.items()}
        named = [*urls, *(server.url for server in self.servers.values() if server.url)]
        self.urls = list(dict.fromkeys(base_url(url) for url in named))
        if not self.urls:
            raise ValueError("no server is named: give URLs, or `url` of servers in the hooks")
        self.network = HookedNetwork(given)
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        await self.wait_ready(self._timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """It runs already."""

    async def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Until some server answers. Raises Unreachable."""
        try:
            async with self.client("", timeout_s=timeout_s) as client:
                await client.cluster()
        except CoordError as error:
            raise Unreachable(
                f"no server of {', '.join(self.urls)} answers ({error}): check the addresses, and "
                "that the cluster runs and can be reached from here"
            ) from error

    async def stop(self) -> None:
        """Take back what hooks did. The cluster runs on."""
        await asyncio.to_thread(self._restore)

    def client(self, actor: str, *, timeout_s: float = 10.0, stale: bool = False) -> Client:
        """A client, not yet opened: `async with cluster.client("me") as client`."""
        return Client(self.urls, actor=actor, timeout_s=timeout_s, stale=stale)

    async def leader(self, timeout_s: float = 10.0) -> str | None:
        """The name of the server that leads, by its URL; None when nobody does within the time, or
        one that the hooks do not name."""
        return await newest_leader(self.views, timeout_s)

    async def views(self) -> dict[str, ClusterView]:
        """The cluster as each server sees it whose URL is known and who answers at once."""
        named = {name: server.url for name, server in self.servers.items() if server.url}
        views = await asyncio.gather(*(_view(url) for url in named.values()))
        return {name: view for name, view in zip(named, views, strict=True) if view is not None}

    def add_server(self) -> None:
        raise NotPossible("servers cannot be added to a cluster that is not ours")

    def _restore(self) -> None:
        problems: list[Exception] = []
        undone: list[Callable[[], None]] = [self.network.heal]
        for member in (*self.servers.values(), *self.hosts.values()):
            undone.append(member.resume)
            if not member.running and "start" in member.can:
                undone.append(member.start)
        for undo in undone:
            try:
                undo()
            except Exception as error:
                problems.append(error)
        if problems:
            raise ExceptionGroup("what was done to the cluster was not all taken back", problems)


async def _view(url: str) -> ClusterView | None:
    with contextlib.suppress(CoordError):
        async with Client([url], timeout_s=ASK_S, stale=True) as client:
            return await client.cluster()
    return None
