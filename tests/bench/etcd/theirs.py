"""The same work on three nodes of etcd. Every function starts and ends its own."""

from __future__ import annotations

from tests.bench.etcd.nodes import EtcdNodes, LoadFailed, Record
from tests.bench.etcd.ours import Values
from tests.bench.etcd.sizes import Sizes

DETECT_BASE = 5_000_000
PUTS = 20


def heartbeats(sizes: Sizes) -> Values:
    """Renewals of leases, a connection each over the three nodes."""
    with EtcdNodes() as nodes:
        records = nodes.load(
            "ka",
            n=sizes.agents,
            mode="conn",
            route="spread",
            period=sizes.period_ms / 1_000,
            paced=1,
            pdur=sizes.window_s,
            sat=0,
        )
    paced = _only(records, "ka-paced")
    return {
        "beat_us": [paced["us_sum"]],
        "beat_rate": [paced["rate"]],
        "beat_p99_ms": [paced["p99_ms"]],
        "beats_lost": [float(paced["streams_reopened"])],
        "connect_s": [_only(records, "ka-setup")["connect_s"]],
        "memory_mib": [max(paced["rss_mib"])],
    }


def writes(sizes: Sizes) -> Values:
    """Puts of 256 bytes, a connection each, to the leader."""
    values: Values = {}
    with EtcdNodes() as nodes:
        nodes.load("put", clients=16, runs=1, dur=1.0, tag="warm")
        for writers in sizes.writers:
            put = _put(nodes, sizes, writers, 1)
            values[f"writes_{writers}"] = [put["events_per_s"]]
            values[f"write_us_{writers}"] = [put["us_sum"]]
            values[f"write_p50_ms_{writers}"] = [put["p50_ms"]]
            values[f"write_client_us_{writers}"] = [put["us_client"]]
    return values


def packed(sizes: Sizes) -> Values:
    """A hundred puts a transaction."""
    with EtcdNodes() as nodes:
        put = _put(nodes, sizes, sizes.packers, sizes.packed)
    return {
        "packed_rate": [put["events_per_s"]],
        "packed_us": [put["us_sum"]],
        "packed_generator_us": [put["us_client"]],
    }


def _put(nodes: EtcdNodes, sizes: Sizes, clients: int, batch: int) -> Record:
    tag = f"c{clients}b{batch}"
    records = nodes.load("put", clients=clients, runs=1, dur=sizes.write_s, batch=batch, tag=tag)
    return _only(records, "put" if batch == 1 else "txn")


def deaths(sizes: Sizes) -> Values:
    """Renewals that end, and a watcher that sees the keys go."""
    lease_s = sizes.lease_ms // 1_000
    alone = sizes.single_deaths
    with EtcdNodes() as nodes:
        # All that are left die at once; the second round is for as many as are asked for.
        singly = nodes.load("detect", n=2 * alone, ttl=lease_s, kills=alone, base=DETECT_BASE)
        base = DETECT_BASE + 1_000_000
        at_once = nodes.load("detect", n=sizes.dying, ttl=lease_s, kills=0, base=base)
    single = next(one for one in singly if one.get("mode") == "single")
    mass = next(one for one in at_once if one.get("mode") == "mass")
    return {
        "death_s": [single["lag_p50_s"]],
        "death_worst_s": [single["lag_max_s"]],
        "deaths_last_s": [mass["lag_max_s"]],
        "deaths_middle_s": [mass["lag_p50_s"]],
        "death_false": [float(single["false_expiries"] + mass["false_expiries"])],
    }


def failover(sizes: Sizes) -> Values:
    """Fresh writes to both survivors every 10 ms, and etcd's own client besides."""
    with EtcdNodes() as nodes:
        records = nodes.failover(sizes.kills, sizes.held)
    kills = [record for record in records if record["kind"] == "failover"]
    if not kills:
        raise LoadFailed("etcdload failover killed no leader")
    return {
        "failover_s": [record["first_write_s"] for record in kills],
        "failover_client_s": [record["user_write_s"] for record in kills],
        "failover_false": [float(max(record["false_expiries"] for record in kills))],
    }


def change(sizes: Sizes) -> Values:
    """One key that every agent watches, a connection each over the three nodes."""
    with EtcdNodes() as nodes:
        records = nodes.load("watch", n=sizes.receivers, mode="conn", runs=1, puts=PUTS)
    return {"change_ms": [_only(records, "watch")["last_watcher_p50_ms"]]}


def _only(records: list[Record], kind: str) -> Record:
    found = [record for record in records if record["kind"] == kind]
    if not found:
        raise LoadFailed(f"etcdload printed no {kind}")
    return found[-1]
