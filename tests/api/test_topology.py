"""/v1/topology, as curl and the client see it."""

from __future__ import annotations

import pytest

from coord.client import Client
from coord.client.errors import Rejected
from coord.client.topology import PART_BYTES, parts
from coord.core.machine import apply
from coord.core.state import new_state
from coord.model.entry import Entry, Origin
from coord.model.events import ClusterConfigured, TopologyImported
from coord.model.place import Located, Place, Rail, Switch, Uplink
from tests.api.servers import Served
from tests.node.cluster import FakeAgent

BODY = {
    "hosts": [{"host": "h1", "place": {"zone": "z1", "rack": "r1"}, "switch": "l1"}],
    "switches": [{"switch": "l1", "uplinks": [{"switch": "s1", "links": 4}]}, {"switch": "s1"}],
    "source": "by hand",
}


async def test_a_topology_is_imported_and_shown() -> None:
    """Hosts with what counts for them, and all that was imported."""
    async with Served() as served:
        await FakeAgent(served.leader, "h1").register(devices=4)
        await FakeAgent(served.leader, "h2").register(devices=2)
        made = await served.ask("POST", "/v1/topology", BODY, 201)
        assert (made["result"], made["index"] > 0) == (1, True)
        shown = await served.get("/v1/topology")
        assert [(host["host"], host["place"], host["devices"]) for host in shown["hosts"]] == [
            ("h1", {"zone": "z1", "rack": "r1"}, 4),
            ("h2", {}, 2),
        ]
        assert shown["switches"] == BODY["switches"]
        assert shown["imported"] == BODY["hosts"]


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"switches": []}, "unknown_switch", "hosts[0].switch: a switch is named"),
        (
            {"switches": [{"switch": "l1", "uplinks": [{"switch": "l1"}]}]},
            "cycle",
            "switches[0].uplinks: a switch is, over its uplinks, above itself",
        ),
        ({"hosts": [{"host": "a"}, {"host": "a"}]}, "duplicate_name", "hosts[1].host"),
        ({"hosts": [{"host": "a/b"}]}, "invalid", "hosts[0].host"),
        ({"hosts": [{"host": "a", "place": {"row": "r"}}]}, "invalid", "row"),
        ({"merge": True, "switches": []}, "unknown_switch", "is named that the topology lacks"),
    ],
)
async def test_a_wrong_topology_is_refused_with_the_name_of_the_field(
    change: dict[str, object], code: str, told: str
) -> None:
    async with Served() as served:
        refused = await served.ask("POST", "/v1/topology", {**BODY, **change}, 400)
        assert refused["error"]["code"] == code
        assert told in refused["error"]["message"]


async def test_the_client_imports_a_large_topology_in_parts() -> None:
    """More than a server takes at once; the same again changes nothing."""
    rails = tuple(Rail(f"mlx5_{number}", f"leaf-{number}") for number in range(8))
    hosts = [
        Located(f"host-{at:05}", Place("z1", f"pod-{at // 256}"), rails) for at in range(4_000)
    ]
    switches = [Switch(rail.switch, (Uplink("spine", 2),)) for rail in rails] + [Switch("spine")]
    async with Served() as served, Client(list(served.urls.values()), actor="ann") as client:
        await FakeAgent(served.leader, "host-00000").register(devices=8)
        done = await client.import_topology(hosts, switches, source="fabric")
        assert done.result == 1
        view = await client.topology()
        assert (list(view.imported), len(view.switches)) == (hosts, 9)
        assert view.hosts[0].rails == rails
        with pytest.raises(Rejected, match="nothing_to_do"):
            await client.import_topology(hosts[:10], (), merge=True)


def test_the_parts_of_an_import_make_the_whole() -> None:
    """Each is small enough, and none names a switch that those before do not know."""
    tiers = [[f"{'x' * 200}t{tier}s{at}" for at in range(60)] for tier in range(4)]
    switches = [
        Switch(name, tuple(Uplink(up) for up in tiers[tier + 1]) if tier < 3 else ())
        for tier in range(4)
        for name in tiers[tier]
    ]
    hosts = tuple(Located(f"h{at:04}", switch=tiers[0][at % 60]) for at in range(2_000))
    whole = TopologyImported(hosts, tuple(switches), "file", "ann")
    made = parts(whole)
    assert len(made) > 4
    state = new_state()
    first = ClusterConfigured("c", logic_version=2)
    for index, event in enumerate([first, *made], start=1):
        recorded = apply(state, Entry(index, 1, index, Origin("client:a", seq=index), event))
        assert recorded.rejection == ""
    assert list(state.topology.values()) == list(hosts)
    assert dict(state.switches) == {switch.switch: switch for switch in switches}
    assert parts(TopologyImported(hosts[:10])) == [TopologyImported(hosts[:10])]
    assert PART_BYTES < 1 << 20
