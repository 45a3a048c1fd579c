"""A broken build on a real cluster: the suite notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jepsen_lite.broken.catalogue import BREAKAGES
from jepsen_lite.broken.hunt import Hunt
from jepsen_lite.judge.replay import FOLLOWS
from jepsen_lite.judge.truth import COMMITTED

LIMIT_S = 1.0
"""No second run."""


def test_a_checkpoint_that_is_committed_half_saved_is_reported(tmp_path: Path) -> None:
    """By what the ranks wrote in truth, and by what should have followed from the log."""
    hunt = Hunt(tmp_path, run_s=5.0)

    hunted = asyncio.run(hunt.hunt(BREAKAGES["half-a-checkpoint"], LIMIT_S))

    assert hunted.caught, hunted.tries
    assert {FOLLOWS, COMMITTED} <= {one.check for one in hunted.tries[-1].violations}
