"""The fake rank as a process: what it writes down is what it did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jepsen_lite.judge.lives import Life, read_lives
from jepsen_lite.workloads.specs import RANK

PATIENCE_S = 20.0


class Ranks:
    """Ranks of one seat, without an agent: what they report goes nowhere."""

    def __init__(self, directory: Path) -> None:
        self.truth = directory / "truth"
        self.checkpoints = directory / "checkpoints"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str, generation: int = 1, **more: str) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COORD_")}
        env = {
            **kept,
            "COORD_TASK": f"job/trainer/0#{generation}",
            "COORD_GENERATION": str(generation),
            "COORD_HOST": "h1",
            "COORD_DEVICES": "0,3",
            "COORD_CHECKPOINT_DIR": str(self.checkpoints),
            "RANK": "0",
            "WORLD_SIZE": "1",
            **more,
        }
        command = [sys.executable, str(RANK), "--truth", str(self.truth), *options]
        rank = subprocess.Popen(command, env=env)
        self.started.append(rank)
        return rank

    def lines(self, pid: int) -> list[dict[str, Any]]:
        """What this one has written, whole lines only."""
        for path in self.truth.glob(f"*.{pid}-*.jsonl"):
            return [json.loads(text) for text in path.read_bytes().split(b"\n")[:-1]]
        return []

    def wait_for(self, rank: subprocess.Popen[bytes], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while what not in [line["what"] for line in self.lines(rank.pid)]:
            assert rank.poll() is None, f"{what}: the rank ended with {rank.returncode}"
            assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
            time.sleep(0.01)

    def life(self, rank: subprocess.Popen[bytes]) -> Life:
        (life,) = [life for life in read_lives(self.truth) if life.pid == rank.pid]
        return life


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path)
    yield ranks
    for rank in ranks.started:
        rank.kill()
        rank.wait()


def test_a_rank_steps_saves_and_says_so_and_the_next_restores_it(ranks: Ranks) -> None:
    """From the shard that the first one wrote, at the step that it names."""
    first = ranks.start("--steps=12", "--step-ms=1", "--save-every=5")
    assert first.wait(PATIENCE_S) == 0
    life = ranks.life(first)
    assert (life.task, life.generation, life.host, life.devices) == (
        "job/trainer/0#1",
        1,
        "h1",
        (0, 3),
    )
    assert [shard.step for shard in life.written] == [5, 10]
    assert life.recorded == life.written
    assert (life.code, life.done) == (0, True)
    assert life.first_ns < life.last_ns <= time.monotonic_ns()
    newest = life.written[-1]
    second = ranks.start(
        "--steps=11",
        "--step-ms=1",
        generation=2,
        COORD_RESTORE=newest.path,
        COORD_RESTORE_STEP="10",
    )
    assert second.wait(PATIENCE_S) == 0
    after = ranks.life(second)
    assert after.restored is not None
    assert after.restored.digest == newest.digest
    assert (after.restore, after.restore_step, after.done) == (newest.path, 10, True)
    assert [line["step"] for line in ranks.lines(second.pid) if line["what"] == "alive"] == [11]


def test_a_restore_point_that_is_not_whole_is_said_and_ends_it(ranks: Ranks) -> None:
    """Nothing is trained upon it."""
    rank = ranks.start(COORD_RESTORE=str(ranks.truth / "none"), COORD_RESTORE_STEP="10")
    assert rank.wait(PATIENCE_S) == 2
    life = ranks.life(rank)
    assert life.trouble.startswith("FileNotFoundError")
    assert (life.code, life.done) == (2, False)


def test_a_rank_leaves_at_sigterm_and_a_stubborn_one_does_not(ranks: Ranks) -> None:
    """Who was asked has not come to its last step; who was killed wrote no last line."""
    ordinary = ranks.start("--step-ms=5")
    stubborn = ranks.start("--step-ms=5", "--stubborn", generation=2)
    for rank in (ordinary, stubborn):
        ranks.wait_for(rank, "alive")
        rank.terminate()
    assert ordinary.wait(PATIENCE_S) == 0
    assert not ranks.life(ordinary).done
    ranks.wait_for(stubborn, "asked")
    stubborn.kill()
    assert stubborn.wait(PATIENCE_S) == -signal.SIGKILL
    assert ranks.life(stubborn).code is None


def test_a_rank_notices_that_it_stood_still(ranks: Ranks) -> None:
    """For how long at least, when it goes on."""
    rank = ranks.start("--steps=100000", "--step-ms=5")
    ranks.wait_for(rank, "alive")
    rank.send_signal(signal.SIGSTOP)
    stopped_ns = time.monotonic_ns()
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(1.5)
    rank.send_signal(signal.SIGCONT)
    ranks.wait_for(rank, "thawed")
    (thaw,) = ranks.life(rank).thaws
    assert thaw.silent_ns >= 1_400_000_000
    assert thaw.at_ns - thaw.silent_ns <= stopped_ns
