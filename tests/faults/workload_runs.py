"""A short run of a workload on a real cluster: clients, a misfortune, quiet, evidence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.history.journal import HistoryWriter, read_history
from jepsen_lite.judge.verdict import Judgement, Verdict
from jepsen_lite.workloads.judging import gather
from jepsen_lite.workloads.port import Context, Evidence, Workload

PATIENCE_S = 30.0
POLL_S = 0.05


async def run_workload(
    workload: Workload,
    cluster: Cluster,
    directory: Path,
    *,
    enough: Callable[[Context], bool],
    misfortune: Callable[[Context], Awaitable[None]] | None = None,
    rate: float = 60.0,
    seed: int = 7,
) -> Evidence:
    """Run it until there is `enough`, break something and mend it, run it until there is as much
    again, settle, and give what there is to judge."""
    await asyncio.to_thread(directory.mkdir)
    history = HistoryWriter(directory / "history.jsonl", {"seed": seed, "workload": workload.name})
    ctx = Context(cluster, history, directory=directory, seed=seed, rate=rate)
    await workload.prepare(ctx)
    clients = [asyncio.create_task(workload.client(ctx, n)) for n in range(workload.clients)]
    await wait_until(enough, ctx, clients)
    if misfortune is not None:
        await misfortune(ctx)
        await cluster.wait_ready()
        before = len(ctx.history.operations)
        await wait_until(lambda ctx: len(ctx.history.operations) > before + 50, ctx, clients)
    ctx.stopping.set()
    await asyncio.gather(*clients)
    history.mark("quiet")
    await workload.settle(ctx)
    history.close()
    return await gather(ctx, read_history(history.path), true_clocks=True)


async def wait_until(
    enough: Callable[[Context], bool], ctx: Context, clients: list[asyncio.Task[None]]
) -> None:
    """Let the clients work until then; raises what one of them ended with."""
    deadline = time.monotonic() + PATIENCE_S
    while not enough(ctx):
        assert time.monotonic() < deadline, f"not enough within {PATIENCE_S} s"
        done, _ = await asyncio.wait(clients, timeout=POLL_S)
        for task in done:
            task.result()


def assert_all_hold(judgements: list[Judgement]) -> None:
    """None is a violation, none is unknown."""
    told = [
        f"{each.check}: {each.verdict}: {each.detail}"
        for each in judgements
        if each.verdict in (Verdict.VIOLATION, Verdict.UNKNOWN)
    ]
    assert told == []
