"""Guards of agents, and of the library by which agents and clients talk to servers."""

from __future__ import annotations

from coord_sim.mutants.mutant import Edit, Mutant, Reach

_CLUSTER = (Reach.CLUSTER,)
_FOCUS = (Reach.FOCUS, Reach.CLUSTER)
_RECONCILE = "coord.agent.reconcile:"
_TASKS = "coord.agent.tasks:HostTasks."
_REPORTS = "coord.client.reports:ReportQueue."
_WRITER = "coord.client.writer:"

AGENT_MUTANTS = (
    Mutant(
        name="agent-newest-plan",
        guard="an agent obeys no plan older than one it has seen",
        breaks="a stale follower's plan brings stopped tasks back",
        races=(18,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_RECONCILE}obeyable",
                "plan.host == host and (plan.incarnation, plan.version) >= seen",
                "plan.host == host",
            ),
            Edit("coord.client.inbox:PlanInbox.offer", "if key > self._newest:", "if True:"),
        ),
    ),
    Mutant(
        name="agent-fence",
        guard="an agent ends its exclusive tasks before its lease runs out",
        breaks="an exclusive task runs on both sides of a cut",
        races=(10,),
        reach=_CLUSTER,
        edits=(
            Edit("coord.agent.fence:Fence.due", "if now >= self.kill_at:", "if False:"),
            Edit(
                "coord.agent.fence:Fence.due",
                "return Step.TERM if now >= self.term_at else Step.NONE",
                "return Step.NONE",
            ),
            Edit(
                "coord.agent.lease:LeaseFile.read_keeper_kill",
                "None if lease is None else (lease.kill_at + lease.deadline) / 2",
                "None",
            ),
        ),
    ),
    Mutant(
        name="agent-record-before-launch",
        guard="a task's record is on disk before its process exists",
        breaks="a process that was started just before the agent died is known to nobody",
        races=(5, 10),
        reach=_CLUSTER,
        edits=(Edit(f"{_TASKS}_launch", "self._disk.write(record)", "record.holds"),),
    ),
    Mutant(
        name="agent-one-run",
        guard="one record is one run: a task that has a record is not launched",
        breaks="a task is launched twice",
        races=(1, 4),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_RECONCILE}_launches",
                "if order.action is not plans.Action.RUN or order.task in records:",
                "if order.action is not plans.Action.RUN or "
                "(order.task in records and records[order.task].holds):",
            ),
        ),
    ),
    Mutant(
        name="agent-forgets-the-settled",
        guard="a task is forgotten only when its end was decided and no plan has it any more",
        breaks="a plan that was under way launches a task again that has ended",
        races=(4, 39),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_RECONCILE}_forgets",
                "if task not in wanted and Fact.REAPED in "
                "reported.get(task, NOTHING_REPORTED).settled",
                "if Fact.REAPED in reported.get(task, NOTHING_REPORTED).sent",
            ),
        ),
    ),
    Mutant(
        name="agent-devices-are-free",
        guard="a task is launched when nothing on its host has its devices any more",
        breaks="a device has two live owners",
        races=(10,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_RECONCILE}_launches",
                "free = devices.isdisjoint(order.devices) and ports.isdisjoint(order.ports)",
                "free = True",
            ),
            Edit(
                f"{_RECONCILE}_launches",
                "free = free and _of_any_generation(order) not in runs",
                "free = True",
            ),
        ),
        survives="the coordinator gives a device away only when its last owner was reaped, so the "
        "agent's own look is a second line: it matters to a coordinator that is wrong",
    ),
    Mutant(
        name="agent-stops-the-unknown",
        guard="a stop for a task that never ran here is answered",
        breaks="a gang waits for the end of a task that never began",
        races=(5,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_RECONCILE}_stops",
                "if order.action is plans.Action.STOP and order.task not in records",
                "if False",
            ),
        ),
    ),
    Mutant(
        name="agent-tells-again",
        guard="under a new incarnation everything is reported anew",
        breaks="what was lost with the old incarnation is never told",
        races=(16, 39),
        reach=_CLUSTER,
        edits=(
            Edit(
                "coord.agent.reporting:Reporter.begin",
                "self._reported = {task: Reported(said, said) for task in started}",
                "self._reported = {task: Reported(said, said) for task in started}"
                " | self._reported",
            ),
        ),
    ),
    Mutant(
        name="agent-adopts",
        guard="an agent that starts finds the tasks that run, and hears of their end",
        breaks="a task that outlived its agent never ends in the log",
        races=(16,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_TASKS}_recover_one",
                "self._runner.adopt(task, record.process)",
                "record.holds",
            ),
        ),
    ),
    Mutant(
        name="agent-goes-on-stopping",
        guard="an agent that starts goes on with the stops that were under way",
        breaks="a task that was being stopped when its agent died runs for ever",
        races=(5,),
        reach=_CLUSTER,
        edits=(Edit(f"{_TASKS}_recover_one", "if record.stopping:", "if False:"),),
    ),
    Mutant(
        name="agent-leaves-nobody",
        guard="a task is gone when not one process of it is left",
        breaks="what a task left behind keeps its devices while others get them",
        races=(9, 10),
        reach=_CLUSTER,
        edits=(
            Edit(
                "coord.agent.endings:Ending.run",
                "if self._exited and not left:",
                "if self._exited:",
            ),
        ),
    ),
    Mutant(
        name="agent-fenced-launch",
        guard="while a host is fenced it launches nothing exclusive",
        breaks="an exclusive task starts on a host that has lost its lease",
        races=(10,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_RECONCILE}_launches",
                "if free and not (fenced and order.exclusive):",
                "if free:",
            ),
        ),
    ),
)

LIBRARY_MUTANTS = (
    Mutant(
        name="reports-are-sent-again",
        guard="reports that were under way when a connection broke are sent again",
        breaks="what an agent said into a broken connection is lost",
        races=(39,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_REPORTS}connection_lost",
                "self._cursor = self._head",
                "self._cursor = self._next_seq",
            ),
        ),
    ),
    Mutant(
        name="report-numbers",
        guard="a report's number is its own, whether it was answered or not",
        breaks="a new report takes an old one's number and is taken for its repetition",
        races=(36,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_REPORTS}connection_lost",
                "self._cursor = self._head",
                "self._next_seq = self._cursor = self._head",
            ),
        ),
    ),
    Mutant(
        name="reports-not-taken",
        guard="a report that a server could not take is sent again",
        breaks="what an agent said during an election is lost",
        races=(37, 39),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_REPORTS}on_result",
                "self._send_again_from(result.seq)",
                "self._settle(result.seq, Decided(0))",
            ),
        ),
    ),
    Mutant(
        name="reports-after-a-gap",
        guard="after a gap the reports are sent again from the one that is missing",
        breaks="everything after a lost report is refused for ever",
        races=(2, 39),
        reach=_FOCUS,
        edits=(
            Edit(
                f"{_REPORTS}_on_gap",
                "self._send_again_from(max(last + 1, head))",
                "self._settle(result.seq, Decided(0))",
            ),
        ),
    ),
    Mutant(
        name="write-numbers",
        guard="a request keeps its number for life",
        breaks="a request that is sent again takes effect twice",
        races=(36,),
        reach=_CLUSTER,
        edits=(
            Edit(
                f"{_WRITER}Writer._take",
                "            write.resend_s = 0.0\n            taken.append(write)",
                "            write.resend_s = 0.0\n"
                "            del self._numbered[write.submission.origin.seq]\n"
                "            origin = Origin(self._hello.actor, 0, self._next_seq)\n"
                "            write.submission = Submission(origin, write.event)\n"
                "            self._numbered[self._next_seq] = write\n"
                "            self._next_seq += 1\n"
                "            taken.append(write)",
            ),
        ),
    ),
    Mutant(
        name="unknown-is-said",
        guard="a caller is told when nobody knows what became of a request",
        breaks="a request is called not done, and was done",
        races=(37,),
        reach=_CLUSTER,
        edits=(Edit(f"{_WRITER}_verdict", "if _maybe_done(write):", "if False:"),),
    ),
)
