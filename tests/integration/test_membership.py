"""Servers join, leave and hand over while clients write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coord.cli.local import get_json
from coord.model.events import NoteAdded
from tests.free_ports import free_ports
from tests.integration.cluster import Fleet


def test_servers_are_added_removed_and_hand_over(
    start_fleet: Callable[..., Fleet], request: pytest.FixtureRequest
) -> None:
    """A fourth server joins and catches up, the leader hands over, a member leaves: every write in
    between is in the log once, also as the new server tells it."""
    fleet = start_fleet(nodes=3, agents=0)
    client = fleet.client
    written = [client.note("cluster", "three").index]
    peer_port, api_port = free_ports(2)
    joining = fleet.cluster.child(
        "server-4",
        [
            "server",
            "--node=4",
            "--join",
            f"--data={fleet.cluster.directory / 'server-4'}",
            f"--peer=127.0.0.1:{peer_port}",
            f"--api=127.0.0.1:{api_port}",
            f"--cluster-id={fleet.cluster.layout.cluster}",
        ],
    )
    joining.start()
    request.addfinalizer(joining.kill)
    client.add_member(4, f"127.0.0.1:{peer_port}", f"127.0.0.1:{api_port}")
    fleet.wait_for("four members", lambda: len(client.cluster().members) == 4)
    written.append(client.note("cluster", "four").index)
    leader = client.cluster().leader
    # Whoever is to take over has to reach those who vote.
    fleet.wait_for("node 4 to know all others", lambda: connected(api_port) == [1, 2, 3])
    client.transfer(4)
    fleet.wait_for("node 4 to lead", lambda: client.cluster().leader == 4)
    written.append(client.note("cluster", "handed over").index)
    client.remove_member(leader)
    fleet.wait_for("three members", lambda: len(client.cluster().members) == 3)
    fleet.cluster.servers[leader].kill()
    written.append(client.note("cluster", "three again").index)
    fleet.wait_for("the log", lambda: len(fleet.log.events(NoteAdded)) >= 4)
    notes = [
        (record.entry.index, record.entry.event.text)
        for record in fleet.log.records
        if isinstance(record.entry.event, NoteAdded)
    ]
    texts = ["three", "four", "handed over", "three again"]
    assert notes == list(zip(written, texts, strict=True))
    assert joining.running


def connected(api_port: int) -> list[int]:
    """Whom the server there has a connection with."""
    view = get_json(f"http://127.0.0.1:{api_port}/v1/cluster?stale=1")
    return sorted(view["connected"]) if view else []
