"""The example by itself: the same bits however it is run, and no rank that waits for the dead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.free_ports import free_ports
from tests.integration.cluster import DIGITS

STEPS = 60


def start_ranks(count: int, directory: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    """Ranks as a launcher would start them, without a coordinator; they save in `directory`."""
    (port,) = free_ports(1)
    return [
        subprocess.Popen(
            [sys.executable, str(DIGITS), "--steps", str(STEPS), *arguments],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "COORD_CHECKPOINT_DIR": str(directory / "checkpoints"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def finish(ranks: list[subprocess.Popen[str]]) -> list[int]:
    """Their exit codes."""
    for rank in ranks:
        rank.communicate(timeout=60)
    return [rank.returncode for rank in ranks]


def train_locally(ranks: int, output: Path) -> bytes:
    command = [sys.executable, str(DIGITS), "--local", "--ranks", str(ranks)]
    subprocess.run(
        [*command, "--steps", str(STEPS), "--output", str(output)],
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
    )
    return (output / "weights.npy").read_bytes()


def test_ranks_over_tcp_reach_the_bits_of_one_process(tmp_path: Path) -> None:
    """The sum is taken in rank order on both ways."""
    assert finish(start_ranks(3, tmp_path, "--output", str(tmp_path / "tcp"))) == [0, 0, 0]
    assert (tmp_path / "tcp" / "weights.npy").read_bytes() == train_locally(3, tmp_path / "local")


def test_it_learns(tmp_path: Path) -> None:
    """The weights are not what they were: most digits are told apart after these few steps."""
    train_locally(2, tmp_path)
    said = subprocess.run(
        [sys.executable, str(DIGITS), "--local", "--steps", str(STEPS)],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    ).stdout
    assert float(said.split()[-1]) > 0.8
    assert np.load(tmp_path / "weights.npy").any()


def test_the_death_of_one_rank_ends_the_others_at_once(tmp_path: Path) -> None:
    """Each notices its closed connection and exits with an error; none waits for a timeout."""
    ranks = start_ranks(3, tmp_path, "--step-ms", "20", "--checkpoint-every", "1")
    assert ranks[0].stdout is not None
    line = ranks[0].stdout.readline()
    while line and not line.startswith("step"):
        line = ranks[0].stdout.readline()
    ranks[1].kill()
    assert finish(ranks) == [1, -9, 1]


def test_a_terminated_rank_dies_where_it_waits(tmp_path: Path) -> None:
    """A rank whose peers never come waits in a socket, and SIGTERM ends it there."""
    ranks = start_ranks(2, tmp_path)
    ranks[1].kill()
    ranks[1].wait()
    assert ranks[0].stdout is not None
    ranks[0].stdout.readline()
    ranks[0].terminate()
    assert finish(ranks) == [-15, -9]
