"""What every network promises, held by the proxy and by namespaces alike."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from jepsen_lite.cluster import leftovers
from jepsen_lite.network import namespaces
from jepsen_lite.network.namespaces import Namespaces
from jepsen_lite.network.port import Network, NotPossible
from jepsen_lite.network.proxied import Proxied

from coord.cli.processes import marked
from tests.faults.talker import Talker

PORT = 7101
SOON_S = 0.6
"""Longer than anything takes that is not held."""


class World:
    """A network with the servers s1, s2 and s3, each listening."""

    def __init__(self, network: Network, mark: str, stack: contextlib.ExitStack) -> None:
        self.network = network
        self.talkers = {}
        for party in ("s1", "s2", "s3"):
            talker = Talker(network.add(party, (PORT,)), mark)
            stack.callback(talker.close)
            talker.listen(PORT)
            self.talkers[party] = talker

    def needs(self, capability: str) -> None:
        """Skip, with the network's own reason, where it cannot do this."""
        if capability not in self.network.can:
            pytest.skip(f"{self.network.name}: {self.network.missing[capability]}")

    def connect(self, source: str, target: str) -> tuple[int, int]:
        """The numbers of a new connection, at either side."""
        ours = self.talkers[source].dial(self.talkers[target], PORT)
        theirs = self.talkers[target].accept()
        assert ours
        assert theirs
        return ours, theirs


def the_proxy(mark: str) -> Network:
    return Proxied(mark)


def the_namespaces(mark: str) -> Network:
    if problem := namespaces.obstacle():
        pytest.skip(f"no namespaces: {problem}")
    return Namespaces(mark)


@pytest.fixture(params=[the_proxy, the_namespaces])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    make: Callable[[str], Network] = request.param
    mark = leftovers.new_mark()
    network = make(mark)
    with contextlib.ExitStack() as stack:
        stack.callback(network.close)
        network.open()
        yield World(network, mark, stack)
    assert marked(mark) == []


def test_a_cut_goes_one_way_and_healing_delivers_what_was_held(world: World) -> None:
    """s1 is not heard by s2 any more but hears it, and s3 is not concerned."""
    s1, s2, s3 = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    from_s3, at_s2_of_s3 = world.connect("s3", "s2")
    world.network.cut("s1", "s2")
    s1.send(at_s1, 5, "a")
    s2.send(at_s2, 5, "b")
    s3.send(from_s3, 5, "c")
    assert s1.read(at_s1, 5) == ("bbbbb", "enough")
    assert s2.read(at_s2_of_s3, 5) == ("ccccc", "enough")
    assert s2.read(at_s2, 1, SOON_S) == ("", "silent")
    world.network.heal()
    assert s2.read(at_s2, 5) == ("aaaaa", "enough")


def test_a_cut_holds_either_direction_of_a_connection(world: World) -> None:
    """It is the sender that counts, not who dialled."""
    s1, s2, _ = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    world.network.cut("s2", "s1")
    s2.send(at_s2, 5, "b")
    s1.send(at_s1, 5, "a")
    assert s2.read(at_s2, 5) == ("aaaaa", "enough")
    assert s1.read(at_s1, 1, SOON_S) == ("", "silent")
    world.network.mend("s2", "s1")
    assert s1.read(at_s1, 5) == ("bbbbb", "enough")


@pytest.mark.parametrize("direction", [("s1", "s2"), ("s2", "s1")])
def test_nobody_connects_through_a_cut(world: World, direction: tuple[str, str]) -> None:
    """A dialler hears nothing, whichever way is cut; another party gets through, and after healing
    so does the first."""
    s1, s2, s3 = world.talkers.values()
    world.network.cut(*direction)
    at_s1 = s1.dial(s2, PORT, SOON_S)
    if at_s1:
        assert s1.read(at_s1, 1, SOON_S) == ("", "silent")
        s1.hang_up(at_s1)
    assert s3.dial(s2, PORT)
    assert s2.accept()
    assert not s2.accept(SOON_S)
    world.network.heal()
    world.connect("s1", "s2")


def test_the_end_of_a_connection_is_held_by_a_cut_too(world: World) -> None:
    """A target does not learn that a source is gone while nothing of it comes through."""
    s1, s2, _ = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    world.network.cut("s1", "s2")
    s1.send(at_s1, 3, "a")
    s1.hang_up(at_s1)
    assert s2.read(at_s2, 9, SOON_S) == ("", "silent")
    world.network.heal()
    assert s2.read(at_s2, 9) == ("aaa", "closed")


def test_a_delay_holds_one_direction_for_its_time(world: World) -> None:
    """What goes the other way is not late."""
    world.needs("delay")
    s1, s2, _ = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    world.network.delay("s1", "s2", 400.0, 50.0)
    begun_s = time.monotonic()
    s2.send(at_s2, 3, "b")
    assert s1.read(at_s1, 3) == ("bbb", "enough")
    assert time.monotonic() - begun_s < 0.35
    begun_s = time.monotonic()
    s1.send(at_s1, 3, "a")
    assert s2.read(at_s2, 3) == ("aaa", "enough")
    assert time.monotonic() - begun_s >= 0.4


def test_a_throttle_lets_so_many_bytes_through_a_second(world: World) -> None:
    """200 KB at 100 KB/s take their time, and all of them come."""
    world.needs("throttle")
    s1, s2, _ = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    world.network.throttle("s1", "s2", 100_000)
    begun_s = time.monotonic()
    sent = s1.send(at_s1, 200_000)
    text, end = s2.read(at_s2, sent, 10.0)
    took_s = time.monotonic() - begun_s
    assert (len(text), end) == (sent, "enough")
    assert sent / 150_000 - 0.3 < took_s < sent / 50_000 + 2.0


def test_losses_come_late_and_in_order(world: World) -> None:
    """Of many single messages some wait for a retransmission, none is missing."""
    world.needs("lossy")
    s1, s2, _ = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    world.network.lossy("s1", "s2", 0.4)
    waits_s = []
    for letter in "abcdefghijkl":
        begun_s = time.monotonic()
        s1.send(at_s1, 1, letter)
        assert s2.read(at_s2, 1, 20.0) == (letter, "enough")
        waits_s.append(time.monotonic() - begun_s)
    assert max(waits_s) >= 0.19
    assert min(waits_s) < 0.15


def test_a_reset_breaks_both_ends_and_delivers_a_part(world: World) -> None:
    """Of what was under way the target has a beginning; both learn that the connection is broken,
    and a new one works."""
    world.needs("reset")
    world.needs("throttle")
    s1, s2, s3 = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    from_s3, at_s2_of_s3 = world.connect("s3", "s2")
    world.network.throttle("s1", "s2", 20_000)
    sent = s1.send(at_s1, 100_000)
    world.network.reset("s1", "s2")
    world.network.heal()
    text, end = s2.read(at_s2, sent)
    assert len(text) < sent
    assert end == "reset"
    assert s1.read(at_s1, 1)[1] in ("reset", "closed")
    s3.send(from_s3, 4, "c")
    assert s2.read(at_s2_of_s3, 4) == ("cccc", "enough")
    world.connect("s1", "s2")


def test_a_reset_of_idle_connections_breaks_them(world: World) -> None:
    """Whoever dialled."""
    world.needs("reset")
    s1, s2, _ = world.talkers.values()
    at_s1, at_s2 = world.connect("s1", "s2")
    again_s2, again_s1 = world.connect("s2", "s1")
    world.network.reset("s1", "s2")
    assert s1.read(at_s1, 1)[1] in ("reset", "closed")
    assert s2.read(at_s2, 1) == ("", "reset")
    assert s1.read(again_s1, 1)[1] in ("reset", "closed")
    assert s2.read(again_s2, 1) == ("", "reset")


def test_what_cannot_be_done_is_refused_with_the_reason(world: World) -> None:
    """An unknown party, a party with itself, and whatever the network lacks."""
    with pytest.raises(ValueError, match="'s9' is no party of this network"):
        world.network.cut("s1", "s9")
    with pytest.raises(ValueError, match="name two parties"):
        world.network.cut("s1", "s1")
    for capability, act in (
        ("delay", lambda: world.network.delay("s1", "s2", 5)),
        ("lossy", lambda: world.network.lossy("s1", "s2", 0.1)),
    ):
        if capability not in world.network.can:
            with pytest.raises(NotPossible, match=capability):
                act()
