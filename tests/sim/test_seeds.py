"""Seeds that broke a promise once. Each is a line of `coordctl sim run`, and keeps it now."""

from __future__ import annotations

import pytest
from coord_sim.world.options import WorldOptions
from coord_sim.world.raft_run import raft_run
from coord_sim.world.run import run_seed

SEEDS = [
    pytest.param(200_147, WorldOptions(seconds=40), id="a peer's digest of a damaged entry"),
    pytest.param(400_612, WorldOptions(seconds=40), id="a child left behind, and its host's power"),
    pytest.param(400_819, WorldOptions(seconds=40), id="a task resized away and wanted again"),
    pytest.param(601_551, WorldOptions(seconds=20), id="a worker that speaks as its agent ends"),
    pytest.param(
        602_743, WorldOptions(seconds=20), id="a bit that turns over after the answer left"
    ),
    pytest.param(802_768, WorldOptions(seconds=20), id="an agent that ends a task and itself"),
    pytest.param(804_850, WorldOptions(seconds=20), id="a server that joins before it was told"),
]


@pytest.mark.parametrize(("seed", "options"), SEEDS)
def test_a_seed_that_broke_something_is_well(seed: int, options: WorldOptions) -> None:
    outcome = run_seed(seed, options)
    assert outcome.ok, outcome


def test_changes_of_members_that_wait_for_one_another_let_time_pass() -> None:
    """They once made the loop spin, where virtual time cannot go on: a livelock."""
    outcome = raft_run(27)
    assert not outcome.broken, outcome
