"""`with world(seed) as w`: what tests of other teams stand on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import coord_sim
import pytest
from coord_sim import NotReached, RequestFailed, Scenario, Violation, job, world
from coord_sim.world.ground_truth import ONE_OWNER

from coord.cli.jobfile import JobFileError
from coord.model.decisions import GangSucceeded, TasksPlaced
from coord.model.entities import DrainState, HostStatus, JobStatus
from coord.model.events import HostRegistered, JobSubmitted, LaunchFailed, TaskExited
from coord.model.settings import Settings
from coord.model.spec import RoleSpec
from coord.store.incident import IncidentReader

EXAMPLES = Path(__file__).parents[2] / "examples"


def begun(w: Scenario, **fields: object) -> None:
    """A job of three ranks runs, on both hosts."""
    w.submit(job("train", replicas=3, **fields))  # type: ignore[arg-type]
    w.run_until(lambda: len(w.ranks("train")) == 3, 30)


def test_a_job_runs_to_its_end() -> None:
    """A leader, two hosts, a submission, an end: all in virtual time."""
    with world(1) as w:
        assert w.leader is not None
        assert w.leader.leads
        assert sorted(w.state.hosts) == ["h1", "h2"]
        assert w.submit(job("train", replicas=3, steps=6)) == "train"
        w.run_until(lambda: w.job("train").status == JobStatus.COMPLETED, 60)
        assert [event.spec.name for event in w.events(JobSubmitted)] == ["train"]
        assert len(w.events(TaskExited)) == 3
        assert len(w.decisions(GangSucceeded)) == 1
        assert len(w.events()) > len(w.events(HostRegistered)) == 2
        assert w.ranks() == []


def test_a_seed_and_a_scenario_give_one_trace() -> None:
    """Whatever the process did before; another seed gives another."""

    def lived(seed: int) -> tuple[str, float]:
        with world(seed, network="chaos", faults="agent,rank", fault_gap_s=2.0) as w:
            begun(w)
            w.run_for(w.rng.uniform(1.0, 5.0))
            w.host("h1").power_cycle(2.0)
            w.settle()
            return w.digest, w.now_s

    first = lived(3)
    assert lived(4) != first
    assert lived(3) == first


def test_the_power_of_a_host_goes_and_its_work_goes_on_elsewhere() -> None:
    """Off means off: no rank lives there. Settling gives it its power back."""
    with world(2, hosts=3) as w:
        begun(w, steps=40)
        host = w.host(w.rank("train/trainer/0").host)
        host.power_off()
        assert host.ranks == []
        assert not host.powered
        w.run_until(lambda: w.state.hosts[host.name].status == HostStatus.LOST, 60)
        w.run_until(lambda: len(w.ranks("train")) == 3, 60)
        assert host.name not in {rank.host for rank in w.ranks()}
        w.settle()
        assert host.powered
        assert w.job("train").status == JobStatus.COMPLETED


def test_a_host_that_is_cut_off_is_lost_and_comes_back() -> None:
    """Its agent and ranks live on meanwhile."""
    with world(3) as w:
        w.host("h1").cut()
        w.run_until(lambda: w.state.hosts["h1"].status == HostStatus.LOST, 60)
        assert w.host("h1").agent_up
        w.host("h1").mend()
        w.run_until(lambda: w.state.hosts["h1"].status == HostStatus.UP, 60)


def test_servers_are_killed_paused_and_parted() -> None:
    """Without a majority nothing is decided; healed, all is well."""
    with world(4) as w:
        leader = w.leader
        assert leader is not None
        leader.kill()
        assert not leader.running
        w.run_until(lambda: w.leader not in (None, leader), 30)
        leader.start()
        w.run_until(lambda: leader.running, 30)
        w.partition([1], [2], [3])
        with pytest.raises(RequestFailed) as failed:
            w.submit(job("early"), within_s=8)
        assert failed.value.outcome in ("unknown", "not_done")
        w.heal()
        w.submit(job("late", steps=2))
        w.server(2).pause(3.0)
        w.settle()
        assert w.server(2).state.meta.digest == w.state.meta.digest
        assert w.server(2).applied_index == len(w.records)


def test_a_partition_holds_hosts_and_servers_apart() -> None:
    """h1 stays with a minority that cannot lead: it is lost although its server lives."""
    with world(5) as w:
        w.partition([1, "h1"], [2, 3, "h2"])
        w.run_until(lambda: w.state.hosts["h1"].status == HostStatus.LOST, 90)
        assert w.state.hosts["h2"].status == HostStatus.UP
        w.settle()


def test_ranks_exit_die_and_hang() -> None:
    """Each restarts its gang, under a new generation."""
    with world(6) as w:
        begun(w, steps=30, hang_ms=4_000)
        w.run_until(lambda: w.rank("train/trainer/1").step >= 2, 30)
        first = w.rank("train/trainer/1")
        first.exit(7, "out of luck")
        w.run_until(lambda: len(w.decisions(TasksPlaced)) == 2, 30)
        assert not first.alive
        assert ("out of luck", 7) in {(one.error, one.exit_code) for one in w.events(TaskExited)}
        w.run_until(lambda: len(w.ranks()) == 3, 30)
        w.rank("train/trainer/0").kill(11)
        w.run_until(lambda: len(w.decisions(TasksPlaced)) == 3, 30)
        w.run_until(lambda: len(w.ranks()) == 3 and w.rank("train/trainer/2").step >= 1, 60)
        w.rank("train/trainer/2").hang()
        w.run_until(lambda: len(w.decisions(TasksPlaced)) == 4, 60)
        w.settle()


def test_agents_are_killed_stopped_and_paused() -> None:
    """Ranks outlive them, and the job hardly notices."""
    with world(7) as w:
        begun(w, steps=20)
        pids = [rank.pid for rank in w.ranks()]
        w.host("h1").keep_agent_down()
        w.host("h2").pause_agent(2.0)
        w.run_for(3.0)
        assert not w.host("h1").agent_up
        w.host("h1").start_agent()
        w.host("h2").stop_agent()
        w.run_for(3.0)
        assert [rank.pid for rank in w.ranks()] == pids
        assert len(w.decisions(TasksPlaced)) == 1
        w.settle()
        assert w.job("train").status == JobStatus.COMPLETED


def test_operators_drain_resize_and_cancel() -> None:
    """Refusals are told with their reason."""
    with world(8) as w:
        w.submit(job("train", steps=0, replicas=2, max_replicas=3))
        w.drain("h1")
        w.run_until(lambda: w.state.hosts["h1"].drain == DrainState.DRAINED, 60)
        w.undrain("h1")
        w.resize("train", "trainer", 3)
        w.run_until(lambda: len(w.ranks("train/trainer")) == 3, 60)
        w.cancel("train")
        w.run_until(lambda: w.job("train").status == JobStatus.CANCELLED, 60)
        with pytest.raises(RequestFailed) as failed:
            w.cancel("nothing-of-that-name")
        assert failed.value.outcome == "rejected"
        assert failed.value.reason in str(failed.value)
        assert w.rejected()[-1][1] == failed.value.reason


def test_jobs_come_in_many_forms() -> None:
    """A spec, a role, a mapping, a job file; nonsense is told as of a file."""
    with world(9, nodes=1) as w:
        w.submit(EXAMPLES / "digits.yaml")
        w.submit(RoleSpec("one", ("train",)))
        w.submit({"name": "two", "roles": [{"name": "one", "command": ["train"]}]})
        assert sorted(w.state.jobs) == ["digits", "job", "two"]
        with pytest.raises(JobFileError, match="rolls"):
            w.submit({"name": "bad", "rolls": []})


def test_faults_are_drawn_until_all_is_healed() -> None:
    """They leave their marks in the trace, and none afterwards."""
    with world(10, faults=("rank", "-rank.hang"), fault_gap_s=1.0, record=True) as w:
        begun(w)
        w.run_for(20.0)
        assert any(" fault " in line and "rank." in line for line in w.trace())
        w.heal()
        told = len([line for line in w.trace() if " fault " in line])
        w.run_for(20.0)
        assert len([line for line in w.trace() if " fault " in line]) == told


def test_a_violation_tells_what_when_and_how_to_look_into_it(tmp_path: Path) -> None:
    """It is raised by what ran, and its log can be exported afterwards."""
    with world(11) as w:
        begun(w, steps=40)
        rank = w.rank("train/trainer/0")
        twin = w.host(rank.host)
        w.after(1.0, lambda: twin._host.start_rank(_spec_of(rank, "train/trainer/9#9")))
        with pytest.raises(Violation) as found:
            w.run_for(5.0)
        with pytest.raises(Violation):
            w.run_for(5.0)
    assert found.value.property == ONE_OWNER
    told = str(found.value)
    assert f"{ONE_OWNER}: device " in told
    assert "seed 11, " in told
    assert "TasksPlaced" in told
    assert "coordctl sim explore" in told
    path = w.export(tmp_path / "incident.log")
    with path.open("rb") as file:
        assert len(list(IncidentReader(file))) == len(w.records)


def _spec_of(handle: object, task: str) -> object:
    from coord.agent.ports import LaunchSpec

    rank = handle._rank  # type: ignore[attr-defined]
    return LaunchSpec(task, ("x",), rank.env, "", Path("out"), Path("err"))


def test_what_does_not_come_about_is_told_with_the_seed() -> None:
    """As an assertion that failed, with what happened last."""
    with world(12) as w:
        with pytest.raises(NotReached, match=r"within 2 .*: a third host \(seed 12, "):
            w.run_until(lambda: "h3" in w.state.hosts, 2, "a third host")
        with pytest.raises(LookupError, match="no process of train/trainer/0 lives; there"):
            w.rank("train/trainer/0")
        with pytest.raises(LookupError, match="there is no host 'h3'; there are h1, h2"):
            w.host("h3")
        with pytest.raises(LookupError, match="there is no server 4; there are 1, 2, 3"):
            w.partition([4], [1])


def test_any_error_in_the_block_tells_its_seed() -> None:
    """As a note, which pytest shows."""
    with pytest.raises(ZeroDivisionError) as raised, world(13) as w:
        w.run_for(1.0 / 0)
    assert any("seed 13" in note for note in raised.value.__notes__)
    with pytest.raises(RuntimeError, match="the world is over"):
        w.run_for(1.0)
    assert w.state.hosts


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 0}, "nodes is 0; it must be 1 to 7"),
        ({"hosts": 65}, "hosts is 65"),
        ({"network": "bad"}, "network is 'bad'; it must be one of orderly, delays, chaos"),
        ({"faults": "host.nonsense"}, "faults names 'host.nonsense'; there are agent, "),
        ({"settings": Settings(lease_ms=10)}, "settings: .*must grow in this order"),
    ],
)
def test_options_are_checked(options: dict[str, object], words: str) -> None:
    """Before anything begins."""
    with pytest.raises(ValueError, match=words):
        world(1, **options)


def test_settings_are_those_of_the_cluster() -> None:
    """A short lease loses a host sooner than the usual one does."""
    short = Settings(lease_ms=3_000, heartbeat_ms=500, suspect_ms=1_500)
    with world(14, settings=short) as w:
        w.host("h1").power_off()
        w.run_until(lambda: w.state.hosts["h1"].status == HostStatus.LOST, 8)


def test_a_world_is_for_plain_functions() -> None:
    """Inside a running loop it says so; outside its block, too."""

    async def inside() -> None:
        with world(1):
            raise AssertionError("it began")

    with pytest.raises(RuntimeError, match="plain `def`"):
        asyncio.run(inside())
    with pytest.raises(RuntimeError, match="use `with world"):
        world(1).run_for(1.0)


def test_the_public_names_are_there_and_lazy() -> None:
    """`import coord_sim` loads nothing of the simulator."""
    for name in coord_sim.__all__:
        assert getattr(coord_sim, name) is not None
    with pytest.raises(AttributeError):
        coord_sim.nothing  # noqa: B018
    program = (
        "import sys, coord_sim, coord_sim.pytest_plugin\n"
        "print([name for name in sys.modules if name.startswith(('coord.', 'coord_sim.'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "['coord_sim.pytest_plugin']", done.stderr


def test_every_fault_has_its_end() -> None:
    """Whatever a test does to hosts, servers, ranks and network, `settle` undoes."""
    with world(15, hosts=3, devices=1) as w:
        w.submit(job("train", steps=60, replicas=3))
        w.run_until(lambda: len(w.ranks()) == 3, 30)
        w.host("h1").freeze(1.0)
        w.host("h2").cut_ranks()
        w.slow("h3", 0.5)
        w.rank("train/trainer/0").slow(4.0)
        w.run_for(2.0)
        w.host("h2").mend()
        w.server(1).isolate()
        w.server(2).jump_clock(-5_000)
        w.server(3).pause()
        w.run_for(5.0)
        w.server(3).resume()
        w.host("h3").fill_disk()
        for rank in w.ranks("train"):
            rank.make_unkillable()
        w.server(2).fill_disk()
        w.run_for(10.0)
        w.settle()
        assert w.job("train").status == JobStatus.COMPLETED


def test_a_launch_fails_as_it_is_told_to() -> None:
    """Once, with its words; the next one works."""
    with world(16, hosts=1) as w:
        w.host("h1").fail_launch("no such program", user_error=True)
        w.submit(job("train", steps=4))
        w.settle()
        (failed,) = w.events(LaunchFailed)
        assert (failed.error, failed.user_error) == ("no such program", True)
        assert w.job("train").status == JobStatus.COMPLETED


def test_two_worlds_at_once_do_not_meet() -> None:
    """Taking turns they live as each would alone."""

    def alone(seed: int) -> str:
        with world(seed, network="chaos", faults="all") as w:
            w.run_for(6.0)
            return w.digest

    digests = [alone(1), alone(2)]
    with world(1, network="chaos", faults="all") as w, world(2, network="chaos", faults="all") as v:
        for _ in range(12):
            w.run_for(0.5)
            v.run_for(0.5)
        assert [w.digest, v.digest] == digests


def test_the_example_in_the_readme_runs() -> None:
    """As it stands there."""
    text = (EXAMPLES.parent / "sim" / "README.md").read_text()
    section = text.partition("## As a library")[2]
    block = section.partition("```python\n")[2].partition("```")[0]
    found: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), found)
    assert isinstance(found["w"], Scenario)
    assert found["w"].job("train").status == JobStatus.COMPLETED
