"""The tasks of this host: what is known of them, and every change of it.

A change (a plan, an exit, a decision of the coordinator) ends in `act`, which asks the pure
`reconcile.decide` what to do until it says nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping

import structlog
from msgspec.structs import replace

from coord.agent.endings import LEFTOVER_GRACE_S, Ending, Endings
from coord.agent.health import HealthGate
from coord.agent.launching import Workshop
from coord.agent.ports import ExitStatus, HostPorts, LaunchError
from coord.agent.reconcile import (
    Action,
    Bury,
    Forget,
    Launch,
    Renumber,
    Report,
    Reported,
    Stop,
    decide,
    obeyable,
)
from coord.agent.records import ExitFacts, Phase, TaskRecord, without_secrets
from coord.agent.reporting import Reporter
from coord.model import plans
from coord.model.events import TaskFound
from coord.model.plans import HostPlan, TaskOrder
from coord.sites import reach

FENCED = "it is exclusive, and the coordinator acknowledged no heartbeat in time"
RETIRING = "the agent was told to end its tasks with itself"
VANISHED = "the agent was killed while it started this task, and no process of it is left"
ROUNDS_LIMIT = 100

Spawn = Callable[[Coroutine[None, None, None]], object]

log = structlog.get_logger()


class HostTasks:
    """Owns the records in memory and on disk. All methods are called on the loop.

    `fence()` is asked before each look at what to do: it ends exclusive tasks whose time has come,
    and says whether none may start. `arm_fence()` puts their deadline on disk before one starts, or
    raises OSError.
    """

    def __init__(
        self,
        host: str,
        ports: HostPorts,
        reporter: Reporter,
        workshop: Workshop,
        spawn: Spawn,
        fence: Callable[[], bool],
        arm_fence: Callable[[], None],
        unkillable_s: float,
    ) -> None:
        self._host = host
        self._disk = ports.records
        self._runner = ports.runner
        self._notes = ports.notes
        self._output = ports.output
        self._drain = ports.workers.drain
        self._reporter = reporter
        self._workshop = workshop
        self._spawn = spawn
        self._keep_fence = fence
        self._arm_fence = arm_fence
        self._records: dict[str, TaskRecord] = {}
        self._unwritten: dict[str, None] = {}
        self._retiring = False
        self._changed = asyncio.Event()
        self._plan: HostPlan | None = None
        self._health = HealthGate(host, ports.health, reporter.tell, spawn, self.act)
        self._endings = Endings(self._runner, self, unkillable_s, self._spawn_ending)
        self._runner.on_exit(self._main_exited)

    @property
    def records(self) -> Mapping[str, TaskRecord]:
        """A live view, by task key."""
        return self._records

    @property
    def reported(self) -> Mapping[str, Reported]:
        """What the coordinator was told of them, and what it has decided on."""
        return self._reporter.reported

    def holding(self) -> list[TaskRecord]:
        """Records that are not gone."""
        return [self._records[task] for task in sorted(self._records) if self._records[task].holds]

    def environment(self, task: str) -> dict[str, str]:
        """What the newest plan gives to a task that it wants run; empty where there is none."""
        orders = self._plan.tasks if self._plan is not None else ()
        run = (order for order in orders if order.task == task and order.action is plans.Action.RUN)
        order = next(run, None)
        return dict(order.env) if order is not None else {}

    def is_ending(self, task: str) -> bool:
        """Whether its processes have been asked to end, on a plan or by us."""
        return self._endings.is_ending(task)

    def found(self) -> tuple[TaskFound, ...]:
        """What to say of them when the host registers."""
        return tuple(
            TaskFound(
                task,
                record.process.pid if record.process else 0,
                record.phase in (Phase.LAUNCHING, Phase.RUNNING),
            )
            for task, record in sorted(self._records.items())
        )

    # After a start

    def recover(self) -> None:
        """Find again what an earlier agent of this directory left."""
        for record in self._disk.load():
            self._records[record.order.task] = record
        for record in self.holding():
            self._recover_one(record)

    def _recover_one(self, record: TaskRecord) -> None:
        task = record.order.task
        if record.phase is Phase.LAUNCHING:
            process = self._runner.find(task)
            if process is None:
                record = replace(record, phase=Phase.EXITED, launch_error=VANISHED)
            else:
                record = replace(record, phase=Phase.RUNNING, process=process)
            self._put(record)
        now = asyncio.get_running_loop().time()
        if record.phase is Phase.EXITED:
            self._endings.begin(task, record.process, now + LEFTOVER_GRACE_S, exited=True)
            return
        assert record.process is not None, f"{task} runs without a process"
        log.info("task found again", task=task, pid=record.process.pid)
        self._runner.adopt(task, record.process)
        if record.stopping:
            kill_at = now + record.stop_grace_ms / 1000
            self._endings.begin(task, record.process, kill_at, exited=False)
        elif record.ended_by_us:
            self.end(task, now + record.order.grace_ms / 1000, record.ended_by_us)

    # Plans

    def obey(self, plan: HostPlan) -> None:
        """Make this plan the one to reach, unless a newer one was obeyed already."""
        if self._retiring:
            return
        if not obeyable(plan, self._host, self._disk.seen):
            log.warning(
                "plan not obeyed: older than one seen, or another host's",
                host=plan.host,
                plan=(plan.incarnation, plan.version),
                seen=self._disk.seen,
            )
            return
        reach("agent.plan.taken")
        with self._disk_may_fail():
            self._disk.note_seen(plan.incarnation, plan.version)
        reach("agent.plan.noted")
        self._plan = plan
        self._health.test(plan.test)
        self.act()

    def registered(self, incarnation: int, told: tuple[TaskFound, ...]) -> None:
        """Plans of earlier incarnations count no longer; everything is to be said anew, but for
        what the registration told."""
        with self._disk_may_fail():
            self._disk.note_seen(incarnation, 0)
        self._reporter.begin(incarnation, [one.task for one in told if one.pid])
        self.act()

    async def check_every(self, period_s: float) -> None:
        """Health checks from time to time, for as long as the agent lives."""
        await self._health.check_every(period_s)

    def drop_plan(self) -> None:
        """The registration is over; the next one's plan decides."""
        self._plan = None

    def act(self) -> None:
        """Do whatever follows from what is known, until nothing more does."""
        fenced = self._keep_fence()
        if not self._reporter.incarnation:
            return
        for _ in range(ROUNDS_LIMIT):
            actions = decide(self._plan, self._records, self._reporter.reported, fenced=fenced)
            actions = tuple(one for one in actions if not self._waits(one))
            if not actions:
                self._health.settle()
                return
            for action in actions:
                self._do(action)
        raise AssertionError(f"still something to do after {ROUNDS_LIMIT} rounds: {actions}")

    def _waits(self, action: Action) -> bool:
        """A launch that waits for a health check, which is under way then."""
        return isinstance(action, Launch) and self._health.blocks(action.order)

    def _do(self, action: Action) -> None:
        if isinstance(action, Launch):
            self._launch(action.order)
        elif isinstance(action, Stop):
            self._stop(action)
        elif isinstance(action, Bury):
            self._put(TaskRecord(without_secrets(action.order), Phase.GONE))
        elif isinstance(action, Renumber):
            record = self._records[action.order.task]
            self._put(replace(record, order=without_secrets(action.order)))
            log.info("standby took a rank", task=action.order.task, rank=action.order.index)
        elif isinstance(action, Report):
            self._reporter.fact(self._records[action.task], action.fact)
        elif isinstance(action, Forget):
            self._forget(action.task)

    def _launch(self, order: TaskOrder) -> None:
        record = TaskRecord(without_secrets(order), Phase.LAUNCHING)
        refused = self._health.take_verdict()
        if refused:
            self._put(replace(record, phase=Phase.GONE, launch_error=refused))
            return
        try:
            live = frozenset(held.order.task for held in self.holding())
            spec = self._workshop.prepare(order, live)
            self._disk.write(record)
            if order.exclusive:
                # From here on the keeper ends it in time, whatever becomes of us.
                self._arm_fence()
            reach("agent.launch.recorded")
            process = self._runner.launch(spec)
        except LaunchError as error:
            log.warning("launch failed", task=order.task, error=str(error))
            failed = replace(
                record, phase=Phase.GONE, launch_error=str(error), user_error=error.user_error
            )
            self._put(failed)
            return
        except OSError as error:
            message = f"cannot record the launch of {order.task}: {error}"
            self._put(replace(record, phase=Phase.GONE, launch_error=message))
            return
        reach("agent.launch.started")
        log.info("task launched", task=order.task, pid=process.pid)
        self._put(replace(record, phase=Phase.RUNNING, process=process))

    def _stop(self, action: Stop) -> None:
        record = self._records[action.task]
        self._put(replace(record, stopping=True, stop_grace_ms=action.grace_ms))
        log.info("task stopping", task=action.task, grace_ms=action.grace_ms)
        kill_at = asyncio.get_running_loop().time() + action.grace_ms / 1000
        exited = record.phase is Phase.EXITED
        self._endings.begin(action.task, record.process, kill_at, exited=exited)

    def _forget(self, task: str) -> None:
        self._disk.delete(task)
        self._notes.delete(task)
        del self._records[task]
        self._unwritten.pop(task, None)
        self._reporter.forget(task)

    # Ends

    def end(self, task: str, kill_at: float, why: str) -> None:
        """End a task that no plan says to end."""
        record = self._records[task]
        if record.exit is None and not record.ended_by_us:
            log.warning("ending a task unasked", task=task, why=why)
            record = replace(record, ended_by_us=why)
            self._put(record)
        exited = record.phase is Phase.EXITED
        self._endings.begin(task, record.process, kill_at, exited=exited)

    def retire(self) -> None:
        """End all tasks, each with its grace, and obey no plan any more."""
        self._retiring = True
        self.drop_plan()
        now = asyncio.get_running_loop().time()
        for record in self.holding():
            self.end(record.order.task, now + record.order.grace_ms / 1000, RETIRING)

    async def all_gone(self) -> None:
        """Returns when every task is gone, or known to be unkillable."""
        while any(not record.unkillable_pid for record in self.holding()):
            self._changed.clear()
            await self._changed.wait()

    def _main_exited(self, task: str, status: ExitStatus) -> None:
        self._spawn(self._finish(task, status))

    async def _finish(self, task: str, status: ExitStatus) -> None:
        # What the task said before its end comes before its end.
        await self._drain(task)
        reach("agent.exit.seen")
        record = self._records[task]
        record = replace(record, phase=Phase.EXITED, exit=self._exit_facts(record, status))
        self._put(record)
        log.info("task exited", task=task, code=status.exit_code, signal=status.signal)
        if not record.stopping and (status.exit_code or status.signal or not status.observed):
            self._health.failed(record.order)
        leftover_at = asyncio.get_running_loop().time() + LEFTOVER_GRACE_S
        if self._endings.is_ending(task):
            # Its grace is for all of its processes.
            self._endings.main_exited(task)
        else:
            self._endings.begin(task, record.process, leftover_at, exited=True)
        self.act()

    def _exit_facts(self, record: TaskRecord, status: ExitStatus) -> ExitFacts:
        task = record.order.task
        words = self._output.last_words(task)
        error, tail = words.error, words.stderr_tail
        exit_code, number = status.exit_code, status.signal
        ended_by_us = FENCED if self._notes.read(task).fenced else record.ended_by_us
        if ended_by_us and not record.stopping:
            error = f"ended by its agent ({ended_by_us}) {error}".strip()
            if not number:
                # An orderly exit on our SIGTERM is neither the task's success nor its failure.
                error = f"exited with code {exit_code}, {error}"
                exit_code, number = 0, signal.SIGTERM
        return ExitFacts(
            exit_code=exit_code,
            signal=number,
            observed=status.observed,
            expected=record.stopping,
            oom=status.oom,
            error=error,
            stderr_tail=tail,
            failed_at_ms=words.failed_at_ms,
        )

    def on_gone(self, task: str) -> None:
        self._endings.over(task)
        self._runner.release(task)
        reach("agent.task.released")
        self._put(replace(self._records[task], phase=Phase.GONE))
        log.info("task reaped", task=task)
        self.act()

    def on_unkillable(self, task: str, pid: int) -> None:
        log.error("process cannot be killed", task=task, pid=pid)
        self._put(replace(self._records[task], unkillable_pid=pid))
        self.act()

    def _spawn_ending(self, ending: Ending) -> None:
        self._spawn(ending.run())

    # The disk

    @contextlib.contextmanager
    def _disk_may_fail(self) -> Iterator[None]:
        """What is kept here only backs up the incarnation of the next registration, which by itself
        protects from older plans."""
        try:
            yield
        except OSError as error:
            log.error("cannot keep which plan is the newest", error=str(error))

    def _put(self, record: TaskRecord) -> None:
        task = record.order.task
        self._records[task] = record
        self._changed.set()
        try:
            self._disk.write(record)
            self._unwritten.pop(task, None)
        except OSError as error:
            log.error("cannot write a task's record; trying again", task=task, error=str(error))
            self._unwritten[task] = None

    def write_again(self) -> None:
        """Write what a full disk refused before."""
        for task in list(self._unwritten):
            self._put(self._records[task])
