"""What the shell relies on around `apply`: order, batches, log time, copies, stored rows."""

from __future__ import annotations

from random import Random

import pytest
from coord_sim.core_world.world import World

from coord.core.machine import LogGap, apply, apply_batch, log_time_ms, next_due_ms
from coord.core.state import (
    decode_state,
    encode_state,
    new_state,
    state_digest,
    state_from_rows,
    state_rows,
    take_changes,
)
from coord.core.step import on
from coord.core.timers import Timers
from coord.model.entry import Batch, Entry, Origin, Submission
from coord.model.events import ClockAdvanced, ClusterConfigured, LeaderElected, NoteAdded
from coord.model.rejections import EXPLANATIONS, Rejection


def a_life(seed: int = 7, steps: int = 120) -> World:
    world = World(seed, twin=False)
    world.live_through(steps)
    return world


def test_an_entry_out_of_place_is_no_entry_of_this_log() -> None:
    """Not a rejection: whoever feeds the machine has the wrong log, and must stop."""
    state = new_state()
    note = NoteAdded("me", "x", "y")
    with pytest.raises(LogGap, match="entry 2 after 0"):
        apply(state, Entry(2, 1, 0, Origin("client:a", 0, 1), note))
    apply(state, Entry(1, 1, 0, Origin("client:a", 0, 1), note))
    with pytest.raises(LogGap, match="entry 1 after 1"):
        apply(state, Entry(1, 1, 0, Origin("client:a", 0, 1), note))


def test_a_batch_is_its_events_one_after_another() -> None:
    world = a_life()
    state, batched = new_state(), new_state()
    for entry in world.driver.entries:
        batch = Batch(entry.term, 1, entry.wall_ms, (Submission(entry.origin, entry.event),))
        assert apply_batch(batched, batch) == (apply(state, entry),)
    assert apply_batch(batched, Batch(1, 1, 0)) == ()
    assert state_digest(batched) == state_digest(state)


def test_log_time_is_known_before_the_entry_is_applied() -> None:
    """The leader asks what time an entry would get, to see whether a timer will be due."""
    world = a_life()
    state = new_state()
    assert log_time_ms(state, 5) == 0
    for entry in world.driver.entries:
        expected = log_time_ms(state, entry.wall_ms)
        assert apply(state, entry).now_ms == expected


def test_nothing_is_decided_before_it_is_due() -> None:
    """`next_due_ms` may be early, never late: a tick before it finds nothing."""
    world = a_life()
    state = new_state()
    for entry in world.driver.entries:
        due_ms = next_due_ms(state)
        record = apply(state, entry)
        tick = isinstance(entry.event, ClockAdvanced) and not state.meta.frozen
        if tick and record.decisions and not record.rejection:
            assert due_ms is not None
            frozen = any(type(found).__name__ == "EvictionsResumed" for found in record.decisions)
            assert due_ms <= record.now_ms or frozen


def test_a_timer_that_was_pulled_forward_rings_once() -> None:
    timers = Timers()
    timers.arm("task", "a", 50)
    timers.arm("task", "a", 20)
    timers.arm("task", "a", 70)
    timers.arm("host", "b", 20)
    assert timers.next_due_ms() == 20
    assert timers.take_due(20) == [("host", "b"), ("task", "a")]
    assert timers.next_due_ms() is None
    assert timers.take_due(1_000) == []


def test_a_view_does_not_change_any_more() -> None:
    """A reader keeps what it saw, while the machine goes on."""
    world = a_life(steps=60)
    view = world.state.view()
    before = state_digest(view)
    assert before == state_digest(world.state)
    world.live_through(60)
    assert state_digest(view) == before != state_digest(world.state)
    assert (view.slots, view.newest_checkpoint("nobody")) == (list(view.hosts), None)


def test_stored_changes_add_up_to_the_state() -> None:
    """Rows written now and then, as the shell does, are the whole state at each of those times."""
    rng = Random(1)
    world = a_life()
    state = new_state()
    stored: dict[str, dict[str, bytes]] = {}
    for entry in world.driver.entries:
        apply(state, entry)
        if rng.random() < 0.1:
            for table, changes in take_changes(state).items():
                rows = stored.setdefault(table, {})
                for key, row in changes.items():
                    if row is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = row
            assert state_digest(state_from_rows(stored)) == state_digest(state)


def test_taking_the_changes_twice_finds_none_the_second_time() -> None:
    world = a_life()
    take_changes(world.state)
    assert sorted(take_changes(world.state)) == ["beats", "meta"]


def test_a_state_survives_its_encoding() -> None:
    world = a_life()
    encoded = encode_state(world.state)
    assert encode_state(decode_state(encoded)) == encoded
    assert state_rows(decode_state(encoded)) == state_rows(world.state)
    assert state_digest(decode_state(b"")) == state_digest(new_state())


def test_an_event_has_one_handler() -> None:
    with pytest.raises(TypeError, match="NoteAdded has two handlers"):
        on(NoteAdded)(lambda step, event: None)


def test_every_rejection_is_explained() -> None:
    """In the words of somebody who has to do something about it."""
    assert list(EXPLANATIONS) == list(Rejection)


def test_a_settled_term_ignores_ticks_of_others() -> None:
    """Race 14, without any host: the machine itself knows which leader may judge."""
    state = new_state()
    events = (LeaderElected(1, 3), ClusterConfigured("c"), ClockAdvanced(), ClockAdvanced())
    terms = (3, 3, 3, 2)
    records = [
        apply(state, Entry(at + 1, term, at, Origin("node:1", term, at), event))
        for at, (term, event) in enumerate(zip(terms, events, strict=True))
    ]
    assert [record.rejection for record in records] == ["", "", "", Rejection.STALE_TERM]
