"""Real processes: three servers, relays, agents; and relays that die, hang, and are cut off."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coord.cli.local import LocalCluster, get_json
from coord.cli.processes import Child
from coord.client import Client
from coord.model.spec import JobSpec, RoleSpec
from tests.free_ports import free_address

from .fleet import Fleet, until
from .wire import Wire

AGENTS = 40


class Site:
    """Three servers, and relays by name."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.relays: dict[str, Child] = {}
        self.urls: dict[str, str] = {}

    async def start_relay(self, name: str, servers: list[str] | None = None) -> str:
        """Returns its URL once it reaches a server."""
        address = free_address()
        arguments = ["relay", f"--name={name}", f"--listen={address}"]
        arguments.append(f"--server={','.join(servers or self.cluster.urls)}")
        child = self.relays[name] = self.cluster.child(name, arguments)
        self.urls[name] = f"http://{address}"
        child.start()
        await until(lambda: is_there(f"{self.urls[name]}/readyz"), 30, f"{name} is ready")
        return self.urls[name]

    async def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Decisions of these kinds, out of the whole log."""
        found: list[dict[str, Any]] = []
        async with aiohttp.ClientSession() as session:
            start = 1
            while True:
                url = f"{self.cluster.urls[0]}/v1/events?from={start}&limit=5000"
                async with session.get(url) as answer:
                    page = await answer.json()
                if not page["events"]:
                    return found
                for record in page["events"]:
                    found += [
                        decision
                        for decision in record.get("decisions", ())
                        if decision["type"] in kinds
                    ]
                start = page["events"][-1]["entry"]["index"] + 1

    def metric(self, relay: str, name: str) -> float:
        """A counter or gauge of a relay."""
        import urllib.request

        with urllib.request.urlopen(f"{self.urls[relay]}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.split("{")[0].split(" ")[0] == name
        )


def is_there(url: str) -> bool:
    return get_json(url) is not None


@asynccontextmanager
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    with LocalCluster(tmp_path, nodes=3, agents=0) as cluster:
        cluster.start()
        await asyncio.to_thread(cluster.wait_ready, 60)
        found = Site(cluster)
        try:
            yield found
        finally:
            for child in found.relays.values():
                if child.pid and not child.ended:
                    os.kill(child.pid, signal.SIGCONT)
                child.kill()


async def settled(fleet: Fleet, url: str) -> None:
    """All registered, all through this URL, and each has had a beat acknowledged since."""
    await until(lambda: fleet.registered == len(fleet.agents), 30, "all agents are registered")
    await until(lambda: fleet.through(url) == len(fleet.agents), 30, f"all are at {url}")
    now_s = asyncio.get_running_loop().time()
    await until(
        lambda: fleet.acknowledged_since(now_s) == len(fleet.agents),
        10,
        "a beat of each is acknowledged",
    )


VERDICTS = ("HostSuspected", "HostLost")


@pytest.mark.xdist_group("processes")
async def test_agents_of_a_killed_relay_are_elsewhere_within_seconds(tmp_path: Path) -> None:
    """First at the other relay, then straight at servers; nobody is suspected or registers again;
    and once a relay is there again they come back to it."""
    async with site(tmp_path) as here:
        first = await here.start_relay("r1")
        async with Fleet(AGENTS, here.cluster.urls, [first], relay_again_s=20.0) as fleet:
            await settled(fleet, first)
            assert here.metric("r1", "coord_relay_roster_hosts") == AGENTS
            here.relays["r1"].kill()
            killed_s = asyncio.get_running_loop().time()
            await until(
                lambda: fleet.acknowledged_since(killed_s) == AGENTS, 5, "all beat elsewhere"
            )
            assert fleet.through(first) == 0
            here.relays["r1"].start()
            await until(lambda: fleet.through(first) == AGENTS, 40, "all are back at the relay")
            await settled(fleet, first)
            assert await here.events(*VERDICTS) == []
            assert fleet.superseded == []


@pytest.mark.xdist_group("processes")
async def test_agents_of_a_hanging_relay_are_elsewhere_and_it_vouches_for_nothing_old(
    tmp_path: Path,
) -> None:
    """It answers no ping. Once it goes on, it knows that it stood still; nobody was suspected."""
    async with site(tmp_path) as here:
        url = await here.start_relay("r1")
        other = await here.start_relay("r2")
        async with Fleet(AGENTS, here.cluster.urls, [url, other]) as fleet:
            await until(lambda: fleet.registered == AGENTS, 30, "all agents are registered")
            await until(lambda: fleet.through(url) + fleet.through(other) == AGENTS, 30, "all")
            pid = here.relays["r1"].pid
            assert pid
            os.kill(pid, signal.SIGSTOP)
            stopped_s = asyncio.get_running_loop().time()
            await until(lambda: fleet.through(other) == AGENTS, 5, "all are at the other relay")
            await until(
                lambda: fleet.acknowledged_since(stopped_s) == AGENTS, 5, "all beat elsewhere"
            )
            os.kill(pid, signal.SIGCONT)
            await until(lambda: here.metric("r1", "coord_relay_pauses_total") >= 1, 5, "a pause")
            await until(
                lambda: here.metric("r1", "coord_relay_roster_hosts") == 0, 5, "nobody is left"
            )
            now_s = asyncio.get_running_loop().time()
            await until(lambda: fleet.acknowledged_since(now_s) == AGENTS, 5, "all beat on")
            assert await here.events(*VERDICTS) == []
            assert fleet.superseded == []


@pytest.mark.xdist_group("processes")
async def test_a_relay_whose_server_dies_keeps_its_agents(tmp_path: Path) -> None:
    """It goes to another server and says its whole roster anew; agents notice nothing."""
    async with site(tmp_path) as here:
        url = await here.start_relay("r1")
        async with Fleet(AGENTS, here.cluster.urls, [url]) as fleet:
            await settled(fleet, url)
            log = here.relays["r1"].log.read_text()
            at = log.rindex("server=http://127.0.0.1:") + len("server=")
            server = here.cluster.urls.index(log[at:].split()[0]) + 1
            here.cluster.servers[server].kill()
            killed_s = asyncio.get_running_loop().time()
            await until(
                lambda: fleet.acknowledged_since(killed_s) == AGENTS, 10, "all are heard again"
            )
            assert fleet.through(url) == AGENTS
            assert here.metric("r1", "coord_relay_upstream_connections_total") >= 2
            here.cluster.servers[server].start()
            await asyncio.to_thread(here.cluster.wait_ready, 60)
            assert [d for d in await here.events(*VERDICTS) if d["type"] == "HostLost"] == []
            assert fleet.superseded == []


@pytest.mark.xdist_group("processes")
async def test_a_relay_that_is_cut_off_sends_its_agents_elsewhere(tmp_path: Path) -> None:
    """Nothing listens above it any more: within its patience the agents are straight at servers."""
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(site(tmp_path))
        target = here.cluster.urls[0].removeprefix("http://")
        wire = await stack.enter_async_context(Wire(target))
        url = await here.start_relay("r1", [wire.url])
        async with Fleet(AGENTS, here.cluster.urls, [url]) as fleet:
            await settled(fleet, url)
            await wire.cut()
            cut_s = asyncio.get_running_loop().time()
            await until(lambda: fleet.acknowledged_since(cut_s) == AGENTS, 6, "all beat")
            assert fleet.through(url) == 0
            assert [d for d in await here.events(*VERDICTS) if d["type"] == "HostLost"] == []
            assert fleet.superseded == []


@pytest.mark.xdist_group("processes")
async def test_relays_stack(tmp_path: Path) -> None:
    """Agents behind a rack's relay behind a pod's. The pod's is started again: they stay at the
    rack's. The rack's dies: they go straight to servers."""
    async with site(tmp_path) as here:
        pod = await here.start_relay("pod")
        rack = await here.start_relay("rack", [pod])
        async with Fleet(AGENTS, here.cluster.urls, [rack]) as fleet:
            await settled(fleet, rack)
            assert here.metric("rack", "coord_relay_roster_hosts") == AGENTS
            assert here.metric("pod", "coord_relay_roster_hosts") == 0
            assert here.metric("pod", "coord_relay_agents") == AGENTS
            pid = here.relays["pod"].pid
            assert pid
            here.relays["pod"].kill()
            here.relays["pod"].start()
            again_s = asyncio.get_running_loop().time()
            await until(
                lambda: fleet.acknowledged_since(again_s) == AGENTS, 10, "all are heard again"
            )
            here.relays["rack"].kill()
            killed_s = asyncio.get_running_loop().time()
            await until(
                lambda: fleet.acknowledged_since(killed_s) == AGENTS, 10, "all are heard straight"
            )
            assert [d for d in await here.events(*VERDICTS) if d["type"] == "HostLost"] == []
            assert fleet.superseded == []


@pytest.mark.xdist_group("processes")
async def test_a_relay_that_is_told_to_stop_sends_its_agents_away_and_exits_with_0(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        url = await here.start_relay("r1")
        async with Fleet(5, here.cluster.urls, [url]) as fleet:
            await settled(fleet, url)
            child = here.relays["r1"]
            child.terminate()
            assert await asyncio.to_thread(child.wait, 10)
            assert child.process is not None
            assert child.process.returncode == 0
            now_s = asyncio.get_running_loop().time()
            await until(lambda: fleet.acknowledged_since(now_s) == 5, 5, "all beat elsewhere")
            assert "relay_stopped" in child.log.read_text()
            assert await here.events(*VERDICTS) == []


@pytest.mark.xdist_group("processes")
async def test_a_job_runs_behind_two_relays(tmp_path: Path) -> None:
    """Real agents: plans come down, reports and output go up, and the job succeeds."""
    async with site(tmp_path) as here:
        pod = await here.start_relay("pod")
        rack = await here.start_relay("rack", [pod])
        agents = [
            here.cluster.child(
                name,
                [
                    "agent",
                    f"--host-id={name}",
                    f"--data={tmp_path / name}",
                    f"--server={here.cluster.urls[0]}",
                    f"--relay={rack}",
                    "--devices=1",
                    "--stop-tasks",
                ],
            )
            for name in ("h1", "h2")
        ]
        try:
            for agent in agents:
                agent.start()
            command = ("sh", "-c", "echo rank $RANK is here")
            spec = JobSpec("hello", (RoleSpec("worker", command, replicas=2),))
            async with Client(here.cluster.urls, actor="test") as client:
                await client.submit_job(spec)
                async with asyncio.timeout(60):
                    while (await client.job("hello")).status != "completed":  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                page = await client.read_log("hello", role="worker", index=1)
            assert b"rank 1 is here" in page.data
            await until(
                lambda: here.metric("rack", "coord_relay_roster_hosts") == 2, 10, "both are heard"
            )
        finally:
            for agent in agents:
                agent.terminate()
                await asyncio.to_thread(agent.wait, 15)
                agent.kill()


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
async def test_a_minute_of_misfortunes(tmp_path: Path) -> None:
    """Relays of a rack, a pod and one beside them die, stand still and come back in random order,
    with a server that dies now and then; no host is ever lost, and at rest all are at relays."""
    rng = random.Random(20)
    async with site(tmp_path) as here:
        pod = await here.start_relay("pod")
        rack = await here.start_relay("rack", [pod, *here.cluster.urls])
        beside = await here.start_relay("beside")
        urls = [rack, beside]
        async with Fleet(AGENTS, here.cluster.urls, urls, relay_again_s=10.0) as fleet:
            await until(lambda: fleet.registered == AGENTS, 30, "all agents are registered")
            loop = asyncio.get_running_loop()
            end_s = loop.time() + 60
            while loop.time() < end_s:
                child = rng.choice([*here.relays.values(), here.cluster.servers[1]])
                server = child is here.cluster.servers[1]
                lasts_s = rng.uniform(0.2, 2.5)
                if server or rng.random() < 0.5:
                    child.kill()
                    await asyncio.sleep(lasts_s)
                    child.start()
                else:
                    os.kill(child.pid, signal.SIGSTOP)
                    await asyncio.sleep(lasts_s)
                    os.kill(child.pid, signal.SIGCONT)
                since_s = loop.time()
                await until(
                    lambda at_s=since_s: fleet.acknowledged_since(at_s) == AGENTS, 10, "all beat"
                )
            await until(
                lambda: sum(fleet.through(url) for url in urls) == AGENTS, 60, "all are at relays"
            )
            assert [d for d in await here.events(*VERDICTS) if d["type"] == "HostLost"] == []
            assert fleet.superseded == []
