"""A finding shrinks to the smallest incident in which the same property still breaks."""

from __future__ import annotations

import msgspec
import pytest
from coord_sim.explore.findings import Finding, Findings
from coord_sim.explore.found import Found
from coord_sim.explore.incident import Incident, replayed
from coord_sim.explore.plainer import plainer_events
from coord_sim.explore.reduction import moved, reduced
from coord_sim.explore.run import Run, Violation
from coord_sim.explore.schedule import ClockJump, Delay, Flip, Reorder, Schedule
from coord_sim.explore.shrink import shrink

from coord.core.machine import apply
from coord.core.state import encode_state, new_state
from coord.model.events import HeartbeatsSeen, JobSubmitted, TaskExited, TaskReaped, TaskStarted
from coord.model.incident import IncidentHeader
from tests.fleet_story import Story, eventful_life

from .planted import SENTENCE, execute_orders, planted, two_failures

__all__ = ["planted"]


def finding_of(incident: Incident, schedule: Schedule) -> Finding:
    findings = Findings(incident)
    findings.add(Found(schedule, execute_orders(incident, schedule), "test", 1, 0.0))
    (finding,) = findings
    return finding


def incident_of(story: Story) -> Incident:
    return replayed(IncidentHeader("story"), encode_state(new_state()), story.records)


def late_start(incident: Incident) -> Schedule:
    """The first start of a task arrives after another rank of its gang was killed."""
    events = [record.entry.event for record in incident.records]
    killed = next(at for at, event in enumerate(events) if isinstance(event, TaskExited))
    job = events[killed].task.partition("/")[0]  # type: ignore[union-attr]
    late = next(
        at
        for at, event in enumerate(events)
        if isinstance(event, TaskStarted)
        and event.task.startswith(f"{job}/")
        and event.host != events[killed].host  # type: ignore[union-attr]
    )
    return Schedule((Flip(late, killed),))


def test_a_finding_shrinks_to_what_it_takes(planted: None) -> None:
    """A cluster, two hosts, one job of two, a start and an exit: nothing else is left."""
    incident = two_failures()
    smallest = shrink(finding_of(incident, Schedule((Flip(6, 22),))), execute_orders)
    assert smallest.shrunk
    assert smallest.sentence == SENTENCE
    assert smallest.origin == Schedule((Flip(6, 22),))
    assert [type(record.entry.event).__name__ for record in smallest.incident.records] == [
        "ClusterConfigured",
        "HostRegistered",
        "HostRegistered",
        "JobSubmitted",
        "TaskStarted",
        "TaskStarted",
        "TaskExited",
    ]
    assert smallest.schedule == Schedule((Flip(4, 6),))


def test_what_has_no_part_in_it_goes(planted: None) -> None:
    """Of six hosts, two jobs and hundreds of entries."""
    incident = incident_of(eventful_life())
    smallest = shrink(finding_of(incident, late_start(incident)), execute_orders)
    events = [record.entry.event for record in smallest.incident.records]
    jobs = [event.spec for event in events if isinstance(event, JobSubmitted)]
    assert len(incident.records) > 150
    assert len(events) <= 8
    assert len(jobs) == 1
    assert jobs[0].roles[0].spares == 0
    assert jobs[0].roles[0].command == ("run",)


def test_the_smallest_incident_is_a_true_one(planted: None) -> None:
    """It replays to its own digests, and the schedule breaks it as before."""
    smallest = shrink(finding_of(two_failures(), Schedule((Flip(18, 28),))), execute_orders)
    incident = smallest.incident
    again = replayed(incident.header, incident.start, list(incident.records))
    assert again.verified == len(incident.records)
    run = execute_orders(again, smallest.schedule)
    assert run.violation is not None
    assert run.violation.sentence == SENTENCE
    assert run.records == smallest.run.records


def test_shrinking_is_the_same_every_time(planted: None) -> None:
    """To the byte."""
    told = []
    for _ in range(2):
        smallest = shrink(finding_of(two_failures(), Schedule((Flip(18, 33),))), execute_orders)
        told.append(msgspec.json.encode((smallest.schedule, smallest.incident.records)))
    assert told[0] == told[1]


@pytest.mark.parametrize("trials", [0, 1, 5])
def test_shrinking_is_bounded(planted: None, trials: int) -> None:
    """What it has come to by then is a finding all the same, and it says that more may go."""
    executed = 0

    def counted(incident: Incident, schedule: Schedule) -> Run:
        nonlocal executed
        executed += 1
        return execute_orders(incident, schedule)

    smallest = shrink(finding_of(two_failures(), Schedule((Flip(18, 33),))), counted, trials)
    assert executed == trials
    assert not smallest.shrunk
    assert smallest.run.violation is not None


def test_a_new_order_of_many_becomes_one_inversion(planted: None) -> None:
    """Those changes that have no part in it go as well."""
    order = (7, 8, 9, 10, 11, 12, 13, 14, 6)
    changes = (Reorder(6, order), ClockJump(30, 5_000), Delay(22, 23))
    smallest = shrink(finding_of(two_failures(), Schedule(changes)), execute_orders)
    (change,) = smallest.schedule.changes
    assert isinstance(change, Flip)
    assert smallest.key.kinds == ("TaskStarted after TaskExited",)


# Smaller logs


def keeping(incident: Incident, unwanted: type) -> tuple[int, ...]:
    return tuple(
        at
        for at, record in enumerate(incident.records)
        if not isinstance(record.entry.event, unwanted)
    )


def test_reports_go_with_the_start_they_follow() -> None:
    """Nothing exits that never started, and nothing is reaped that did not end."""
    incident = two_failures()
    without_starts = reduced(incident, keeping(incident, TaskStarted))
    without_exits = reduced(incident, keeping(incident, TaskExited))
    assert without_starts is not None
    assert without_exits is not None
    for smaller in (without_starts, without_exits):
        events = [record.entry.event for record in smaller.incident.records]
        assert not [event for event in events if isinstance(event, TaskReaped)]


def test_what_depends_on_what_is_gone_goes_too() -> None:
    """Without the job there are no tasks to report of; without a host nothing of it."""
    incident = two_failures()
    smaller = reduced(incident, keeping(incident, JobSubmitted))
    assert smaller is not None
    events = [record.entry.event for record in smaller.incident.records]
    assert not [event for event in events if hasattr(event, "task")]


def test_a_smaller_log_is_numbered_anew() -> None:
    """Reports without gaps, slots and what was seen as hosts and entries now are."""
    incident = incident_of(eventful_life())
    gone = "host-0000"
    kept = tuple(
        at
        for at, record in enumerate(incident.records)
        if getattr(record.entry.event, "host", "") != gone
    )
    smaller = reduced(incident, kept)
    assert smaller is not None
    records = smaller.incident.records
    assert [record.entry.index for record in records] == list(range(1, len(records) + 1))
    assert not [record for record in records if record.rejection == "report_gap"]
    beats = [one.entry.event for one in records if isinstance(one.entry.event, HeartbeatsSeen)]
    assert beats
    assert all(max(beat.slots) == 4 for beat in beats)
    state = smaller.incident.start_state()
    for record in records:
        assert apply(state, record.entry) == record


def test_a_log_from_the_middle_is_made_smaller_too(planted: None) -> None:
    """The state before it stays, and with it what hosts had reported by then."""
    whole = two_failures()
    state = whole.start_state()
    for record in whole.records[:10]:
        apply(state, record.entry)
    header = msgspec.structs.replace(whole.header, start_index=11)
    incident = replayed(header, encode_state(state), list(whole.records[10:]))
    schedule = Schedule((Flip(18 - 10, 28 - 10),))
    smallest = shrink(finding_of(incident, schedule), execute_orders)
    assert smallest.incident.start == incident.start
    assert smallest.incident.records[0].entry.index == 11
    assert len(smallest.incident.records) < len(incident.records)
    assert smallest.run.violation is not None


def test_a_schedule_moves_with_its_events() -> None:
    """Or is gone with them; a fault strikes before whatever comes next."""
    positions = {0: 0, 4: 1, 6: 2}
    assert moved(Schedule((Flip(4, 6),)), positions) == Schedule((Flip(1, 2),))
    assert moved(Schedule((Flip(3, 6),)), positions) is None
    assert moved(Schedule((ClockJump(5, 9),)), positions) == Schedule((ClockJump(2, 9),))
    assert moved(Schedule((Reorder(4, (6, 5, 4)),)), positions) == Schedule((Reorder(1, (2, 1)),))


def test_plainer_events_end() -> None:
    """Whichever is taken, there is a plainest one."""
    for record in incident_of(eventful_life()).records:
        event = record.entry.event
        for _ in range(100):
            plainer = next(plainer_events(event), None)
            if plainer is None:
                break
            assert plainer != event
            event = plainer
        assert next(plainer_events(event), None) is None


def test_the_smaller_log_is_good_as_it_is(planted: None) -> None:
    """What breaks without any change is another matter than the order that was found."""

    def fragile(incident: Incident, schedule: Schedule) -> Run:
        """Every log with less than twenty entries breaks, whatever its order."""
        run = execute_orders(incident, schedule)
        if len(incident.records) < 20 and run.violation is None:
            last = len(run.records) - 1
            broken = Violation(SENTENCE, "too short", last)
            return msgspec.structs.replace(run, violation=broken)
        return run

    smallest = shrink(finding_of(two_failures(), Schedule((Flip(6, 14),))), fragile)
    assert len(smallest.incident.records) == 20
    assert smallest.detail == "digits/trainer/0#1 is running, its gang stopping"


def test_what_raises_is_not_the_same(planted: None) -> None:
    """A smaller log on which the execution itself fails is left alone."""

    def raising(incident: Incident, schedule: Schedule) -> Run:
        if len(incident.records) < 20:
            raise ValueError("not in tuple")
        return execute_orders(incident, schedule)

    smallest = shrink(finding_of(two_failures(), Schedule((Flip(6, 14),))), raising)
    assert len(smallest.incident.records) == 20
