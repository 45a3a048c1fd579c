"""The marked sites: each name is known, each known one is somewhere, and all are free of charge."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import coord
from coord import sites


def calls() -> Iterator[tuple[str, str]]:
    """(file, site) of every call of `reach` in the product."""
    root = Path(coord.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "reach":
                (argument,) = node.args
                assert isinstance(argument, ast.Constant), f"{path}: a site is a literal"
                yield path.relative_to(root).as_posix(), argument.value


def test_every_call_names_a_known_site_and_every_known_site_is_called_once() -> None:
    """So that a list of sites can be drawn from, and nothing in it is dead."""
    assert sorted(site for _, site in calls()) == sorted(sites.SITES)


def test_a_site_is_named_after_the_layer_that_reaches_it() -> None:
    """A reader of a trace finds the folder by the first word."""
    for path, site in calls():
        assert path.split("/")[0] == site.split(".")[0], (path, site)


def test_an_observer_hears_of_sites_until_it_is_taken_away() -> None:
    """And what it raises goes through the code that reached the site."""
    heard: list[str] = []

    def die(site: str) -> None:
        raise KeyboardInterrupt(site)

    sites.reach("node.entries.applied")
    try:
        sites.observe(heard.append)
        sites.reach("node.entries.applied")
        sites.observe(die)
        with pytest.raises(KeyboardInterrupt, match=r"raft\.turn\.committed"):
            sites.reach("raft.turn.committed")
    finally:
        sites.observe(None)
    sites.reach("node.entries.applied")
    assert heard == ["node.entries.applied"]
