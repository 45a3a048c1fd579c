"""What a client records of each kind of answer, how it is paced, and which workloads there are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from jepsen_lite.history.journal import HistoryWriter, read_history
from jepsen_lite.history.operation import Outcome
from jepsen_lite.workloads.asking import Answer, Asker, Pace, told_by
from jepsen_lite.workloads.catalogue import WORKLOADS, workloads_named
from jepsen_lite.workloads.port import Context

from coord.client import (
    Busy,
    ClientClosed,
    DoneButUnread,
    InvalidRequest,
    NotDone,
    NotFound,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


class Nowhere:
    """A cluster that nobody is asked about."""

    urls: list[str] = ["http://127.0.0.1:1"]


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    history = HistoryWriter(tmp_path / "history.jsonl", {"seed": 3})
    yield Context(Nowhere(), history, directory=tmp_path, seed=3, rate=1_000.0, run="-r")
    history.close()


@pytest.mark.parametrize(
    ("error", "outcome", "result", "index"),
    [
        (Rejected("job 'j'", "nothing_to_do", 9), OK, "nothing_to_do", 9),
        (NotFound("no job", "unknown_job"), OK, "unknown_job", 0),
        (DoneButUnread("done", 12), OK, None, 12),
        (Unavailable("nobody"), FAIL, None, 0),
        (Busy("later"), FAIL, None, 0),
        (InvalidRequest("too large"), FAIL, None, 0),
        (ClientClosed(), FAIL, None, 0),
        (NotDone("it leads", "leads"), FAIL, None, 0),
        (OutcomeUnknown("who knows"), INFO, None, 0),
        (TimeoutError(), INFO, None, 0),
    ],
)
def test_each_error_says_whether_it_happened(
    error: Exception, outcome: Outcome, result: str | None, index: int
) -> None:
    """As the tree of `coord.client.errors` does."""
    answer = told_by(error)
    assert (answer.outcome, answer.result, answer.index) == (outcome, result, index)
    assert type(error).__name__ in answer.note


def test_an_error_of_our_own_is_no_answer() -> None:
    """It must end the run, not pass for a fault of the cluster."""
    with pytest.raises(KeyError):
        told_by(KeyError("a defect"))


async def test_a_client_goes_on_under_another_name_after_a_doubt(ctx: Context) -> None:
    """Its old self may still be at it."""
    asker = Asker(ctx, "made", 4)

    async def ask(answer: Answer) -> Answer:
        return answer

    for outcome in (OK, INFO, FAIL, INFO, OK):
        await asker.record("k", "write", lambda outcome=outcome: ask(Answer(outcome, index=1)))
    names = [operation.client for operation in read_history(ctx.history.path).operations]
    assert names == ["made/4", "made/4", "made/4.1", "made/4.1", "made/4.2"]


async def test_a_cancelled_operation_is_in_doubt(ctx: Context) -> None:
    """And the cancellation goes on."""
    asker = Asker(ctx, "made", 4)
    asked = asyncio.Event()

    async def never() -> Answer:
        asked.set()
        await ctx.never.wait()
        return Answer(OK)

    task = asyncio.create_task(asker.record("k", "write", never, token="t"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (operation,) = read_history(ctx.history.path).operations
    assert (operation.outcome, operation.note, operation.token) == (INFO, "cancelled", "t")


def test_tokens_are_unique_and_names(ctx: Context) -> None:
    """Each client has its own, and each run."""
    askers = [Asker(ctx, "made", number) for number in (1, 11)]
    tokens = [asker.token() for asker in askers for _ in range(20)]
    assert len(set(tokens)) == 40
    assert tokens[0] == "made-1-1-r"


async def test_clients_keep_to_the_rate_and_end(ctx: Context) -> None:
    """Each of ten at a hundred a second in all waits a tenth of a second on average."""
    ctx.rate = 100.0
    pace = Pace(ctx, 10, random.Random(5))
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await pace.turn()
    assert loop.time() - began >= 0.05
    ctx.stopping.set()
    assert not await pace.turn()


def test_the_same_seed_draws_the_same(ctx: Context) -> None:
    """By name, so that one client's draws do not hang on another's."""
    again = [ctx.rng("registers/1").random() for _ in range(2)]
    assert again[0] == again[1]
    assert ctx.rng("registers/2").random() != again[0]


def test_workloads_are_found_by_name() -> None:
    """Each says in a sentence what it does; some cannot run side by side."""
    both = workloads_named("training+ watches")
    assert [workload.name for workload in both] == ["training", "watches"]
    for name, kind in WORKLOADS.items():
        workload = kind()
        assert workload.name == name
        assert workload.line.endswith(".")
        assert workload.clients > 0
    with pytest.raises(ValueError, match="no workload 'reg'"):
        workloads_named("reg")
    with pytest.raises(ValueError, match="both drain hosts"):
        workloads_named("churn+registers")
