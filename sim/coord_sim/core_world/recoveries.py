"""Failures, restarts, budgets and ends, counted again from the decisions alone."""

from __future__ import annotations

from collections import Counter

from coord.core.state import State
from coord.model import decisions, events
from coord.model.entities import ENDED_GANG, FailureCause, FailureReason
from coord.model.entry import Recorded

from .violation import CoreViolation

FREE = (FailureCause.PREEMPTION, FailureCause.DRAIN, FailureCause.RESIZE)
UNCOUNTED = (FailureCause.DRAIN, FailureCause.RESIZE)
BUDGETS = "planned interruptions cost no budget, and what is used up is used up"


class Recoveries:
    """One failure is one restart on one account, and what has ended has ended."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.ended: dict[str, str] = {}
        """Job -> the decision that ended it."""
        self.cancelled: dict[str, None] = {}
        self.incidents: dict[int, tuple[str, int]] = {}
        """Number -> gang, generation."""
        self.failed: dict[str, int] = {}
        """Gang -> the newest generation of which a failure was recorded."""
        self.accounts: dict[str, Counter[str]] = {}
        """Gang -> failures by cause, as it stands after revisions."""
        self.own_faults: Counter[str] = Counter()
        """Gang -> failures that were not planned when they were recorded."""
        self.charged: dict[int, str] = {}
        self.done: dict[str, int] = {}
        """Gang -> the generation of which every task succeeded."""
        self.exited: dict[str, None] = {}
        """Tasks whose exit was taken."""
        self.ending: dict[str, str] = {}
        """Job -> the end that it was given."""
        self.jobs = 0

    def look_at(self, record: Recorded) -> None:
        event = record.entry.event
        if record.accepted and not record.duplicate_of:
            if isinstance(event, events.JobCancelRequested):
                self._look_at_cancel(event)
            elif isinstance(event, events.TaskExited):
                self._look_at_exit(event)
                self._look_at_success(event)
        for decision in record.decisions:
            self._take(decision, record)
        self._look_at_endings()
        self._look_at_forgetting()
        for gang in dict.fromkeys(
            one.gang
            for one in record.decisions
            if isinstance(one, decisions.IncidentOpened | decisions.CauseRevised)
        ):
            self._look_at_accounts(gang)

    def _take(self, decision: decisions.AnyDecision, record: Recorded) -> None:
        if isinstance(decision, decisions.IncidentOpened):
            self._look_at_failure(decision)
        elif isinstance(decision, decisions.CauseRevised):
            self._look_at_revision(decision, record)
        elif isinstance(decision, decisions.RestartScheduled):
            self._look_at_restart(decision)
        elif isinstance(decision, decisions.IncidentClosed):
            self._look_at_closing(decision)
        elif isinstance(decision, decisions.GangStopped | decisions.GangSucceeded):
            self._forget_gang(decision.gang)
        elif isinstance(decision, decisions.JobFailed):
            self._look_at_end(decision.job, "JobFailed")
        elif isinstance(decision, decisions.JobCompleted):
            self._look_at_end(decision.job, "JobCompleted")
        elif isinstance(decision, decisions.JobCancelled):
            self._look_at_end(decision.job, "JobCancelled")

    def _forget_gang(self, gang: str) -> None:
        if gang in self.state.gangs:
            self._look_at_reason(gang)
        self.accounts.pop(gang, None)
        self.own_faults.pop(gang, None)
        self.failed.pop(gang, None)
        self.done.pop(gang, None)

    # One failure, one restart

    def _look_at_failure(self, decision: decisions.IncidentOpened) -> None:
        gang, generation = decision.gang, decision.generation
        if self.failed.get(gang) == generation:
            raise CoreViolation("one failure, one restart", f"{decision}")
        if self.done.get(gang) == generation:
            raise CoreViolation("what has succeeded is not restarted", f"{decision}")
        self.failed[gang] = generation
        self.incidents[decision.incident] = (gang, generation)
        self.accounts.setdefault(gang, Counter())[decision.cause] += 1
        self.charged[decision.incident] = decision.cause
        self.own_faults[gang] += decision.cause not in FREE

    def _look_at_revision(self, decision: decisions.CauseRevised, record: Recorded) -> None:
        event = record.entry.event
        if isinstance(event, events.TaskExited) and event.expected:
            raise CoreViolation("an end that was asked for blames nobody", f"{decision}")
        accounts = self.accounts[decision.gang]
        accounts[self.charged[decision.incident]] -= 1
        accounts[decision.cause] += 1
        self.charged[decision.incident] = decision.cause

    def _look_at_accounts(self, name: str) -> None:
        gang, accounts = self.state.gangs.get(name), self.accounts.get(name)
        if gang is None or accounts is None:
            return
        charged = {
            FailureCause.USER: gang.restarts_user,
            FailureCause.INFRASTRUCTURE: gang.restarts_infrastructure,
            FailureCause.UNKNOWN: gang.restarts_unknown,
            FailureCause.PREEMPTION: gang.restarts_preemption,
        }
        for cause, count in charged.items():
            if count != accounts[cause]:
                raise CoreViolation(
                    "one failure, one restart", f"{name}: {cause} {count}, not {accounts[cause]}"
                )
        if gang.barren > self.own_faults[name]:
            raise CoreViolation(
                BUDGETS, f"{name}: {gang.barren} of {self.own_faults[name]} failures are barren"
            )

    def _look_at_restart(self, decision: decisions.RestartScheduled) -> None:
        if decision.cause in UNCOUNTED:
            return
        counted = self.accounts.get(decision.gang, Counter())[decision.cause]
        if decision.attempt != counted:
            raise CoreViolation(
                "one failure, one restart", f"{counted} failures were recorded: {decision}"
            )
        if not decision.limit:
            return  # Its job does not require it, or it was taken along.
        if decision.cause not in FREE and decision.attempt > self._limit(decision):
            raise CoreViolation(BUDGETS, f"{decision}")

    def _limit(self, decision: decisions.RestartScheduled) -> int:
        policy = self.state.jobs[decision.job].spec.restart
        if decision.cause == FailureCause.USER:
            return policy.user_limit
        if decision.cause == FailureCause.INFRASTRUCTURE:
            return policy.infrastructure_limit
        return policy.unknown_limit

    def _look_at_reason(self, name: str) -> None:
        """A gang that gives up has used up what it says it has."""
        gang = self.state.gangs[name]
        policy = self.state.jobs[gang.job].spec.restart
        if gang.stop_final != "fail":
            return
        if gang.fail_reason == FailureReason.BUDGET and gang.stop_cause in FREE:
            raise CoreViolation(BUDGETS, f"{name} gave up after a {gang.stop_cause}")
        barren = gang.fail_reason == FailureReason.NO_PROGRESS
        if barren and self.own_faults[name] <= policy.no_progress_limit:
            raise CoreViolation(BUDGETS, f"{name} gave up after {self.own_faults[name]} failures")

    def _look_at_closing(self, decision: decisions.IncidentClosed) -> None:
        gang, generation = self.incidents[decision.incident]
        row = self.state.gangs.get(gang)
        goes_on = row is not None and row.phase not in ENDED_GANG
        if decision.resolved and row is not None and goes_on and row.generation <= generation:
            raise CoreViolation("an incident is over with the next generation", f"{decision}")

    # Ends

    def _look_at_exit(self, event: events.TaskExited) -> None:
        """However often an agent tells of it: it does after each new registration."""
        if event.task in self.exited:
            raise CoreViolation("a task's exit counts once", f"{event}")
        self.exited[event.task] = None

    def _look_at_success(self, event: events.TaskExited) -> None:
        task = self.state.tasks.get(event.task)
        gang = self.state.gangs.get(task.gang) if task is not None else None
        if gang is not None and gang.succeeded == gang.size:
            self.done[gang.key] = gang.generation

    def _look_at_cancel(self, event: events.JobCancelRequested) -> None:
        if event.job in self.ended:
            raise CoreViolation("a finished job stays finished", f"{event}")
        self.cancelled[event.job] = None

    def _look_at_end(self, job: str, how: str) -> None:
        if job in self.ended:
            raise CoreViolation("a finished job stays finished", f"{how} after {self.ended[job]}")
        if job in self.cancelled and how != "JobCancelled":
            raise CoreViolation("who wants a job to end gets his way", f"{job}: {how}")
        self.ended[job] = how

    def _look_at_endings(self) -> None:
        ending: dict[str, str] = {}
        for name, job in self.state.jobs.items():
            before = self.ending.get(name, "")
            if before and job.ending != before:
                raise CoreViolation(
                    "a job keeps the end it was given first", f"{name}: {before}, {job.ending}"
                )
            ending[name] = job.ending
        self.ending = ending

    def _look_at_forgetting(self) -> None:
        """Looked at when a job is gone: its tasks keep their names for as long as they run."""
        jobs = self.state.jobs
        if len(jobs) < self.jobs:
            for key, task in self.state.tasks.items():
                if task.job not in jobs:
                    raise CoreViolation("a job is remembered while something of it may run", key)
        self.jobs = len(jobs)
