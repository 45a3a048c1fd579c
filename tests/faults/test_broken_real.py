"""A broken build on a real cluster: the suite notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from jepsen_lite.broken.catalogue import BREAKAGES
from jepsen_lite.broken.hunt import Hunt
from jepsen_lite.judge.exported import ORDERED

LIMIT_S = 1.0
"""No second run."""


def test_reads_that_ask_nobody_are_reported(tmp_path: Path) -> None:
    """Under load a follower is behind often enough that nothing has to go wrong."""
    breakage = msgspec.structs.replace(
        BREAKAGES["stale-reads"], nemesis="none", options={"rate": 200.0}
    )
    hunt = Hunt(tmp_path, run_s=5.0)

    hunted = asyncio.run(hunt.hunt(breakage, LIMIT_S))

    assert hunted.caught, hunted.tries
    assert ORDERED in [one.check for one in hunted.tries[-1].violations]
