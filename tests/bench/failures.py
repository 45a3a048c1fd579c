"""Seconds from a kill -9 to what should follow: three servers, five agents, four ranks."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from coord.cli.local import LocalCluster
from coord.client.errors import OutcomeUnknown, Unavailable
from coord.client.sync import SyncClient
from coord.model.decisions import HostLost
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RoleSpec
from tests.bench import starting
from tests.bench.figures import Figure, reference_s
from tests.integration.cluster import Fleet

RANKS = 4
SETTINGS = Settings()
"""As they are by default."""
LEASE_S = SETTINGS.lease_ms / 1_000


def measure(runs: int) -> list[Figure]:
    """Every failure in turn, each on a cluster that has recovered from the one before."""
    rank = Figure("rank killed: every rank's script runs again", "s", 1.0, True, [], [])
    host = Figure("agent and ranks killed: the same", "s", LEASE_S + 2.0, True, [], [])
    lost = Figure("agent killed: HostLost", "s", LEASE_S + 0.5, True, [], [])
    alone = Figure("agent killed alone, restarted: ranks restarted", "ranks", 0, True, [], [])
    leader = Figure("leader killed: next acknowledged write", "s", 1.3, True, [], [])
    declared = Figure("leader killed: hosts declared lost", "hosts", 0, True, [], [])
    host.note = lost.note = f"lease {LEASE_S} s"
    figures = [rank, host, lost, alone, leader, declared]
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="coord-bench-") as directory:
            bench = _Bench(Path(directory))
            with bench.cluster:
                bench.cluster.start()
                bench.cluster.wait_ready(timeout_s=60)
                with SyncClient(bench.cluster.urls, actor="bench") as client:
                    reference = reference_s()
                    for figure, value in zip(figures, bench.run(client), strict=True):
                        figure.references.append(reference)
                        figure.values.append(value)
    return figures


class _Bench:
    """One cluster, hurt in every way once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = LocalCluster(directory, nodes=3, agents=RANKS + 1, settings=SETTINGS)

    def run(self, client: SyncClient) -> tuple[float, float, float, float, float, float]:
        self.fleet = Fleet(self.cluster, client)
        command = (sys.executable, str(Path(starting.__file__)), str(self.directory))
        trainer = RoleSpec(
            "trainer", command, replicas=RANKS, spares=1, resources=Resources(devices=1)
        )
        client.submit_job(JobSpec("bench", (trainer,)))
        self.wait_started(1)
        rank_s = self.kill_rank()
        ranks = self.kill_agent_alone()
        leader_s, declared = self.kill_leader()
        host_s, lost_s = self.kill_host()
        (self.directory / "end").touch()
        return rank_s, host_s, lost_s, ranks, leader_s, declared

    def kill_rank(self) -> float:
        """Seconds until the first line of every rank's next process ran."""
        generation = self.fleet.log.generation
        killed_s = time.time()
        os.kill(self.pids(generation)[1], signal.SIGKILL)
        return self.wait_started(generation + 1) - killed_s

    def kill_agent_alone(self) -> float:
        """How many ranks are other processes after the agent was killed and started again."""
        before = self.pids(self.fleet.log.generation)
        agent = self.cluster.agents[self.fleet.running_tasks("bench")[0].host]
        agent.kill()
        agent.start()
        self.fleet.wait_for(
            "the agent to be back", lambda: self.fleet.client.host(agent.name).incarnation == 2
        )
        step = self.fleet.log.step
        self.fleet.wait_for("the next steps", lambda: self.fleet.log.step >= step + 5)
        after = {task.pid for task in self.fleet.running_tasks("bench")}
        return sum(pid not in after for pid in before.values())

    def kill_leader(self) -> tuple[float, int]:
        """Seconds until a write is acknowledged, and hosts lost up to a lease after it."""
        lost = len(self.fleet.log.decisions(HostLost))
        killed = time.perf_counter()
        self.cluster.servers[self.fleet.log.leader].kill()
        while True:
            try:
                self.fleet.client.note("bench", "after the leader")
                break
            except (OutcomeUnknown, Unavailable):
                continue
        took_s = time.perf_counter() - killed
        now_ms = self.fleet.log.records[-1].now_ms
        self.fleet.wait_for(
            "a lease and more to pass",
            lambda: self.fleet.log.records[-1].now_ms > now_ms + 2 * SETTINGS.lease_ms,
        )
        return took_s, len(self.fleet.log.decisions(HostLost)) - lost

    def kill_host(self) -> tuple[float, float]:
        """Seconds to every rank's next process, and to HostLost, which the log's reader sees."""
        generation = self.fleet.log.generation
        host = self.fleet.running_tasks("bench")[0].host
        killed_s = time.time()
        self.cluster.kill_host(host)
        lost = self.fleet.wait_for(
            "the host to be lost",
            lambda: [
                record
                for record in self.fleet.log.records
                for decision in record.decisions
                if isinstance(decision, HostLost) and decision.host == host
            ],
        )
        lost_s = lost[0].entry.wall_ms / 1_000 - killed_s
        return self.wait_started(generation + 1) - killed_s, lost_s

    def wait_started(self, generation: int) -> float:
        """Wall time in seconds at which the last rank of the generation began to run."""
        paths = [self.directory / f"start-{generation}-{rank}" for rank in range(RANKS)]
        self.fleet.wait_for("every rank", lambda: all(path.exists() for path in paths))
        self.fleet.wait_for("the first steps", lambda: self.fleet.log.step >= 1)
        return max(int(path.read_text().split()[0]) for path in paths) / 1e9

    def pids(self, generation: int) -> dict[int, int]:
        """Rank to pid, as the ranks themselves said."""
        return {
            rank: int((self.directory / f"start-{generation}-{rank}").read_text().split()[1])
            for rank in range(RANKS)
        }
