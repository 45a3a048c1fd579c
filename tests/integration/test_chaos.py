"""kill -9 of anything at any time: drawn at random, and everything still comes out right."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from coord.cli.verify import Difference, Replayer
from coord.core.invariants import violations
from coord.core.state import new_state
from coord.model.spec import RestartPolicy
from tests.integration.cluster import DIGITS, QUICK, Fleet, digits_job

RANKS = 3
STEPS = 400
ROUNDS = 8
PATIENT_POLICY = RestartPolicy(
    user_limit=100, infrastructure_limit=100, unknown_limit=100, no_progress_limit=100,
    backoff_ms=1, backoff_max_ms=1,
)  # fmt: skip
"""Budgets that no number of kills here uses up: it is recovery that is tested."""


class Chaos:
    """One random hand with a SIGKILL in it. Whatever it kills of ours it starts again."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self.fleet = fleet
        self.rng = rng
        self.done: list[str] = []

    def strike(self) -> None:
        """One kill of something that is there."""
        strikes = (
            self.kill_rank, self.kill_rank, self.kill_agent, self.kill_agent, self.kill_host,
            self.kill_server, self.kill_server, self.kill_all_servers,
        )  # fmt: skip
        self.rng.choice(strikes)()

    def kill_rank(self) -> None:
        """Any process of any task."""
        found = self.fleet.processes_of_tasks()
        if found:
            self.rng.choice(found).kill()
            self.done.append("rank")

    def kill_agent(self) -> None:
        """The agent alone: its tasks go on."""
        host, agent = self.rng.choice(list(self.fleet.cluster.agents.items()))
        agent.kill()
        agent.start()
        self.done.append(f"agent of {host}")

    def kill_host(self) -> None:
        """The agent and its tasks."""
        host = self.rng.choice(list(self.fleet.cluster.agents))
        self.fleet.cluster.kill_host(host)
        self.fleet.cluster.agents[host].start()
        self.done.append(host)

    def kill_server(self) -> None:
        node, server = self.rng.choice(list(self.fleet.cluster.servers.items()))
        server.kill()
        server.start()
        self.done.append(f"server {node}")

    def kill_all_servers(self) -> None:
        for server in self.fleet.cluster.servers.values():
            os.kill(server.pid, signal.SIGKILL)
        for server in self.fleet.cluster.servers.values():
            server.kill()
            server.start()
        self.done.append("all servers")

    def pause(self) -> None:
        """A random while of log time, which may end in the middle of anything."""
        now_ms = self.fleet.log.records[-1].now_ms
        until_ms = now_ms + self.rng.randrange(2_500)
        self.fleet.wait_for(
            "log time to pass", lambda: self.fleet.log.records[-1].now_ms >= until_ms
        )


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_training_survives_kills_of_anything(
    start_fleet: Callable[..., Fleet], tmp_path: Path, seed: int
) -> None:
    """The job completes with the undisturbed weights; the log replays and keeps the invariants."""
    fleet = start_fleet(nodes=3, agents=RANKS + 1, settings=QUICK)
    spec = digits_job(tmp_path, ranks=RANKS, steps=STEPS, step_ms=30, spares=1)
    fleet.client.submit_job(msgspec.structs.replace(spec, restart=PATIENT_POLICY))
    fleet.wait_in_full_swing()
    chaos = Chaos(fleet, random.Random(seed))
    while len(chaos.done) < ROUNDS and not fleet.log.ended:
        chaos.strike()
        chaos.pause()
    fleet.wait_for("the end of training", lambda: fleet.log.ended, patience_s=180)
    assert fleet.log.ended == "completed", chaos.done
    assert trained(tmp_path) == undisturbed(tmp_path), chaos.done
    assert problems_of(fleet) == [], chaos.done
    assert fleet.processes_of_tasks() == []


def trained(directory: Path) -> bytes:
    return (directory / "weights-digits" / "weights.npy").read_bytes()


def undisturbed(directory: Path) -> bytes:
    command = [sys.executable, str(DIGITS), "--local", "--ranks", str(RANKS)]
    output = directory / "undisturbed"
    subprocess.run(
        [*command, "--steps", str(STEPS), "--output", str(output)], check=True, timeout=60
    )
    return (output / "weights.npy").read_bytes()


def problems_of(fleet: Fleet) -> list[str]:
    """Where the log does not replay, or breaks an invariant on the way."""
    replayer = Replayer(new_state())
    for record in fleet.log.records:
        derived = replayer.apply(record, 0)
        if isinstance(derived, Difference):
            return [str(derived)]
        if record.decisions:
            found = list(violations(replayer.state))
            if found:
                return [f"after entry {record.entry.index}: {found}"]
    return []
