"""A world that lives by what a scenario says, not by what its seed draws."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

from coord.model.events import AnyEvent
from coord.model.settings import Settings
from coord_sim.kernel import Trace
from coord_sim.scenario.own_worker import OwnRank, Shelf, WorkerMain
from coord_sim.scenario.telling import RequestFailed
from coord_sim.world import host_faults
from coord_sim.world.clients import OK, Call
from coord_sim.world.faults import INJECT, SITE_CRASH
from coord_sim.world.hosts import SimHost
from coord_sim.world.liveness import unmet
from coord_sim.world.options import WorldOptions, chosen_faults
from coord_sim.world.outcome import Violation
from coord_sim.world.ranks import SimRank
from coord_sim.world.swarm import Climate
from coord_sim.world.world import World

LOOK_S = 0.5
QUIET_AT_LEAST_S = 0.5


class LedWorld(World):
    """What `World` is made of, for a scenario to drive."""

    def __init__(
        self, seed: int, climate: Climate, directory: str, trace: Trace, settings: Settings
    ) -> None:
        options = WorldOptions(nodes=climate.nodes)
        super().__init__(seed, options, climate, directory, trace, settings)
        self.programs: dict[str, WorkerMain] = {}
        """By `job/role`, `role`, or `@host`; the first of these that is there counts."""
        self.shelf: Shelf = {}
        self.hosts.make_rank = self._make_rank
        self._misfortune: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Servers up, one of them leading, and somebody there to ask them."""
        await self.servers.start_all()
        self.clients.start_all()
        if self.climate.faults:
            self._misfortune = self.kernel.start(self._misfortunes(math.inf))
            self._misfortune.add_done_callback(self._misfortune_over)

    async def ask(self, event: AnyEvent, within_s: float) -> Call:
        """What the operator asks. Raises RequestFailed."""
        call = await self.clients.ask(event, within_s)
        if call.outcome != OK:
            reason = call.rejection or call.detail
            raise RequestFailed(type(event).__name__, call.outcome, reason)
        return call

    async def heal(self) -> None:
        """End every fault there is and all that are under way; no more are drawn."""
        if self._misfortune is not None:
            self._misfortune.cancel()
            self._misfortune = None
        pace = self.hosts.pace
        await self._heal()
        self.hosts.pace = pace

    async def settle(self, within_s: float) -> None:
        """Heal, then wait until all has come about that must. Raises Violation."""
        pace = self.hosts.pace
        await self.heal()
        self.hosts.pace = pace * host_faults.CALM_PACE
        until_s = self.kernel.now_s() + within_s
        await asyncio.sleep(QUIET_AT_LEAST_S)
        while behind := unmet(self):
            if self.kernel.now_s() >= until_s:
                first = behind[0][0]
                told = [detail for sentence, detail in behind if sentence == first]
                raise Violation(first, f"not within {within_s:g} s: " + "\n".join(told))
            await self._operate()
            await asyncio.sleep(LOOK_S)
            self._raise_found()
        self.hosts.pace = pace

    def check(self) -> None:
        """Everything that can be judged at any moment. Raises Violation."""
        if not self.clients.pending():
            self._judge()
            return
        self.raise_found()
        self.client_checks.check_overdue()

    def raise_found(self) -> None:
        self._raise_found()

    # Inside

    def _make_rank(self, host: SimHost, *arguments: Any) -> SimRank:
        spec = arguments[2]
        role = spec.env["COORD_ROLE"]
        for key in (f"{spec.env['COORD_JOB']}/{role}", role, f"@{host.name}"):
            program = self.programs.get(key)
            if program is not None:
                return OwnRank(program, self.shelf, host, *arguments)
        return SimRank(host, *arguments)

    def _misfortune_over(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.kernel.fail(error)


def weights_of(faults: Iterable[str]) -> dict[str, int]:
    """Equal weights for what these names, families, `all` and `-name` allow. ValueError: a name
    is not known."""
    words = tuple(faults)
    found = WorldOptions(faults=words or ("none",)).problems([*INJECT, SITE_CRASH], ())
    if found:
        raise ValueError("; ".join(found).replace("--faults", "faults"))
    return dict.fromkeys(chosen_faults(words, INJECT), 1)
