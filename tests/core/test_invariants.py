"""Each invariant can fail: a state is spoilt in one place, and its sentence names the culprit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from coord_sim.core_world.driver import Driver
from msgspec.structs import replace

from coord.core.invariants import INVARIANTS, violations
from coord.core.state import State
from coord.model.care import MaintainedHost, Maintenance, Quarantine, QuarantineState, Silence
from coord.model.entities import (
    Checkpoint,
    DrainState,
    FailureCause,
    GangPhase,
    Hold,
    HostStatus,
    Incident,
    JobStatus,
    Queue,
    TaskStatus,
)
from coord.model.queue import QueueSpec
from coord.model.roster import Roster

from . import spoilt_spares
from .notation import parse

HISTORY = """\
leader 1
configure
host h1 devices=2 cpu_millis=1000 memory_mib=100
host h2 devices=2 cpu_millis=1000 memory_mib=100
submit d: t x2 devices=1 cpu_millis=400 spares=1 exclusive | checkpoint_dir=/c
submit w: t x9 devices=1
started d/t/*#1
shard d/t/*#1 step=3
"""


def healthy() -> State:
    """Two hosts, a running exclusive gang with a spare and a checkpoint, and a job that waits."""
    driver = Driver(twin=False)
    for line in HISTORY.splitlines():
        for event in parse(line, driver.state).events:
            driver.send(event)
    return driver.state


def _change(state: State, table: str, key: str, **fields: object) -> None:
    rows = state.table(table)
    rows[key] = replace(rows[key], **fields)


def _two_owners(state: State) -> None:
    _change(state, "tasks", "d/t/1#1", devices=(0,))


def _shared_too_much(state: State) -> None:
    _change(state, "tasks", "d/t/0#1", device_millis=600)
    _change(state, "tasks", "d/t/1#1", host="h1", devices=(0,), device_millis=500)


def _held_and_taken(state: State) -> None:
    hold = Hold("h1", True, (0,))
    _change(state, "gangs", "w/t", holds=(hold,))


def _too_much(state: State) -> None:
    _change(state, "tasks", "d/t/0#1", cpu_millis=900)


def _too_much_memory(state: State) -> None:
    _change(state, "tasks", "d/t/0#1", memory_mib=101)


def _listed_but_gone(state: State) -> None:
    del state.tasks["d/t/0#1"]
    _change(state, "gangs", "d/t", live=("d/t/1#1",), size=1)


def _there_but_not_listed(state: State) -> None:
    _change(state, "hosts", "h1", tasks=("d/t/0#1",))


def _listed_twice(state: State) -> None:
    _change(state, "hosts", "h1", tasks=("d/t/0#1", "d/t/0#1"))


def _runs_on_the_dead(state: State) -> None:
    _change(state, "hosts", "h1", status=HostStatus.LOST)
    state.live_incarnations[0] = 0


def _given_up_but_counted(state: State) -> None:
    _change(state, "tasks", "d/t/0#1", status=TaskStatus.UNKILLABLE)


def _gone_but_counted(state: State) -> None:
    _change(state, "gangs", "w/t", live=("w/t/0#1",))


def _old_generation_counted(state: State) -> None:
    _change(state, "gangs", "d/t", generation=2)
    _change(state, "jobs", "d", generation=2)


def _planned_of_no_gang(state: State) -> None:
    _change(state, "gangs", "d/t", phase=GangPhase.STOPPING)


def _planned_of_old_generation(state: State) -> None:
    _change(state, "gangs", "d/t", generation=2, live=())


def _planned_of_nobody(state: State) -> None:
    _change(state, "tasks", "d/t/0#1", gang="x/y")


def _partly_started(state: State) -> None:
    _change(state, "gangs", "d/t", size=3)


def _waits_with_tasks(state: State) -> None:
    _change(state, "gangs", "d/t", phase=GangPhase.WAITING)
    state.waiting["d/t"] = None


def _runs_twice(state: State) -> None:
    _change(state, "tasks", "d/t/1#1", index=0)


def _lost_and_runs(state: State) -> None:
    """One is lost and not fenced, the other runs."""
    _change(state, "tasks", "d/t/1#1", index=0, status=TaskStatus.LOST)
    _change(state, "gangs", "d/t", awaits_fence=("d/t/1#1",))


def _generation_from_nowhere(state: State) -> None:
    _change(state, "jobs", "d", generation=0)


def _gang_of_no_job(state: State) -> None:
    del state.jobs["w"]


def _ended_and_runs(state: State) -> None:
    _change(state, "jobs", "d", status=JobStatus.COMPLETED)
    state.finished["d"] = None


def _restored_the_future(state: State) -> None:
    _change(state, "gangs", "d/t", restore_step=4)


def _committed_with_holes(state: State) -> None:
    _change(state, "checkpoints", "d/t#1@3", shards=("d0", ""))


def _checkpoint_of_nobody(state: State) -> None:
    state.checkpoints["x"] = Checkpoint("x/y", 1, 1, "/c", ("",))


def _kept_where_no_work_goes(state: State) -> None:
    _change(state, "hosts", "h2", quarantine="unkillable")


def _slot_taken_twice(state: State) -> None:
    _change(state, "hosts", "h2", slot=0)


def _slot_missing(state: State) -> None:
    state.last_seen_ms.pop()


def _not_in_the_queue(state: State) -> None:
    state.waiting.clear()


def _deaf(state: State) -> None:
    state.live_incarnations[1] = 7


def _checkpoint_overlooked(state: State) -> None:
    state.checkpoints_by_gang.clear()


def _behind(state: State, *slots: int, incarnation: int = 1) -> None:
    count = len(slots)
    roster = Roster("r1", 7, 1, 20, slots, (incarnation,) * count, tuple(range(count)))
    state.rosters.put("r1", roster)
    state.relay_of = dict.fromkeys(slots, "r1")


def _behind_it_twice(state: State) -> None:
    _behind(state, 0, 0)


def _behind_it_long_ago(state: State) -> None:
    _behind(state, 0, incarnation=2)


def _behind_nobody(state: State) -> None:
    state.relay_of[1] = "r1"


def _behind_another(state: State) -> None:
    _behind(state, 0, 1)
    state.relay_of[1] = "r2"


def _none_behind(state: State) -> None:
    _behind(state)


def _heard_tomorrow(state: State) -> None:
    state.last_seen_ms[1] = 86_400_000


def _gang_unlisted(state: State) -> None:
    _change(state, "jobs", "d", gangs=())


def _gang_missing(state: State) -> None:
    _change(state, "jobs", "d", gangs=("d/t", "d/s"))


def _remembers_the_forgotten(state: State) -> None:
    state.finished["x"] = None


def _open_for_ever(state: State) -> None:
    state.incidents["1"] = Incident(1, "w", "w/t", 0, FailureCause.USER, "x", "", 1, 0, 0)
    _change(state, "gangs", "w/t", phase=GangPhase.STOPPED, incident=1)
    state.waiting.clear()


def _drained_and_busy(state: State) -> None:
    _change(state, "hosts", "h1", drain=DrainState.DRAINED)


def _too_many_out(state: State) -> None:
    for name in ("h1", "h2"):
        row = Quarantine(name, QuarantineState.REPAIR, "noisy", allowed=1)
        state.quarantines[name] = row


def _out_and_used(state: State) -> None:
    state.quarantines["h1"] = Quarantine("h1", QuarantineState.QUARANTINED, "noisy")


def _tested_unasked(state: State) -> None:
    state.quarantines["h1"] = Quarantine("h1", QuarantineState.PROBATION, "noisy")
    _change(state, "hosts", "h1", test=7)


def _busy_on_probation(state: State) -> None:
    state.quarantines["h1"] = Quarantine("h1", QuarantineState.PROBATION, "noisy")
    _change(state, "hosts", "h1", probation=1)


def _busy_in_test(state: State) -> None:
    state.quarantines["h1"] = Quarantine("h1", QuarantineState.TESTING, "noisy")
    _change(state, "hosts", "h1", test=7, quarantine="noisy")


def _accused_and_gone(state: State) -> None:
    state.quarantines["h9"] = Quarantine("h9", QuarantineState.NONE)


def _maintained_too_many(state: State) -> None:
    out = (MaintainedHost("h1", "boot-1", 0), MaintainedHost("h2", "boot-1", 0))
    state.maintenances["1"] = Maintenance(1, "rack", "r1", 1, "me", "", 1, 0, out=out)


def _out_and_takes_work(state: State) -> None:
    out = (MaintainedHost("h1", "boot-1", 0),)
    state.maintenances["1"] = Maintenance(1, "rack", "r1", 1, "me", "", 1, 0, out=out)


def _silent_twice(state: State) -> None:
    for level in ("rack", "pod"):
        state.silences[f"{level}:p1"] = Silence(level, "p1", ("h1",), 2, 0, 0, "1.0")


def _overdrawn(state: State) -> None:
    spec = QueueSpec("q", borrowing_limit=0)
    state.queues["q"] = Queue("q", spec, 1)
    _change(state, "jobs", "d", spec=replace(state.jobs["d"].spec, queue="q"))
    state.put_gang(replace(state.gangs["d/t"], claim=2))


def _charged_twice(state: State) -> None:
    state.claims.queues[""] = 7


def _gives_way_and_runs(state: State) -> None:
    _change(state, "gangs", "d/t", yields_to="w/t", holds=())


def _stops_for_nobody(state: State) -> None:
    _change(state, "gangs", "w/t", victims=("d/t",))


def _started_before_they_stopped(state: State) -> None:
    _change(state, "gangs", "d/t", victims=("w/t",))


def _kept_room_and_started(state: State) -> None:
    _change(state, "gangs", "d/t", reserving=True)


def _charged_by_the_rows_alone(state: State) -> None:
    _change(state, "gangs", "d/t", claim=2)


def _charged_too_little(state: State) -> None:
    state.put_gang(replace(state.gangs["d/t"], claim=1))


def _charged_and_ended(state: State) -> None:
    state.put_gang(replace(state.gangs["w/t"], claim=9, phase=GangPhase.STOPPED))


def _works_with_nothing(state: State) -> None:
    _change(state, "tasks", "d/t/0#1", weights=2)


def _stops_with_others_unseen(state: State) -> None:
    _change(state, "gangs", "d/t", phase=GangPhase.STOPPING, together=1)


def _starts_too_early(state: State) -> None:
    _change(state, "gangs", "d/t", together=1)


Spoil = Callable[[State], None]
SPOILT: dict[str, tuple[tuple[Spoil, str], ...]] = {
    "no device serves two tasks or is kept for one while another has it": (
        (_two_owners, "device 0 of h1 is taken 2 times"),
        (_held_and_taken, "device 0 of h1 is taken 2 times"),
        (_shared_too_much, "device 0 of h1 is taken 2 times, 1100 thousandths of it"),
    ),
    "a host that never registered anew is not given more than it has": (
        (_too_much, "h1: 1300 of 1000 and 0 of 100"),
        (_too_much_memory, "h1: 800 of 1000 and 101 of 100"),
    ),
    "a host lists exactly the tasks that take something of it": (
        (_listed_but_gone, "h1 lists d/t/0#1"),
        (_there_but_not_listed, "h1 does not list d/t/1#1"),
        (_listed_twice, "h1 does not list d/t/1#1"),
    ),
    "a host that is not live runs nothing that counts": (
        (_runs_on_the_dead, "d/t/0#1 is running on h1, which is lost"),
    ),
    "a gang counts only tasks of its current generation that were not given up": (
        (_given_up_but_counted, "d/t of generation 1 counts d/t/0#1, unkillable"),
        (_gone_but_counted, "w/t counts w/t/0#1, which is gone"),
        (_old_generation_counted, "d/t of generation 2 counts d/t/0#1, running"),
    ),
    "a task that runs on a plan belongs to the current generation of an active gang": (
        (_planned_of_no_gang, "d/t/0#1 is running, its gang stopping"),
        (_planned_of_old_generation, "d/t/0#1 is running, its gang at generation 2"),
        (_planned_of_nobody, "d/t/0#1 is running, its gang gone"),
    ),
    "a gang is started whole or not at all": (
        (_partly_started, "d/t has 2 running, 0 done of 3"),
        (_waits_with_tasks, "d/t is waiting with 2 tasks"),
    ),
    "an exclusive task runs once": (
        (_runs_twice, "d/t/0 may run 2 times"),
        (_lost_and_runs, "d/t/0 may run 2 times"),
    ),
    "generations come from the job's counter": (
        (_generation_from_nowhere, "d/t is at 1, its job at 0"),
        (_gang_of_no_job, "w/t has no job"),
    ),
    "a job lists exactly its gangs": (
        (_gang_unlisted, "d does not list d/t"),
        (_gang_missing, "d lists d/s"),
    ),
    "a job that has ended has nothing left to run": (
        (_ended_and_runs, "d is completed, d/t is running"),
    ),
    "a gang restarts from its newest committed checkpoint, and never from an older one": (
        (_restored_the_future, "d/t restored step 4, none so new is committed"),
    ),
    "a committed checkpoint has every shard, all of one generation": (
        (_committed_with_holes, "d/t#1@3 lacks shards"),
        (_checkpoint_of_nobody, "x has no gang"),
    ),
    "only hosts that take work keep places for gangs": (
        (_kept_where_no_work_goes, "d/t holds a place on h2"),
    ),
    "slots are dense, and each host keeps its own": (
        (_slot_taken_twice, "h2 at 1 says 0"),
        (_slot_missing, "2 slots, 2 hosts"),
    ),
    "what is derived agrees with the rows": (
        (_not_in_the_queue, "w/t is waiting"),
        (_deaf, "h2: beats of [7] count"),
        (_checkpoint_overlooked, "checkpoint d/t#1@3 is listed 0 times"),
        (_remembers_the_forgotten, "x is forgotten"),
    ),
    "a roster names each host once, live in the incarnation that beats, in order of phases": (
        (_behind_it_twice, "slot 0 stands in rosters 2 times"),
        (_behind_it_long_ago, "r1 has slot 0 in incarnation 2, which does not beat"),
        (_behind_nobody, "slot 1 stands in no roster"),
        (_behind_another, "slot 1 of r1 is taken for one of r2"),
        (_none_behind, "roster of r1 is out of order or empty"),
    ),
    "no host was heard in the future, but for the spread of an election's new leases": (
        (_heard_tomorrow, "slot 1 at 86400000, and it is 0"),
    ),
    "an incident is open only while its gang goes on": (
        (_open_for_ever, "w/t has ended with incident 1 open"),
    ),
    "no queue uses more than its quota and what it may borrow": (
        (_overdrawn, "q uses 3000 of 0 thousandths of devices"),
        (_charged_twice, "no queue uses 0 and is charged with 7"),
    ),
    "a gang that gives way stops for one that waits, runs or has ended, and is not charged": (
        (_gives_way_and_runs, "d/t is running, claims 0 and gives way to w/t"),
        (_stops_for_nobody, "d/t does not give way to w/t"),
        (_started_before_they_stopped, "d/t is running and has others stopping for it"),
    ),
    "at most one gang has room kept from those behind it, and it waits": (
        (_kept_room_and_started, "d/t is running"),
    ),
    "a queue is charged with what runs, and with nothing that has ended": (
        (_charged_by_the_rows_alone, "d/t claims 2"),
        (_charged_too_little, "d/t claims 1 of 2"),
        (_charged_and_ended, "w/t is stopped and claims 9"),
    ),
    "a drained host is empty": ((_drained_and_busy, "h1 has 2 tasks"),),
    "no more hosts are in quarantine without approval than were allowed": (
        (_too_many_out, "2 of 1: h1, h2"),
    ),
    "a host is used as far as its quarantine allows": (
        (_out_and_used, "h1 is quarantined, marked ''"),
        (_tested_unasked, "h1 is probation, its test asked at 7"),
        (_busy_on_probation, "h1 has 2 tasks on probation with 1"),
        (_busy_in_test, "h1 has 2 tasks while it is tested"),
        (_accused_and_gone, "h9 is remembered and gone"),
    ),
    "a maintenance has no more hosts out than its limit": (
        (_maintained_too_many, "1: 2 of 1"),
        (_out_and_takes_work, "1: h1 counts as out and takes work"),
    ),
    "no more spares are kept for a gang than its role has": spoilt_spares.TOO_MANY,
    "a rank has one process, and a standby takes none": spoilt_spares.STANDBYS,
    "nobody works with weights that were not published": (
        (_works_with_nothing, "d/t/0#1 works with 2 of none"),
    ),
    "of gangs that restart together none runs before all have stopped": (
        (_stops_with_others_unseen, "d/t is stopping with 1, listed False"),
        (_starts_too_early, "d/t is running and waits for those of incident 1"),
    ),
    "a host is silent with one domain at most": ((_silent_twice, "h1 with 2"),),
}

CASES = [
    pytest.param(sentence, spoil, offender, id=spoil.__name__.strip("_"))
    for sentence, spoilt in SPOILT.items()
    for spoil, offender in spoilt
]


def test_a_healthy_state_violates_nothing() -> None:
    assert violations(healthy()) == []


def test_every_invariant_is_spoilt_at_least_once() -> None:
    """A new invariant comes with a state that violates it."""
    assert sorted(SPOILT) == sorted(INVARIANTS)


@pytest.mark.parametrize("table", ["hosts", "jobs", "gangs", "tasks", "checkpoints"])
def test_checks_survive_what_they_are_to_find(table: str) -> None:
    """A state with holes in it is reported, whatever is missing, and never makes a check crash."""
    for key in list(healthy().table(table)):
        state = healthy()
        del state.table(table)[key]
        assert violations(state), f"{key} is missing and nobody notices"


@pytest.mark.parametrize(("sentence", "spoil", "offender"), CASES)
def test_an_invariant_can_fail(sentence: str, spoil: Spoil, offender: str) -> None:
    """Its sentence appears, with the ids of the offender."""
    state = healthy()
    spoil(state)
    assert f"{sentence}: {offender}" in violations(state)
