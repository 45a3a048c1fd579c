"""pytest plugin `coord_sim`: tests that use the `world` fixture run once for each seed.

    def test_it_survives(world):
        with world(nodes=3, hosts=2) as w:
            ...

`--sim-seeds 100` takes the seeds 1 to 100, `--sim-seed 17` that one alone; the marker
`sim(seeds=30)` says how many a test takes when the command line says nothing. A failure prints the
line that repeats it. The simulator is loaded by the first test that uses the fixture.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coord_sim.scenario import Scenario

DEFAULT_SEEDS = 5
SEED, INCIDENT = "sim_seed", "sim_incident"
"""Names of the property that a report carries, of the fixture, and of where its log went."""

WorldFactory = Callable[..., "Scenario"]
"""`coord_sim.world` without its first argument."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coord_sim", "simulated clusters (coord_sim)")
    group.addoption(
        "--sim-seeds",
        type=_count,
        metavar="N",
        help=f"run each test that uses `world` with the seeds 1 to N (default {DEFAULT_SEEDS}, or "
        "what its marker says)",
    )
    group.addoption(
        "--sim-seed",
        type=int,
        action="append",
        metavar="S",
        help="run it with this seed alone; may be given several times",
    )
    group.addoption(
        "--sim-artefacts",
        type=Path,
        metavar="DIR",
        help="where a failing test leaves its log, for `coordctl replay` and `... sim explore`",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sim(seeds): how many seeds a test that uses `world` takes by itself"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if SEED in metafunc.fixturenames:
        seeds = _seeds(metafunc)
        names = [f"seed{seed}" for seed in seeds]
        metafunc.parametrize(SEED, seeds, indirect=True, ids=names)


@pytest.fixture
def sim_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run of the test."""
    seed: int = request.param
    return seed


@pytest.fixture
def world(sim_seed: int, request: pytest.FixtureRequest) -> Iterator[WorldFactory]:
    """`world(nodes=3, hosts=2, ...)` as `coord_sim.world`, with the seed of this run."""
    from coord_sim import scenario

    made: list[Scenario] = []

    def make(**options: Any) -> Scenario:
        made.append(scenario.world(sim_seed, **options))
        return made[-1]

    request.node.stash[_MADE] = made
    yield make
    for one in made:
        one.close()


_MADE: pytest.StashKey[list[Scenario]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    seed = _seed_of(item)
    if seed is not None and report.failed:
        report.user_properties.append((SEED, str(seed)))
        line = _line(item.config, report.nodeid, seed)
        report.sections.append(("simulated world", f"to repeat it: {line}"))
        for path in _export(item):
            report.user_properties.append((INCIDENT, str(path)))
            report.sections.append(("simulated world", f"its log: {path}"))
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each seed that failed. With xdist this runs where the reports arrive."""
    told: dict[str, None] = {}
    for outcome in ("failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            found = dict(getattr(report, "user_properties", ()))
            if SEED in found:
                told[_line(terminalreporter.config, report.nodeid, found[SEED])] = None
    if told:
        terminalreporter.section("simulated worlds that failed, one line to repeat each")
        for line in told:
            terminalreporter.line(line)


def _seeds(metafunc: pytest.Metafunc) -> list[int]:
    chosen: list[int] | None = metafunc.config.getoption("--sim-seed")
    if chosen:
        return list(dict.fromkeys(chosen))
    count: int | None = metafunc.config.getoption("--sim-seeds")
    if count is None:
        marker = metafunc.definition.get_closest_marker("sim")
        count = _marked(marker) if marker is not None else DEFAULT_SEEDS
    return list(range(1, count + 1))


def _marked(marker: pytest.Mark) -> int:
    count = marker.kwargs.get("seeds", marker.args[0] if marker.args else None)
    if not isinstance(count, int) or count < 1:
        raise pytest.UsageError(f"marker sim says seeds={count!r}; it must be 1 or more")
    return count


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text}; it must be 1 or more")
    return int(text)


def _seed_of(item: pytest.Item) -> int | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(SEED)


def _line(config: pytest.Config, nodeid: str, seed: object) -> str:
    """As it can be typed where pytest was started; node ids are relative to its root."""
    path, separator, name = nodeid.partition("::")
    path = os.path.relpath(config.rootpath / path, config.invocation_params.dir)
    return f"pytest {shlex.quote(path + separator + name)} --sim-seed {seed}"


def _export(item: pytest.Item) -> Iterator[Path]:
    directory: Path | None = item.config.getoption("--sim-artefacts")
    made = item.stash.get(_MADE, [])
    if directory is None:
        return
    name = re.sub(r"\W+", "-", item.nodeid).strip("-")
    for number, one in enumerate(made, 1):
        if one.records:
            directory.mkdir(parents=True, exist_ok=True)
            ending = f"-{number}" if len(made) > 1 else ""
            yield one.export(directory / f"{name}{ending}.log")
