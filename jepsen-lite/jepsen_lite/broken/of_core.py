"""A coordinator that judges hosts, gangs and checkpoints wrongly, and agents that obey wrongly."""

from __future__ import annotations

from jepsen_lite.broken.breakage import Breakage, Edit

CORE = (
    Breakage(
        name="old-generation-checkpoint",
        what="what a generation saved before it was given up counts for the next one's checkpoint",
        workload="training",
        nemesis="kill-rank",
        edits=(
            Edit(
                "core/checkpoints.py",
                'return f"{gang.key}#{gang.generation}@{step_number}"',
                'return f"{gang.key}@{step_number}"',
            ),
            Edit("core/queueing/starting.py", "drop_unfinished(step, gang)", "drop_unfinished"),
        ),
    ),
    Breakage(
        name="half-a-checkpoint",
        what="a checkpoint is committed with its first shard",
        workload="training",
        nemesis="none",
        edits=(Edit("core/checkpoints.py", "if all(shards):", "if any(shards):"),),
    ),
    Breakage(
        name="lease-not-renewed",
        what="leases run on while there is no leader, and are not renewed by an election",
        workload="training",
        nemesis="pause-leader",
        edits=(Edit("core/cluster.py", "    hosts.renew_leases(step)\n", ""),),
    ),
    Breakage(
        name="old-heartbeat",
        what="a heartbeat of an incarnation that is over renews a lease",
        workload="training",
        nemesis="cut-agents",
        edits=(
            Edit(
                "core/hosts.py",
                "if 0 <= slot < count and live[slot] == incarnation and incarnation:",
                "if 0 <= slot < count and incarnation:",
            ),
            Edit(
                "node/heartbeats.py",
                "return incarnation < newest or (not live and incarnation == newest)",
                "return False",
            ),
        ),
    ),
    Breakage(
        name="plan-out-of-order",
        what="a plan that was overtaken is obeyed after the one that overtook it",
        workload="training",
        nemesis="kill-rank",
        edits=(
            Edit(
                "agent/reconcile.py",
                "return plan.host == host and (plan.incarnation, plan.version) >= seen",
                "return plan.host == host",
            ),
            Edit(
                "agent/daemon.py",
                "                self.tasks.obey(item)\n",
                "                overtaken = getattr(self, '_overtaken', item)\n"
                "                self._overtaken = item\n"
                "                self.tasks.obey(item)\n"
                "                if len(overtaken.tasks) > len(item.tasks):\n"
                "                    self.tasks.obey(overtaken)\n"
                "                    self.tasks.obey(item)\n",
            ),
        ),
    ),
    Breakage(
        name="no-fence",
        what="an agent that has lost its lease lets exclusive tasks live",
        workload="training",
        nemesis="isolate-host",
        edits=(
            Edit("agent/fence.py", "if now >= self.kill_at:", "if False:"),
            Edit(
                "agent/fence.py",
                "return Step.TERM if now >= self.term_at else Step.NONE",
                "return Step.NONE",
            ),
            Edit(
                "agent/lease.py",
                "return None if lease is None else (lease.kill_at + lease.deadline) / 2",
                "return None",
            ),
        ),
        options={"seconds": 20.0},
    ),
    Breakage(
        name="restart-beside-the-old",
        what="a generation is started while some of the one before still runs",
        workload="training",
        nemesis="kill-rank",
        edits=(Edit("core/gangs.py", "if gang is None or gang.live:", "if gang is None:"),),
    ),
)
