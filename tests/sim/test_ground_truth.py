"""Each property of the ground truth speaks up when it is broken, and only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from coord_sim.world import ground_truth
from coord_sim.world.ground_truth import PROPERTIES
from coord_sim.world.hosts import SimHost
from coord_sim.world.ranks import SimRank
from coord_sim.world.violation import Violation
from msgspec.structs import replace

from coord.agent.ports import LaunchSpec
from coord.core.state import State
from coord.model import decisions, events
from coord.model.decisions import AnyDecision
from coord.model.entities import Task, TaskStatus
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import AnyEvent, ClockAdvanced
from coord.model.spec import JobSpec, RoleSpec
from tests.sim.small_fleet import SmallFleet, role

GANG = "lone/trainer"
PATH = "/checkpoints/step-0000000004-gen-1"


@pytest.fixture
def fleet() -> Iterator[SmallFleet]:
    with SmallFleet() as made:
        yield made


def start(
    host: SimHost, index: int = 0, generation: int = 1, devices: str = "0", **env: str
) -> SimRank:
    """A process that no agent started."""
    task = f"{GANG}/{index}#{generation}"
    environment = {
        "COORD_TASK": task,
        "COORD_JOB": "lone",
        "COORD_ROLE": "trainer",
        "COORD_INDEX": str(index),
        "COORD_GENERATION": str(generation),
        "COORD_DEVICES": devices,
        **env,
    }
    where = host.data_dir
    spec = LaunchSpec(task, ("train",), environment, "", where / "out", where / "err")
    return host.start_rank(spec)


class Log:
    """A log of our own making, as `GroundTruth.on_applied` sees one."""

    def __init__(self, fleet: SmallFleet) -> None:
        self._fleet = fleet
        self._index = 10_000

    def say(self, event: AnyEvent, *made: AnyDecision, rejection: str = "") -> None:
        self._index += 1
        entry = Entry(self._index, 1, 0, Origin("node:1"), event)
        record = Recorded(entry, 0, "", tuple(made), rejection)
        self._fleet.truth.on_applied(1, (record,), State())

    def decide(self, *made: AnyDecision) -> None:
        self.say(ClockAdvanced(), *made)

    def place(self, generation: int = 1, size: int = 1, restore_step: int = -1) -> None:
        tasks = tuple(f"{GANG}/{index}#{generation}" for index in range(size))
        placements = tuple(decisions.Placement(task, "h1") for task in tasks)
        self.decide(
            decisions.TasksPlaced(
                (), "lone", GANG, generation, placements, restore_step=restore_step
            )
        )

    def commit(self, generation: int = 1, path: str = PATH) -> None:
        self.decide(decisions.CheckpointCommitted((), "lone", GANG, generation, 4, path))


Break = Callable[[SmallFleet, Log], None]


def two_owners(fleet: SmallFleet, log: Log) -> None:
    start(fleet.host(), 0, devices="0,1")
    start(fleet.host(), 1, devices="1")


def launched_again(fleet: SmallFleet, log: Log) -> None:
    start(fleet.host()).exit(1)
    start(fleet.host())


def lives_twice(fleet: SmallFleet, log: Log) -> None:
    start(fleet.host(1))
    start(fleet.host(2))


def exclusive_twice(fleet: SmallFleet, log: Log) -> None:
    exclusive = RoleSpec("trainer", ("train",), exclusive=True)
    log.say(events.JobSubmitted(JobSpec("lone", (exclusive,)), "me"))
    start(fleet.host(1), generation=1)
    start(fleet.host(2), generation=2)


def lives_after_reaping(fleet: SmallFleet, log: Log) -> None:
    log.say(events.TaskReaped("h1", 1, f"{GANG}/0#1"))
    start(fleet.host())


def reaped_alive(fleet: SmallFleet, log: Log) -> None:
    rank = start(fleet.host())
    rank.child_pid = 77
    rank.exit(0)
    log.say(events.TaskReaped("h1", 1, rank.task))


def started_never(fleet: SmallFleet, log: Log) -> None:
    rank = start(fleet.host())
    log.say(events.TaskStarted("h1", 1, rank.task, rank.process.pid + 1))


def exited_otherwise(fleet: SmallFleet, log: Log) -> None:
    rank = start(fleet.host())
    rank.exit(1)
    log.say(events.TaskExited("h1", 1, rank.task, exit_code=0))


def succeeded_by_failing(fleet: SmallFleet, log: Log) -> None:
    log.place(size=2)
    start(fleet.host(), 0).exit(0)
    start(fleet.host(), 1).exit(3)
    log.decide(decisions.GangSucceeded((), "lone", GANG, 1))


def succeeded_by_leaving(fleet: SmallFleet, log: Log) -> None:
    log.place()
    rank = start(fleet.host(), SIM_ON_SIGTERM="leave")
    rank.signal(15)
    rank.exit(0)
    log.decide(decisions.GangSucceeded((), "lone", GANG, 1))


def commits_of_old(fleet: SmallFleet, log: Log) -> None:
    log.place(generation=1)
    rank = start(fleet.host())
    fleet.host().rank_saved(rank, 4, PATH, "d")
    log.place(generation=2)
    log.commit(generation=1)


def shard_of_nobody(fleet: SmallFleet, log: Log) -> None:
    rank = start(fleet.host())
    fleet.host().rank_saved(rank, 4, PATH, "d")
    log.say(events.ShardSaved("h1", 1, rank.task, 4, PATH, "rank-00000.bin", "other"))


def commits_half(fleet: SmallFleet, log: Log) -> None:
    log.place(size=2)
    fleet.host().rank_saved(start(fleet.host()), 4, PATH, "d")
    log.commit()


def restores_nothing(fleet: SmallFleet, log: Log) -> None:
    log.place()
    start(fleet.host(), COORD_RESTORE=PATH, COORD_RESTORE_STEP="4")


def restores_older(fleet: SmallFleet, log: Log) -> None:
    log.place(generation=1, restore_step=8)
    log.place(generation=2, restore_step=4)


def lives_unknown(fleet: SmallFleet, log: Log) -> None:
    start(fleet.host())
    fleet.truth.check_agreement(fleet.state)


BREAKS: dict[str, Break] = {
    ground_truth.ONE_OWNER: two_owners,
    ground_truth.ONE_LAUNCH: launched_again,
    ground_truth.ONE_RUN: lives_twice,
    ground_truth.EXCLUSIVE: exclusive_twice,
    ground_truth.BURIED: lives_after_reaping,
    ground_truth.REAPED: reaped_alive,
    ground_truth.STARTED: started_never,
    ground_truth.EXITED: exited_otherwise,
    ground_truth.SUCCEEDED: succeeded_by_failing,
    ground_truth.CURRENT: commits_of_old,
    ground_truth.SAVED: shard_of_nobody,
    ground_truth.WHOLE: commits_half,
    ground_truth.RESTORED: restores_nothing,
    ground_truth.FORWARD: restores_older,
    ground_truth.AGREED: lives_unknown,
}


@pytest.mark.parametrize(
    ("sentence", "broken"),
    [
        *[(sentence, BREAKS[sentence]) for sentence in PROPERTIES],
        (ground_truth.SUCCEEDED, succeeded_by_leaving),
    ],
)
def test_a_broken_property_ends_the_simulation(
    fleet: SmallFleet, sentence: str, broken: Break
) -> None:
    """With its sentence, and a detail that names the offender."""
    broken(fleet, Log(fleet))
    with pytest.raises(Violation) as caught:
        fleet.run_for(1)
    assert caught.value.property == sentence
    assert "lone" in caught.value.detail


class TestWhatIsAllowed:
    def test_a_run_again_after_a_boot(self, fleet: SmallFleet) -> None:
        """What was placed and had not been reported before its host lost power."""
        start(fleet.host())
        fleet.host().power_cycle(0.1)
        fleet.run_for(1)
        start(fleet.host())
        fleet.run_for(1)

    def test_a_successor_beside_a_run_that_is_cut_off(self, fleet: SmallFleet) -> None:
        """Unless the task is exclusive; devices are another host's."""
        start(fleet.host(1), generation=1)
        start(fleet.host(2), generation=2)
        fleet.run_for(1)

    def test_an_exit_that_nobody_saw(self, fleet: SmallFleet) -> None:
        """It has happened; how, is not said."""
        rank = start(fleet.host())
        rank.exit(0)
        Log(fleet).say(events.TaskExited("h1", 1, rank.task, observed=False))
        fleet.run_for(1)

    def test_an_orderly_exit_at_the_fence_told_as_a_signal(self, fleet: SmallFleet) -> None:
        """What an agent ends unasked is no success, whatever code the task chose."""
        rank = start(fleet.host())
        rank.exit(0)
        error = "exited with code 0, ended by its agent (it is exclusive)"
        Log(fleet).say(events.TaskExited("h1", 1, rank.task, signal=15, error=error))
        fleet.run_for(1)

    def test_what_the_log_refuses(self, fleet: SmallFleet) -> None:
        """A rejected report changes nothing, so it need not be true."""
        log = Log(fleet)
        log.say(events.TaskReaped("h1", 1, start(fleet.host()).task), rejection="unknown_task")
        fleet.run_for(1)

    def test_a_name_used_again(self, fleet: SmallFleet) -> None:
        """A new job of a forgotten one's name begins anew."""
        log = Log(fleet)
        log.place(generation=1, restore_step=8)
        start(fleet.host()).exit(0)
        log.say(events.JobSubmitted(JobSpec("lone", (RoleSpec("trainer", ("train",)),)), "me"))
        log.place(generation=1)
        start(fleet.host())
        fleet.run_for(1)

    def test_a_task_taken_away_by_a_resize_and_wanted_again(self, fleet: SmallFleet) -> None:
        """It went with its checkpoints: the next one of its name begins at the beginning."""
        fleet.submit(role(last_step=50, gang=False, min_replicas=1))
        _, taken = fleet.until_running("job/trainer/0#1", "job/trainer/1#2")
        taken.exit(1)
        (taken,) = fleet.until_running("job/trainer/1#3")
        fleet.until(lambda: fleet.state.newest_checkpoint("job/trainer/1"), "checkpoint")
        taken.exit(1)
        (taken,) = fleet.until_running("job/trainer/1#4")
        assert taken.env["COORD_RESTORE"]
        fleet.ask(events.JobResizeRequested("job", "trainer", 1, "me"))
        fleet.until(lambda: "job/trainer/1" not in fleet.state.gangs, "end of the second")
        fleet.ask(events.JobResizeRequested("job", "trainer", 2, "me"))
        (again,) = fleet.until_running("job/trainer/1#5")
        assert not again.env["COORD_RESTORE"]
        fleet.run_for(5)

    def test_a_gang_that_was_asked_to_end(self, fleet: SmallFleet) -> None:
        """A service that is stopped when its job is done succeeds, whatever its processes do."""
        log = Log(fleet)
        log.place()
        start(fleet.host()).exit(3)
        log.decide(decisions.TasksStopping((), "lone", GANG, 1, "job_ended", "", ()))
        log.decide(decisions.GangSucceeded((), "lone", GANG, 1))
        fleet.run_for(1)


def test_disagreements_name_both_sides(fleet: SmallFleet) -> None:
    """What the state says runs and does not live; what lives and the state knows otherwise."""
    fleet.submit(role(replicas=1, last_step=50))
    (rank,) = fleet.until_running("job/trainer/0#1")
    assert fleet.truth.disagreements(fleet.state) == []
    view = fleet.state.view()
    row: Task = view.tasks[rank.task]
    view.tasks.put(rank.task, replace(row, status=TaskStatus.STOPPING))
    assert "stopping" in fleet.truth.disagreements(view)[0]
    rank.exit(1)
    (told,) = fleet.truth.disagreements(fleet.state)
    assert told == f"{rank.task} runs on {rank.host.name} by the state, not in truth"
