"""On the product as it is an exploration finds nothing, whatever the log."""

from __future__ import annotations

from itertools import count

import pytest
from coord_sim.explore.execute import Explored, execute
from coord_sim.explore.found import Progress
from coord_sim.explore.schedule import Duplicate, Schedule
from coord_sim.explore.search import search
from coord_sim.mutants.incidents import rewritten
from msgspec.structs import replace

from coord.model.decisions import HostLost
from coord.model.entry import Origin
from coord.model.events import HeartbeatsSeen, HostRegistered, LeaderElected, TaskExited, TaskFound
from tests.fleet_story import Story

from .explored_stories import QUICK, explored, history, position, two_hosts

INCIDENTS = 25
SCHEDULES = 40


def schedules_tried(ready: Explored, number: int) -> int:
    """Of all strategies, each with its share. The clock goes on by one whenever it is asked."""
    told: list[Progress] = []
    found = search(
        ready,
        budget_s=2 * SCHEDULES,
        seed=number,
        on_progress=told.append,
        clock=count().__next__,
    )
    assert [one.run.violation for one in found] == []
    return told[-1].schedules


@pytest.mark.parametrize("number", range(INCIDENTS))
def test_nothing_is_found_in_what_a_random_fleet_lived_through(number: int) -> None:
    assert schedules_tried(Explored(rewritten(number)), number) >= SCHEDULES


@pytest.mark.parametrize(
    "name",
    ["fleet-14", "transcript-exclusive", "transcript-leader-change", "transcript-unkillable"],
)
def test_nothing_is_found_in_a_recorded_history(name: str) -> None:
    assert schedules_tried(Explored(history(name)), 1) >= SCHEDULES


def test_whoever_is_refused_as_leader_gives_nobody_a_new_lease() -> None:
    """A host is rightly lost a lease after its last beat, though somebody said meanwhile that an
    old term begins."""
    story = Story(hosts=2, settings=QUICK)
    story.wait(1_000)
    story.silent.append("host-0001")
    story.wait(2_000)
    refused = story.by_node(LeaderElected(1, 1))
    assert refused.rejection == "stale_term"
    story.wait(3_000)
    heard = position(story, HeartbeatsSeen)
    schedule = Schedule((Duplicate(heard, heard),))
    run = execute(explored(story), schedule, to_the_end=True)
    assert run.violation is None
    again = [one for one in run.records if one.entry.event == refused.entry.event]
    lost = [one for one in run.records for made in one.decisions if isinstance(made, HostLost)]
    assert again[-1].rejection
    assert lost[0].now_ms - again[-1].now_ms < QUICK.lease_ms


def test_what_is_told_again_after_a_registration_is_explained() -> None:
    """What nothing explains is said in every execution, even before the task was launched."""
    story = two_hosts()
    task = "d/trainer/0#1"
    host = story.running.pop(task)
    row = story.state.hosts[host]
    pid = story.state.tasks[task].pid
    story.by_host(host, TaskExited(host, row.incarnation, task))
    registered = next(
        one.entry.event for one in story.records if getattr(one.entry.event, "host", "") == host
    )
    assert isinstance(registered, HostRegistered)
    again = replace(registered, tasks=(TaskFound(task, pid, running=False),))
    incarnation = story.by_client(again, f"agent-of-{host}").result
    told_again = story.add(
        Origin(f"host:{host}", incarnation, 1), TaskExited(host, incarnation, task)
    )
    assert told_again.rejection == "nothing_to_do"
    ready = explored(story)
    assert ready.recording.unexplained == {}
