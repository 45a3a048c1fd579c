"""Flags of `coordctl relay`, and of agents that connect through one."""

from __future__ import annotations

import socket

import pytest
from click.testing import CliRunner

from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.client.servers import RelayedRing
from coord.relay.config import RelayConfig


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["relay", "--listen", "nowhere"], "--listen is 'nowhere'; write host:port"),
        (["relay", "--listen", "0.0.0.0:7201"], "only loopback addresses"),
        (["relay", "--server", "ftp://x"], "--server: "),
        (["relay", "--name", "x" * 300], "the name has 300 characters"),
        (["relay", "--agents", "0"], "--agents"),
        (["agent", "--relay", "ftp://x"], "--relay: "),
    ],
)
def test_a_wrong_flag_is_usage(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr


def test_a_port_in_use_is_told_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        host, port = taken.getsockname()
        result = CliRunner().invoke(cli, ["relay", "--listen", f"{host}:{port}"])
    assert result.exit_code == Exit.FAILED
    assert "choose another with --listen" in result.stderr


def test_a_relay_without_a_server_has_a_problem() -> None:
    assert RelayConfig(servers=()).problems() == ["no server is named; give --server"]


def test_relays_come_before_servers_wherever_an_agent_begins() -> None:
    """Many agents begin at different relays, and go on to different servers."""
    firsts, straights = {}, {}
    for steps in range(6):
        ring = RelayedRing(["s1", "s2", "s3"], ["r1", "r2"])
        ring.skip(steps)
        order = list(ring.round())
        assert sorted(order[:2]) == ["http://r1:7101", "http://r2:7101"]
        firsts[order[0]] = None
        straights[order[2]] = None
    assert len(firsts) == 2
    assert len(straights) == 3


def test_a_ring_knows_when_it_is_past_its_relays() -> None:
    ring = RelayedRing(["s1"], ["r1"])
    assert not ring.straight
    ring.advance()
    assert ring.straight
    ring.choose("http://r1:7101")
    assert not ring.straight
    assert not RelayedRing(["s1"], []).straight
