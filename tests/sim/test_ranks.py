"""Simulated ranks: the worker contract as training code keeps it, and breaks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from coord_sim.world.habits import draw_job_habits, draw_rank_habits, fixed_by
from coord_sim.world.host_faults import heal_all

from coord.agent.endings import LEFTOVER_GRACE_S
from coord.model.decisions import HangDetected, TasksPlaced
from coord.model.entities import FINISHED_JOB, JobStatus, TaskStatus
from coord.model.events import TaskExited, TaskReaped
from tests.sim.small_fleet import SmallFleet, role

KEYS = ("job/trainer/0#1", "job/trainer/1#1")


@pytest.fixture
def fleet() -> Iterator[SmallFleet]:
    with SmallFleet(seed=2) as made:
        yield made


def until_done(fleet: SmallFleet) -> str:
    fleet.until(lambda: fleet.job().status in FINISHED_JOB, "end of the job", step_s=0.1)
    return fleet.job().status


class TestGang:
    def test_ranks_step_together(self, fleet: SmallFleet) -> None:
        """A slow one slows down the other: no step is ended before both have come to it."""
        fleet.submit(role(last_step=12))
        one, other = fleet.until_running(*KEYS)
        one.slowness = 4.0
        for _ in range(40):
            fleet.run_for(0.1)
            assert abs(one.step - other.step) <= 1
        one.go_on()
        assert until_done(fleet) == JobStatus.COMPLETED

    @pytest.mark.parametrize("hangs", [True, False])
    def test_one_that_is_gone_takes_the_others_along(self, fleet: SmallFleet, hangs: bool) -> None:
        """They block, and exit with 1 after their time-out, as if it were their own failure."""
        fleet.submit(role(last_step=12, grace_ms=20_000, env={"SIM_ON_SIGTERM": "ignore"}))
        one, other = fleet.until_running(*KEYS)
        fleet.run_for(2)
        if hangs:
            one.hang()
        else:
            one.die(11)
        fleet.until(lambda: not other.alive)
        assert other.status is not None
        assert other.status.exit_code == 1
        fleet.until(lambda: fleet.events(TaskExited, other.task))
        (exited,) = fleet.events(TaskExited, other.task)
        assert "collective time-out" in exited.error
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_a_network_that_does_not_carry_is_felt_by_all(self, fleet: SmallFleet) -> None:
        """Ranks on both sides of a cut time out; once it carries in time, they go on."""
        fleet.submit(role(last_step=12, replicas=4))
        keys = [f"job/trainer/{index}#1" for index in range(4)]
        ranks = fleet.until_running(*keys)
        assert {rank.host.name for rank in ranks} == {"h1", "h2"}
        fleet.run_for(2)
        fleet.host(1).set_fabric(False)
        fleet.run_for(2)
        fleet.host(1).set_fabric(True)
        fleet.run_for(1)
        assert all(rank.alive for rank in ranks)
        fleet.host(1).set_fabric(False)
        fleet.until(lambda: not any(rank.alive for rank in ranks))
        heal_all(fleet.hosts)
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_a_hang_is_detected_and_ended(self, fleet: SmallFleet) -> None:
        """No progress for `hang_ms`: stopped, killed after its grace, started again."""
        fleet.submit(role(last_step=12, hang_ms=2_000, env={"SIM_COLLECTIVE_S": "60"}))
        one, _ = fleet.until_running(*KEYS)
        fleet.until(lambda: one.step >= 3)
        one.hang()
        fleet.until(lambda: one.gone)
        decided = [type(each) for record in fleet.records for each in record.decisions]
        assert HangDetected in decided
        assert until_done(fleet) == JobStatus.COMPLETED


class TestStop:
    @pytest.mark.parametrize(
        ("habit", "code", "number"), [("leave", 0, 0), ("die", 0, 15), ("ignore", 0, 9)]
    )
    def test_sigterm_is_heeded_or_not(
        self, fleet: SmallFleet, habit: str, code: int, number: int
    ) -> None:
        """It leaves after its step, dies of it, or has to be killed when its grace is over."""
        fleet.submit(role(replicas=1, last_step=100, env={"SIM_ON_SIGTERM": habit}))
        (rank,) = fleet.until_running(KEYS[0])
        fleet.run_for(1)
        fleet.cancel()
        fleet.until(lambda: rank.gone)
        assert rank.status is not None
        assert (rank.status.exit_code, rank.status.signal) == (code, number)
        assert not rank.completed
        assert until_done(fleet) == JobStatus.CANCELLED

    def test_a_service_runs_until_it_is_stopped(self, fleet: SmallFleet) -> None:
        """It has no last step; the job ends with its other role."""
        service = role("server", replicas=1, last_step=0, service=True, gang=False)
        fleet.submit(role(replicas=1, last_step=6), service)
        (rank,) = fleet.until_running("job/server/0#2")
        assert until_done(fleet) == JobStatus.COMPLETED
        assert rank.step > 6
        assert rank.gone

    def test_an_unkillable_rank_keeps_its_device_and_nobody_else_waits(
        self, fleet: SmallFleet
    ) -> None:
        """It is told of, its gang goes on elsewhere, and it is reaped when it can be."""
        fleet.submit(role(replicas=1, last_step=30, hang_ms=2_000))
        (rank,) = fleet.until_running(KEYS[0])
        fleet.until(lambda: rank.step >= 2)
        rank.unkillable = True
        rank.hang()
        fleet.until(lambda: fleet.state.tasks[rank.task].status is TaskStatus.UNKILLABLE)
        (second,) = fleet.until_running("job/trainer/0#2")
        assert rank.alive
        assert (second.host, second.devices) != (rank.host, rank.devices)
        rank.let_die()
        fleet.until(lambda: fleet.events(TaskReaped, rank.task))
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_a_child_left_behind_is_ended_before_its_device_is_free(
        self, fleet: SmallFleet
    ) -> None:
        """The main process is gone; the task is reaped when the child is, too."""
        fleet.submit(role(replicas=1, last_step=30))
        (rank,) = fleet.until_running(KEYS[0])
        rank.child_pid = rank.process.pid + 1
        rank.unkillable = True  # SIGTERM reaches neither of the two.
        rank.exit(1)
        fleet.until(lambda: fleet.events(TaskExited, rank.task))
        fleet.run_for(LEFTOVER_GRACE_S)
        assert not fleet.events(TaskReaped, rank.task)
        assert rank.pids == (rank.child_pid,)
        rank.let_die()
        fleet.until(lambda: fleet.events(TaskReaped, rank.task))
        assert rank.gone
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_a_child_left_behind_ends_with_the_power(self, fleet: SmallFleet) -> None:
        """Killable or not: whoever boots afterwards finds nothing of it, and it counts no more."""
        fleet.submit(role(replicas=2, last_step=30, exclusive=True))
        ranks = fleet.until_running(*KEYS)
        host = ranks[0].host
        for rank in ranks:
            rank.child_pid = rank.process.pid + 1
            rank.unkillable = rank.number == 1
            rank.exit(1)
        assert host.runs == ranks
        host.power_off()
        assert not host.runs
        assert all(rank.gone for rank in ranks)
        ranks[1].let_die()
        host.power_on()
        fleet.until_running("job/trainer/0#2", "job/trainer/1#2")
        assert until_done(fleet) == JobStatus.COMPLETED


class TestCheckpoints:
    def test_a_restart_goes_on_where_the_last_checkpoint_was_committed(
        self, fleet: SmallFleet
    ) -> None:
        """Both ranks restore the same step, and what they save later is of their generation."""
        fleet.submit(role(last_step=12))
        one, _ = fleet.until_running(*KEYS)
        fleet.until(lambda: one.step >= 7)
        one.exit(1, "out of luck")
        ranks = fleet.until_running("job/trainer/0#2", "job/trainer/1#2")
        assert {rank.env["COORD_RESTORE_STEP"] for rank in ranks} == {"6"}
        assert ranks[0].env["COORD_RESTORE"].endswith("step-0000000006-gen-1")
        assert until_done(fleet) == JobStatus.COMPLETED
        placed = [
            each
            for record in fleet.records
            for each in record.decisions
            if isinstance(each, TasksPlaced)
        ]
        assert [each.restore_step for each in placed] == [-1, 6]

    def test_training_goes_on_while_nobody_records(self, fleet: SmallFleet) -> None:
        """Without the coordinator a checkpoint holds a rank up for a moment, not for ever; the
        shard is told of later, or the next one is."""
        fleet.submit(role(replicas=1, last_step=30))
        (rank,) = fleet.until_running(KEYS[0])
        rank.host.cut_network(to_server=False, to_caller=True)
        before = rank.step
        fleet.run_for(3)
        rank.host.heal_network()
        assert rank.step > before + 1
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_training_goes_on_without_an_agent(self, fleet: SmallFleet) -> None:
        """A rank steps on while there is nobody to tell, and tells the next one."""
        fleet.submit(role(replicas=1, last_step=40, env={"SIM_CHECKPOINT_EVERY": "0"}))
        (rank,) = fleet.until_running(KEYS[0])
        before = rank.step
        rank.host.agent_kill(2.0)
        fleet.run_for(1.9)
        assert rank.step >= before + 3
        assert until_done(fleet) == JobStatus.COMPLETED


def test_habits_are_of_the_role_and_may_be_fixed(fleet: SmallFleet) -> None:
    """What all ranks must have in common is drawn once; `serve` never ends by itself."""
    rng = fleet.kernel.rng("habits")
    assert draw_job_habits(rng, ("serve", "--port")).last_step == 0
    drawn = draw_job_habits(rng, ("train",))
    assert drawn.last_step > 0
    fixed = fixed_by({"SIM_LAST_STEP": "3", "SIM_STEP_S": "0.25"}, drawn)
    assert (fixed.last_step, fixed.step_s, fixed.collective_s) == (3, 0.25, drawn.collective_s)
    assert draw_rank_habits(rng, {"SIM_ON_SIGTERM": "ignore"}).on_sigterm == "ignore"
