"""Simulated links between servers: what TCP permits, and what chaos does on top."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from coord_sim.kernel import Kernel, SimProcess
from coord_sim.world.peers import DEAD_AFTER_S, Climate, SimPeerNetwork, SimPeers

from coord.raft.network import FetchFailed, SnapshotSource
from coord.raft.ports import Member


class Listener:
    """A `PeerHandler` that remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.file: SnapshotSource | None = None
        self.lets_in = True

    def version(self) -> tuple[int, int]:
        return 0, 0

    def accepts(self, node: int, version: tuple[int, int]) -> bool:
        return self.lets_in

    def connected(self, node: int, epoch: int) -> None:
        self.heard.append(("up", node, epoch))

    def disconnected(self, node: int, epoch: int) -> None:
        self.heard.append(("down", node, epoch))

    def received(self, node: int, epoch: int, message: dict[str, Any]) -> None:
        self.heard.append((int(message["payload"]), node, epoch))

    def snapshot_source(self, index: int) -> SnapshotSource | None:
        return self.file if self.file is not None and self.file.index == index else None

    @property
    def numbers(self) -> list[int]:
        return [one[0] for one in self.heard if isinstance(one[0], int)]


def numbered(number: int) -> dict[str, Any]:
    return {"type": "bus", "topic": "t", "payload": b"%d" % number}


class Pair:
    """Nodes 1 and 2, connected."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.hub = SimPeers(kernel)
        self.listeners: dict[int, Listener] = {}
        self.networks: dict[int, SimPeerNetwork] = {}
        self.processes: dict[int, SimProcess] = {}
        for node in (1, 2):
            self.start(node)
        kernel.run_for(2)

    def start(self, node: int) -> None:
        other = 3 - node
        listener = self.listeners[node] = Listener()

        async def main() -> None:
            network = self.networks[node]
            network.add_peer(Member(other, "", ""))
            await network.start(listener)
            await self.kernel.loop.create_future()

        process = self.processes[node] = self.kernel.spawn(f"node-{node}", main)
        self.networks[node] = self.hub.network(node, process)

    def say(self, *numbers: int, sender: int = 1) -> list[bool]:
        """Each in its own callback of the sender's process, at once."""
        answers: list[bool] = []
        process, network = self.processes[sender], self.networks[sender]
        for number in numbers:
            process.run(lambda number=number: answers.append(self.send(network, number)))
        return answers

    @staticmethod
    def send(network: SimPeerNetwork, number: int) -> bool:
        return network.send(3 - network.node, numbered(number))


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel(3) as kernel:
        yield kernel


@pytest.fixture
def both(kernel: Kernel) -> Pair:
    return Pair(kernel)


def test_messages_arrive_late_and_in_order(both: Pair) -> None:
    """Whatever delays are drawn, a connection keeps its order."""
    both.hub.climate = Climate(slow_share=0.5)
    assert all(both.say(*range(200)))
    assert both.listeners[2].numbers == []
    both.kernel.run_for(1)
    assert both.listeners[2].numbers == list(range(200))
    assert [one[0] for one in both.listeners[1].heard] == ["up"]


def test_a_process_that_dies_is_noticed_and_found_again(both: Pair) -> None:
    """Its host closes its connections; what had left still arrives before."""
    both.say(1, 2)
    both.processes[1].kill()
    both.kernel.run_for(2)
    heard = [one[0] for one in both.listeners[2].heard]
    assert heard == ["up", 1, 2, "down"]
    both.start(1)
    both.kernel.run_for(2)
    assert [one[0] for one in both.listeners[2].heard][4:] == ["up"]
    assert both.say(3) == [True]


def test_a_host_without_power_says_nothing_and_is_missed_later(both: Pair) -> None:
    """The other side finds out when nothing is acknowledged any more."""
    both.networks[1].loses_power = True
    both.processes[1].kill()
    both.kernel.run_for(DEAD_AFTER_S[0] - 0.1)
    assert both.say(1, sender=2) == [True]
    both.kernel.run_for(DEAD_AFTER_S[1])
    assert both.say(2, sender=2) == [False]
    assert both.listeners[2].heard[-1][0] == "down"


def test_a_reset_loses_only_what_came_last(both: Pair) -> None:
    """A part of what was under way arrives, then the end, and then a new connection."""
    arrived: set[int] = set()
    for _ in range(12):
        before = len(both.listeners[2].numbers)
        both.say(*range(10))
        both.hub.reset(1, 2)
        assert both.say(99) == [False]
        both.kernel.run_for(2)
        numbers = both.listeners[2].numbers[before:]
        assert numbers == list(range(len(numbers)))
        arrived.add(len(numbers))
    assert len(arrived) > 3
    epochs = [one[2] for one in both.listeners[2].heard if one[0] == "up"]
    assert epochs == sorted(set(epochs))


def test_a_superseded_connection_still_delivers(both: Pair) -> None:
    """By its epoch a receiver sees that this is old."""
    both.hub.slow(1, 2, 500)
    both.say(1)
    both.hub.supersede(1, 2)
    both.hub.mend(1, 2)
    both.kernel.run_for(0.2)
    both.say(2)
    both.kernel.run_for(2)
    first, second = (one[2] for one in both.listeners[2].heard if one[0] == "up")
    assert [one for one in both.listeners[2].heard if isinstance(one[0], int)] == [
        (2, 1, second),
        (1, 1, first),
    ]


def test_a_cut_link_holds_what_is_sent_until_it_heals_or_is_given_up(kernel: Kernel) -> None:
    """Both happen; nothing is overtaken and nothing lost in between."""
    outcomes = set()
    for _ in range(10):
        both = Pair(kernel)
        both.hub.cut_one_way(1, 2)
        assert all(both.say(1, 2, 3))
        assert all(both.say(7, sender=2))
        kernel.run_for(2)
        assert both.listeners[2].numbers == []
        assert both.listeners[1].numbers == [7]
        both.hub.heal()
        both.say(4)
        kernel.run_for(3)
        outcomes.add(tuple(both.listeners[2].numbers))
        assert both.say(5) == [True]
    assert outcomes == {(1, 2, 3, 4), ()}


def test_a_partition_breaks_connections_and_lets_none_be_made(both: Pair) -> None:
    """Until it heals."""
    both.hub.partition((1,), (2,))
    both.say(1)
    both.kernel.run_for(20)
    assert both.say(2) == [False]
    assert both.listeners[1].heard[-1][0] == "down"
    both.hub.heal()
    both.kernel.run_for(2)
    both.say(3)
    both.kernel.run_for(1)
    assert both.listeners[2].numbers == [3]


def test_a_paused_process_finds_everything_in_its_socket(both: Pair) -> None:
    """And is not connected to anew while it stands still."""
    both.processes[2].pause()
    both.say(1, 2, 3)
    both.kernel.run_for(5)
    assert both.listeners[2].numbers == []
    both.processes[2].resume()
    both.kernel.run_for(0.1)
    assert both.listeners[2].numbers == [1, 2, 3]


def test_what_is_sent_after_a_stall_leaves_after_it(both: Pair) -> None:
    """Or never, if the process dies in it."""

    def stall_and_send(number: int) -> Callable[[], None]:
        def work() -> None:
            both.processes[1].stall(1.0)
            Pair.send(both.networks[1], number)

        return work

    both.processes[1].call_soon(stall_and_send(1))
    both.kernel.run_for(0.9)
    assert both.listeners[2].numbers == []
    both.kernel.run_for(0.2)
    assert both.listeners[2].numbers == [1]
    both.processes[1].call_soon(stall_and_send(2))
    both.kernel.run_for(0.5)
    both.processes[1].kill()
    both.kernel.run_for(2)
    assert both.listeners[2].numbers == [1]


def test_chaos_loses_repeats_and_overtakes(both: Pair) -> None:
    """Only there."""
    both.hub.climate = Climate(lost_share=0.1, repeated_share=0.1, overtaken_share=0.1)
    both.say(*range(300))
    both.kernel.run_for(2)
    numbers = both.listeners[2].numbers
    assert len(set(numbers)) < 300
    assert len(numbers) > len(set(numbers))
    assert numbers != sorted(numbers)


def test_strangers_are_not_connected(both: Pair) -> None:
    """Neither side may refuse."""
    both.listeners[1].lets_in = False
    both.hub.reset(1, 2)
    both.kernel.run_for(5)
    assert both.say(1) == [False]
    both.listeners[1].lets_in = True
    both.kernel.run_for(2)
    assert both.say(1) == [True]


def test_a_dropped_peer_is_not_dialled_again(both: Pair) -> None:
    """Once both have dropped it."""
    for node in (1, 2):
        both.processes[node].run(both.networks[node].drop_peer, 3 - node)
    both.kernel.run_for(5)
    assert both.say(1) == [False]


class TestFiles:
    def offer(self, both: Pair, directory: Path, digest: str = "") -> None:
        path = directory / "offered"
        path.write_bytes(b"contents")
        wanted = "d1b2a59fbea7e20077af9f91b27e95e865061b270be03ff539ab3b73587882e8"
        entries = ((b"", 4, 1), (b"", 5, 1))
        both.listeners[1].file = SnapshotSource(
            5, 1, 8, digest or wanted, str(path), entries, (Member(1, "", ""),)
        )

    def fetch(self, both: Pair, directory: Path) -> Any:
        (directory / "here").mkdir(exist_ok=True)
        results: list[Any] = []

        async def work() -> None:
            try:
                results.append(await both.networks[2].fetch_snapshot(1, 5, str(directory / "here")))
            except FetchFailed as error:
                results.append(error)

        both.processes[2].call_soon(lambda: both.kernel.loop.create_task(work()))
        both.kernel.run_for(2)
        return results[0]

    def test_a_file_arrives_with_what_goes_beside_it(self, both: Pair, tmp_path: Path) -> None:
        """Verified, under a name of its own."""
        self.offer(both, tmp_path)
        source = self.fetch(both, tmp_path)
        assert (source.index, source.term) == (5, 1)
        assert Path(source.path).read_bytes() == b"contents"
        assert Path(source.path).parent == tmp_path / "here"

    @pytest.mark.parametrize("why", ["gone", "cut", "damaged", "paused"])
    def test_a_file_that_does_not_arrive_fails(self, both: Pair, tmp_path: Path, why: str) -> None:
        """And can be asked for again."""
        self.offer(both, tmp_path, digest="00" if why == "damaged" else "")
        if why == "gone":
            both.listeners[1].file = None
        elif why == "cut":
            both.hub.partition((1,), (2,))
        elif why == "paused":
            both.processes[1].pause()
        assert isinstance(self.fetch(both, tmp_path), FetchFailed)
