"""torch DistributedDataParallel over gloo, unchanged but for its checkpoints, through one kill."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.free_ports import free_ports
from tests.integration.cluster import ROOT, Fleet, digits_job

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="TORCH IS MISSING, examples/ddp.py IS NOT TESTED: pip install torch==2.13.0",
)
DDP = ROOT / "examples" / "ddp.py"
STEPS = 120


def test_ddp_survives_a_killed_rank_with_the_same_weights(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """One rank is killed; the weights are those of ranks that nobody started but this test."""
    undisturbed = _train_alone(tmp_path / "alone")
    fleet = start_fleet(nodes=1, agents=2)
    fleet.client.submit_job(digits_job(tmp_path, name="ddp", ranks=2, steps=STEPS, script=DDP))
    fleet.wait_in_full_swing()
    os.kill(fleet.running_tasks("ddp")[1].pid, signal.SIGKILL)
    fleet.wait_for("the end of training", lambda: fleet.log.ended, patience_s=120)
    assert fleet.log.ended == "completed"
    assert fleet.log.generation == 2
    assert fleet.gang("ddp").restore_step >= 10
    assert (tmp_path / "weights-ddp" / "weights.sha256").read_text() == undisturbed


def _train_alone(output: Path) -> str:
    """The digest of the weights that two ranks reach without a coordinator."""
    (port,) = free_ports(1)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(DDP), "--steps", str(STEPS), "--output", str(output)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "COORD_CHECKPOINT_DIR": str(output / "checkpoints"),
            },
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    return (output / "weights.sha256").read_text()
