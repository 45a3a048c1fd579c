"""Workloads on real clusters, with a misfortune in the middle: all that is judged holds, and there
was something to judge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge.truth import COMMITTED, RESTORED
from jepsen_lite.workloads.members import Members
from jepsen_lite.workloads.port import Context
from jepsen_lite.workloads.registers import Registers
from jepsen_lite.workloads.training import Training
from jepsen_lite.workloads.watches import Watches

from tests.faults.workload_runs import assert_all_hold, run_workload


async def test_registers_are_linearizable_when_the_leader_is_killed(tmp_path: Path) -> None:
    """Writes, reads, compare-and-sets, refusals among them, before and after."""
    async with Cluster(tmp_path / "cluster", hosts=1, network="proxied") as cluster:
        await cluster.start()
        await cluster.wait_ready()

        async def kill_leader(ctx: Context) -> None:
            leader = await cluster.leader()
            assert leader is not None
            fault = ctx.history.fault("kill", "kill -9", (leader,))
            cluster.servers[leader].kill()
            await cluster.leader()
            cluster.servers[leader].start()
            ctx.history.fault_ended(fault)

        workload = Registers()
        evidence = await run_workload(
            workload,
            cluster,
            tmp_path / "run",
            enough=lambda ctx: len(ctx.history.operations) > 150,
            misfortune=kill_leader,
        )
        assert_all_hold(workload.judge(evidence))
        done = Counter(
            (operation.action, operation.result == "nothing_to_do")
            for operation in evidence.history.operations
            if operation.outcome is Outcome.OK
        )
        assert min(done["write", False], done["read", False], done["drain", False]) > 0
        assert done["drain", True] + done["undrain", True] > 0


async def test_ranks_tell_the_truth_when_their_machine_dies(tmp_path: Path) -> None:
    """A whole machine is killed and comes back; gangs go on from their checkpoints elsewhere."""
    async with Cluster(
        tmp_path / "cluster", servers=1, hosts=2, devices=3, network="proxied"
    ) as cluster:
        await cluster.start()
        await cluster.wait_ready()

        async def kill_machine(ctx: Context) -> None:
            host = max(cluster.hosts.values(), key=lambda host: len(host.ranks()))
            fault = ctx.history.fault("kill", "power off", (host.name,))
            assert host.kill_all()
            host.start()
            ctx.history.fault_ended(fault)

        def saving(ctx: Context) -> bool:
            """Every client's gang has come beyond its first checkpoint."""
            steps = {
                operation.client: operation.result[3]
                for operation in ctx.history.operations
                if operation.action == "read"
                and isinstance(operation.result, list)
                and len(operation.result) > 3
            }
            return len(steps) == 3 and min(steps.values()) > 20

        workload = Training(steps=(100, 150))
        evidence = await run_workload(
            workload, cluster, tmp_path / "run", enough=saving, misfortune=kill_machine
        )
        judgements = workload.judge(evidence)
        assert_all_hold(judgements)
        assert any(life.restored for life in evidence.lives)
        looked_at = {each.check: each.detail for each in judgements}
        assert not looked_at[COMMITTED].startswith("0 ")
        assert not looked_at[RESTORED].startswith("0 ")


async def test_watchers_miss_nothing_while_servers_come_and_go(tmp_path: Path) -> None:
    """Two workloads on one cluster, one after the other; the second judges the log of both."""
    async with Cluster(tmp_path / "cluster", hosts=0, network="proxied") as cluster:
        await cluster.start()
        await cluster.wait_ready()

        async def hand_over(ctx: Context) -> None:
            leader = await cluster.leader()
            async with cluster.client("tester") as client:
                await client.transfer()
            assert await cluster.leader() != leader

        watches = Watches()
        evidence = await run_workload(
            watches,
            cluster,
            tmp_path / "watches",
            enough=lambda ctx: len(ctx.history.operations) > 100,
            misfortune=hand_over,
        )
        assert_all_hold(watches.judge(evidence))
        assert len(evidence.watched) == 6
        assert min(len(watched.seen) for watched in evidence.watched) > 100

        def has_changed(ctx: Context) -> bool:
            done = {
                operation.action
                for operation in ctx.history.operations
                if operation.outcome is Outcome.OK and operation.completed_ns
            }
            return {"add", "note"} <= done

        members = Members()
        evidence = await run_workload(members, cluster, tmp_path / "members", enough=has_changed)
        assert_all_hold(members.judge(evidence))
        actions = [operation.action for operation in evidence.history.operations]
        assert {"add", "remove", "read"} <= set(actions)
