"""What follows from where hosts stand: domains, and whom a switch's silence is about."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coord.core import topology
from coord.core.machine import apply
from coord.core.state import State, decode_state, encode_state, new_state, state_digest
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import AnyEvent, ClusterConfigured, HostRegistered, TopologyImported
from coord.model.place import Island, Located, Place, Rail, Switch, Uplink

RAILS = (Rail("a", "l1"), Rail("b", "l2"))
SWITCHES = (
    Switch("l1", (Uplink("s1", 4), Uplink("s2", 3))),
    Switch("l2", (Uplink("s1"),)),
    Switch("l3", (Uplink("s2"),)),
    Switch("s1"),
    Switch("s2"),
)
HOSTS = (
    Located("h1", Place("z1", "p1", "r1"), RAILS),
    Located("h2", Place("z1", "p1", "r2"), RAILS[:1], islands=(Island((0, 1)), Island((2, 3)))),
    Located("h3", Place("z1", "p2", "r1"), switch="l3"),
    Located("h9", Place("z9")),
)


def state_with(*events: AnyEvent) -> State:
    state = new_state()
    told(state, ClusterConfigured("c", logic_version=2))
    for event in events:
        assert told(state, event).rejection == ""
    return state


def told(state: State, event: AnyEvent) -> Recorded:
    index = state.meta.applied_index + 1
    return apply(state, Entry(index, 1, index, Origin("client:a", seq=index), event))


def registered(*names: str) -> list[HostRegistered]:
    return [HostRegistered(name, f"agent-{name}", "boot", "lan", 4) for name in names]


def fabric() -> State:
    return state_with(*registered("h1", "h2", "h3", "h4"), TopologyImported(HOSTS, SWITCHES))


def test_hosts_are_told_by_domain() -> None:
    """By path, so that r1 of two pods is two racks; neither hosts without one, nor hosts that did
    not register, are in any."""
    state = fabric()
    assert topology.domains(state, "rack") == {
        "z1/p1/r1": ("h1",),
        "z1/p1/r2": ("h2",),
        "z1/p2/r1": ("h3",),
    }
    assert topology.domains(state, "zone") == {"z1": ("h1", "h2", "h3")}
    assert topology.domains(state, "nvlink") == {}
    assert topology.domains(state, "host") == {name: (name,) for name in ("h1", "h2", "h3", "h4")}


def test_a_switch_is_suspect_for_all_behind_it_and_fatal_for_those_with_no_other_way() -> None:
    state = fabric()
    assert topology.hosts_behind(state, "l1") == ("h1", "h2")
    assert topology.hosts_cut_off_by(state, "l1") == ("h2",)
    assert topology.hosts_behind(state, "s1") == ("h1", "h2")
    assert topology.hosts_cut_off_by(state, "s1") == ()
    assert topology.hosts_behind(state, "s2") == ("h1", "h2", "h3")
    assert topology.hosts_cut_off_by(state, "s2") == ("h3",)
    assert topology.hosts_behind(state, "absent") == topology.hosts_cut_off_by(state, "absent")
    assert topology.islands(state, "h2") == ((0, 1), (2, 3))
    assert topology.islands(state, "h1") == topology.islands(state, "absent") == ()


def test_a_state_read_from_its_rows_knows_what_was_imported() -> None:
    """For hosts that register after a restart as well; and a state without imports has the rows
    that it had before there were any."""
    state = fabric()
    again = decode_state(encode_state(state))
    assert state_digest(again) == state_digest(state)
    for one in (state, again):
        told(one, registered("h9")[0])
    assert again.hosts["h9"].place == Place("z9")
    assert state_digest(again) == state_digest(state)
    assert b"switches" not in encode_state(state_with(*registered("h1")))


def test_a_host_that_no_import_names_any_more_stands_where_it_announced() -> None:
    event = HostRegistered(
        "h1", "agent", "boot", "lan", 4, place=Place("zx", rack="rx"), rails=(Rail("q"),)
    )
    state = state_with(event, TopologyImported(HOSTS, SWITCHES))
    assert (state.hosts["h1"].place, state.hosts["h1"].rails) == (HOSTS[0].place, RAILS)
    assert told(state, TopologyImported(())).result == 1
    assert (state.hosts["h1"].place, state.hosts["h1"].rails) == (event.place, event.rails)


def test_what_a_host_lists_of_itself_does_not_connect_what_no_cable_does() -> None:
    """Four adapters and two cables are two rails, in whichever order that is imported."""
    own = Located(
        "h1", rails=tuple(Rail(f"mlx5_{at}") for at in range(4)), islands=(Island((0, 1)),)
    )
    state = state_with(*registered("h1"), TopologyImported(HOSTS, SWITCHES))
    assert told(state, TopologyImported((own,), merge=True)).rejection == ""
    assert (state.hosts["h1"].rails, topology.islands(state, "h1")) == (RAILS, ((0, 1),))
    state = state_with(*registered("h1"), TopologyImported((own,)))
    assert state.hosts["h1"].rails == own.rails
    assert told(state, TopologyImported(HOSTS, SWITCHES, merge=True)).rejection == ""
    assert (state.hosts["h1"].rails, topology.islands(state, "h1")) == (RAILS, ((0, 1),))


def test_a_refusal_names_the_field() -> None:
    state = fabric()
    cases = {
        "hosts[0].host": TopologyImported((Located("a/b"),)),
        "hosts[1].host": TopologyImported((Located("a"), Located("a"))),
        "hosts[0].place.rack": TopologyImported((Located("a", Place(rack="r/1")),)),
        "hosts[0].rails[1].rail": TopologyImported((Located("a", rails=(Rail("x"), Rail("x"))),)),
        "hosts[0].rails[0].switch": TopologyImported((Located("a", rails=RAILS),)),
        "hosts[0].switch": TopologyImported((Located("a", switch="l1"),)),
        "hosts[0].islands[1].devices": TopologyImported(
            (Located("a", islands=(Island((0,)), Island((1, 0)))),)
        ),
        "switches[1].switch": TopologyImported((), (Switch("s"), Switch("s"))),
        "switches[0].uplinks[0].switch": TopologyImported((), (Switch("s", (Uplink("t"),)),)),
        "switches[0].uplinks[0].links": TopologyImported((), (Switch("s", (Uplink("t", 0),)),)),
        "switches[1].uplinks": TopologyImported((), (Switch("r"), Switch("s", (Uplink("s"),)))),
    }
    for path, event in cases.items():
        refused = topology.refusal(state, event)
        assert refused is not None, path
        assert refused[1] == path
        assert told(state, event).rejection == refused[0]


@st.composite
def fabrics(draw: st.DrawFn) -> tuple[list[Located], list[Switch]]:
    """Up to three tiers of three switches with any uplinks to the tier above; hosts anywhere."""
    names = [[f"t{tier}s{at}" for at in range(draw(st.integers(1, 3)))] for tier in range(3)]
    switches = []
    for tier, row in enumerate(names):
        above = names[tier + 1] if tier < 2 else []
        for name in row:
            ups = draw(st.sets(st.sampled_from(above))) if above else set()
            switches.append(Switch(name, tuple(Uplink(up) for up in sorted(ups))))
    every = [name for row in names for name in row]
    hosts = []
    for at in range(draw(st.integers(1, 4))):
        on = sorted(draw(st.sets(st.sampled_from(every), max_size=3)))
        rails = tuple(Rail(f"r{number}", switch) for number, switch in enumerate(on))
        hosts.append(Located(f"h{at}", rails=rails))
    return hosts, switches


def ways_up(host: Located, switches: list[Switch]) -> list[set[str]]:
    """Every way from the host to a switch without uplinks, one after the other."""
    above = {switch.switch: [up.switch for up in switch.uplinks] for switch in switches}
    ways = [[rail.switch] for rail in host.rails]
    done = []
    while ways:
        way = ways.pop()
        done += [] if above[way[-1]] else [set(way)]
        ways += [[*way, up] for up in above[way[-1]]]
    return done


@settings(max_examples=100, deadline=None)
@given(fabric=fabrics())
def test_who_is_behind_a_switch_is_found_by_trying_every_way(
    fabric: tuple[list[Located], list[Switch]],
) -> None:
    """The dumb way, on small fabrics."""
    hosts, switches = fabric
    names = [host.host for host in hosts]
    state = state_with(*registered(*names), TopologyImported(tuple(hosts), tuple(switches)))
    for switch in (one.switch for one in switches):
        ways = {host.host: ways_up(host, switches) for host in hosts}
        behind = [name for name in names if any(switch in way for way in ways[name])]
        cut = [name for name in behind if all(switch in way for way in ways[name])]
        assert topology.hosts_behind(state, switch) == tuple(behind)
        assert topology.hosts_cut_off_by(state, switch) == tuple(cut)
