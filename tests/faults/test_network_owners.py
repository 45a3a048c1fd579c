"""Who opened a connection is told by the process that holds its other end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from jepsen_lite.cluster.leftovers import new_mark
from jepsen_lite.cluster.parties import PARTY, party_number
from jepsen_lite.network.owners import (
    Address,
    Owners,
    inode_by_netlink,
    inode_in_table,
    socket_inode,
)

from coord.cli.processes import MARK

DIAL = """
import socket, subprocess, sys
if sys.argv[2] == "0":
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    sys.stdin.read()
else:
    depth = str(int(sys.argv[2]) - 1)
    subprocess.run([sys.executable, "-c", sys.argv[3], sys.argv[1], depth, sys.argv[3]])
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


@pytest.mark.parametrize(
    ("mine", "party", "expected"),
    [(True, "h3", "h3"), (True, "", "clients"), (False, "h3", "clients")],
)
def test_a_connection_belongs_to_the_party_whose_descendant_opened_it(
    listener: socket.socket, mine: bool, party: str, expected: str
) -> None:
    """However far down; a process of another run, or without a party, is a client."""
    mark = new_mark()
    port = str(listener.getsockname()[1])
    env = {**os.environ, MARK: mark if mine else new_mark(), **({PARTY: party} if party else {})}
    with subprocess.Popen(
        [sys.executable, "-c", DIAL, port, "2", DIAL], env=env, stdin=subprocess.PIPE
    ) as root:
        accepted, theirs = listener.accept()
        with accepted:
            owners = Owners(MARK, mark)
            assert owners.party(theirs, accepted.getsockname()) == expected
            assert owners.party(theirs, accepted.getsockname()) == expected
            assert root.stdin is not None
            root.stdin.close()
            assert accepted.recv(1) == b""
            assert owners.party(theirs, accepted.getsockname()) is None


@pytest.mark.parametrize("look", [socket_inode, inode_by_netlink, inode_in_table])
def test_both_ways_find_the_inode_of_a_socket(
    listener: socket.socket, look: Callable[[Address, Address], int]
) -> None:
    """Of the end that is asked for; 0 for a connection that never was."""
    with socket.create_connection(listener.getsockname()) as ours:
        accepted, theirs = listener.accept()
        with accepted:
            here = accepted.getsockname()
            assert look(theirs, here) == os.fstat(ours.fileno()).st_ino
            assert look(here, theirs) == os.fstat(accepted.fileno()).st_ino
    assert look(("127.9.9.9", 1), ("127.9.9.9", 2)) == 0


@pytest.mark.parametrize("name", ["s0", "s100", "h0", "h100", "x1", "s01", "", "client"])
def test_what_is_no_party_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no party"):
        party_number(name)


def test_all_parties_have_different_numbers() -> None:
    """Which are the last part of an address."""
    names = [*(f"s{n}" for n in range(1, 100)), *(f"h{n}" for n in range(1, 100)), "clients"]
    numbers = [party_number(name) for name in names]
    assert len(set(numbers)) == len(names)
    assert min(numbers) >= 1
    assert max(numbers) < 254
