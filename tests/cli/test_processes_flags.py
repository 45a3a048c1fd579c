"""Flags of `coordctl server` and `coordctl agent`: what they mean, and what is wrong with them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from coord.cli import given
from coord.cli.exits import BadInput, Exit
from coord.cli.main import cli
from coord.cli.server import addresses, cluster_settings
from coord.model.settings import Settings
from coord.raft.ports import Member

THREE = "2=127.0.0.1:7002/127.0.0.1:7102,1=127.0.0.1:7001/127.0.0.1:7101"
MEMBERS = (
    Member(1, "127.0.0.1:7001", "127.0.0.1:7101"),
    Member(2, "127.0.0.1:7002", "127.0.0.1:7102"),
)


def test_the_members_are_read_in_order() -> None:
    assert given.members("--cluster", THREE) == MEMBERS


def test_a_server_takes_its_addresses_from_the_cluster() -> None:
    """Unless it is told to listen elsewhere."""
    assert addresses(2, THREE, False, "", "") == ("127.0.0.1:7102", "127.0.0.1:7002", MEMBERS)
    assert addresses(2, THREE, False, "127.0.0.1:9", "")[0] == "127.0.0.1:9"


def test_without_a_cluster_it_is_one_of_one() -> None:
    assert addresses(1, "", False, "", "") == ("127.0.0.1:7101", "", ())


def test_a_joining_server_knows_no_members() -> None:
    assert addresses(4, "", True, "127.0.0.1:5", "127.0.0.1:6") == (
        "127.0.0.1:5",
        "127.0.0.1:6",
        (),
    )


def test_settings_are_named_and_checked() -> None:
    assert cluster_settings(("lease_ms=4_000,suspect_ms=2000",)) == Settings(
        lease_ms=4_000, suspect_ms=2_000
    )


WRONG = [
    (["server", "--settings", "lease=5"], "names lease: unknown, did you mean lease_ms?"),
    (["server", "--settings", "lease_ms=5s"], "lease_ms is '5s'; it must be a whole number"),
    (["server", "--settings", "lease_ms"], "is 'lease_ms'; write name=value"),
    (["server", "--settings", "lease_ms=10"], "must grow in this order"),
    (["server", "--raft", "election=5"], "--raft names election: unknown"),
    (["server", "--cluster", "1=127.0.0.1:7001"], "write PEER/API"),
    (["server", "--cluster", "x=a:1/b:2"], "nodes are numbers from 1"),
    (["server", "--cluster", THREE, "--node", "3"], "--cluster names only 1, 2"),
    (["server", "--cluster", "1=a:1/b"], "--cluster is 'b'; write host:port"),
    (["server", "--api", "127.0.0.1:99999"], "write host:port"),
    (["server", "--join"], "--join needs --peer"),
    (["server", "--join", "--cluster", THREE], "exclude each other"),
    (["server", "--peer", "127.0.0.1:5"], "--peer needs --cluster"),
    (["agent", "--server", "ftp://x"], "use http or https"),
    (["agent", "--ports", "5"], "write FIRST-LAST"),
    (["agent", "--ports", "9-5"], "ports grow from 1 to 65535"),
    (["agent", "--label", "rack"], "--label is 'rack'; write name=value"),
]


@pytest.mark.parametrize(("arguments", "told"), WRONG, ids=lambda value: str(value)[:50])
def test_a_wrong_flag_is_usage(arguments: list[str], told: str) -> None:
    """It names the flag, the value and what to write; nothing is started."""
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == Exit.USAGE, result.output
    assert told in result.stderr


def test_a_node_named_twice_with_two_addresses_is_refused() -> None:
    with pytest.raises(BadInput, match="twice"):
        given.members("--cluster", "1=a:1/b:2,01=a:3/b:4")
