"""Whatever fleet there is: written in a format, it is read back as it was."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord.model.place import LEVELS, Place
from coord.topology.reading import read
from tests.topology.written import (
    TREES,
    Fleet,
    fleets,
    hosts_by_name,
    ibnetdiscover,
    located_on_rails,
    nccl,
    netq,
    nvidia_smi,
    rail_cables,
)

QUICK = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("way", TREES)
@QUICK
@given(fleet=fleets())
def test_a_tree_is_read_as_it_was_written(way: str, fleet: Fleet) -> None:
    """Every host in its domains, at the levels that the format tells; packed or not."""
    write, levels = TREES[way]
    text = write(fleet).encode()
    found = read(text, "file")
    expected = {
        host: Place(**{level: getattr(place, level) for level in LEVELS[:4] if level in levels})
        for host, place in fleet.places.items()
    }
    assert expected == {located.host: located.place for located in found.hosts}
    assert read(gzip.compress(text), "file.gz") == found
    if found.switches:
        uplinks = {one.switch: [up.switch for up in one.uplinks] for one in found.switches}
        parents = {name: [above] for name, above in fleet.parents().items()}
        tops = {place.zone: [] for place in fleet.places.values()}
        assert uplinks == {**parents, **tops}


@pytest.mark.parametrize("write", [ibnetdiscover, netq])
@QUICK
@given(fleet=fleets())
def test_partial_connectivity_is_kept(write: object, fleet: Fleet) -> None:
    """A host with two of four rails has these two; a leaf has the uplinks that are there."""
    assert callable(write)
    found = read(write(rail_cables(fleet)).encode(), "file")
    assert located_on_rails(fleet) == {located.host: located.rails for located in found.hosts}
    leaves = {rail.switch for located in found.hosts for rail in located.rails}
    for switch in found.switches:
        uplinks = [(up.switch, up.links) for up in switch.uplinks]
        assert uplinks == ([("spine0", 2), ("spine1", 2)] if switch.switch in leaves else [])
    rails = sum(len(rails) for rails in fleet.rails.values())
    assert found.links == rails + 2 * 4 * len(leaves)


@QUICK
@given(fleet=fleets())
def test_hosts_that_share_leaves_share_a_domain(fleet: Fleet) -> None:
    """And hosts that no chain of leaves joins do not."""
    found = hosts_by_name(read(ibnetdiscover(rail_cables(fleet)).encode(), "file").hosts)
    group = {host: {host} for host in found}
    for one in found:
        for other in found:
            if {rail.switch for rail in found[one].rails} & {
                rail.switch for rail in found[other].rails
            }:
                joined = group[one] | group[other]
                for member in joined:
                    group[member] = joined
    innermost = {host: located.place.rack or located.place.pod for host, located in found.items()}
    for one in found:
        for other in found:
            assert (innermost[one] == innermost[other]) == (other in group[one])


@pytest.mark.parametrize("write", [nvidia_smi, nccl])
@QUICK
@given(island_of=st.lists(st.integers(0, 3), min_size=1, max_size=9), nics=st.integers(1, 9))
def test_the_devices_of_a_host_are_read_as_they_were_written(
    write: object, island_of: list[int], nics: int
) -> None:
    """Its adapters are its rails; devices that NVLink joins are islands."""
    assert callable(write)
    found = read(write(island_of, nics).encode(), "file", host="h1")
    (located,) = found.hosts
    members = [
        tuple(at for at, other in enumerate(island_of) if other == island)
        for island in dict.fromkeys(island_of)
    ]
    assert [tuple(one) for one in members if len(one) > 1] == [
        island.devices for island in located.islands
    ]
    assert [rail.rail for rail in located.rails] == [f"mlx5_{number}" for number in range(nics)]
    assert (found.devices, len(found.distances)) == (len(island_of), len(island_of) * nics)
