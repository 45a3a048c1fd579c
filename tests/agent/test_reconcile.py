"""The reconciler against a dumb twin: whatever happens to plans, the host ends at the newest."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coord.agent.reconcile import (
    Bury,
    Fact,
    Forget,
    Launch,
    Renumber,
    Report,
    Reported,
    Stop,
    decide,
    facts,
    obeyable,
)
from coord.agent.records import ExitFacts, Phase, Process, TaskRecord, without_secrets
from coord.model.plans import Action, HostPlan, TaskOrder
from tests.agent.support import HOST, key, order, plan, stop_order

DEVICES = 3
TASKS = 5


class World:
    """A host that does what the reconciler says, with processes that end when they like."""

    def __init__(self) -> None:
        self.records: dict[str, TaskRecord] = {}
        self.reported: dict[str, Reported] = {}
        self.plan: HostPlan | None = None
        self.seen = (0, 0)
        self.launches: list[str] = []
        self.told: list[tuple[str, Fact]] = []
        self.stops: list[str] = []

    def receive(self, item: HostPlan) -> None:
        if obeyable(item, HOST, self.seen):
            assert (item.incarnation, item.version) >= self.seen
            self.plan = item
            self.seen = (item.incarnation, item.version)

    def act(self) -> None:
        for _ in range(20):
            actions = decide(self.plan, self.records, self.reported)
            if not actions:
                return
            for action in actions:
                self.do(action)
        raise AssertionError("the reconciler finds no end")

    def do(self, action: object) -> None:
        if isinstance(action, Launch):
            self.launch(action.order)
        elif isinstance(action, Stop):
            record = self.records[action.task]
            self.stops.append(action.task)
            self.records[action.task] = replace(
                record, stopping=True, stop_grace_ms=action.grace_ms
            )
        elif isinstance(action, Bury):
            assert action.order.task not in self.records
            self.records[action.order.task] = TaskRecord(without_secrets(action.order), Phase.GONE)
        elif isinstance(action, Report):
            self.told.append((action.task, action.fact))
            before = self.reported.get(action.task, Reported())
            self.reported[action.task] = replace(before, sent=before.sent | {action.fact})
        elif isinstance(action, Forget):
            assert self.records[action.task].phase is Phase.GONE
            del self.records[action.task]
            self.reported.pop(action.task, None)

    def launch(self, item: TaskOrder) -> None:
        assert item.task not in self.launches, f"{item.task} launched twice"
        for other in self.records.values():
            if other.holds:
                assert not set(other.order.devices) & set(item.devices), "a device given twice"
        self.launches.append(item.task)
        self.records[item.task] = TaskRecord(
            without_secrets(item), Phase.RUNNING, Process(len(self.launches), 1, "boot")
        )

    def live(self) -> list[str]:
        return sorted(task for task, record in self.records.items() if record.holds)

    # What the world does by itself

    def exit(self, task: str) -> None:
        record = self.records[task]
        if record.phase is Phase.RUNNING:
            self.records[task] = replace(record, phase=Phase.EXITED, exit=ExitFacts())

    def reap(self, task: str) -> None:
        record = self.records[task]
        if record.phase is Phase.EXITED:
            self.records[task] = replace(record, phase=Phase.GONE)

    def settle(self) -> None:
        """The coordinator has decided on all it was told."""
        self.reported = {
            task: replace(one, settled=one.sent) for task, one in self.reported.items()
        }

    def restart(self) -> None:
        """The agent is killed and started again: what is on disk is all it has."""
        self.plan = None
        self.reported = {}

    def finish(self) -> None:
        """Whatever is being stopped ends, until nothing changes any more."""
        for _ in range(20):
            self.act()
            for task in list(self.records):
                if self.records[task].stopping or self.records[task].phase is Phase.EXITED:
                    self.exit(task)
                    self.reap(task)
            self.settle()
        assert not decide(self.plan, self.records, self.reported)


def history(rng: random.Random) -> list[HostPlan]:
    """Plans as a coordinator would make them: a task is wanted, then to stop, then not named."""
    stages = dict.fromkeys(range(TASKS), 0)
    devices = {index: (rng.randrange(DEVICES),) for index in range(TASKS)}
    plans = []
    for version in range(1, 12):
        for index in range(TASKS):
            if rng.random() < 0.35:
                stages[index] = min(stages[index] + 1, 3)
        orders = [
            order(index=index, devices=devices[index])
            if stages[index] == 1
            else stop_order(index=index, grace_ms=rng.choice([1_000, 5_000]))
            for index in range(TASKS)
            if stages[index] in (1, 2)
        ]
        plans.append(plan(*orders, version=version))
    return plans


def wanted(newest: HostPlan) -> set[str]:
    return {one.task for one in newest.tasks if one.action is Action.RUN}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_any_delivery_of_plans_ends_at_the_newest(seed: int) -> None:
    """Plans are lost, repeated and reordered, processes end whenever they like, the agent is killed
    in between; in the end the host has what the newest plan wants, but for runs that are over."""
    rng = random.Random(seed)
    plans = history(rng)
    world = World()
    for _ in range(60):
        choice = rng.random()
        if choice < 0.5:
            world.receive(rng.choice(plans[:-1]))
        elif choice < 0.6 and world.records:
            world.exit(rng.choice(sorted(world.records)))
        elif choice < 0.7 and world.records:
            world.reap(rng.choice(sorted(world.records)))
        elif choice < 0.8:
            world.settle()
        elif choice < 0.85:
            world.restart()
        world.act()
    world.receive(plans[-1])
    expected = twin(plans[-1], world.records)
    world.finish()
    assert set(world.live()) == expected
    assert set(world.records) <= {one.task for one in plans[-1].tasks}
    for task, record in world.records.items():
        told = [fact for told_task, fact in world.told if told_task == task]
        assert told[-len(facts(record)) :] == list(facts(record)), "facts told out of order"


def twin(newest: HostPlan, records: dict[str, TaskRecord]) -> set[str]:
    """What runs in the end, worked out the slow way: what runs and is wanted stays; then each
    wanted task that never ran here gets its devices, first come first served, in plan order."""
    wanted = [one for one in newest.tasks if one.action is Action.RUN]
    running = {
        one.task
        for one in wanted
        if one.task in records and records[one.task].phase is Phase.RUNNING
    }
    taken = [device for task in sorted(running) for device in records[task].order.devices]
    for one in wanted:
        if one.task in records:
            continue
        if not any(device in taken for device in one.devices):
            running.add(one.task)
        taken += one.devices
    return running


def test_no_plan_older_than_one_seen_is_obeyed() -> None:
    """Neither an older version nor an older incarnation with a higher version; the same again is
    harmless; another host's never."""
    assert obeyable(plan(version=5, incarnation=2), HOST, (2, 5))
    assert obeyable(plan(version=6, incarnation=2), HOST, (2, 5))
    assert obeyable(plan(version=1, incarnation=3), HOST, (2, 5))
    assert not obeyable(plan(version=4, incarnation=2), HOST, (2, 5))
    assert not obeyable(plan(version=9, incarnation=1), HOST, (2, 5))
    assert not obeyable(plan(version=9, incarnation=9), "h2", (2, 5))


def test_a_stop_for_what_never_ran_is_reaped_at_once_and_bars_the_launch() -> None:
    """Also when a plan that wants it run is obeyed after all."""
    world = World()
    world.receive(plan(stop_order(), version=2))
    world.act()
    assert world.told == [(key(), Fact.REAPED)]
    world.receive(plan(order(), version=1))
    world.act()
    world.receive(plan(order(), version=3))
    world.act()
    assert world.launches == []
    assert world.told == [(key(), Fact.REAPED)]


def test_a_record_is_kept_until_its_end_is_decided_on_and_unplanned() -> None:
    """Either alone is not enough."""
    gone = TaskRecord(order(), Phase.GONE, Process(1, 1, "b"), ExitFacts())
    everything = frozenset(facts(gone))
    sent, settled = Reported(everything), Reported(everything, everything)
    without, with_it = plan(version=2), plan(stop_order(), version=1)
    assert decide(without, {key(): gone}, {key(): sent}) == ()
    assert decide(with_it, {key(): gone}, {key(): settled}) == ()
    assert decide(without, {key(): gone}, {key(): settled}) == (Forget(key()),)


def test_only_a_shorter_grace_counts() -> None:
    """A stop is repeated when its grace shrinks (a preemption's deadline), not when it grows."""
    stopping = TaskRecord(
        order(), Phase.RUNNING, Process(1, 1, "b"), stopping=True, stop_grace_ms=500
    )
    told = {key(): Reported(frozenset([Fact.STARTED]))}
    assert decide(plan(stop_order(grace_ms=900), version=1), {key(): stopping}, told) == ()
    assert decide(plan(stop_order(grace_ms=100), version=1), {key(): stopping}, told) == (
        Stop(key(), 100),
    )


def test_without_a_plan_there_are_only_reports() -> None:
    """Between two registrations nothing is started or stopped."""
    running = TaskRecord(order(), Phase.RUNNING, Process(1, 1, "b"))
    assert decide(None, {key(): running}, {}) == (Report(key(), Fact.STARTED),)


def test_a_fenced_host_starts_nothing_exclusive() -> None:
    """Other tasks start as ever."""
    item = plan(order(index=0, exclusive=True), order(index=1), version=1)
    started = decide(item, {}, {}, fenced=True)
    assert [one.order.task for one in started if isinstance(one, Launch)] == [key(1)]


def test_an_unkillable_task_keeps_its_devices() -> None:
    """What cannot be killed frees nothing; a launch on other devices does not wait for it."""
    stuck = TaskRecord(
        order(devices=(0,)), Phase.RUNNING, Process(7, 1, "b"), stopping=True, unkillable_pid=7
    )
    told = {key(): Reported(frozenset(facts(stuck)))}
    item = plan(order(index=1, devices=(0,)), order(index=2, devices=(1,)), version=1)
    actions = decide(item, {key(): stuck}, told)
    assert [one.order.task for one in actions if isinstance(one, Launch)] == [key(2)]


def test_a_port_that_the_plan_gives_twice_is_not_waited_for() -> None:
    """A host with more gangs than ports gives some again; one of a task that is to end is."""
    first, second = order(index=0, ports=(20_000,)), order(index=1, ports=(20_000,))
    held = {key(0): TaskRecord(first, Phase.RUNNING, Process(7, 1, "b"))}
    told = {key(0): Reported(frozenset([Fact.STARTED]))}
    assert decide(plan(first, second, version=1), held, told) == (Launch(second),)
    assert decide(plan(first, second, version=1), {}, {}) == (Launch(first), Launch(second))
    assert decide(plan(second, version=1), held, told) == (Stop(key(0), first.grace_ms),)


def test_a_run_that_takes_a_rank_is_written_down_and_not_launched() -> None:
    """A hot spare is promoted under its key, once; also if it has ended meanwhile."""
    waits = order(index=2, generation=2)
    taken = replace(waits, index=0, generation=3, ports=(20_000,), env={"RANK": "0"})
    told = {waits.task: Reported(frozenset([Fact.STARTED, Fact.EXITED]))}
    for phase, how in ((Phase.RUNNING, None), (Phase.EXITED, ExitFacts())):
        record = TaskRecord(waits, phase, Process(7, 1, "b"), how)
        assert decide(plan(taken, version=1), {waits.task: record}, told) == (Renumber(taken),)
        noted = replace(record, order=without_secrets(taken))
        assert decide(plan(taken, version=1), {waits.task: noted}, told) == ()
