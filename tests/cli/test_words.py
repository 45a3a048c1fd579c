"""Every event and decision has its words, and durations read as people say them."""

from __future__ import annotations

import pytest

from coord.cli.describe import DECISIONS, EVENTS, TIMED, hosts_and_tasks, said_of_decision
from coord.cli.wording import (
    age_text,
    clock_text,
    count_text,
    listed,
    resources_text,
    signal_text,
    size_text,
    telling_line,
)
from coord.model.decisions import DECISION_TYPES, HostDraining, RestartScheduled
from coord.model.events import EVENT_TYPES


def test_every_event_has_words() -> None:
    assert set(EVENTS) == set(EVENT_TYPES)


def test_every_decision_has_words() -> None:
    """Once: with or without the time at which it was taken."""
    assert {*DECISIONS, *TIMED} == set(DECISION_TYPES)
    assert not set(DECISIONS) & set(TIMED)


def test_a_time_to_come_is_told_from_now() -> None:
    """Log time alone says nothing to a reader."""
    restart = RestartScheduled(("1",), "j", "j/r", 2, "user", 2, 3, 5_000)
    assert said_of_decision(restart, 3_500).text == "user restart 2 of 3, in 1.500s or later"
    assert said_of_decision(restart, 5_000).text == "user restart 2 of 3, at once"
    draining = HostDraining(("1",), "h", 30_000)
    assert said_of_decision(draining, 10_000).text == "to be empty in 20.000s"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (age_text(0), "0s"),
        (age_text(192_000), "3m12s"),
        (age_text(7_500_000), "2h05m"),
        (age_text(360_000_000), "4d04h"),
        (age_text(-1), "-"),
        (clock_text(310), "0.310s"),
        (clock_text(192_045), "3m12.045s"),
        (clock_text(3_723_004), "1h02m03.004s"),
        (clock_text(-5), "-0.005s"),
        (count_text(1, "entry", "entries"), "1 entry"),
        (count_text(12_000, "entry", "entries"), "12,000 entries"),
        (size_text(512), "512 B"),
        (size_text(14_541), "14.2 KiB"),
        (size_text(3 << 30), "3.0 GiB"),
        (signal_text(9), "signal 9 (SIGKILL)"),
        (signal_text(99), "signal 99"),
        (resources_text(2, 1_500, 8_192), "2 devices, 1.5 CPUs, 8.0 GiB"),
        (resources_text(0, 0, 0), "nothing"),
        (telling_line("Traceback\n  x\nValueError: no\n\n"), "ValueError: no"),
        (listed(["a", "b"]), "a, b"),
        (listed([str(n) for n in range(9)]), "0, 1, 2, 3 and 5 more"),
    ],
)
def test_wording(said: str, expected: str) -> None:
    assert expected == said


@pytest.mark.parametrize(
    ("subject", "hosts", "tasks"),
    [
        ("host-3", ("host-3",), ()),
        ("digits/trainer/0#2", (), ("digits/trainer/0#2",)),
        ("digits/trainer", (), ()),
    ],
)
def test_an_incident_is_about_a_host_a_task_or_a_gang(
    subject: str, hosts: tuple[str, ...], tasks: tuple[str, ...]
) -> None:
    """A gang that is resized is no host."""
    assert hosts_and_tasks(subject) == (hosts, tasks)
