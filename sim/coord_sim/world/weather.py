"""What network, disks and clocks of a run are like when no fault befalls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coord_sim.world.links import Delay
from coord_sim.world.peers import CHAOS
from coord_sim.world.peers import Climate as PeerClimate

if TYPE_CHECKING:
    from coord_sim.world.swarm import Climate
    from coord_sim.world.world import World

PEERS = {
    "orderly": PeerClimate(),
    "delays": PeerClimate(delay_s=(0.002, 0.08), slow_share=0.05, slow_s=0.6),
    "chaos": CHAOS,
}
CHANNELS = {
    "orderly": Delay(),
    "delays": Delay(least_s=0.002, mean_s=0.05, rare=0.05, rare_s=1.5),
    "chaos": Delay(least_s=0.001, mean_s=0.02, rare=0.1, rare_s=3.0),
}
SLOW_COMMIT_S = {"fast": (0.0, 0.0), "slow": (0.002, 0.04), "uneven": (0.01, 0.4)}


class Weather(NamedTuple):
    """Names of `swarm.NETWORKS` and `swarm.DISKS`, and how far each server's clock is off."""

    network: str = "orderly"
    disk: str = "fast"
    skews_ms: tuple[int, ...] = ()

    @classmethod
    def of(cls, climate: Climate) -> Weather:
        return cls(climate.network, climate.disk, climate.skews_ms)

    def begin(self, world: World) -> None:
        """From the start of a run."""
        world.channels.delay = CHANNELS[self.network]
        for number, skew_ms in enumerate(self.skews_ms, 1):
            world.servers.clock(number).skew_ms = skew_ms
        self.return_to(world)

    def return_to(self, world: World) -> None:
        """A fault that has ended left fair weather behind; it does not stay fair."""
        if world.servers.peers.climate == PeerClimate():
            world.servers.peers.climate = msgspec.structs.replace(PEERS[self.network])
        for number in world.servers.numbers():
            faults = world.servers.disk(number).faults
            if faults.slow_s == (0.0, 0.0) and (self.disk != "uneven" or number % 2):
                faults.slow_s = SLOW_COMMIT_S[self.disk]
                faults.slow_share = 0.2 if self.disk == "uneven" else 1.0
