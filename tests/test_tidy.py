"""What people forget: rules over the whole tree, and a sample of what each of them forbids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tidy_rules
from tests.fleet_story import eventful_life
from tests.tidy_rules import PYTHON_RULES, TEXT_RULES, Rule, Source

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("coord", "tests", "examples", "sim", "jepsen-lite", "proto", ".ci")
TEXT_SUFFIXES = (".md", ".proto", ".yaml", ".toml", ".txt")


def tracked() -> list[Path]:
    """Files that belong to the tree: what git lists, or what lies there when it is no checkout."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
        paths += [path for path in ROOT.iterdir() if path.is_file()]
    return sorted(path for path in paths if path.is_file())


def sources(python: bool) -> list[Source]:
    found = []
    for path in tracked():
        relative = path.relative_to(ROOT).as_posix()
        if relative.startswith("coord/pb/"):
            continue
        wanted = path.suffix == ".py" if python else path.suffix in TEXT_SUFFIXES
        if wanted:
            found.append(Source(relative, path.read_text(errors="replace")))
    return found


def violations(rules: tuple[Rule, ...], files: list[Source]) -> list[str]:
    return [
        f"{source.path}:{line}: {message}"
        for source in files
        for rule in rules
        for line, message in rule(source)
    ]


def assert_none(found: list[str]) -> None:
    """Fail with one violation a line."""
    if found:
        pytest.fail("\n".join([f"{len(found)} found:", *found]), pytrace=False)


@pytest.mark.parametrize("rule", PYTHON_RULES, ids=lambda rule: rule.__name__)
def test_the_sources_are_tidy(rule: Rule) -> None:
    """Every Python file of the tree keeps the rule."""
    files = sources(python=True)
    assert len(files) > 20
    assert_none(violations((rule,), files))


def test_the_prose_is_tidy() -> None:
    """So do documents, contracts and settings, where the rules apply to text."""
    files = sources(python=False)
    assert len(files) > 5
    assert_none(violations(TEXT_RULES, files))


FORBIDDEN = [
    ("pure_core", "coord/core/a.py", "import time"),
    ("pure_core", "coord/model/a.py", "from os import path"),
    ("pure_core", "coord/core/a.py", "half = 0.5"),
    ("pure_core", "coord/core/a.py", "half = 1 / 2"),
    ("pure_core", "coord/core/a.py", "number = float(text)"),
    ("pure_core", "coord/core/a.py", "for host in {one, two}: pass"),
    ("pure_core", "coord/core/a.py", "for host in set(hosts): pass"),
    ("pure_core", "coord/core/a.py", "bucket = hash(host)"),
    ("layers_point_one_way", "coord/core/a.py", "from coord.node import node"),
    ("layers_point_one_way", "coord/model/a.py", "import coord.core.machine"),
    ("layers_point_one_way", "coord/client/a.py", "from coord import node"),
    ("layers_point_one_way", "coord/surprise/a.py", ""),
    ("libraries_stay_in_their_layer", "coord/node/a.py", "import pysyncobj"),
    ("libraries_stay_in_their_layer", "coord/api/a.py", "from coord.pb import log_pb2"),
    ("libraries_stay_in_their_layer", "coord/worker.py", "import msgspec"),
    ("short_enough", "coord/a.py", "a = 1  #" + " long" * 20),
    ("short_enough", "coord/a.py", "a = 1\n" * 501),
    ("short_enough", "coord/a.py", "def f():\n" + "    a = 1\n" * 70),
    ("nothing_swallowed", "coord/a.py", "try:\n    f()\nexcept:\n    g()"),
    ("nothing_swallowed", "coord/a.py", "try:\n    f()\nexcept OSError:\n    pass"),
    ("telling_names", "coord/node/utils.py", ""),
    ("telling_names", "coord/node/a.py", "class LogManager: ..."),
    ("telling_names", "coord/node/a.py", "def do_helper(): ..."),
    ("owned_tasks", "coord/node/a.py", "asyncio.create_task(run())"),
    ("owned_tasks", "coord/node/a.py", "await asyncio.wait(tasks)"),
    ("loud_skips", "tests/a.py", "@pytest.mark.skip\ndef test(): ..."),
    ("loud_skips", "tests/a.py", "@pytest.mark.skipif(True)\ndef test(): ..."),
    ("loud_skips", "tests/a.py", "pytest.skip()"),
    ("no_sleep_for_luck", "tests/test_a.py", "time.sleep(0.5)"),
    ("no_sleep_for_luck", "tests/test_a.py", "async def test():\n    await asyncio.sleep(delay)"),
    ("finished", "coord/a.py", "a = 1  # TO" + "DO: two"),
    ("finished", "coord/a.py", "path = '/ho" + "me/somebody/coord'"),
]


@pytest.mark.parametrize(("rule", "path", "text"), FORBIDDEN)
def test_a_rule_finds_what_it_forbids(rule: str, path: str, text: str) -> None:
    """Each rule speaks up at a sample, so that none of them goes blind unnoticed."""
    assert list(getattr(tidy_rules, rule)(Source(path, text)))


ALLOWED = [
    ("pure_core", "coord/core/a.py", "known = status in {one, two}"),
    ("pure_core", "coord/node/a.py", "import time"),
    ("layers_point_one_way", "coord/core/a.py", "from coord.model.events import Event"),
    ("layers_point_one_way", "coord/client/a.py", "from coord import __version__"),
    ("libraries_stay_in_their_layer", "coord/codec.py", "from coord.pb import log_pb2"),
    ("nothing_swallowed", "coord/a.py", "with suppress(OSError):\n    f()"),
    ("owned_tasks", "coord/node/a.py", "group.create_task(run())"),
    ("owned_tasks", "coord/node/a.py", "self.task = asyncio.create_task(run())"),
    ("loud_skips", "tests/a.py", "pytest.skip('there is no torch')"),
    ("no_sleep_for_luck", "tests/test_a.py", "while not ready():\n    time.sleep(0.01)"),
    ("no_sleep_for_luck", "tests/test_a.py", "async def test():\n    await asyncio.sleep(0)"),
]


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_a_rule_lets_pass_what_it_allows(rule: str, path: str, text: str) -> None:
    """A rule that forbids too much would be switched off."""
    assert list(getattr(tidy_rules, rule)(Source(path, text))) == []


def test_a_history_has_one_digest_under_three_hash_seeds() -> None:
    """No decision hangs on the order of a set or on hash(), which differ between processes."""
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "tests.fleet_story"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "31337")
    ]
    assert len(outputs[0].split()) == 2
    assert outputs == [outputs[0]] * 3


def test_the_history_of_the_hash_seeds_is_eventful() -> None:
    """It holds restarts, a lost host and finished jobs, or equal digests would mean little."""
    taken = {
        type(decision).__name__
        for record in eventful_life().records
        for decision in record.decisions
    }
    assert taken >= {
        "CheckpointCommitted",
        "HostLost",
        "IncidentClosed",
        "JobCompleted",
        "RestartScheduled",
        "TasksPlaced",
    }
