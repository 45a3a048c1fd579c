"""Which network a run gets, and that what is missing is said with what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jepsen_lite.cluster.leftovers import new_mark
from jepsen_lite.network import namespaces
from jepsen_lite.network.choice import which_network
from jepsen_lite.network.port import CAPABILITIES, NetworkFailed

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_proxy_is_taken_loudly_where_a_tool_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And namespaces that were asked for are refused, with the package to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    heard: list[str] = []
    network = which_network("auto", new_mark(), tell=heard.append)
    assert network.name == "proxied"
    assert network.can == set(CAPABILITIES)
    (sentence,) = heard
    assert "there is no `ip`: install iproute2" in sentence
    with pytest.raises(NetworkFailed, match="there is no `ip`: install iproute2"):
        which_network("namespaces", new_mark())


def test_rights_that_are_missing_are_named() -> None:
    """A root without the capabilities, as in most containers, learns which it needs."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or (problem := namespaces.obstacle()):
        pytest.skip(f"there is nothing to take away: {problem if setpriv else 'no setpriv'}")
    code = "from jepsen_lite.network.namespaces import obstacle; print(obstacle())"
    said = subprocess.run(
        [setpriv, "--bounding-set=-net_admin,-sys_admin", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert "Operation not permitted" in said
    assert "allow CAP_NET_ADMIN and CAP_SYS_ADMIN" in said
    assert "--network proxied" in said


def test_what_a_run_needs_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Namespaces are taken when they can do it; else the proxy is, and the reason is told."""
    if problem := namespaces.obstacle():
        pytest.skip(f"no namespaces: {problem}")
    heard: list[str] = []
    plain = which_network("auto", new_mark(), needs=frozenset({"cut", "one_way"}))
    assert plain.name == "namespaces"
    monkeypatch.setattr(namespaces.queues, "missing", lambda: {"delay": "no netem"})
    network = which_network("auto", new_mark(), needs=frozenset({"delay"}), tell=heard.append)
    assert network.name == "proxied"
    assert heard == ["namespaces cannot do what is needed, so the proxy is used: delay: no netem"]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="it must be one of auto, namespaces, proxied"):
        which_network("carrier pigeons", new_mark())
