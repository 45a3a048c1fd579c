"""A simulated agent: what it knows, and how that changes. Pure; when things happen is decided in
`execute.py`.

What is to be done is decided by the agents' own code (`coord.agent.reconcile.decide`), so that a
flaw there shows here as well. The machines of `core_world` are not used: they draw what they do at
random, and here an agent does what it was recorded to do for as long as it has reason to.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from coord.agent import reconcile
from coord.agent.reconcile import NOTHING_REPORTED, Fact, Reported
from coord.agent.records import ExitFacts, Phase, Process, TaskRecord, without_secrets
from coord.model.events import (
    AnyEvent,
    HostRegistered,
    LaunchFailed,
    TaskExited,
    TaskFound,
    TaskReaped,
    TaskStarted,
    TaskUnkillable,
)
from coord.model.plans import Action, HostPlan, TaskOrder

KILLED = ExitFacts(signal=9, expected=True)
"""How a task ends that its own host ended, to keep within the lease."""
STOPPED = ExitFacts(signal=15, expected=True)
UNSEEN = ExitFacts(observed=False)

_NO_PROCESS_FACTS = frozenset([Fact.STARTED])


class Agent(msgspec.Struct, frozen=True):
    """One host's agent and the processes it looks after. Its dicts are never changed in place."""

    host: str
    incarnation: int = 0
    registered: bool = False
    seq: int = 0
    """Reports of this incarnation known to be decided."""
    outbox: tuple[AnyEvent, ...] = ()
    """Reports that are not decided yet, the first of them number `seq + 1`."""
    plan: HostPlan | None = None
    seen: tuple[int, int] = (0, 0)
    records: dict[str, TaskRecord] = {}
    reported: dict[str, Reported] = {}
    withheld: frozenset[tuple[str, str]] = frozenset()
    """Facts that the log shows it never to have told. It tells them when all has healed."""
    burying: frozenset[str] = frozenset()
    announced: HostRegistered | None = None
    """Its newest registration."""
    asked: int = 0
    """Number of its newest registration."""


def alive(record: TaskRecord) -> bool:
    """Whether its main process is there."""
    return record.phase is Phase.RUNNING and record.exit is None


# Registration


def registered(agent: Agent, event: HostRegistered, asked: int, incarnation: int) -> Agent:
    """The registration was accepted. Whatever it does not name is not there any more, and nothing
    of before is after another boot."""
    rebooted = agent.announced is not None and agent.announced.boot != event.boot
    records = {}
    for found in () if rebooted else event.tasks:
        known = agent.records.get(found.task)
        if known is None:
            records[found.task] = _found(found, event.boot)
            continue
        records[found.task] = known
        if known.phase is Phase.LAUNCHING and found.pid and not known.launch_error:
            process = Process(found.pid, 0, event.boot)
            records[found.task] = replace(known, phase=Phase.RUNNING, process=process)
    told = {found.task: None for found in event.tasks if found.pid}
    said = Reported(_NO_PROCESS_FACTS, _NO_PROCESS_FACTS)
    return replace(
        agent,
        incarnation=incarnation,
        registered=True,
        seq=0,
        outbox=(),
        plan=None,
        seen=(0, 0) if rebooted else agent.seen,
        records=records,
        reported={task: said for task in records if task in told},
        withheld=frozenset(),
        burying=frozenset(),
        announced=event,
        asked=max(asked, agent.asked),
    )


def _found(found: TaskFound, boot: str) -> TaskRecord:
    order = order_of_key(found.task)
    process = Process(found.pid, 0, boot) if found.pid else None
    phase = Phase.RUNNING if found.running else Phase.EXITED
    return TaskRecord(order, phase, process, None if found.running else UNSEEN)


def order_of_key(key: str) -> TaskOrder:
    """The part of an order that a task's name gives away."""
    name, _, generation = key.rpartition("#")
    job, _, rest = name.partition("/")
    role, _, index = rest.rpartition("/")
    return TaskOrder(
        key,
        job,
        role,
        int(index) if index.isdigit() else 0,
        int(generation) if generation.isdigit() else 0,
        Action.STOP,
    )


def announcement(agent: Agent, boot: str = "") -> HostRegistered:
    """What it says when it registers again, after a boot of this name where one is given."""
    assert agent.announced is not None, f"{agent.host} registers again and never did before"
    if boot:
        return replace(agent.announced, boot=boot, tasks=())
    tasks = tuple(
        TaskFound(
            task,
            record.process.pid if record.process else 0,
            record.phase in (Phase.LAUNCHING, Phase.RUNNING),
        )
        for task, record in sorted(agent.records.items())
    )
    return replace(agent.announced, tasks=tasks)


# What becomes true of its tasks


def launched(agent: Agent, task: str, pid: int) -> Agent:
    record = agent.records[task]
    boot = agent.announced.boot if agent.announced else ""
    return _put(agent, replace(record, phase=Phase.RUNNING, process=Process(pid, 0, boot)))


def taken_up(agent: Agent, task: str) -> Agent:
    """What its plan has it run it is launching, though our own agent might still wait with that."""
    if task in agent.records or agent.plan is None:
        return agent
    for order in agent.plan.tasks:
        if order.task == task and order.action is Action.RUN:
            return _put(agent, TaskRecord(without_secrets(order), Phase.LAUNCHING))
    return agent


def not_launched(agent: Agent, task: str) -> Agent:
    """The launch was put off before anything came of it."""
    return replace(agent, records={key: kept for key, kept in agent.records.items() if key != task})


def launch_failed(agent: Agent, task: str, error: str, user_error: bool) -> Agent:
    record = agent.records[task]
    return _put(agent, replace(record, launch_error=error or "failed", user_error=user_error))


def exited(agent: Agent, task: str, facts: ExitFacts) -> Agent:
    return _put(agent, replace(agent.records[task], phase=Phase.EXITED, exit=facts))


def end_known(agent: Agent, task: str, facts: ExitFacts) -> Agent:
    """How it ended, which its registration left open."""
    record = agent.records[task]
    if record.exit != UNSEEN:
        return agent
    return _put(agent, replace(record, exit=facts))


def unkillable(agent: Agent, task: str, pid: int) -> Agent:
    return _put(agent, replace(agent.records[task], unkillable_pid=pid or 1))


def gone(agent: Agent, task: str) -> Agent:
    """No process of it is left; or there never was one, and it is buried."""
    record = agent.records.get(task) or TaskRecord(order_of_key(task), Phase.GONE)
    agent = replace(agent, burying=agent.burying - {task})
    return _put(agent, replace(record, phase=Phase.GONE))


def _put(agent: Agent, record: TaskRecord) -> Agent:
    return replace(agent, records={**agent.records, record.order.task: record})


# What it does


class Doing(msgspec.Struct):
    """What a look at the plan led to. Facts to report are not marked as reported yet."""

    launch: list[TaskOrder]
    stop: list[tuple[str, int]]
    bury: list[str]
    report: list[tuple[str, Fact]]

    @property
    def nothing(self) -> bool:
        return not (self.launch or self.stop or self.bury or self.report)


def look(agent: Agent, *, fenced: bool = False) -> tuple[Agent, Doing]:
    """Everything to do now. Records of launches and stops are written; nothing else has happened
    yet."""
    doing = Doing([], [], [], [])
    for action in reconcile.decide(agent.plan, agent.records, agent.reported, fenced=fenced):
        if isinstance(action, reconcile.Launch):
            order = without_secrets(action.order)
            agent = _put(agent, TaskRecord(order, Phase.LAUNCHING))
            doing.launch.append(action.order)
        elif isinstance(action, reconcile.Stop):
            record = agent.records[action.task]
            agent = _put(agent, replace(record, stopping=True, stop_grace_ms=action.grace_ms))
            doing.stop.append((action.task, action.grace_ms))
        elif isinstance(action, reconcile.Bury):
            if action.order.task not in agent.burying:
                agent = replace(agent, burying=agent.burying | {action.order.task})
                doing.bury.append(action.order.task)
        elif isinstance(action, reconcile.Renumber):
            record = agent.records[action.order.task]
            agent = _put(agent, replace(record, order=without_secrets(action.order)))
        elif isinstance(action, reconcile.Report):
            if (action.task, action.fact.value) not in agent.withheld:
                doing.report.append((action.task, action.fact))
        else:
            records = {task: kept for task, kept in agent.records.items() if task != action.task}
            reported = {task: kept for task, kept in agent.reported.items() if task != action.task}
            agent = replace(agent, records=records, reported=reported)
    return agent, doing


def obey(agent: Agent, plan: HostPlan) -> Agent:
    """Take a plan, unless a newer one was seen."""
    if plan.incarnation != agent.incarnation:
        return agent
    if not reconcile.obeyable(plan, agent.host, agent.seen):
        return agent
    return replace(agent, plan=plan, seen=(plan.incarnation, plan.version))


# Reports


def report_of(agent: Agent, task: str, fact: Fact) -> AnyEvent:
    """The event that tells a fact, under the incarnation that the agent has now."""
    record = agent.records[task]
    about = (agent.host, agent.incarnation, task)
    if fact is Fact.STARTED:
        return TaskStarted(*about, record.process.pid if record.process else 0)
    if fact is Fact.LAUNCH_FAILED:
        return LaunchFailed(*about, record.launch_error, record.user_error)
    if fact is Fact.EXITED:
        facts = record.exit or UNSEEN
        return TaskExited(*about, **msgspec.structs.asdict(facts))
    if fact is Fact.UNKILLABLE:
        return TaskUnkillable(*about, record.unkillable_pid)
    return TaskReaped(*about)


def fact_of(event: AnyEvent) -> tuple[str, Fact] | None:
    """The fact that a report tells; None for what is told of no record."""
    fact = _FACTS.get(type(event))
    return (getattr(event, "task", ""), fact) if fact is not None else None


_FACTS: dict[type, Fact] = {
    TaskStarted: Fact.STARTED,
    LaunchFailed: Fact.LAUNCH_FAILED,
    TaskExited: Fact.EXITED,
    TaskUnkillable: Fact.UNKILLABLE,
    TaskReaped: Fact.REAPED,
}


def owes(agent: Agent, task: str, fact: Fact) -> bool:
    """Whether it is true already, and the coordinator was not told under this incarnation."""
    record = agent.records.get(task)
    if record is None or fact not in reconcile.facts(record):
        return False
    return fact not in agent.reported.get(task, NOTHING_REPORTED).sent


def sent(agent: Agent, task: str, fact: Fact) -> Agent:
    before = agent.reported.get(task, NOTHING_REPORTED)
    after = Reported(before.sent | {fact}, before.settled)
    return replace(agent, reported={**agent.reported, task: after})


def settled(agent: Agent, task: str, fact: Fact) -> Agent:
    """The coordinator has decided on it, one way or the other."""
    record = agent.records.get(task)
    if record is None or fact not in reconcile.facts(record):
        return agent
    before = agent.reported.get(task, NOTHING_REPORTED)
    after = Reported(before.sent | {fact}, before.settled | {fact})
    return replace(agent, reported={**agent.reported, task: after})
