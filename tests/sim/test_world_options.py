"""Options travel as a line, and a seed draws the rest."""

from __future__ import annotations

import pytest
from coord_sim.world.options import WorldOptions, chosen_faults, split_words
from coord_sim.world.swarm import Climate, draw_climate

KNOWN = ("disk.full", "disk.torn", "members.add", "server.crash", "site.crash")
SITES = ("a.b", "c.d")


def drawn(seed: int, options: WorldOptions | None = None) -> Climate:
    return draw_climate(seed, options or WorldOptions(), KNOWN, SITES)


def test_the_line_says_all_that_is_not_drawn() -> None:
    assert WorldOptions().command_line() == "--nodes 3 --seconds 60 --faults all"
    options = WorldOptions(
        nodes=5, hosts=6, jobs=3, seconds=30, faults=("all", "-disk"), membership=False, off=("G1",)
    )
    assert WorldOptions(focus="answers").command_line().endswith(" --focus answers")
    assert options.command_line() == (
        "--nodes 5 --hosts 6 --jobs 3 --seconds 30 --faults all,-disk --no-membership --off G1"
    )


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("all", KNOWN),
        ("none", ()),
        ("all,-disk", ("members.add", "server.crash", "site.crash")),
        ("server.crash, disk, -disk.torn", ("disk.full", "server.crash")),
        ("all,none,disk.full", ("disk.full",)),
    ],
)
def test_faults_are_chosen_in_order(words: str, chosen: tuple[str, ...]) -> None:
    assert chosen_faults(split_words(words), KNOWN) == chosen


def test_every_mistake_in_options_is_named() -> None:
    options = WorldOptions(nodes=0, hosts=1_000, faults=("dsik",), off=("G99",), focus="nowhere")
    problems = options.problems(KNOWN, ("G1", "G2"))
    assert [problem.split()[0] for problem in problems] == [
        "--nodes",
        "--hosts",
        "--faults",
        "--focus",
        "--off",
    ]
    assert "disk, members, server, site" in problems[2]
    assert WorldOptions().problems(KNOWN, ("G1",)) == []


def test_a_seed_draws_one_climate_and_seeds_differ() -> None:
    assert drawn(7) == drawn(7)
    lines = {drawn(seed).line() for seed in range(50)}
    assert len(lines) == 50


def test_denied_faults_leave_the_rest_of_the_climate_alone() -> None:
    """So that one can look for the fault that matters by taking others away."""
    for seed in range(30):
        all_of_it, less = drawn(seed), drawn(seed, WorldOptions(faults=("all", "-disk")))
        kept = {name: at for name, at in all_of_it.faults.items() if not name.startswith("disk")}
        assert less.faults == kept
        assert less.requests == all_of_it.requests
        assert less.crash_sites == all_of_it.crash_sites
        assert less.fault_gap_s == all_of_it.fault_gap_s


def test_every_fault_is_drawn_and_left_out_by_some_seed() -> None:
    climates = [drawn(seed) for seed in range(200)]
    for name in KNOWN:
        assert 20 < sum(name in climate.faults for climate in climates) < 180, name
    assert {climate.network for climate in climates} == {"orderly", "delays", "chaos"}
    assert any(not climate.faults for climate in climates)
    assert any(climate.crash_sites for climate in climates)


def test_without_faults_the_weather_is_fair() -> None:
    for seed in range(20):
        climate = drawn(seed, WorldOptions(faults=("none",)))
        assert (climate.network, climate.disk) == ("orderly", "fast")
        assert not climate.faults
        assert not climate.crash_sites
        assert not climate.skews_ms
        assert "no faults" in climate.line()
