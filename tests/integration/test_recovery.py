"""What dies, what restarts because of it, and what does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from coord.model.decisions import HangDetected, HostJoined, HostLost, IncidentOpened
from coord.model.entities import JobStatus
from tests.integration.cluster import DIGITS, QUICK, Fleet, digits_job


def test_an_agent_killed_alone_and_restarted_restarts_no_rank(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """The new agent finds the processes of the old one, and training goes on in them."""
    fleet = start_fleet(nodes=1, agents=2)
    fleet.client.submit_job(digits_job(tmp_path, ranks=2, steps=250))
    fleet.wait_in_full_swing()
    before = fleet.running_tasks()
    agent = fleet.cluster.agents[before[0].host]
    agent.kill()
    agent.start()
    joined = fleet.wait_for(
        "the agent to register again",
        lambda: [
            one
            for one in fleet.log.decisions(HostJoined)
            if one.host == before[0].host and one.incarnation == 2
        ],
    )
    assert before[0].key in joined[0].adopted
    step = fleet.log.step
    fleet.wait_for("the next steps", lambda: fleet.log.step >= step + 10)
    after = fleet.running_tasks()
    assert [(task.key, task.pid) for task in after] == [(task.key, task.pid) for task in before]
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"
    assert fleet.log.decisions(IncidentOpened) == []
    assert fleet.log.decisions(HostLost) == []
    assert fleet.log.generation == 1


def test_a_rank_that_died_while_its_agent_was_away_is_noticed(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """The restarted agent cannot know how it ended, but that it did; the gang restarts."""
    fleet = start_fleet(nodes=1, agents=2)
    fleet.client.submit_job(digits_job(tmp_path, ranks=2, steps=200))
    fleet.wait_in_full_swing()
    task = fleet.running_tasks()[1]
    agent = fleet.cluster.agents[task.host]
    agent.kill()
    os.kill(task.pid, signal.SIGKILL)
    agent.start()
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"
    assert fleet.log.generation == 2


def test_a_rank_that_hangs_restarts_the_gang(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """A stopped process exits from nothing and reports nothing; progress is what is missed."""
    fleet = start_fleet(nodes=1, agents=2)
    fleet.client.submit_job(digits_job(tmp_path, ranks=2, hang_ms=2_000, grace_ms=500))
    fleet.wait_in_full_swing()
    os.kill(fleet.running_tasks()[1].pid, signal.SIGSTOP)
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"
    assert len(fleet.log.decisions(HangDetected)) == 1
    assert fleet.log.generation == 2


def test_training_goes_on_while_all_servers_are_away(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """An outage of the coordinator, longer than a lease, costs no rank its life."""
    fleet = start_fleet(nodes=3, agents=2, settings=QUICK)
    fleet.client.submit_job(digits_job(tmp_path, ranks=2, steps=300))
    fleet.wait_in_full_swing()
    before = fleet.running_tasks()
    for server in fleet.cluster.servers.values():
        server.kill()
    away_until = time.monotonic() + 2 * QUICK.lease_ms / 1000
    while time.monotonic() < away_until:
        assert [process.pid for process in fleet.processes_of_tasks()] != []
        time.sleep(0.1)
    for server in fleet.cluster.servers.values():
        server.start()
    fleet.wait_for("the cluster", fleet.job)
    after = fleet.running_tasks()
    assert [(task.key, task.pid) for task in after] == [(task.key, task.pid) for task in before]
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"
    assert fleet.log.generation == 1
    assert fleet.log.decisions(HostLost) == []
    assert fleet.job().status == JobStatus.COMPLETED


def test_the_weights_do_not_depend_on_what_happened(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """A rank and then a whole host die; the weights are those of `--local`."""
    fleet = start_fleet(nodes=1, agents=3, settings=QUICK)
    fleet.client.submit_job(digits_job(tmp_path, ranks=2, steps=150, spares=1))
    fleet.wait_in_full_swing()
    os.kill(fleet.running_tasks()[0].pid, signal.SIGKILL)
    fleet.wait_for("recovery", lambda: len(fleet.log.closed) == 1)
    fleet.wait_in_full_swing()
    fleet.cluster.kill_host(fleet.running_tasks()[0].host)
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    local = [sys.executable, str(DIGITS), "--local", "--ranks", "2", "--steps", "150"]
    subprocess.run([*local, "--output", str(tmp_path / "local")], check=True, timeout=60)
    trained = (tmp_path / "weights-digits" / "weights.npy").read_bytes()
    assert trained == (tmp_path / "local" / "weights.npy").read_bytes()
