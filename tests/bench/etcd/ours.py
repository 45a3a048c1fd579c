"""The work on three servers of ours. Every function starts and ends its own cluster."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from coord.cli.local import LocalCluster, get_json
from tests.bench.etcd import usage
from tests.bench.etcd.clients import detect, first_write, write
from tests.bench.etcd.crowd import Crowd
from tests.bench.etcd.gang import changes
from tests.bench.etcd.sizes import Sizes

Values = dict[str, list[float]]

WARM_S = 1.0
READY_S = 60.0
LEADER_S = 30.0


@contextmanager
def servers(sizes: Sizes) -> Iterator[LocalCluster]:
    """Three of them on loopback, with their data on disk, ready."""
    with (
        tempfile.TemporaryDirectory(prefix="coord-bench-") as directory,
        LocalCluster(Path(directory), nodes=3, agents=0, settings=sizes.settings()) as cluster,
    ):
        cluster.start()
        cluster.wait_ready(timeout_s=READY_S)
        yield cluster


def heartbeats(sizes: Sizes) -> Values:
    """Server CPU for a recorded heartbeat, memory of the largest server, bytes of log."""
    with servers(sizes) as cluster:
        pids = [server.pid for server in cluster.servers.values()]
        with Crowd(cluster.urls, sizes.agents, sizes.period_ms) as crowd:
            connect_s = crowd.connect()
            crowd.window(sizes.period_ms / 1_000)
            logged = _logged(cluster)
            before_s = usage.cpu_s(pids)
            answers = crowd.window(sizes.window_s)
            used_s = usage.cpu_s(pids) - before_s
            grown = [after - before for after, before in zip(_logged(cluster), logged, strict=True)]
            seen = sum(int(one["seen"]) for one in answers)
            if not seen:
                raise RuntimeError("no heartbeat was acknowledged in a whole window")
            return {
                "beat_us": [1e6 * used_s / seen],
                "beat_rate": [seen / max(float(one["wall_s"]) for one in answers)],
                "beat_p99_ms": [max(float(one["p99_ms"]) for one in answers)],
                "beat_generator_us": [1e6 * sum(float(one["cpu_s"]) for one in answers) / seen],
                "beats_lost": [sum(float(one["lost"]) for one in answers)],
                "connect_s": [connect_s],
                "memory_mib": [usage.largest_mib(pids)],
                "log_bytes": [grown[0] / seen],
                "journal_bytes": [grown[1] / seen],
            }


def _logged(cluster: LocalCluster) -> tuple[int, int]:
    """Of one server: the log of events, and raft's journal, which snapshots shorten."""
    directory = cluster.directory / "server-1"
    return usage.logged_bytes(directory, "events"), usage.logged_bytes(directory, "raft_log")


def writes(sizes: Sizes) -> Values:
    """Acknowledged events a second through the client library, and their server CPU."""
    values: Values = {}
    with servers(sizes) as cluster:
        pids = [server.pid for server in cluster.servers.values()]
        write(cluster.urls, 16, WARM_S)
        for writers in sizes.writers:
            before_s = usage.cpu_s(pids)
            done = write(cluster.urls, writers, sizes.write_s)
            used_s = usage.cpu_s(pids) - before_s
            values[f"writes_{writers}"] = [done.events / done.wall_s]
            values[f"write_us_{writers}"] = [1e6 * used_s / done.events]
            values[f"write_p50_ms_{writers}"] = [done.p50_ms]
            values[f"write_client_us_{writers}"] = [1e6 * done.cpu_s / done.events]
    return values


def packed(sizes: Sizes) -> Values:
    """Events in messages of a hundred, to the leader."""
    with servers(sizes) as cluster:
        pids = [server.pid for server in cluster.servers.values()]
        _pack(cluster, sizes, WARM_S)
        before_s = usage.cpu_s(pids)
        done = _pack(cluster, sizes, sizes.write_s)
        used_s = usage.cpu_s(pids) - before_s
        return {
            "packed_rate": [done["events"] / done["wall_s"]],
            "packed_us": [1e6 * used_s / done["events"]],
            "packed_generator_us": [1e6 * done["cpu_s"] / done["events"]],
        }


def _pack(cluster: LocalCluster, sizes: Sizes, seconds: float) -> dict[str, float]:
    url = cluster.urls[leader_of(cluster) - 1]
    command = [sys.executable, "-m", "tests.bench.etcd.packers", url]
    command += [str(sizes.packers), str(sizes.packed), str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=seconds + 60)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def deaths(sizes: Sizes) -> Values:
    """Seconds from the end of a dead agent's lease to whoever follows the log knowing of it."""
    lease_s = sizes.lease_ms / 1_000
    with servers(sizes) as cluster, Crowd(cluster.urls, sizes.agents, sizes.period_ms) as crowd:
        crowd.connect()
        numbers = random.sample(range(sizes.agents), sizes.single_deaths + sizes.dying)
        singly, at_once = numbers[: sizes.single_deaths], numbers[sizes.single_deaths :]
        spread_s = sizes.window_s / max(1, len(singly))
        one = detect(cluster.urls, crowd, [[number] for number in singly], spread_s, lease_s)
        all_ = detect(cluster.urls, crowd, [at_once], 0.0, lease_s)
        return {
            "death_s": [median(one.late_s)],
            "death_worst_s": [max(one.late_s)],
            "deaths_last_s": [max(all_.late_s)],
            "deaths_middle_s": [median(all_.late_s)],
            "death_false": [float(one.false + all_.false)],
        }


def failover(sizes: Sizes) -> Values:
    """Seconds from SIGKILL of the leader to the first write acknowledged to a client."""
    took: list[float] = []
    with servers(sizes) as cluster, Crowd(cluster.urls, sizes.held, sizes.period_ms) as crowd:
        crowd.connect()
        for _ in range(sizes.kills):
            leader = leader_of(cluster)
            took.append(first_write(cluster.urls, cluster.servers[leader].kill))
            cluster.servers[leader].start()
            cluster.wait_ready(timeout_s=READY_S)
        crowd.window((sizes.lease_ms + sizes.period_ms) / 1_000)
        hosts = get_json(f"{cluster.urls[0]}/v1/hosts", timeout_s=10.0)["hosts"]
        lost = sum(host["status"] not in ("up", "suspect") for host in hosts)
        return {"failover_s": took, "failover_false": [float(max(lost, crowd.superseded()))]}


def change(sizes: Sizes) -> Values:
    """Milliseconds from asking for a change to the last of the agents having it."""
    with servers(sizes) as cluster, Crowd(cluster.urls, sizes.receivers, sizes.period_ms) as crowd:
        crowd.connect()
        started, stopped = changes(cluster.urls, crowd, sizes)
        return {"change_ms": stopped, "placed_ms": started}


def leader_of(cluster: LocalCluster) -> int:
    """The server that leads, as it says itself; RuntimeError when none does for long."""
    deadline_s = time.monotonic() + LEADER_S
    while time.monotonic() < deadline_s:
        for url in cluster.urls:
            answer = get_json(f"{url}/v1/cluster?stale=1")
            if answer and answer["role"] == "leader":
                return int(answer["node"])
        time.sleep(0.05)
    raise RuntimeError(f"no leader within {LEADER_S:.0f} s")
