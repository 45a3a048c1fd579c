"""What goes up first, what is refused, and how much at once."""

from __future__ import annotations

import random

from coord.model.channel import RelayAttach, RelayBeats, Relayed
from coord.model.roster import RosterHeard
from coord.relay.queues import Priority, Upward, message_of

BEATS = RelayBeats("r", 1, 1, (), (RosterHeard(1, 0, 1),))


def taken(queue: Upward) -> list[tuple[int, bytes]]:
    found = []
    while queue:
        _, reports = queue.take()
        found += [(one.session, one.frame) for one in reports]
    return found


def test_urgent_conversations_come_first_and_each_keeps_its_order() -> None:
    queue = Upward(10_000, 1)
    for session, priority, frame in [
        (1, Priority.PROGRESS, b"1a"),
        (2, Priority.COMMAND, b"2a"),
        (3, Priority.PROGRESS, b"3a"),
        (3, Priority.URGENT, b"3b"),
        (1, Priority.PROGRESS, b"1b"),
    ]:
        assert queue.add(session, priority, frame)
    assert taken(queue) == [(3, b"3a"), (3, b"3b"), (2, b"2a"), (1, b"1a"), (1, b"1b")]
    assert queue.size_bytes == 0


def test_a_message_keeps_the_order_of_what_concerns_leases() -> None:
    """What a message's fields would turn round goes in two, and reports wait for the last."""
    queue = Upward(10_000, 10_000)
    queue.put(BEATS)
    queue.put(RelayAttach(5, "host:h"))
    queue.put(Relayed(5, b"shown"))
    queue.put(BEATS)
    assert queue.add(5, Priority.COMMAND, b"report")
    first = message_of(*queue.take(), 0)
    assert (first.attached, first.frames, len(first.beats)) == ((), (), 1)
    second = message_of(*queue.take(), 0)
    assert [one.session for one in second.attached] == [5]
    assert [one.frame for one in second.frames] == [b"shown", b"report"]
    assert len(second.beats) == 1
    assert not queue


def test_messages_are_bounded() -> None:
    queue = Upward(1_000_000, 1_000)
    for session in range(1, 101):
        queue.put(RelayAttach(session, "host:" + "x" * 79))
    assert not queue.overflows
    sizes = []
    while queue:
        urgent, _ = queue.take()
        sizes.append(len(urgent))
    assert sizes == [10] * 10


def test_what_piles_up_overflows() -> None:
    queue = Upward(1_000, 1_000)
    while not queue.overflows:
        queue.put(BEATS)
    queue.forget_urgent()
    assert not queue.overflows
    assert not queue


def test_random_queues_lose_and_turn_round_nothing() -> None:
    """Every report that was taken comes out once, in the order of its conversation, unless that
    was forgotten; and the size is what is in it."""
    rng = random.Random(4)
    for _ in range(200):
        queue = Upward(2_000, rng.randrange(1, 300))
        waiting: dict[int, list[bytes]] = {}
        for number in range(rng.randrange(1, 120)):
            session = rng.randrange(5)
            what = rng.random()
            if what < 0.6:
                frame = str(number).encode() * rng.randrange(1, 20)
                if queue.add(session, rng.choice(list(Priority)), frame):
                    waiting.setdefault(session, []).append(frame)
            elif what < 0.7:
                queue.forget(session)
                waiting.pop(session, None)
            else:
                for report in queue.take()[1]:
                    assert waiting[report.session].pop(0) == report.frame
        for session, frame in taken(queue):
            assert waiting[session].pop(0) == frame
        assert not any(waiting.values())
        assert queue.size_bytes == 0
