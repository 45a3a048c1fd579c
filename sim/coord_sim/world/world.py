"""A whole simulated cluster, from its start over load and faults to its judgement."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from coord import sites
from coord.client.channel import Channel
from coord.core.state import State, state_digest
from coord.model.channel import Hello
from coord.model.entry import Recorded
from coord.model.events import EvictionsAllowed, JobSubmitted, UndrainRequested
from coord.model.settings import Settings
from coord.node.config import Intervals, Retention
from coord.raft.rules import ALL_RULES
from coord.raft.timings import RaftTimings
from coord_sim.kernel import Kernel, Trace, current_process
from coord_sim.world import client_faults, host_faults, server_faults
from coord_sim.world.artefacts import Happening, History
from coord_sim.world.channels import Channels, SimDialer
from coord_sim.world.client_checks import ClientChecks
from coord_sim.world.clients import SimClients
from coord_sim.world.faults import INJECT, SITE_CRASH, TOLD
from coord_sim.world.ground_truth import GroundTruth
from coord_sim.world.host_checks import HostChecks
from coord_sim.world.hosts import SimHosts
from coord_sim.world.lease_checks import LeaseChecks
from coord_sim.world.liveness import unmet
from coord_sim.world.options import WorldOptions
from coord_sim.world.outcome import Violation
from coord_sim.world.requests import Mix, draw_job
from coord_sim.world.servers import CLUSTER, ClusterTimings, SimServers
from coord_sim.world.state_checks import StateChecks
from coord_sim.world.swarm import Climate
from coord_sim.world.weather import Weather

START_S = 1_000.0
HEAD_START_S = 1.0
"""Of clients, before anything is asked of them."""
FIRST_WITHIN_S = 10.0
"""So long operators wait for answers, also while the first leader is elected."""
QUIET_S = 600.0
"""So long may it take, once all is healed, until everything has come about."""
LOOK_S = 2.0

SETTINGS = Settings(
    lease_ms=12_000,
    heartbeat_ms=4_000,
    suspect_ms=9_000,
    fence_ms=3_000,
    breaker_window_ms=12_000,
    launch_timeout_ms=15_000,
    unkillable_ms=5_000,
    hold_ms=30_000,
    request_window=64,
)


class World:
    """Servers, hosts, agents and clients of one seed. `live` once, then read, then `close`."""

    def __init__(
        self,
        seed: int,
        options: WorldOptions,
        climate: Climate,
        directory: str,
        trace: Trace,
        settings: Settings = SETTINGS,
    ) -> None:
        self.options = options
        self.climate = climate
        self.kernel = Kernel(seed, trace=trace)
        self.happened: Counter[str] = Counter()
        self.happenings: list[Happening] = []
        self.state_checks = StateChecks()
        self.servers = SimServers(
            self.kernel,
            count=climate.nodes,
            settings=settings,
            config=_timings(climate),
            rules=ALL_RULES - frozenset(options.off),
            directory=directory,
        )
        self.channels = Channels(self.kernel, self.servers)
        self.hosts = SimHosts(
            self.kernel,
            dial=lambda host: NamedDialer(self, self.channels.dialer(host.caller)),
            settings=settings,
            servers=tuple(self.servers.url(number) for number in range(1, climate.nodes + 1)),
            network=self.channels,
        )
        self.truth = GroundTruth(self.hosts)
        self.host_checks = HostChecks(self.hosts)
        self.lease_checks = LeaseChecks(self.hosts)
        self.clients = SimClients(
            self.kernel,
            self.channels,
            self.servers,
            count=climate.clients,
            mix=Mix(
                gap_s=climate.request_gap_s,
                weights=climate.requests,
                jobs_limit=climate.jobs,
                timeout_s=climate.patience_s,
            ),
            removable=self._gone,
        )
        self.client_checks = ClientChecks(self.kernel, self.clients, self.servers)
        self.weather = Weather.of(climate)
        self.weather.begin(self)
        self._decisions: Counter[str] = Counter()
        self._site_visits: Counter[str] = Counter()
        self._crash_sites: dict[str, list[int]] = {}
        for crash in climate.crash_sites:
            self._crash_sites.setdefault(crash.site, []).append(crash.visit)
        self._terms: dict[int, None] = {}
        self._under_way: list[asyncio.Task[None]] = []
        self.servers.on_applied(self._applied)
        self.state_checks.looks.append(self._look)
        for number in range(climate.hosts):
            labels = {"rack": f"rack-{number // 2}", "switch": f"switch-{number // 4}"}
            self.hosts.add(f"host-{number + 1}", devices=climate.devices, labels=labels)

    # Living

    def live(self) -> None:
        """Load and faults, then heal, then judge. Raises Violation."""
        try:
            sites.observe(self._reached)
            self.kernel.run_until(self._live())
        finally:
            sites.observe(None)
        self._raise_found()

    async def _live(self) -> None:
        self.kernel.trace.note("climate", drawn=self.climate.line())
        await self.servers.start_all()
        for name in sorted(self.hosts.hosts):
            self.hosts.hosts[name].power_on()
        self.clients.start_all()
        await self._submit_first()
        await self._misfortunes(self.kernel.now_s() + self.options.seconds)
        self.kernel.trace.note("healing")
        self.clients.quiet = True
        await self._heal()
        await self._quiet()
        self._judge()

    async def _submit_first(self) -> None:
        """Jobs from the start; what becomes of the requests is judged as of any others."""
        await asyncio.sleep(HEAD_START_S)
        rng = self.kernel.rng("first jobs")
        for number in range(1, self.climate.jobs + 1):
            event = JobSubmitted(draw_job(rng, f"first-{number}"))
            self.clients.operator.begin(event, FIRST_WITHIN_S)

    async def _misfortunes(self, until_s: float) -> None:
        rng = self.kernel.rng("misfortunes")
        names = list(self.climate.faults)
        weights = list(self.climate.faults.values())
        while True:
            gap_s = rng.expovariate(1 / self.climate.fault_gap_s)
            await asyncio.sleep(min(gap_s, max(until_s - self.kernel.now_s(), 0.0)))
            if self.kernel.now_s() >= until_s:
                return
            if not names:
                continue
            name = rng.choices(names, weights)[0]
            stream = random.Random(rng.getrandbits(64))
            self._under_way = [task for task in self._under_way if not task.done()]
            self._under_way.append(self.kernel.start(self._befall(name, stream)))
            self._raise_found()

    async def _befall(self, name: str, rng: random.Random) -> None:
        self.weather.return_to(self)
        self.hosts.server_numbers = tuple(self.servers.numbers())
        self._note_fault(name, " ".join(TOLD[name].split()))
        if await INJECT[name](self, rng):
            self.happened[name] += 1

    def _note_fault(self, name: str, about: str = "") -> None:
        self.kernel.trace.note("drawn", name=name)
        self.happenings.append(Happening(self.lived_ms(), name, about))

    def _reached(self, site: str) -> None:
        visits = self._crash_sites.get(site)
        if visits is None:
            return
        self._site_visits[site] = visit = self._site_visits[site] + 1
        if visit not in visits:
            return
        process = current_process()
        if process is None or not process.alive:
            return
        self.happened[SITE_CRASH] += 1
        self._note_fault(SITE_CRASH, f"{process.name} at {site} #{visit}")
        process.die()

    # Ending

    async def _heal(self) -> None:
        """End every fault; what some of them still had in mind ends by itself within a minute."""
        self._crash_sites = {}
        # Whoever asked to remove a host vouched that nothing runs there, and may still be heard.
        client_faults.heal_all(self)
        await self.clients.settled()
        await asyncio.sleep(LOOK_S)
        await self._heal_once()
        await asyncio.gather(*self._under_way)
        await self._heal_once()

    async def _heal_once(self) -> None:
        self.weather = Weather()
        client_faults.heal_all(self)
        host_faults.heal_all(self.hosts)
        await server_faults.heal_all(self.servers)

    async def _quiet(self) -> None:
        """Until all has come about that must; operators look after what waits for them."""
        until_s = self.kernel.now_s() + QUIET_S
        looks = self.kernel.rng("looks")
        since_s: dict[str, float] = {}
        while behind := unmet(self):
            now_s = self.kernel.now_s()
            since_s = {name: since_s.get(name, now_s) for name, _ in behind}
            if now_s >= until_s:
                # Of what is unmet now, much may be so for a moment only.
                longest = min(since_s, key=lambda name: since_s[name])
                told = [detail for name, detail in behind if name == longest]
                raise Violation(longest, f"not within {QUIET_S:g} s: " + "\n".join(told))
            await self._operate()
            # At no fixed pace: in step with the servers' own it would always see the same moment.
            await asyncio.sleep(LOOK_S * looks.uniform(0.5, 1.5))
            self._raise_found()

    async def _operate(self) -> None:
        """What a person does who finds the cluster so: replace servers that refuse their data,
        allow evictions, return hosts."""
        for number in self.servers.numbers():
            if self.servers.all[number].refused:
                await server_faults.replace_damaged(self.servers, number)
        leader = self.servers.leader()
        if leader is None:
            return
        state = leader.state
        if state.meta.frozen:
            await self.clients.ask(EvictionsAllowed("operator", "all was looked at"))
        for name, host in sorted(state.hosts.items()):
            if host.drain or host.quarantine:
                await self.clients.ask(UndrainRequested(name, "operator", "it is well again"))

    def _judge(self) -> None:
        self._raise_found()
        for number in self.servers.running():
            node = self.servers.node(number)
            assert node is not None
            self.state_checks.compare(number, node.state)
        self.client_checks.check_end()

    def _raise_found(self) -> None:
        """What checks have found and could not raise where they found it."""
        self.servers.check()
        if self.channels.defects:
            raise self.channels.defects[0]

    def close(self) -> None:
        """Take everything apart. Idempotent."""
        self.kernel.close()

    def _gone(self) -> list[str]:
        """Hosts of which nothing runs any more, nor will before everything is healed."""
        return [name for name in sorted(self.hosts.hosts) if self.hosts.hosts[name].gone]

    # What is seen

    def _applied(self, number: int, records: tuple[Recorded, ...], state: State) -> None:
        try:
            if records:
                self.state_checks.applied(number, records, state)
            else:
                self.state_checks.compare(number, state)
            self.truth.on_applied(number, records, state)
            self.host_checks.on_applied(number, records, state)
            self.lease_checks.on_applied(number, records, state)
        except Violation as found:
            self.servers.violated(found)

    def _look(self, record: Recorded, state: State) -> None:
        self._terms[record.entry.term] = None
        for decision in record.decisions:
            self._decisions[type(decision).__name__] += 1

    # What is told afterwards

    def lived_ms(self) -> int:
        """Virtual milliseconds since the start."""
        return round((self.kernel.now_s() - START_S) * 1_000)

    def entries(self) -> int:
        return len(self.state_checks.records)

    def state_digest(self) -> str:
        return state_digest(self.state_checks.state)

    def counts(self) -> dict[str, int]:
        """What happened beside faults."""
        servers, clients = self.servers.counts, self.clients.counts
        return {
            "terms": len(self._terms),
            "server starts": servers["starts"],
            "server crashes": servers["crashes"],
            "snapshots installed": servers["installs"],
            "members added": servers["added"],
            "members removed": servers["removed"],
            "damaged servers": servers["refused"],
            "requests": clients["calls"],
            "reads": clients["reads"],
            "launches": self.truth.launches,
            "connections": self.channels.opened,
            **{f"decided {name}": count for name, count in self._decisions.items()},
        }

    def history(self) -> History | None:
        """The log as any node that applied it has it, from its first entry on."""
        records = self.state_checks.records
        return History(CLUSTER, 1, b"", records) if records else None


class NamedDialer:
    """Dials by names that operators keep pointing at members, as in a zone file: `sim-2` stays
    server 2 until that is taken out of the cluster, and is then one of those that are in it."""

    def __init__(self, world: World, inner: SimDialer) -> None:
        self._world = world
        self._inner = inner

    async def dial(self, server: str, hello: Hello, timeout_s: float) -> Channel:
        servers = self._world.servers
        members = servers.numbers()
        for number in range(1, self._world.climate.nodes + 1):
            if number not in members and f"{server}:".startswith(f"{servers.url(number)}:"):
                server = servers.url(members[number % len(members)])
        return await self._inner.dial(server, hello, timeout_s)

    async def close(self) -> None:
        await self._inner.close()


def _timings(climate: Climate) -> ClusterTimings:
    """A clockwork so slow that what happens weighs more than the waiting for it."""
    return ClusterTimings(
        raft=RaftTimings(
            tick_ms=300,
            heartbeat_ms=900,
            notice_ms=60,
            election_min_ms=3_000,
            election_max_ms=6_000,
            orphan_min_ms=300,
            orphan_max_ms=1_200,
            keep_entries=climate.keep_entries,
        ),
        intervals=Intervals(
            tick_s=0.4,
            frame_s=2.0,
            idle_clock_s=2.5,
            resend_s=3.0,
            state_s=3.0,
            digest_s=6.0,
            invariants_s=1e9,
            propose_s=5.0,
            read_retry_s=1.0,
            keep_s=8.0,
        ),
        retention=Retention(max_entries=climate.readable_entries, max_bytes=0),
        snapshot_entries=climate.snapshot_entries,
    )
