"""Servers and clients that die exactly where it hurts most, one site after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from coord_sim.kernel import current_process
from coord_sim.world.quiet import quiet_logs
from coord_sim.world.server_faults import FAULTS
from coord_sim.world.servers import ClusterTimings

from coord import sites
from coord.node.config import Retention
from tests.sim.client_cluster import ClientCluster

WITHOUT_HOSTS = [
    site
    for site in sites.SITES
    if not site.startswith("agent.") and site != "client.registration.decided"
]
VISIT = 4
"""Whoever comes to a site for the so manieth time dies there."""


class Crashes:
    """Kills one process at each of the sites, and never two within a few seconds."""

    def __init__(self, cluster: ClientCluster, gap_s: float = 4.0) -> None:
        self._cluster = cluster
        self._gap_s = gap_s
        self._visits = dict.fromkeys(WITHOUT_HOSTS, 0)
        self._not_before_s = 0.0
        self.died: dict[str, str] = {}
        """Site to the process that died there."""

    def reached(self, site: str) -> None:
        process = current_process()
        now_s = self._cluster.kernel.now_s()
        if process is None or not process.alive or site not in self._visits:
            return
        self._visits[site] += 1
        if self._visits[site] < VISIT or site in self.died or now_s < self._not_before_s:
            return
        self.died[site] = process.name
        self._not_before_s = now_s + self._gap_s
        process.die()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet_logs():
        yield
    sites.observe(None)


def test_promises_hold_over_a_death_at_every_site(tmp_path: Path) -> None:
    """All that was acknowledged is there, and every server comes back to the same state."""
    plain = ClusterTimings()
    timings = msgspec.structs.replace(
        plain,
        snapshot_entries=15,
        retention=Retention(max_entries=30),
        raft=msgspec.structs.replace(plain.raft, keep_entries=4),
    )
    with ClientCluster(1, str(tmp_path), clients=2, gap_s=0.5, timings=timings) as cluster:
        crashes = Crashes(cluster)
        cluster.begin()
        sites.observe(crashes.reached)
        away = FAULTS["log.away"].inject
        for _ in range(20):
            cluster.kernel.run_until(away(cluster.servers, cluster.kernel.rng("away")))
            cluster.run_for(5.0)
            if len(crashes.died) == len(WITHOUT_HOSTS):
                break
        sites.observe(None)
        assert sorted(crashes.died) == sorted(WITHOUT_HOSTS)
        layers = {site.split(".")[0]: name.split("-")[0] for site, name in crashes.died.items()}
        assert layers == {
            "raft": "server", "store": "server", "node": "server", "api": "server",
            "client": "client",
        }  # fmt: skip
        cluster.end()
        assert cluster.outcomes()["ok"] > 100
