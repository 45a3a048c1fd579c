"""Simulated clients over real servers: what they are told is what the log says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from coord_sim.world import client_checks, client_faults, clients
from coord_sim.world.quiet import quiet_logs
from coord_sim.world.requests import KINDS, WEIGHTS, Asker, HostSeen, JobSeen, Look, Mix, Seen
from coord_sim.world.violation import Violation

from coord.model.events import (
    DrainRequested,
    EvictionsAllowed,
    HostRemovalRequested,
    JobCancelRequested,
    JobResizeRequested,
    JobSubmitted,
    NoteAdded,
    UndrainRequested,
)
from coord.model.spec import spec_problems
from tests.sim.client_cluster import ClientCluster


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet_logs():
        yield


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClientCluster]:
    with ClientCluster(1, str(tmp_path)) as made:
        made.begin()
        yield made
        assert made.kernel.loop.unretrieved == []


def test_in_calm_weather_every_call_is_decided(cluster: ClientCluster) -> None:
    """Each way of asking comes up, and what cannot be is rejected with its reason."""
    cluster.run_for(40.0)
    cluster.end()
    assert set(cluster.outcomes()) == {"ok", "rejected"}
    asked = {type(call.event).__name__ for call in cluster.clients.calls}
    assert {"JobSubmitted", "JobCancelRequested", "JobResizeRequested", "NoteAdded"} <= asked
    assert cluster.clients.counts["reads"] > 10
    assert cluster.clients.counts["unread"] == 0
    leader = cluster.servers.leader()
    assert leader is not None
    by_index = {r.entry.index: r.entry.event for r in leader.events.read(1, 10_000)}
    for call in cluster.told():
        assert by_index[call.index] == call.event


def test_what_is_drawn_is_mostly_possible() -> None:
    """Every kind comes up; impossible requests are there on purpose, and few."""
    assert list(WEIGHTS) == list(KINDS)
    jobs = (
        JobSeen("a", (("trainer", 1, 3), ("sampler", 2, 2))),
        JobSeen("b", (("trainer", 2, 2),)),
    )
    hosts = (HostSeen("h1", False, False), HostSeen("h2", False, True), HostSeen("h3", True, False))
    seen = Seen(7, jobs, (*hosts, HostSeen("h4", False, False)))
    asker = Asker("me", random.Random(1), Mix(), lambda: ["h3"])
    drawn = [asker.draw(seen) for _ in range(2_000)]
    assert {type(event) for event in drawn} == {
        DrainRequested, EvictionsAllowed, HostRemovalRequested, JobCancelRequested,
        JobResizeRequested, JobSubmitted, Look, NoteAdded, UndrainRequested,
    }  # fmt: skip
    assert {event for event in drawn if isinstance(event, Look)} == {*Look}
    specs = [event.spec for event in drawn if isinstance(event, JobSubmitted)]
    assert 0 < sum(bool(spec_problems(spec)) for spec in specs) < len(specs) / 10
    assert {len(spec.roles) for spec in specs} == {1, 2, 3}
    assert {event.host for event in drawn if isinstance(event, HostRemovalRequested)} == {"h3"}
    assert all(event.actor == "" for event in drawn if not isinstance(event, Look)), (
        "tags are given later"
    )
    crowded = Asker("me", random.Random(1), Mix(jobs_limit=2), tuple)
    assert not [e for e in (crowded.draw(seen) for _ in range(500)) if isinstance(e, JobSubmitted)]


def test_a_client_that_dies_with_calls_under_way_is_told_nothing(cluster: ClientCluster) -> None:
    """What became of them is in the log, once at most; another life asks on."""
    cluster.run_for(5.0)
    calls = cluster.clients.burst("client-1", 30)
    cluster.run_for(0.001)
    cluster.clients.crash("client-1")
    assert {call.outcome for call in calls} == {"died"}
    cluster.run_for(20.0)
    client = cluster.clients.all["client-1"]
    assert client.lives == 2
    assert any(c.outcome == "ok" and c.invoked_s > calls[0].completed_s for c in cluster.told())
    cluster.end()


def test_a_burst_beyond_what_servers_remember_is_decided_once_each(cluster: ClientCluster) -> None:
    """Numbers stay within the window, so none is forgotten."""
    cluster.run_for(2.0)
    calls = cluster.clients.burst("client-2", 600)
    cluster.run_for(30.0)
    assert {call.outcome for call in calls} <= {"ok", "rejected"}
    cluster.end()


def test_a_paused_client_hears_late_and_is_not_blamed(cluster: ClientCluster) -> None:
    """Its calls end when it runs again."""
    cluster.run_for(5.0)
    calls = cluster.clients.burst("client-1", 5)
    cluster.clients.pause("client-1")
    cluster.run_for(30.0)
    assert all(call.pending for call in calls)
    cluster.clients.resume("client-1")
    cluster.run_for(1.0)
    assert not any(call.pending for call in calls)
    cluster.end()


def test_one_key_has_one_effect_through_all_servers(cluster: ClientCluster) -> None:
    """Whoever is answered is told the same index."""
    cluster.run_for(2.0)
    calls = cluster.clients.ask_twice("client-1", NoteAdded("", "s", "t"), [1, 2, 3, 1])
    cluster.run_for(5.0)
    assert {call.outcome for call in calls} == {"ok"}
    assert len({(call.tag, call.index) for call in calls}) == 1
    cluster.end()


def test_the_operator_asks_when_told(cluster: ClientCluster) -> None:
    """For whoever looks after a simulated cluster; no other client is stirred by it."""
    cluster.clients.quiet = True
    call = cluster.kernel.run_until(cluster.clients.ask(NoteAdded("", "s", "t")))
    assert (call.outcome, call.client) == ("ok", "operator")
    assert cluster.clients.calls == [call]


def test_without_a_majority_calls_end_in_time_and_reads_are_not_answered(
    cluster: ClientCluster,
) -> None:
    """Nobody is told more than is known."""
    cluster.run_for(5.0)
    for number in (1, 2):
        cluster.servers.crash(number)
    cluster.run_for(3.0)
    before = len(cluster.clients.reads)
    calls = cluster.clients.burst("client-1", 3)
    cluster.run_for(12.0)
    assert {call.outcome for call in calls} <= {"unknown", "not_done"}
    assert len(cluster.clients.reads) == before
    for number in (1, 2):
        cluster.servers.start(number)
    cluster.end()


@pytest.mark.parametrize("hindrance", ["cut", "silent", "to_server", "to_caller", "paused"])
def test_a_client_that_does_not_reach_the_leader_writes_through_another(
    cluster: ClientCluster, hindrance: str
) -> None:
    """Within the time that a call has, however the way to the leader fails."""
    cluster.run_for(5.0)
    leader = cluster.servers.leader()
    assert leader is not None
    number = leader.config.node
    if hindrance == "cut":
        cluster.channels.cut("client-1", number)
    elif hindrance == "paused":
        cluster.servers.pause(number)
    else:
        to_server, to_caller = hindrance != "to_caller", hindrance != "to_server"
        cluster.channels.cut_silently("client-1", number, to_server=to_server, to_caller=to_caller)
    calls = cluster.clients.burst("client-1", 5)
    cluster.run_for(12.0)
    later = cluster.clients.burst("client-1", 5)
    cluster.run_for(12.0)
    assert {call.outcome for call in (*calls, *later)} <= {"ok", "rejected"}
    cluster.servers.resume(number)
    cluster.end()


@pytest.mark.parametrize("name", sorted(client_faults.FAULTS))
def test_each_fault_happens_heals_and_breaks_no_promise(name: str, tmp_path: Path) -> None:
    """Three times over, with different draws, while clients go on asking."""
    with ClientCluster(3, str(tmp_path)) as cluster:
        cluster.begin()
        cluster.run_for(5.0)
        before = cluster.kernel.trace.count
        happened = [cluster.befall(name, seed) for seed in range(3)]
        assert any(happened)
        assert cluster.kernel.trace.count > before
        cluster.run_for(15.0)
        cluster.end()
        assert not any(way.cut for link in cluster.channels.links() for way in link.ways.both)


@pytest.mark.parametrize("seed", range(4))
def test_promises_hold_through_everything_at_once(seed: int, tmp_path: Path) -> None:
    """Channels, clients and servers fail together; afterwards everybody was told the truth."""
    with ClientCluster(seed, str(tmp_path), clients=3, gap_s=1.0) as cluster:
        cluster.begin()
        cluster.live_through(60.0)
        cluster.end()
        assert cluster.outcomes()["ok"] > 20
        assert len(cluster.happened) > 8


def test_a_seed_tells_one_story_of_clients(tmp_path: Path) -> None:
    """Whatever goes wrong in it."""

    def digest(seed: int, directory: Path) -> str:
        with ClientCluster(seed, str(directory)) as cluster:
            cluster.begin()
            cluster.live_through(20.0)
            return cluster.kernel.trace.digest

    told = [digest(seed, tmp_path / str(at)) for at, seed in enumerate((5, 5, 6))]
    assert told[0] == told[1] != told[2]


# That the checks can fail


def falsified(cluster: ClientCluster, ended: str, **said: object) -> str:
    """The property that is broken if the newest call that ended so was told something else."""
    call = next(c for c in reversed(cluster.clients.calls) if c.outcome == ended)
    truth = {name: getattr(call, name) for name in said}
    for name, value in said.items():
        setattr(call, name, value)
    with pytest.raises(Violation) as found:
        cluster.checks.check_end()
    for name, value in truth.items():
        setattr(call, name, value)
    assert call.tag in found.value.detail
    return found.value.property


def test_every_lie_is_found_out(cluster: ClientCluster) -> None:
    """Calls that are told what the log does not say."""
    cluster.run_for(20.0)
    cluster.end()
    assert falsified(cluster, "ok", index=1) == client_checks.ACKNOWLEDGED
    assert falsified(cluster, "ok", outcome="not_done") == client_checks.ABSENT
    assert falsified(cluster, "rejected", rejection="unknown_host") == client_checks.REFUSED
    assert falsified(cluster, "rejected", outcome="ok") == client_checks.ACKNOWLEDGED


def test_a_stale_read_is_found_out(cluster: ClientCluster) -> None:
    """One answered without the barrier, from a server that is behind."""
    cluster.run_for(5.0)

    async def skip(timeout_s: float) -> None:
        """No barrier."""

    leader = cluster.servers.leader()
    assert leader is not None
    others = [number for number in cluster.servers.numbers() if number != leader.config.node]
    cluster.servers.peers.partition((others[0],), (others[1], leader.config.node))
    behind = cluster.servers.node(others[0])
    assert behind is not None
    behind.reads.barrier = skip  # type: ignore[method-assign]
    with pytest.raises(Violation) as found:
        cluster.run_for(60.0)
    assert found.value.property == client_checks.READS


def test_an_answer_that_never_comes_is_found_out(cluster: ClientCluster) -> None:
    """A library that forgets a call."""
    cluster.run_for(5.0)
    (call,) = cluster.clients.burst("client-1", 1)
    cluster.clients.quiet = True
    library = cluster.clients.all["client-1"]._library
    assert library is not None
    writer = library._open_writer
    assert writer is not None
    writer._on_result = lambda result: None  # type: ignore[method-assign]
    writer._sweep = lambda: None  # type: ignore[method-assign]
    with pytest.raises(Violation) as found:
        cluster.run_for(30.0)
    assert found.value.property == client_checks.DEADLINE
    assert call.pending


def test_a_request_in_effect_twice_is_found_out(cluster: ClientCluster) -> None:
    """A library that numbers what it sends again anew."""
    cluster.run_for(5.0)
    cluster.clients.quiet = True
    cluster.run_for(12.0)
    call = next(c for c in cluster.told() if isinstance(c.event, NoteAdded))
    client = cluster.clients.all[call.client]
    again = clients.Call("x/1", client.name, call.event, 0.0, 1e9, 0)
    cluster.clients.calls.append(again)
    client._run(again, lambda: client._write(again))
    with pytest.raises(Violation) as found:
        cluster.run_for(5.0)
    assert found.value.property == client_checks.ONCE


def test_an_error_in_a_conversation_is_found_out(cluster: ClientCluster) -> None:
    """Servers log it and go on, so nothing else would tell."""
    cluster.run_for(2.0)

    def beat(*_: object) -> None:
        raise KeyError("host")

    for number in cluster.servers.numbers():
        node = cluster.servers.node(number)
        assert node is not None
        node.receive = beat  # type: ignore[method-assign]
    with pytest.raises(Violation) as found:
        cluster.run_for(10.0)
    assert found.value.property == client_checks.CONVERSATIONS
