"""Three servers, and clients who ask at random, with all that checks them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from coord_sim.kernel import Kernel, Trace
from coord_sim.world import client_faults
from coord_sim.world.channels import Channels
from coord_sim.world.client_checks import ClientChecks
from coord_sim.world.clients import Call, SimClients
from coord_sim.world.requests import Mix
from coord_sim.world.server_faults import FAULTS as SERVER_FAULTS
from coord_sim.world.server_faults import heal_all
from coord_sim.world.servers import ClusterTimings, SimServers

SERVER_MISFORTUNES = ("server.crash", "net.partition", "net.isolate_leader", "log.transfer")


class ClientCluster:
    """See `client_faults.Surroundings`. Without hosts: jobs queue, and their requests are decided
    all the same."""

    def __init__(
        self,
        seed: int,
        directory: str,
        *,
        clients: int = 2,
        gap_s: float = 0.5,
        timings: ClusterTimings | None = None,
    ) -> None:
        self.kernel = Kernel(seed, trace=Trace(keep=400))
        self.servers = SimServers(self.kernel, count=3, directory=directory, config=timings)
        self.channels = Channels(self.kernel, self.servers)
        mix = Mix(gap_s=gap_s)
        self.clients = SimClients(self.kernel, self.channels, self.servers, count=clients, mix=mix)
        self.checks = ClientChecks(self.kernel, self.clients, self.servers)
        self.happened: Counter[str] = Counter()

    def __enter__(self) -> ClientCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.kernel.close()

    def begin(self) -> None:
        """Returns once a server leads and the clients run."""
        self.kernel.run_until(self.servers.start_all())
        self.clients.start_all()

    def run_for(self, seconds: float) -> None:
        self.kernel.run_for(seconds)

    def end(self) -> None:
        """Ask nothing new, wait for what is under way, and judge it all."""
        self.clients.quiet = True
        self.kernel.run_until(self._calm_down())
        self.servers.check()
        self.checks.check_end()

    def befall(self, name: str, seed: int = 0) -> bool:
        """Let one fault of the clients' menu loose; whether it met anything."""
        fault = client_faults.FAULTS[name]
        return self.kernel.run_until(fault.inject(self, random.Random(seed)))

    def live_through(self, seconds: float, gap_s: float = 2.0) -> None:
        """Faults of channels and clients, and some of servers, one after another."""
        self.kernel.run_until(self._misfortunes(self.kernel.now_s() + seconds, gap_s))

    def outcomes(self) -> Counter[str]:
        return Counter(call.outcome for call in self.clients.calls)

    def told(self) -> list[Call]:
        """Calls that were acknowledged."""
        return [call for call in self.clients.calls if call.outcome == "ok"]

    async def _misfortunes(self, until_s: float, gap_s: float) -> None:
        rng = self.kernel.rng("misfortunes")
        under_way = []
        while self.kernel.now_s() < until_s:
            await asyncio.sleep(rng.expovariate(1 / gap_s))
            stream = random.Random(rng.getrandbits(64))
            if rng.random() < 0.3:
                name = rng.choice(SERVER_MISFORTUNES)
                self.happened[name] += 1
                task = self.kernel.start(SERVER_FAULTS[name].inject(self.servers, stream))
                under_way.append(task)
            else:
                name = rng.choice(sorted(client_faults.FAULTS))
                self.happened[name] += await client_faults.FAULTS[name].inject(self, stream)
        for task in under_way:
            await task

    async def _calm_down(self) -> None:
        for _ in range(2):
            client_faults.heal_all(self)
            await heal_all(self.servers)
            await asyncio.sleep(5.0)
        await self.clients.settled()
        await self.servers.caught_up()
