"""What a test's own clients asked: recorded from threads and tasks, and judged."""

from __future__ import annotations

import asyncio
import threading

import pytest
from jepsen_lite import Outcome, Register, SharedHistory, Violated, read_history

from coord.client import NotDone, Unavailable


def test_errors_are_recorded_as_what_they_say(history: SharedHistory) -> None:
    """Certainly nothing where the test says so; else it is in doubt, and the client goes on under
    another name."""
    with (
        pytest.raises(Unavailable),
        history.asking("x", "write", 1, client="a", failed=(NotDone,)),
    ):
        raise Unavailable("no server")
    with pytest.raises(Unavailable), history.asking("x", "write", 2, client="a"):
        raise Unavailable("no server, but perhaps earlier")
    with history.asking("x", "write", 3, client="a") as asked:
        asked.answered(None, index=7)
    written = read_history(history.path).operations
    assert [one.outcome for one in written] == [Outcome.FAIL, Outcome.INFO, Outcome.OK]
    assert [one.client for one in written] == ["a", "a", "a.1"]
    assert written[0].note == "Unavailable: no server"
    assert written[2].index == 7


async def test_what_is_cancelled_is_in_doubt(history: SharedHistory) -> None:
    """A time-out of the test's own is one."""

    async def ask() -> None:
        with history.asking("x", "read"):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(), 0.01)
    (operation,) = history.operations
    assert operation.outcome is Outcome.INFO
    assert operation.completed_ns


def test_many_threads_write_one_history(history: SharedHistory) -> None:
    """Each line whole, each number once."""

    def work(name: str) -> None:
        for number in range(200):
            with history.asking(name, "write", number, client=name):
                pass

    threads = [threading.Thread(target=work, args=(f"client-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = read_history(history.path).operations
    assert [one.number for one in written] == list(range(1, 801))
    history.judge(Register())


def test_keys_and_workloads_are_judged_apart(history: SharedHistory) -> None:
    """So that one history can hold what different models speak of."""
    for key in ("good-1", "bad-1"):
        with history.asking(key, "write", 1):
            pass
        with history.asking(key, "read", workload="other") as asked:
            asked.answered(1 if key == "good-1" else 2)
    history.judge(Register(), keys="good-")
    history.judge(Register(), workload="test")
    with pytest.raises(Violated, match="bad-1") as raised:
        history.judge(Register())
    assert len(raised.value.judgements) == 1
    with pytest.raises(Violated, match="there is no operation to judge"):
        history.judge(Register(), keys="nothing-")
