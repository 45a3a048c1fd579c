"""The recovery-path races 10 to 35, each told to the core in both orders. The numbers are those of
the list that the design refers to; `README.md` here says which transcript shows each in detail.

Whatever is told runs through the driver of `World`: at every entry all invariants hold, a rejection
changes nothing, and a twin that is reloaded from its rows decides the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import TypeVar

from coord.agent.reconcile import obeyable
from coord.core.plans import host_plan
from coord.core.state import State
from coord.model import decisions as d
from coord.model.care_decisions import DomainSilent
from coord.model.decision import Decision
from coord.model.entities import Gang, HostStatus, JobStatus, TaskStatus
from coord.model.events import HeartbeatsSeen
from coord.model.plans import HostPlan

from .transcript import Transcript

Side = tuple[str, ...]
Kind = TypeVar("Kind", bound=Decision)

NEW = "configure logic=2"
OLD_OWNERS = (TaskStatus.ORPHANED, TaskStatus.LOST, TaskStatus.UNKILLABLE)


class Race:
    """A cluster in which something was told."""

    def __init__(self, *lines: str, configure: str = NEW) -> None:
        self._transcript = Transcript()
        self.tell("leader 1", configure, *lines)

    def tell(self, *lines: str) -> None:
        for line in lines:
            self._transcript.command(line)

    @property
    def state(self) -> State:
        return self._transcript.driver.state

    def gang(self, key: str = "d/t") -> Gang:
        return self.state.gangs[key]

    def decided(self, kind: type[Kind]) -> list[Kind]:
        records = self._transcript.driver.records
        return [one for record in records for one in record.decisions if isinstance(one, kind)]

    def rejections(self) -> list[str]:
        """Of the newest entries, oldest first."""
        return [record.rejection for record in self._transcript.driver.records]

    def send(self, event: HeartbeatsSeen) -> None:
        self._transcript.driver.send(event)

    def live_owners(self, host: str) -> dict[int, list[str]]:
        """Device -> tasks that are meant to run on it."""
        owners: dict[int, list[str]] = {}
        for key in self.state.hosts[host].tasks:
            task = self.state.tasks[key]
            if task.status not in OLD_OWNERS:
                for device in task.devices:
                    owners.setdefault(device, []).append(key)
        return owners


def orders(setup: Side, *sides: Side, configure: str = NEW) -> Iterator[Race]:
    """The same cluster once for every order of what races."""
    for order in permutations(sides):
        race = Race(*setup, configure=configure)
        for side in order:
            race.tell(*side)
        yield race


def hosts(*names: str, more: str = "devices=1") -> Side:
    return tuple(f"host {name} {more}" for name in names)


def restart(key: str, generation: int) -> Side:
    """The rest of a gang of two whose first rank has failed ends."""
    task = f"{key}/1#{generation}"
    return (f"exited {task} signal=15 expected", f"reaped {key}/0#{generation}", f"reaped {task}")


ONE = (*hosts("h1"), "submit d: t x1 devices=1", "started d/t/0#1")
PAIR = (
    *hosts("h1", "h2"),
    "submit d: t x2 devices=1",
    "started d/t/*#1",
    "progress d/t/*#1 step=1",
)


def test_race_10_a_device_has_one_live_owner_while_host_and_replacement_race() -> None:
    """The lost host returns with its process alive; elsewhere the replacement is placed."""
    setup = (*ONE, "run 3500 but h1")
    for race in orders(setup, ("host h1 found=d/t/0#1:100",), hosts("h2")):
        assert race.state.tasks["d/t/0#1"].status == TaskStatus.ORPHANED
        assert len(race.decided(d.TasksPlaced)) == 2
        race.tell("submit e: t x1 devices=1")
        for host in ("h1", "h2"):
            assert all(len(owners) == 1 for owners in race.live_owners(host).values())
        assert not race.live_owners("h1")


def test_race_11_incarnations_only_grow_whichever_of_old_beat_and_register_is_first() -> None:
    for race in orders(hosts("h1"), ("host h1 boot=b2",), ("beat h1 incarnation=1",)):
        host = race.state.hosts["h1"]
        assert (host.incarnation, host.status) == (2, HostStatus.UP)
        race.tell("run 3500 but h1", "beat h1 incarnation=1", "beat h1 incarnation=2")
        assert race.state.hosts["h1"].status == HostStatus.LOST
        race.tell("host h1")
        assert race.state.hosts["h1"].incarnation == 3


def test_race_12_a_renewed_lease_is_not_expired_by_the_clock_beside_it() -> None:
    """The clock judges last in a batch; a beat that comes after the verdict revives nothing."""
    found = []
    for race in orders((*hosts("h1"), "run 2500 but h1", "+400"), ("beat h1",), ("tick",)):
        race.tell("tick")
        found.append(race.state.hosts["h1"].status)
    assert found == [HostStatus.UP, HostStatus.UP]
    late = Race(*hosts("h1"), "run 3500 but h1", "beat h1", "tick")
    assert late.state.hosts["h1"].status == HostStatus.LOST


def test_race_13_no_mass_expiry_after_a_leader_change_nor_an_endless_extension() -> None:
    silence = ("run 2000 but h1 h2",)
    for race in orders(hosts("h1", "h2", "h3"), ("leader 2",), silence):
        race.tell("run 500 but h1 h2")
        assert race.decided(d.HostLost) == []
        for _ in range(8):
            race.tell("leader 1", "run 1000 but h1 h2")
        assert sorted(one.host for one in race.decided(d.HostLost)) == ["h1", "h2"]


def test_race_14_only_the_leader_of_the_current_term_takes_verdicts() -> None:
    """The old leader wakes and looks at its clock, before or after the renewal at the new one."""
    setup = (*hosts("h1"), "leader 2", "run 2500 but h1", "+900")
    for race in orders(setup, ("tick term=1",), ("beat h1",)):
        race.tell("tick")
        assert race.state.hosts["h1"].status == HostStatus.UP
    gone = Race(*hosts("h1"), "leader 2", "run 2500 but h1", "+1000", "tick term=1", "tick term=1")
    assert gone.decided(d.HostLost) == []


def test_race_15_a_clock_jump_kills_no_healthy_host() -> None:
    """An hour passes at once on the leader's clock; the beat comes before or after it looks."""
    setup = (*hosts("h1"), "run 1000", "+3600000")
    for race in orders(setup, ("tick",), ("beat h1",)):
        race.tell("run 1000")
        assert race.state.hosts["h1"].status == HostStatus.UP
        assert race.decided(d.HostLost) == []


def test_race_16_a_replaced_agent_inherits_neither_beats_nor_reports() -> None:
    relaunch = ("host h1 found=d/t/0#1:100",)
    old = ("beat h1 incarnation=1", "progress d/t/0#1 step=9 incarnation=1")
    for at, race in enumerate(orders(ONE, relaunch, old)):
        assert race.state.hosts["h1"].incarnation == 2
        assert race.state.tasks["d/t/0#1"].step == (-1 if at == 0 else 9)
        assert race.gang().generation == 1
        race.tell("run 2500 but h1", "beat h1 incarnation=1", "run 1000 but h1")
        assert race.state.hosts["h1"].status == HostStatus.LOST


def test_race_17_losing_sight_of_a_host_is_not_its_death() -> None:
    """Gap, recovery, gap, recovery: the ranks that may be well are not restarted."""
    gap, recover = ("run 2000 but h1",), ("run 1000",)
    for race in orders(PAIR, gap, recover):
        race.tell(*recover, *gap, *recover, *gap, *recover)
        assert race.gang().generation == 1
        assert race.decided(d.IncidentOpened) == []
        assert race.state.hosts["h1"].status == HostStatus.UP


def test_race_18_an_agent_obeys_no_plan_older_than_one_it_has_seen() -> None:
    """A stale follower's plan and the newer one, in both orders: the newer one is obeyed last."""
    race = Race(*ONE)
    stale = host_plan(race.state, "h1")
    race.tell("cancel d")
    newer = host_plan(race.state, "h1")
    assert (newer.incarnation, newer.version) > (stale.incarnation, stale.version)
    for order in permutations((stale, newer)):
        seen, obeyed = (0, 0), stale
        for plan in order:
            if obeyable(plan, "h1", seen):
                seen, obeyed = _version(plan), plan
        assert obeyed == newer


def _version(plan: HostPlan) -> tuple[int, int]:
    return (plan.incarnation, plan.version)


def test_race_19_the_death_of_a_relay_is_not_the_death_of_its_agents() -> None:
    """Beats count by host, from whatever source: the relay's last frame may come after the first
    of the agents themselves."""
    relayed = HeartbeatsSeen("relay:r1", (0, 1), (1, 1))
    direct = HeartbeatsSeen("node:1", (0, 1), (1, 1))
    for first, second in permutations((relayed, direct)):
        race = Race(*hosts("h1", "h2"), "run 2000 but h1 h2")
        race.send(first)
        race.send(second)
        race.tell("run 1000 but h1 h2", "run 1000")
        assert race.decided(d.HostLost) == []
        assert {host.status for host in race.state.hosts.values()} == {HostStatus.UP}


def test_race_20_correlated_silence_trips_the_breaker_single_silence_does_not() -> None:
    """A switch dies; another host falls silent before or after it."""
    rack = ("a1", "a2", "a3", "a4")
    others = tuple(f"b{at}" for at in range(1, 9))
    placed = (
        *hosts(*rack, more="devices=1 place=z/p/ra"),
        *hosts(*others, more="devices=1 place=z/p/rb"),
        "submit d: t x4 devices=1",
        "started d/t/*#1",
    )
    silences = (" ".join(rack), "b8")
    for first, second in permutations(silences):
        both = f"{first} {second}"
        race = Race(*placed, f"run 1000 but {first}", f"run 3500 but {both}")
        (silent,) = race.decided(DomainSilent)
        assert (silent.domain, silent.hosts) == ("z/p/ra", rack)
        race.tell(f"run 1000 but {both}")
        assert [one.host for one in race.decided(d.HostLost)] == ["b8"]
        assert race.gang().generation == 1
        race.tell("run 2000 but b8")
        assert len(race.decided(d.HostLost)) == 1


def test_race_21_a_fenced_generation_commits_nothing() -> None:
    """The last shard of the old generation, and the beginning of the next."""
    setup = (*PAIR, "begin d/t/0#1 step=5", "shard d/t/0#1 step=5")
    fence = ("exited d/t/0#1 code=1", *restart("d/t", 1), "run 1500")
    committed = []
    for race in orders(setup, ("shard d/t/1#1 step=5",), fence):
        assert race.gang().generation == 2
        committed.append(len(race.decided(d.CheckpointCommitted)))
        assert race.gang().restore_step == (5 if committed[-1] else -1)
    assert committed == [1, 0]


def test_race_22_one_checkpoint_is_of_one_generation() -> None:
    """A shard of the old generation at a step that the new one does again."""
    fence = ("exited d/t/0#1 code=1", *restart("d/t", 1), "run 1500", "started d/t/*#2")
    setup = (*PAIR, "begin d/t/0#1 step=5", "shard d/t/0#1 step=5", *fence, "begin d/t/0#2 step=5")
    for race in orders(setup, ("shard d/t/1#1 step=5",), ("shard d/t/1#2 step=5",)):
        assert race.decided(d.CheckpointCommitted) == []
        race.tell("shard d/t/0#2 step=5")
        (done,) = race.decided(d.CheckpointCommitted)
        assert done.generation == 2


def test_race_23_restore_points_never_go_back() -> None:
    """The save of step 20 is complete before or after the one of step 30."""
    setup = (
        *PAIR,
        *(f"begin d/t/0#1 step={step}" for step in (20, 30)),
        *(f"shard d/t/0#1 step={step}" for step in (20, 30)),
    )
    for race in orders(setup, ("shard d/t/1#1 step=20",), ("shard d/t/1#1 step=30",)):
        newest = race.state.newest_checkpoint("d/t")
        assert newest is not None
        assert newest.step == 30
        race.tell("exited d/t/0#1 code=1", *restart("d/t", 1), "run 1500")
        assert race.gang().restore_step == 30


def test_race_24_a_crash_inside_a_commit_blocks_no_successor() -> None:
    """Before or after the last shard: the next generation saves the same step, or a later one."""
    setup = (*PAIR, "begin d/t/0#1 step=5", "shard d/t/0#1 step=5")
    crash = ("exited d/t/0#1 signal=9", *restart("d/t", 1), "run 1500", "started d/t/*#2")
    for race in orders(setup, crash, ("shard d/t/1#1 step=5",)):
        for step in (5, 6):
            race.tell(f"begin d/t/0#2 step={step}", f"shard d/t/*#2 step={step}")
        newest = race.state.newest_checkpoint("d/t")
        assert newest is not None
        assert (newest.step, newest.generation) == (6, 2)


def test_race_25_what_a_restart_needs_is_not_forgotten() -> None:
    """Newer saves push the old ones out, before or after a restart chose one of them."""

    def save(generation: int, *steps: int) -> Side:
        told: list[str] = []
        for step in steps:
            told += [f"begin d/t/0#{generation} step={step}"]
            told += [f"shard d/t/{rank}#{generation} step={step}" for rank in (0, 1)]
        return tuple(told)

    crash = ("exited d/t/0#1 code=1", *restart("d/t", 1), "run 1500")
    for race in orders((*PAIR, *save(1, 10)), crash, save(1, 20, 30, 40, 50)):
        gang = race.gang()
        kept = [race.state.checkpoints[key] for key in race.state.checkpoints_by_gang["d/t"]]
        assert gang.restore in [one.path for one in kept if one.committed]
        assert gang.restore_step in (10, 50)
        race.tell("started d/t/*#2", *save(2, 60, 70))
        assert race.state.newest_checkpoint("d/t").step == 70  # type: ignore[union-attr]


def test_race_26_the_newest_directory_is_not_the_newest_checkpoint() -> None:
    """A save is begun, and killed; the restart looks before or after it began."""
    setup = (*PAIR, "begin d/t/0#1 step=5", "shard d/t/*#1 step=5")
    crash = ("exited d/t/0#1 code=1", *restart("d/t", 1), "run 1500")
    for race in orders(setup, ("begin d/t/0#1 step=9",), crash):
        assert (race.gang().restore_step, race.gang().generation) == (5, 2)
        assert "step-5" in race.gang().restore


def test_race_27_a_drained_host_gets_no_work_and_stays_drained_as_a_new_incarnation() -> None:
    """While a placement is in flight."""
    setup = (*hosts("h1"), "submit d: t x1 devices=1")
    for race in orders(setup, ("drain h1",), ("host h1 boot=b2",)):
        race.tell("reaped d/t/0#1", "run 2000", "submit e: t x1 devices=1", "host h1 boot=b3")
        race.tell("run 2000")
        host = race.state.hosts["h1"]
        assert (host.drain, host.incarnation) == ("drained", 3)
        assert host.tasks == ()
        assert len(race.state.waiting) == 2


def test_race_28_a_drain_and_a_failure_make_one_replacement() -> None:
    setup = (*ONE, *hosts("h2", "h3"), "progress d/t/0#1 step=1")
    for race in orders(setup, ("drain h1",), ("run 3500 but h1",)):
        race.tell("run 2000 but h1")
        assert race.gang().generation == 2
        assert len(race.decided(d.TasksPlaced)) == 2
        assert len(race.decided(d.RestartScheduled)) == 1


def test_race_29_a_gang_is_all_or_nothing_when_a_host_is_lost_while_it_starts() -> None:
    setup = (*hosts("h1", "h2"), "submit d: t x2 devices=1")
    for race in orders(setup, ("started d/t/0#1",), ("run 3500 but h2",)):
        assert race.gang().phase != "running"
        race.tell("exited d/t/0#1 signal=15 expected", "reaped d/t/0#1", "run 1500 but h2")
        assert race.gang().live == ()
        race.tell("host h3 devices=1", "run 1500 but h2")
        assert race.gang().generation == 2
        assert {race.state.tasks[key].generation for key in race.gang().live} == {2}
        assert len(race.gang().live) == 2


def test_race_30_one_spare_serves_one_job() -> None:
    """Two gangs fail, and one place is left."""
    setup = (
        *hosts("h1", "h2"),
        "submit d: t x1 devices=1",
        "submit e: t x1 devices=1",
        "started d/t/0#1",
        "started e/t/0#1",
        "host h3 devices=1",
    )
    lose_d, lose_e = ("drain h1", "reaped d/t/0#1"), ("drain h2", "reaped e/t/0#1")
    for race in orders(setup, lose_d, lose_e):
        race.tell("run 2000")
        gangs = [race.gang("d/t"), race.gang("e/t")]
        assert sorted(gang.generation for gang in gangs) == [1, 2]
        assert list(race.state.hosts["h3"].tasks) == [
            key for gang in gangs if gang.generation == 2 for key in gang.live
        ]


def test_race_31_a_spare_that_comes_early_takes_nobodys_place() -> None:
    """A new host joins, and the lost one returns, in either order."""
    setup = (*PAIR, "run 3500 but h2", "exited d/t/0#1 signal=15 expected", "reaped d/t/0#1")
    for race in orders(setup, hosts("h3"), ("host h2",)):
        race.tell("run 2000")
        gang = race.gang()
        assert gang.generation == 2
        assert gang.hosts[0] == "h1"
        assert len(gang.live) == 2
        assert len(race.decided(d.TasksPlaced)) == 2


def test_race_32_a_started_gang_keeps_its_holes() -> None:
    """Its host is repaired; a filler of the same priority waits for the same devices."""
    setup = (*PAIR, "run 3500 but h2", "exited d/t/0#1 signal=15 expected", "reaped d/t/0#1")
    for race in orders(setup, ("submit f: t x1 devices=1",), ("host h2",)):
        race.tell("run 2000")
        assert race.gang().hosts == ("h1", "h2")
        assert race.gang().generation == 2
        assert race.gang("f/t").phase == "waiting"


def test_race_33_capacity_that_is_being_freed_is_counted_once() -> None:
    """A preemption is in flight for one gang while another is looked at."""
    setup = (
        "set-queue team quota=2 may_preempt=true notice_ms=1000",
        "set-queue guests quota=1 borrowing_limit=4",
        "host h1 devices=2",
        "submit d: t x2 devices=1 | queue=guests",
        "started d/t/*#1",
    )
    owner = ("submit e: t x1 devices=2 | queue=team", "tick")
    other = ("submit f: t x1 devices=2 | queue=guests", "tick")
    for race in orders(setup, owner, other):
        assert len(race.decided(d.GangPreempted)) == 1
        for index in (0, 1):
            race.tell(f"exited d/t/{index}#1 signal=15 expected", f"reaped d/t/{index}#1", "tick")
        race.tell("run 1000")
        assert len(race.decided(d.GangPreempted)) == 1
        assert race.gang("e/t").generation == 1
        assert (race.gang("f/t").phase, race.gang().phase) == ("waiting", "waiting")
        assert list(race.state.hosts["h1"].tasks) == ["e/t/0#1"]


def test_race_34_a_preempted_task_that_finished_frees_once() -> None:
    """The last of its gang to finish has finished the job; one that ends so after it was told to
    stop leaves its gang to be started again. Either way its device is free once."""
    phases = []
    for race in orders(ONE, ("exited d/t/0#1",), ("preempt h1 grace_ms=1000",)):
        race.tell("reaped d/t/0#1", "reaped d/t/0#1")
        assert race.rejections()[-2:] == ["", "unknown_task"]
        race.tell("host h2 devices=1", "submit e: t x1 devices=1", "run 1500")
        owners = [key for host in ("h1", "h2") for key in race.state.hosts[host].tasks]
        assert len(owners) == 1
        gang = race.gang()
        assert (gang.restarts_infrastructure, gang.restarts_user, gang.restarts_unknown) == (
            0,
            0,
            0,
        )
        phases.append((gang.phase, race.state.jobs["d"].status))
    assert phases[0] == ("succeeded", JobStatus.COMPLETED)


def test_race_35_preemptions_eat_no_budget_and_the_earliest_deadline_wins() -> None:
    """Three notices, in every order."""
    notices = tuple((f"preempt h1 grace_ms={grace_ms}",) for grace_ms in (9_000, 3_000, 6_000))
    for race in orders((*ONE, "progress d/t/0#1 step=1"), *notices):
        stops = race.state.tasks["d/t/0#1"].stop_deadline_ms
        assert stops == race.state.hosts["h1"].drain_deadline_ms
        assert stops <= 3_000 + 100
        race.tell("exited d/t/0#1 signal=15 expected", "reaped d/t/0#1", "host h2 devices=1")
        gang = race.gang()
        assert gang.generation == 2
        assert (gang.restarts_preemption, gang.restarts_infrastructure) == (1, 0)
        assert (gang.restarts_user, gang.restarts_unknown, gang.barren) == (0, 0, 0)
