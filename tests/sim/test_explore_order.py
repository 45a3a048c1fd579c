"""The partial order: what could not have come in another order, and the words for it."""

from __future__ import annotations

from coord_sim.explore.order import PartialOrder

from coord.model.entry import Origin
from coord.model.events import (
    ClockAdvanced,
    HeartbeatsSeen,
    HostRegistered,
    JobSubmitted,
    LeaderElected,
    ProgressReported,
    TaskStarted,
)
from tests.fleet_story import Story

from .explored_stories import QUICK, crash_and_restart, incident_of, note, position, two_hosts


def order_of(story: Story) -> PartialOrder:
    return PartialOrder(incident_of(story))


def reason(order: PartialOrder, before: int, after: int) -> str:
    edge = order.why(before, after)
    assert edge is not None, f"nothing puts {before} before {after}"
    return edge.reason


def test_the_same_actor_by_sequence() -> None:
    story = two_hosts()
    first, second = note(story, "ann", "one"), note(story, "ann", "two")
    assert reason(order_of(story), first, second) == "sent later by the same actor, client:ann"


def test_clients_that_know_nothing_of_each_other_are_concurrent() -> None:
    story = two_hosts()
    first, second = note(story, "ann", "one"), note(story, "bob", "two")
    order = order_of(story)
    assert order.concurrent(first, second)
    assert order.why(first, second) is None


def test_an_event_comes_after_everything_its_sender_had_seen() -> None:
    """`seen_index` 5 means: entries 1 to 5 were known, entry 6 was not."""
    story = two_hosts()
    late = note(story, "ann", "seen", seen_index=5)
    order = order_of(story)
    assert reason(order, 4, late) == "sent after its sender had seen entry 5"
    assert order.before(0, late)
    assert order.concurrent(5, late)


def test_an_event_comes_after_the_plan_its_sender_had_seen() -> None:
    story = two_hosts()
    host = story.state.hosts["host-0000"]
    origin = Origin("host:host-0000", 1, host.report_seq + 1, 0, 6)
    story.add(origin, ProgressReported("host-0000", 1, "d/trainer/0#1", 2))
    order = order_of(story)
    assert reason(order, 5, len(story.records) - 1).startswith(
        "sent after its sender had seen plan"
    )


def test_a_generation_is_minted_before_it_is_carried() -> None:
    story = two_hosts()
    placed, started = position(story, JobSubmitted), position(story, TaskStarted)
    assert "d/trainer/0#1, which was placed there" in reason(order_of(story), placed, started)


def test_an_incarnation_is_minted_before_it_is_carried() -> None:
    story = two_hosts()
    order = order_of(story)
    joined = position(story, HostRegistered, 1)
    beats = position(story, HeartbeatsSeen)
    assert reason(order, joined, beats) == (
        "carries incarnation 1 of host-0001, which was given there"
    )


def test_a_leaders_own_events_keep_their_order_within_a_term() -> None:
    story = two_hosts()
    order = order_of(story)
    beats = position(story, HeartbeatsSeen)
    assert reason(order, beats, beats + 1) == "the same leader's, later in its term 1"


def test_another_nodes_frame_may_overtake_the_leaders_clock() -> None:
    story = two_hosts()
    story.add(Origin("node:2", 1, 1), HeartbeatsSeen("node:2", (0,), (1,)))
    story.by_node(ClockAdvanced())
    at = len(story.records) - 1
    assert order_of(story).concurrent(at - 1, at)


def test_a_verdict_comes_after_what_its_deadline_ran_from() -> None:
    """The host was suspected, and lost because of that: the later cannot come first."""
    story = two_hosts()
    story.lose("host-0001")
    story.wait(4_000)
    order = order_of(story)
    verdicts = [
        at
        for at, record in enumerate(story.records)
        if isinstance(record.entry.event, ClockAdvanced) and record.decisions
    ]
    joined = position(story, HostRegistered, 1)
    assert "deadline" in reason(order, joined, verdicts[0])
    assert order.before(verdicts[0], verdicts[1])


def test_a_new_term_begins_before_its_leaders_events() -> None:
    story = two_hosts()
    story.add(Origin("node:2", 2, 1), LeaderElected(2, 2))
    story.add(Origin("node:3", 1, 7), HeartbeatsSeen("node:3", (0,), (1,)))
    order = order_of(story)
    last = len(story.records) - 1
    assert order.concurrent(last - 1, last), "a frame of the old term may come at any time"


def test_order_is_transitive_through_others() -> None:
    story = two_hosts()
    first = note(story, "ann", "one")
    second = note(story, "bob", "has seen it", seen_index=first + 1)
    third = note(story, "bob", "goes on")
    edge = order_of(story).why(first, third)
    assert edge is not None
    assert edge.via == (second,)
    assert "others in between" in edge.reason


def test_reports_of_different_hosts_are_concurrent() -> None:
    story = crash_and_restart()
    starts = [position(story, TaskStarted, nth) for nth in (0, 1)]
    assert order_of(story).concurrent(*starts)


def test_it_costs_no_more_when_events_tell_nothing_new() -> None:
    """Clocks are put together anew only where an actor learns of another one."""
    story = Story(hosts=2, settings=QUICK)
    story.submit("d", 2)
    story.wait(500)
    joins = order_of(story).joins
    for step in range(1, 400):
        story.all_step("d", step)
    assert order_of(story).joins <= joins + 4
