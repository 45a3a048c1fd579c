"""From what is and what ought to be to what to do next. Pure: no clock, no process, no disk.

The rules, in prose:

1. A plan is obeyed when its (incarnation, version) is not older than the newest one obeyed.
2. A task that the plan wants run, and of which there is no record, is launched once its devices
   are free of every record that is not gone, its ports of every such record that is to end, and no
   other generation of it is here but what cannot be killed. A port that the plan gives to two tasks
   was given again for want of another one: waiting for it would be in vain. One record is one run:
   it never runs twice.
3. A task that the plan wants stopped, or that no plan wants, is stopped. A shorter grace than the
   one it has shortens the wait; a longer one changes nothing.
4. A stop order for a task without a record makes a record of a run that is over, so that no launch
   of the same key can follow, and yields the report that it is reaped.
5. What is true of a record is reported in the order in which it came true, each fact once an
   incarnation.
6. A process that runs under an order of another rank or generation than it was launched for is a
   hot spare that has taken a rank: its record is written anew, and nothing is launched.
7. A record is forgotten when the coordinator has heard that it is reaped and the newest plan is
   without it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from coord.agent.records import Phase, TaskRecord
from coord.model import plans
from coord.model.plans import HostPlan, TaskOrder


class Fact(enum.StrEnum):
    """What can be reported of a record, in the only order in which it can come true."""

    STARTED = "started"
    LAUNCH_FAILED = "launch_failed"
    EXITED = "exited"
    UNKILLABLE = "unkillable"
    REAPED = "reaped"


class Launch(msgspec.Struct, frozen=True):
    """Write the record, start the process, write the record."""

    order: TaskOrder


class Stop(msgspec.Struct, frozen=True):
    """SIGTERM to every process of the task, SIGKILL after the grace, until none is left."""

    task: str
    grace_ms: int


class Bury(msgspec.Struct, frozen=True):
    """Record that this run is over before it began."""

    order: TaskOrder


class Renumber(msgspec.Struct, frozen=True):
    """Record that this run has another rank now."""

    order: TaskOrder


class Report(msgspec.Struct, frozen=True):
    """Tell the coordinator."""

    task: str
    fact: Fact


class Forget(msgspec.Struct, frozen=True):
    """Delete the record."""

    task: str


Action = Launch | Stop | Bury | Renumber | Report | Forget


class Reported(msgspec.Struct, frozen=True):
    """What the coordinator was told of a record in this incarnation, and what it has decided on."""

    sent: frozenset[Fact] = frozenset()
    settled: frozenset[Fact] = frozenset()


NOTHING_REPORTED = Reported()


def obeyable(plan: HostPlan, host: str, seen: tuple[int, int]) -> bool:
    """Whether a plan may be obeyed after one with this (incarnation, version) was."""
    return plan.host == host and (plan.incarnation, plan.version) >= seen


def facts(record: TaskRecord) -> tuple[Fact, ...]:
    """What is true of a record, in the order to report it."""
    found = []
    if record.launch_error:
        found.append(Fact.LAUNCH_FAILED)
    elif record.process is not None:
        found.append(Fact.STARTED)
    if record.exit is not None:
        found.append(Fact.EXITED)
    if record.unkillable_pid:
        found.append(Fact.UNKILLABLE)
    if record.phase is Phase.GONE:
        found.append(Fact.REAPED)
    return tuple(found)


def decide(
    plan: HostPlan | None,
    records: Mapping[str, TaskRecord],
    reported: Mapping[str, Reported],
    *,
    fenced: bool = False,
) -> tuple[Action, ...]:
    """Everything to do now, in order. With no plan yet, only reports. While the host is `fenced`,
    no exclusive task is launched.

    Doing all of it and asking again yields nothing until a process, a plan or a decision of the
    coordinator changes something.
    """
    actions: list[Action] = []
    if plan is not None:
        actions += _stops(plan, records)
    for task in sorted(records):
        sent = reported.get(task, NOTHING_REPORTED).sent
        actions += [Report(task, fact) for fact in facts(records[task]) if fact not in sent]
    if plan is not None:
        actions += _forgets(plan, records, reported)
        actions += _launches(plan, records, fenced)
    return tuple(actions)


def _stops(plan: HostPlan, records: Mapping[str, TaskRecord]) -> list[Action]:
    actions: list[Action] = []
    orders = {order.task: order for order in plan.tasks}
    for task in sorted(records):
        record = records[task]
        order = orders.get(task)
        if record.phase not in (Phase.RUNNING, Phase.EXITED):
            continue
        if order is not None and order.action is plans.Action.RUN:
            if _seat(order) != _seat(record.order):
                actions.append(Renumber(order))
            continue
        grace_ms = record.order.grace_ms if order is None else order.grace_ms
        if not record.stopping or grace_ms < record.stop_grace_ms:
            actions.append(Stop(task, grace_ms))
    actions += [
        Bury(order)
        for order in plan.tasks
        if order.action is plans.Action.STOP and order.task not in records
    ]
    return actions


def _seat(order: TaskOrder) -> tuple[int, int, tuple[int, ...]]:
    return (order.index, order.generation, order.ports)


def _forgets(
    plan: HostPlan, records: Mapping[str, TaskRecord], reported: Mapping[str, Reported]
) -> list[Action]:
    wanted = {order.task for order in plan.tasks}
    return [
        Forget(task)
        for task in sorted(records)
        if task not in wanted and Fact.REAPED in reported.get(task, NOTHING_REPORTED).settled
    ]


def _launches(plan: HostPlan, records: Mapping[str, TaskRecord], fenced: bool) -> list[Action]:
    holding = [record.order for record in records.values() if record.holds]
    devices = {device for order in holding for device in order.devices}
    wanted = {order.task for order in plan.tasks if order.action is plans.Action.RUN}
    ports = {port for order in holding if order.task not in wanted for port in order.ports}
    runs = {
        _of_any_generation(record.order)
        for record in records.values()
        if record.holds and not record.unkillable_pid
    }
    actions: list[Action] = []
    for order in plan.tasks:
        if order.action is not plans.Action.RUN or order.task in records:
            continue
        free = devices.isdisjoint(order.devices) and ports.isdisjoint(order.ports)
        free = free and _of_any_generation(order) not in runs
        if free and not (fenced and order.exclusive):
            actions.append(Launch(order))
        # Also those of a launch that waits: whoever is named first in the plan comes first.
        devices.update(order.devices)
    return actions


def _of_any_generation(order: TaskOrder) -> tuple[str, str, int]:
    return (order.job, order.role, order.index)
