"""The agent's daemon, whole, on simulated hosts: launches, its own deaths, power, the fence."""

from __future__ import annotations

import errno
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from coord_sim.kernel import Kernel, ProcessKilled, current_process
from coord_sim.world.agent_disk import AgentDisk, SimFiles
from coord_sim.world.host_faults import FAULTS, heal_all

from coord import sites
from coord.model.decisions import CheckpointCommitted, HostDraining, HostFenced, HostLost
from coord.model.entities import FINISHED_JOB, JobStatus
from coord.model.events import (
    HostRegistered,
    LaunchFailed,
    TaskExited,
    TaskReaped,
    TaskStarted,
)
from tests.sim.small_fleet import SETTINGS, SmallFleet, role

ROOT = Path(__file__).resolve().parents[2]
LEASE_S = SETTINGS.lease_ms / 1000
KEY = "job/trainer/0#1"


@pytest.fixture
def fleet() -> Iterator[SmallFleet]:
    with SmallFleet() as made:
        yield made


@pytest.fixture
def crash_at() -> Iterator[dict[str, int]]:
    """Site to visit: whatever process comes to it for that time dies there."""
    wanted: dict[str, int] = {}

    def observe(site: str) -> None:
        process = current_process()
        if site in wanted and process is not None:
            wanted[site] -= 1
            if wanted[site] == 0:
                process.die()

    sites.observe(observe)
    yield wanted
    sites.observe(None)


def until_done(fleet: SmallFleet, name: str = "job") -> str:
    fleet.until(lambda: fleet.job(name).status in FINISHED_JOB, "end of the job", step_s=0.1)
    return fleet.job(name).status


def test_a_job_runs_to_its_end(fleet: SmallFleet) -> None:
    """Registration, launch, progress, checkpoints, exit and reaping, all through the real agent."""
    fleet.submit(role(last_step=6))
    assert until_done(fleet) == JobStatus.COMPLETED
    fleet.until(lambda: not fleet.state.tasks)
    decided = [decision for record in fleet.records for decision in record.decisions]
    committed = [one.step for one in decided if isinstance(one, CheckpointCommitted)]
    assert committed == [2, 4, 6]
    assert {host.boot for host in fleet.events(HostRegistered)} == {"h1-boot-1", "h2-boot-1"}
    for index in (0, 1):
        key = f"job/trainer/{index}#1"
        assert len(fleet.events(TaskStarted, key)) == 1
        exited = fleet.events(TaskExited, key)
        assert [(one.exit_code, one.signal, one.observed) for one in exited] == [(0, 0, True)]
        assert len(fleet.events(TaskReaped, key)) == 1
    assert fleet.truth.launches == 2
    fleet.truth.check_agreement(fleet.state)


class TestDeathOfTheAgent:
    @pytest.mark.parametrize("site", [site for site in sites.SITES if site.startswith("agent.")])
    def test_at_each_site_no_run_is_lost_or_doubled(
        self, fleet: SmallFleet, crash_at: dict[str, int], site: str
    ) -> None:
        """Wherever it dies, the next one goes on, and the job comes to its end."""
        crash_at[site] = 1
        fleet.submit(role(last_step=4))
        assert until_done(fleet) == JobStatus.COMPLETED
        assert crash_at[site] <= 0, "the site was not reached"
        fleet.until(lambda: not fleet.state.tasks)
        fleet.truth.check_agreement(fleet.state)

    def test_before_the_process_there_is_none(
        self, fleet: SmallFleet, crash_at: dict[str, int]
    ) -> None:
        """The record speaks of a launch, no process bears its mark: the launch has failed."""
        crash_at["agent.launch.recorded"] = 1
        fleet.submit(role(replicas=1))
        fleet.until(lambda: fleet.events(LaunchFailed, KEY))
        (failed,) = fleet.events(LaunchFailed, KEY)
        assert "killed while it started" in failed.error
        assert not fleet.events(TaskStarted, KEY)
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_before_the_pid_is_on_record_the_mark_finds_it(
        self, fleet: SmallFleet, crash_at: dict[str, int]
    ) -> None:
        """The process lives on, and is not started twice."""
        crash_at["agent.launch.started"] = 1
        fleet.submit(role(replicas=1, last_step=20))
        (rank,) = fleet.until_running(KEY)
        assert rank.process.pid == fleet.state.tasks[KEY].pid
        assert until_done(fleet) == JobStatus.COMPLETED
        assert fleet.truth.launches == 1

    def test_its_tasks_go_on(self, fleet: SmallFleet) -> None:
        """Killed, and stopped as for an upgrade: the next one adopts the same processes."""
        fleet.submit(role(last_step=60))
        before = fleet.until_running(KEY, "job/trainer/1#1")
        for host in fleet.hosts.hosts.values():
            host.agent_kill()
        fleet.run_for(4)
        for host in fleet.hosts.hosts.values():
            host.agent_stop()
        fleet.run_for(4)
        assert fleet.until_running(KEY, "job/trainer/1#1") == before
        assert all(host.incarnation == 3 for host in fleet.state.hosts.values())

    @pytest.mark.parametrize("tells", [True, False])
    def test_what_ends_meanwhile_is_known_from_the_keeper(
        self, fleet: SmallFleet, tells: bool
    ) -> None:
        """Where the kernel tells the keeper; else it counts as not observed, never as success."""
        fleet.submit(role(replicas=1, last_step=60))
        (rank,) = fleet.until_running(KEY)
        rank.host.kernel_tells = tells
        fleet.run_for(1)
        rank.host.agent_kill(1.5)
        rank.exit(0)
        fleet.until(lambda: fleet.events(TaskExited, KEY))
        (exited,) = fleet.events(TaskExited, KEY)
        assert exited.observed is tells
        assert fleet.state.gangs["job/trainer"].succeeded == int(tells)

    def test_a_disk_that_is_full_loses_nothing(self, fleet: SmallFleet) -> None:
        """What cannot be recorded is not launched; with exclusive tasks the agent lives on."""
        fleet.submit(role(replicas=1, last_step=80, exclusive=True))
        (rank,) = fleet.until_running(KEY)
        agents = [host.agent for host in fleet.hosts.hosts.values()]
        for host in fleet.hosts.hosts.values():
            host.disk.full = True
        fleet.submit(role(replicas=1), name="late")
        fleet.until(lambda: fleet.events(LaunchFailed, "late/trainer/0#1"))
        fleet.run_for(2)
        assert [host.agent for host in fleet.hosts.hosts.values()] == agents
        assert rank.alive
        heal_all(fleet.hosts)
        assert until_done(fleet, "late") == until_done(fleet) == JobStatus.COMPLETED


class TestPower:
    def test_a_host_comes_back_empty_and_the_job_starts_from_its_checkpoint(
        self, fleet: SmallFleet
    ) -> None:
        """Another boot, nothing found of before; what was committed is not done again."""
        fleet.submit(role(replicas=1, last_step=20))
        (rank,) = fleet.until_running(KEY)
        fleet.until(lambda: rank.step >= 5)
        rank.host.power_cycle(1.0)
        assert not rank.alive
        (second,) = fleet.until_running("job/trainer/0#2")
        assert second.env["COORD_RESTORE_STEP"] == "4"
        assert rank.host.boots == 2
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_what_was_placed_and_not_started_is_launched_after_the_boot(
        self, fleet: SmallFleet
    ) -> None:
        """The power fails between launch and report; the new boot may run the task once more,
        as not one process of the first run is left."""
        for host in fleet.hosts.hosts.values():
            host.cut_network(to_server=True, to_caller=False)
        fleet.submit(role(replicas=1))
        rank = fleet.until(lambda: fleet.rank(KEY), step_s=0.001)
        rank.host.power_cycle(0.5)
        for host in fleet.hosts.hosts.values():
            host.heal_network()
        assert until_done(fleet) == JobStatus.COMPLETED
        assert fleet.truth.launches >= 2

    def test_a_preempted_host_is_left_in_time(self, fleet: SmallFleet) -> None:
        """Its agent tells of the notice; the job goes elsewhere before the machine is gone."""
        fleet.submit(role(replicas=1, last_step=60))
        (rank,) = fleet.until_running(KEY)
        rank.host.notice_preemption(8.0)
        (second,) = fleet.until_running("job/trainer/0#2")
        assert second.host is not rank.host
        decided = [one for record in fleet.records for one in record.decisions]
        assert [one.host for one in decided if isinstance(one, HostDraining)] == [rank.host.name]


class TestFence:
    @pytest.mark.parametrize("how", ["cut", "paused", "killed"])
    def test_an_exclusive_task_is_gone_before_its_successor_starts(
        self, fleet: SmallFleet, how: str
    ) -> None:
        """Its agent ends it when heartbeats go unanswered; for one that is paused or dead the
        keeper does."""
        fleet.submit(
            role(replicas=1, last_step=60, exclusive=True, env={"SIM_ON_SIGTERM": "ignore"})
        )
        (rank,) = fleet.until_running(KEY)
        began_s = fleet.kernel.now_s()
        if how == "cut":
            rank.host.cut_network()
        elif how == "paused":
            rank.host.agent_pause()
        else:
            rank.host.agent_kill(math.inf)
        fleet.until(lambda: rank.gone)
        assert fleet.kernel.now_s() - began_s <= LEASE_S
        assert rank.status is not None
        assert rank.status.signal == 9
        (second,) = fleet.until_running("job/trainer/0#2")
        assert second.host is not rank.host
        decided = [type(one) for record in fleet.records for one in record.decisions]
        assert decided.index(HostLost) < decided.index(HostFenced)
        heal_all(fleet.hosts)
        assert until_done(fleet) == JobStatus.COMPLETED

    @pytest.mark.parametrize("how", ["paused", "killed"])
    def test_an_agent_that_stops_while_it_launches_is_fenced_all_the_same(
        self, fleet: SmallFleet, how: str
    ) -> None:
        """The keeper knows the deadline before there is a process that it must end."""
        stopped: list[str] = []

        def stop(site: str) -> None:
            process = current_process()
            if site != "agent.launch.started" or stopped or process is None:
                return
            stopped.append(process.name)
            host = fleet.hosts.hosts[process.name.partition(":")[0]]
            if how == "paused":
                host.agent_pause()
            else:
                host.agent_kill(math.inf)

        sites.observe(stop)
        try:
            fleet.submit(role(replicas=1, last_step=60, exclusive=True))
            rank = fleet.until(lambda: fleet.rank(KEY))
            began_s = fleet.kernel.now_s()
            fleet.until(lambda: stopped and rank.gone)
        finally:
            sites.observe(None)
        assert fleet.kernel.now_s() - began_s <= LEASE_S
        heal_all(fleet.hosts)
        assert until_done(fleet) == JobStatus.COMPLETED

    def test_another_task_may_run_on_beside_its_successor(self, fleet: SmallFleet) -> None:
        """That is allowed, and no violation; it ends when its host is heard again."""
        fleet.submit(role(replicas=1, last_step=100))
        (rank,) = fleet.until_running(KEY)
        rank.host.cut_network()
        (second,) = fleet.until_running("job/trainer/0#2")
        assert rank.alive
        rank.host.heal_network()
        fleet.until(lambda: rank.gone)
        assert second.alive
        fleet.until(lambda: not fleet.truth.disagreements(fleet.state))

    def test_an_agent_back_in_time_keeps_its_exclusive_task(self, fleet: SmallFleet) -> None:
        """Neither keeper nor coordinator takes it for dead."""
        fleet.submit(role(replicas=1, last_step=40, exclusive=True))
        (rank,) = fleet.until_running(KEY)
        rank.host.agent_kill(LEASE_S / 4)
        assert until_done(fleet) == JobStatus.COMPLETED
        assert rank.completed


class TestDisk:
    def test_power_loss_keeps_what_was_synced(self) -> None:
        """And may keep, cut off, take back or bring back anything else."""
        fates: dict[bytes | None, None] = {}
        for seed in range(50):
            disk = AgentDisk(random.Random(seed))
            disk.replace("agent.json", b"synced", synced=True)
            disk.replace("tasks/x.json", b"unsynced", synced=False)
            disk.lose_power()
            assert disk.read("agent.json") == b"synced"
            fates[disk.read("tasks/x.json")] = None
        assert {None, b"unsynced", b"unsyn"} <= set(fates)

    def test_a_full_disk_refuses_and_keeps(self) -> None:
        """The file is as it was; deleting works."""
        disk = AgentDisk(random.Random(1))
        disk.replace("a", b"before", synced=False)
        disk.full = True
        with pytest.raises(OSError, match="a") as refused:
            disk.replace("a", b"after", synced=False)
        assert refused.value.errno == errno.ENOSPC
        assert disk.read("a") == b"before"
        disk.remove("a")
        assert disk.read("a") is None

    def test_a_dead_process_writes_nothing(self) -> None:
        """Whatever code of it still unwinds."""
        with Kernel(1) as kernel:
            process = kernel.spawn("agent", _nothing)
            disk = AgentDisk(random.Random(1))
            files = SimFiles(disk, Path("data"), process)
            files.replace("a", b"alive", synced=True)
            process.kill()
            with pytest.raises(ProcessKilled):
                files.replace("a", b"dead", synced=True)
            assert disk.read("a") == b"alive"


async def _nothing() -> None:
    return


class TestFaults:
    @pytest.mark.parametrize("name", FAULTS)
    def test_each_heals(self, name: str) -> None:
        """Drawn again and again, then healed: the jobs come to their end and all is as it says."""
        with SmallFleet(seed=3, hosts=4, devices=3) as fleet:
            rng = fleet.kernel.rng("faults")
            for number, exclusive in enumerate((False, True)):
                fleet.submit(role(last_step=30, exclusive=exclusive), name=f"j{number}")
            happened = 0
            for _ in range(8):
                fleet.run_for(2)
                happened += fleet.kernel.run_until(FAULTS[name].inject(fleet.hosts, rng))
            assert happened, "nothing befell anybody"
            fleet.run_for(30)
            heal_all(fleet.hosts)
            for number in range(2):
                until_done(fleet, f"j{number}")
            fleet.until(lambda: not fleet.truth.disagreements(fleet.state), step_s=0.5)

    def test_each_tells_what_it_is(self) -> None:
        """A name of family and fault, a weight, one line of text."""
        for name, fault in FAULTS.items():
            assert name == fault.name
            assert name.count(".") == 1
            assert fault.weight >= 1
            assert fault.text
            assert "\n" not in fault.text


def eventful(seed: int) -> str:
    """Half a minute of all kinds of faults; the digest of its trace."""
    with SmallFleet(seed, hosts=4) as fleet:
        rng = fleet.kernel.rng("faults")
        for number in range(3):
            fleet.submit(role(last_step=20, exclusive=number == 1), name=f"j{number}")
        for name in FAULTS:
            fleet.kernel.run_until(FAULTS[name].inject(fleet.hosts, rng))
            fleet.run_for(1.5)
        heal_all(fleet.hosts)
        fleet.run_for(10)
        assert fleet.truth.launches > 6
        return fleet.kernel.trace.digest


def test_a_seed_gives_one_trace() -> None:
    """Twice in this process, and under other hash seeds in others."""
    expected = eventful(3)
    assert eventful(3) == expected
    assert eventful(4) != expected
    program = "from tests.sim.test_hosts import eventful; print(eventful(3))"
    for hash_seed in ("0", "4711"):
        told = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert told == f"{expected}\n"
