"""Many seeds over processes: the same result whoever ran which, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from coord_sim.world import campaign as campaigns
from coord_sim.world.campaign import ENDS, Plan, Progress, Result, run_campaign
from coord_sim.world.options import WorldOptions
from coord_sim.world.scratch import remove_scratch

from tests.sim.fake_runs import HERE


def campaign(
    run: str,
    seeds: int | None = 12,
    workers: int = 2,
    *,
    minutes: float | None = None,
    keep_going: bool = False,
    hung_s: float = 60.0,
) -> Result:
    name = f"{HERE}:{run}"
    plan = Plan(1, seeds, WorldOptions(), workers, minutes, keep_going, name, hung_s)
    return run_campaign(plan)


def test_a_campaign_sums_up_its_seeds() -> None:
    result = campaign("uneventful")
    assert [outcome.seed for outcome in result.outcomes] == list(range(1, 13))
    assert result.failures == []
    assert result.totals.virtual_ms == 12 * 60_000
    assert result.totals.entries == sum(range(1, 13))
    assert result.totals.faults == {"disk.full": 12, "server.crash": 12}
    assert result.totals.counts == {"elections": 78}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_campaign_ends_at_its_lowest_failure(workers: int) -> None:
    """Whoever was quicker with a higher one, the result is the same."""
    result = campaign("broken_from_seven", workers=workers)
    assert [outcome.seed for outcome in result.outcomes] == list(range(1, 8))
    assert [outcome.seed for outcome in result.failures] == [7]
    assert result.digest == campaign("broken_from_seven", workers=4).digest


def test_a_campaign_can_go_on_after_a_failure() -> None:
    result = campaign("broken_from_seven", keep_going=True)
    assert [outcome.seed for outcome in result.failures] == list(range(7, 13))
    assert result.totals.failed == 6


def test_a_process_that_dies_is_a_failure_of_its_seed() -> None:
    result = campaign("deadly", keep_going=True, seeds=6)
    assert [outcome.seed for outcome in result.outcomes] == list(range(1, 7))
    assert [(outcome.seed, outcome.broken) for outcome in result.failures] == [(3, ENDS)]
    assert "exit code -9" in result.failures[0].detail


def test_a_run_that_does_not_end_is_a_failure_of_its_seed() -> None:
    result = campaign("endless", keep_going=True, seeds=4, hung_s=3.0)
    assert [(outcome.seed, outcome.broken) for outcome in result.failures] == [(2, ENDS)]
    assert result.totals.seeds == 4


def test_time_ends_a_campaign() -> None:
    """Without a number of seeds it goes on until then."""
    result = campaign("uneventful", seeds=None, workers=1, minutes=0.03)
    assert result.outcomes
    assert not result.failures


def test_a_campaign_tells_how_far_it_is() -> None:
    told: list[Progress] = []
    plan = Plan(1, 4, WorldOptions(), 1, run_seed=f"{HERE}:uneventful")
    run_campaign(plan, told.append)
    assert sorted({progress.done for progress in told} - {0}) == [1, 2, 3, 4]
    assert told[-1].virtual_s == 240.0


def test_ctrl_c_keeps_what_was_found() -> None:
    def tell(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    plan = Plan(1, None, WorldOptions(), 1, run_seed=f"{HERE}:uneventful")
    result = run_campaign(plan, tell)
    assert result.interrupted
    assert [outcome.seed for outcome in result.outcomes] == [1, 2, 3]


KILLED_AT_WORK = """
import os, signal
from coord_sim.world.scratch import scratch_directory
with scratch_directory(7) as directory:
    print(directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_in_memory_is_removed() -> None:
    """Nobody else would do it, and memory is what it takes."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_AT_WORK], stdout=subprocess.PIPE, text=True
    )
    said, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    directory = Path(said.strip())
    assert directory.is_dir()
    remove_scratch(process.pid)
    assert not directory.exists()


def test_a_campaign_removes_what_its_processes_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the one that died, of the one that came for it, and of the other."""
    pids: list[int] = []
    monkeypatch.setattr(campaigns, "remove_scratch", pids.append)
    campaign("deadly", keep_going=True, seeds=6)
    assert len(pids) == len(set(pids)) == 3
