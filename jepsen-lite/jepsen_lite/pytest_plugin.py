"""pytest plugin `jepsen_lite`: clusters of real processes that are broken on purpose, and a judge.

    @pytest.mark.coord_cluster(servers=3, hosts=2)
    def test_our_service(coord_cluster, nemesis, history):
        service = OurService(coord_cluster.urls)
        with nemesis("isolate-leader"):
            with history.asking("x", "write", 3, client="a"):
                service.put("x", 3)
        with history.asking("x", "read", client="b") as asked:
            asked.answered(service.get("x"))
        history.judge(Register())

The fixtures serve tests with an event loop and tests without. `--fault-seed` chooses what nemeses
draw. A failure says which seed it was, what was broken when, and in which folder history, logs and
report.html are; `coordctl faults judge` judges that again. All is loaded by the first test that
uses a fixture.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jepsen_lite.testing.background import Background
    from jepsen_lite.testing.clusters import ClusterFactory, RunningCluster
    from jepsen_lite.testing.misfortunes import Nemeses
    from jepsen_lite.testing.recording import SharedHistory

DEFAULT_SEED = 1
RANDOM = "random"
SEED, PLACE = "fault_seed", "fault_directory"
"""Names of the properties that a report carries; the first is an option and a fixture as well."""
MARKER = "coord_cluster"
SHOWN_FAULTS = 20
_MOST = 2**31


class _Used:
    """What one test has used."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.seed = seed
        self.directory = directory
        self.history: SharedHistory | None = None
        self.clusters: ClusterFactory | None = None


_USED: pytest.StashKey[_Used] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("jepsen_lite", "faults on real clusters (jepsen_lite)")
    group.addoption(
        "--fault-seed",
        type=_seed,
        default=DEFAULT_SEED,
        metavar="S",
        help=f"what nemeses draw from (default {DEFAULT_SEED}); `{RANDOM}` picks one and says so",
    )
    group.addoption(
        "--fault-directory",
        type=Path,
        metavar="DIR",
        help="where each test that uses these fixtures leaves a folder with its history and the "
        "logs of its cluster (default: in its tmp_path)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(servers, hosts, devices, settings, network, agent, attach, hooks, judge): the "
        "cluster that the fixture coord_cluster starts",
    )
    if config.option.fault_seed == RANDOM:
        drawn = getattr(config, "workerinput", {}).get(SEED)
        config.option.fault_seed = drawn or random.SystemRandom().randrange(1, _MOST)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of xdist: all its processes are given the seed that was drawn."""
    node.workerinput[SEED] = node.config.option.fault_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.option.fault_seed
    return None if seed == DEFAULT_SEED else f"faults: --fault-seed {seed}"


@pytest.fixture
def fault_seed(request: pytest.FixtureRequest) -> int:
    """From which nemeses draw; draw from it as well what else is left to chance."""
    seed: int = request.config.getoption("--fault-seed")
    return seed


@pytest.fixture
def _used(fault_seed: int, request: pytest.FixtureRequest) -> _Used:
    base: Path | None = request.config.getoption("--fault-directory")
    if base is None:
        directory = request.getfixturevalue("tmp_path") / "faults"
    else:
        from jepsen_lite.run.artefacts import set_aside

        directory = base.absolute() / re.sub(r"\W+", "-", request.node.nodeid).strip("-")
        set_aside(directory)
    directory.mkdir(parents=True)
    used = _Used(fault_seed, directory)
    request.node.stash[_USED] = used
    return used


@pytest.fixture
def _background() -> Iterator[Background]:
    from jepsen_lite.testing.background import Background

    background = Background()
    yield background
    background.close()


@pytest.fixture
def history(_used: _Used, request: pytest.FixtureRequest) -> Iterator[SharedHistory]:
    """A record of what the clients of the test asked and were told, and its judge."""
    from jepsen_lite.testing.recording import SharedHistory

    facts = {"seed": _used.seed, "test": request.node.nodeid}
    _used.history = SharedHistory(_used.directory / "history.jsonl", facts)
    yield _used.history
    _used.history.close()


@pytest.fixture
def coord_cluster_factory(
    _used: _Used, _background: Background, history: SharedHistory
) -> Iterator[ClusterFactory]:
    """`coord_cluster_factory(servers=1, hosts=0)` is one that runs, and ends with the test."""
    from jepsen_lite.testing.clusters import ClusterFactory

    factory = ClusterFactory(_background, _used.directory, history, _used.seed, print)
    _used.clusters = factory
    yield factory
    factory.close()


@pytest.fixture
def coord_cluster(
    coord_cluster_factory: ClusterFactory, request: pytest.FixtureRequest
) -> RunningCluster:
    """A cluster that runs: three servers and a host, or what the marker `coord_cluster` says."""
    marker = request.node.get_closest_marker(MARKER)
    try:
        return coord_cluster_factory(**(marker.kwargs if marker else {}))
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"marker {MARKER}: {error}") from error


@pytest.fixture
def nemesis(
    _used: _Used,
    _background: Background,
    coord_cluster_factory: ClusterFactory,
    history: SharedHistory,
) -> Iterator[Nemeses]:
    """`with nemesis("kill-leader"):`, `with nemesis.loose("kill-follower+slow"):`."""
    from jepsen_lite.testing.misfortunes import Nemeses

    nemeses = Nemeses(_background, coord_cluster_factory, history, _used.seed)
    yield nemeses
    nemeses.end_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What is to be judged in the end is judged as part of the test, which fails by it."""
    result = yield
    used = item.stash.get(_USED, None)
    if used is not None and used.history is not None:
        used.history.judge_what_was_asked_for()
    if used is not None and used.clusters is not None:
        used.clusters.judge_what_was_asked_for()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    used = item.stash.get(_USED, None)
    if used is not None and report.failed:
        report.user_properties.append((SEED, str(used.seed)))
        report.user_properties.append((PLACE, str(used.directory)))
        line = _line(item.config, report.nodeid, str(used.seed))
        told = [f"to repeat it: {line}", f"history and logs: {used.directory}"]
        if used.history is not None and call.excinfo is not None:
            from jepsen_lite.testing.page import write_failure

            page = write_failure(
                used.directory,
                used.history.recorded(),
                test=report.nodeid,
                repeat=line,
                error=call.excinfo.value,
            )
            told += [f"page: {page}", f"to judge it again: coordctl faults judge {used.directory}"]
        report.sections.append(("faults", "\n".join([*told, *_faults(used)])))
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each test that failed. With xdist this runs where the reports arrive."""
    told: dict[str, None] = {}
    for outcome in ("failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            found = dict(getattr(report, "user_properties", ()))
            if SEED in found:
                line = _line(terminalreporter.config, report.nodeid, found[SEED])
                told[f"{line}  # {found[PLACE]}"] = None
    if told:
        terminalreporter.section("tests under faults that failed, one line to repeat each")
        for line in told:
            terminalreporter.line(line)


def _seed(text: str) -> int | str:
    if text == RANDOM:
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"is {text}; it must be a number or `{RANDOM}`")
    return int(text)


def _line(config: pytest.Config, nodeid: str, seed: str) -> str:
    """As it can be typed where pytest was started; node ids are relative to its root."""
    path, separator, name = nodeid.partition("::")
    path = os.path.relpath(config.rootpath / path, config.invocation_params.dir)
    return f"pytest {shlex.quote(path + separator + name)} --fault-seed {seed}"


def _faults(used: _Used) -> list[str]:
    faults = used.history.faults if used.history is not None else []
    told = []
    for fault in faults[-SHOWN_FAULTS:]:
        end = f"{fault.ended_ns / 1e9:.3f} s" if fault.ended_ns else "the end"
        told.append(f"{fault.began_ns / 1e9:.3f} s to {end}: {fault.nemesis}: {fault.what}")
    if len(faults) > SHOWN_FAULTS:
        told.insert(0, f"the last {SHOWN_FAULTS} of {len(faults)} misfortunes:")
    return told or ["nothing was broken on purpose"]
