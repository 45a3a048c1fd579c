"""Guards of the core that concern requests, reports, tasks and plans."""

from __future__ import annotations

from coord_sim.mutants.mutant import Edit, Mutant
from coord_sim.mutants.of_hosts import CORE

_REQUESTS = "coord.core.requests:"
_TASKS = "coord.core.tasks:"
_GANGS = "coord.core.gangs:"

REQUESTS = (
    Mutant(
        name="request-once",
        guard="a request that was decided gets its first outcome again",
        breaks="a repeated request takes effect twice",
        races=(36,),
        reach=CORE,
        edits=(
            Edit(
                f"{_REQUESTS}_earlier_of_client",
                "if at < len(log.recent) and log.recent[at].seq == seq:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="request-floor",
        guard="a request older than what is remembered is refused",
        breaks="a request that lingered for long takes effect again",
        races=(36,),
        reach=CORE,
        edits=(Edit(f"{_REQUESTS}_earlier_of_client", "if seq <= log.floor:", "if False:"),),
    ),
    Mutant(
        name="request-window",
        guard="what falls out of the table of outcomes raises the floor",
        breaks="a forgotten request is taken for a new one",
        races=(36,),
        reach=CORE,
        edits=(Edit(f"{_REQUESTS}_remember_client", "floor = recent[0].seq", "floor = log.floor"),),
    ),
    Mutant(
        name="report-order",
        guard="a host's report is taken only after those before it",
        breaks="a report that came too early makes those before it look decided",
        races=(1, 2),
        reach=CORE,
        edits=(
            Edit(
                f"{_REQUESTS}_earlier_of_host",
                "if origin.seq != host.report_seq + 1:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="report-of-this-incarnation",
        guard="a report counts in its host's present incarnation alone",
        breaks="what a replaced agent said late is taken for news",
        races=(1, 16),
        reach=CORE,
        edits=(
            Edit(
                f"{_REQUESTS}_earlier_of_host",
                "if origin.incarnation != host.incarnation:",
                "if False:",
            ),
            Edit(f"{_TASKS}reported_task", "if incarnation != host.incarnation:", "if False:"),
        ),
    ),
    Mutant(
        name="report-of-live-host",
        guard="a lost host's reports are refused until it registers again",
        breaks="tasks that were given up come to life in the state",
        races=(11, 17),
        reach=CORE,
        edits=(
            Edit(f"{_REQUESTS}_earlier_of_host", "if host.status not in LIVE_HOST:", "if False:"),
            Edit(f"{_TASKS}reported_task", "if host.status not in LIVE_HOST:", "if False:"),
        ),
    ),
)

REPORTS = (
    Mutant(
        name="generation-of-reports",
        guard="only the current generation's reports change a gang",
        breaks="a late exit of an old generation is counted against the new one",
        races=(1, 2),
        reach=CORE,
        edits=(
            Edit(
                f"{_TASKS}current_task",
                "if gang is None or not gangs.counts(gang, task):",
                "if gang is None:",
            ),
        ),
    ),
    Mutant(
        name="started-after-stop",
        guard="a task that is told to stop does not become running",
        breaks="a stop is forgotten when the news of the start arrives after it",
        races=(2, 5),
        reach=CORE,
        edits=(
            Edit(f"{_TASKS}_started", "if task.status == TaskStatus.STOPPING:", "if False:"),
            Edit(
                f"{_TASKS}_started",
                "if task.status != TaskStatus.PLACED:",
                "if task.status == TaskStatus.RUNNING:",
            ),
        ),
    ),
    Mutant(
        name="exit-once",
        guard="a task's exit counts once",
        breaks="an exit told again under a new incarnation counts as a second success",
        races=(3, 4),
        reach=CORE,
        edits=(Edit(f"{_TASKS}_exited", "if task.status in _ENDED:", "if False:"),),
    ),
    Mutant(
        name="exit-that-was-asked-for",
        guard="the exit of a task that was told to stop is nobody's fault",
        breaks="stopping a gang is recorded as its failure, and blamed on somebody",
        races=(34, 35),
        reach=CORE,
        edits=(
            Edit(
                f"{_TASKS}_exited",
                "if task.status == TaskStatus.STOPPING and (succeeded or event.expected):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="progress-of-the-living",
        guard="progress of a gang that stops is no progress",
        breaks="the last words of a failed generation close its own incident",
        races=(1,),
        reach=CORE,
        edits=(
            Edit(f"{_TASKS}_progress", "if gang.phase not in gangs.ACTIVE:", "if False:"),
            Edit(
                f"{_TASKS}_progress",
                "if task.status != TaskStatus.RUNNING or event.step <= task.step:",
                "if event.step <= task.step:",
            ),
        ),
    ),
    Mutant(
        name="unkillable-frees-nothing",
        guard="a task that cannot be killed keeps its devices",
        breaks="a device is given away under a process that still has it",
        races=(9,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}task_abandoned",
                "fleet.change(step, replace(task, status=TaskStatus.UNKILLABLE))",
                "fleet.release(step, task)",
            ),
        ),
    ),
    Mutant(
        name="unkillable-quarantines",
        guard="the host of a task that cannot be killed takes no more work",
        breaks="new work lands on a broken machine",
        races=(9,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}task_abandoned",
                'fleet.quarantine(step, task.host, f"unkillable task {task.key}", cause)',
                "fleet.quarantine",
            ),
        ),
    ),
    Mutant(
        name="unkillable-blocks-nobody",
        guard="a gang goes on without its task that cannot be killed",
        breaks="a restart waits for ever for a process that stays",
        races=(9,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}task_abandoned",
                "if gang is None or not counts(gang, task):",
                "if task.key:",
            ),
        ),
    ),
    Mutant(
        name="lost-member",
        guard="a gang waits for no member on a lost host",
        breaks="a restart waits for the reports of a machine that is gone",
        races=(8,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}tasks_lost",
                "if gang is None or not counts(gang, task):",
                "if key:",
            ),
        ),
    ),
)

PLANS = (
    Mutant(
        name="plan-version",
        guard="every change of a plan gives it a new version",
        breaks="an agent that has seen the version obeys the plan before the change",
        races=(18,),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.fleet:change",
                "if host.plan_version != step.entry.index:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="stop-orders",
        guard="a plan says to stop whatever is not to run",
        breaks="a gang that stops runs on",
        races=(5, 41),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.plans:_order",
                "if gang is None or role is None or task.status not in _TO_RUN:",
                "if gang is None or role is None:",
            ),
        ),
    ),
    Mutant(
        name="stop-deadline",
        guard="a stop that was asked for is never put off",
        breaks="each later notice gives a task its whole grace again",
        races=(35,),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.stopping:stop_task",
                "if task.stop_deadline_ms and status != TaskStatus.ORPHANED:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="stop-of-a-launch",
        guard="a stop reaches a launch that is still under way",
        breaks="a task that was being launched when its gang stopped runs on",
        races=(5,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}_stop_tasks",
                "if task.status in _GIVEN_WORK:",
                "if task.status == TaskStatus.RUNNING:",
            ),
        ),
    ),
    Mutant(
        name="timers-never-late",
        guard="an alarm that is due earlier replaces a later one",
        breaks="who restarted from stored rows judges earlier than who did not",
        races=(41,),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.timers:Timers.arm",
                "if known is None or due_ms < known:",
                "if known is None:",
            ),
        ),
    ),
    Mutant(
        name="timers-in-order",
        guard="what is due together is looked at in one order, whatever set the alarms",
        breaks="who restarted from stored rows decides in another order than who did not",
        races=(42,),
        reach=CORE,
        edits=(Edit("coord.core.timers:Timers.take_due", "return sorted(due)", "return due"),),
    ),
)

TASK_MUTANTS = REQUESTS + REPORTS + PLANS
