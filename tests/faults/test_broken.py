"""Broken builds: every edit fits the product as it is, and the copy is what runs."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from jepsen_lite.broken.breakage import Breakage, Edit
from jepsen_lite.broken.build import ORIGINAL, DoesNotFit, edited, install
from jepsen_lite.broken.catalogue import ALL, breakages_named
from jepsen_lite.broken.hunt import Hunt
from jepsen_lite.network.choice import which_network
from jepsen_lite.network.port import NetworkFailed
from jepsen_lite.network.proxied import Proxied
from jepsen_lite.network.wrong import BROKEN_PROXY, ONE_IN, Wrong, mistreated

from coord.cli.main import cli

COMMAND_S = 60.0
RULES = "raft/rules.py"


@pytest.mark.parametrize("breakage", ALL, ids=lambda one: one.name)
def test_every_edit_fits_the_product(breakage: Breakage) -> None:
    """Each `old` stands once, the outcome compiles and differs; what has no edits breaks below."""
    texts = edited(breakage.name, breakage.edits)

    assert texts or breakage.environ
    for file, text in texts.items():
        assert text != (ORIGINAL / file).read_text()


@pytest.mark.parametrize("breakage", ALL, ids=lambda one: one.name)
def test_every_run_is_possible(breakage: Breakage, tmp_path: Path) -> None:
    """Workload, nemesis and options are such as there are."""
    assert Hunt(tmp_path).options(breakage).problems() == []


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (Edit(RULES, "no such line", ""), "stands 0 times in coord/raft/rules.py, not once"),
        (Edit(RULES, "frozenset", "set"), "times in coord/raft/rules.py, not once"),
        (Edit("raft/gone.py", "a", "b"), "coord has no raft/gone.py"),
        (Edit(RULES, "RULES: dict[str, str] = {", "RULES = ("), "does not compile"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(edit: Edit, told: str) -> None:
    """A product that has changed under an edit would otherwise be run unbroken."""
    with pytest.raises(DoesNotFit, match=f"^outdated: .*{told}"):
        edited("outdated", [edit])


def test_edits_of_one_file_follow_on_each_other() -> None:
    """The second is looked for in what the first has left."""
    edits = [
        Edit(RULES, "ALL_RULES = frozenset(RULES)", "ALL_RULES = frozenset({})"),
        Edit(RULES, "ALL_RULES = frozenset({})", "ALL_RULES = frozenset()"),
    ]

    assert "ALL_RULES = frozenset()\n" in edited("twice", edits)[RULES]


def test_the_copy_is_what_runs_and_the_product_stays_as_it_is(tmp_path: Path) -> None:
    """Also from a working directory that holds the product, and in what the command starts."""
    before = (ORIGINAL / "__init__.py").read_text()
    version = Edit("__init__.py", '__version__ = "', '__version__ = "broken-')

    coordctl = install("version", [version], tmp_path)
    told = subprocess.run(
        [*coordctl, "--version"],
        cwd=ORIGINAL.parent,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=True,
    )

    assert "broken-" in told.stdout
    assert (ORIGINAL / "__init__.py").read_text() == before


def test_a_mutation_that_does_not_exist_is_refused() -> None:
    """With the names of those that do."""
    refused = CliRunner().invoke(cli, ["faults", "broken", "--mutation", "everything"])

    assert refused.exit_code == 2
    assert "no mutation 'everything'" in refused.stderr
    assert "stale-reads" in refused.stderr


@pytest.mark.parametrize("output", ["table", "json", "markdown"])
def test_the_catalogue_is_shown_without_a_run(output: str) -> None:
    """Every mutation with its run, in each format."""
    shown = CliRunner().invoke(cli, ["faults", "broken", "--list", "-o", output])

    assert shown.exit_code == 0, shown.output
    assert all(one.name in shown.stdout for one in ALL)
    if output == "json":
        assert [one["name"] for one in json.loads(shown.stdout)] == [one.name for one in ALL]


def test_names_may_be_repeated_and_keep_their_order() -> None:
    """Each is hunted once."""
    names = ("stale-reads", "no-fsync", "stale-reads")

    assert [one.name for one in breakages_named(names)] == ["stale-reads", "no-fsync"]


# A network that is wrong


@pytest.mark.parametrize("wrong", Wrong)
def test_a_wrong_network_changes_some_chunks(wrong: Wrong) -> None:
    """About as many as it is said to, each by one bit or by saying it twice."""
    rng = random.Random(7)
    chunk = b'{"replicas": [12]}'

    delivered = [mistreated(chunk, wrong, rng) for _ in range(100 * ONE_IN)]
    changed = [one for one in delivered if one != chunk]

    assert 50 < len(changed) < 150
    for one in changed:
        if wrong is Wrong.DUPLICATE:
            assert one == chunk + chunk
        else:
            differing = int.from_bytes(one, "big") ^ int.from_bytes(chunk, "big")
            assert len(one) == len(chunk)
            assert differing.bit_count() == 1


def test_only_the_proxy_can_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` becomes the proxy; asked for in any other way, a wrong network is refused."""
    monkeypatch.setenv(BROKEN_PROXY, Wrong.CORRUPT)

    assert isinstance(which_network("auto", "mark"), Proxied)
    with pytest.raises(NetworkFailed, match="of the proxy alone"):
        which_network("namespaces", "mark")

    monkeypatch.setenv(BROKEN_PROXY, "slightly")
    with pytest.raises(NetworkFailed, match="'slightly'; it may be one of corrupt, duplicate"):
        which_network("auto", "mark")
