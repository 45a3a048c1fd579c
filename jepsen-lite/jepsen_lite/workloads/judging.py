"""Collecting what is left of a run, and the checks that every workload shares."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from coord.client import Client, CoordError, Unavailable
from coord.client.servers import base_url
from coord.store.incident import IncidentError
from jepsen_lite.history.journal import History
from jepsen_lite.judge.agreement import (
    CAUGHT_UP,
    ONE_LEADER,
    SAME_STATE,
    Sighting,
    judge_agreement,
)
from jepsen_lite.judge.drains import judge_drains
from jepsen_lite.judge.exported import (
    ONCE,
    ORDERED,
    WHOLE,
    ExportedLog,
    judge_exported,
    judge_order,
    read_exported,
)
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.lives import Life, read_lives
from jepsen_lite.judge.replay import FOLLOWS, INVARIANTS, replay
from jepsen_lite.judge.starts import STARTED_ONCE, judge_starts
from jepsen_lite.judge.story import every_job_with
from jepsen_lite.judge.truth import (
    AGREED,
    COMMITTED,
    ENDED,
    FENCED,
    KEPT,
    ONE_OWNER,
    ONE_RUN,
    REAPED,
    SAVED,
    STARTED,
    judge_ends,
    judge_truth,
)
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.judge.watches import read_watched
from jepsen_lite.workloads.asking import wait_for
from jepsen_lite.workloads.port import Context, Evidence

LOOK_TIMEOUT_S = 3.0
EXPORT_TIMEOUT_S = 60.0
EXPORT_PAUSE_S = 10.0
"""The longest pause within an export."""
POLL_S = 0.25
QUIET = "quiet"
"""The mark of a history from which on nothing more is recorded."""
TO_ITS_END = "the history reaches to the end of its run"
FREEZING = ("pause-host",)
"""Nemeses that stop whole machines and let them go on."""

ALWAYS = frozenset({WHOLE, ONCE, ORDERED, FOLLOWS, INVARIANTS, SAME_STATE, CAUGHT_UP, ONE_LEADER})
"""Checks that have something to look at in every run, whatever its workload."""
OF_JOBS = frozenset({STARTED_ONCE, ENDED})
"""In every run whose jobs are started."""
OF_RANKS = OF_JOBS | {
    ONE_OWNER,
    ONE_RUN,
    STARTED,
    REAPED,
    SAVED,
    FENCED,
    KEPT,
    COMMITTED,
    AGREED,
}
"""In every run with ranks that save and keep diaries."""


def judge_common(evidence: Evidence, ending: str = "") -> list[Judgement]:
    """The exported log, the order of real time, the state machine, the ground truth, the nodes; and
    of jobs whose names begin with `ending`, whether they have ended."""
    operations = evidence.history.operations
    replayed = replay(evidence.log)
    run = evidence.history.facts.get("run", "")
    ends = [judge_ends(replayed.state, ending, run)] if ending else []
    return [
        _reaches_its_end(evidence.history),
        *judge_exported(operations, evidence.log),
        judge_order(operations),
        *replayed.judgements,
        judge_starts(evidence.log),
        judge_drains(evidence.log),
        *ends,
        *judge_truth(
            evidence.lives,
            evidence.log,
            replayed.state,
            traced=every_job_with(evidence.truth, evidence.log),
            true_clocks=evidence.true_clocks,
            alive=evidence.alive,
            frozen_hosts=evidence.frozen_hosts,
        ),
        *judge_agreement(
            evidence.sightings,
            evidence.log,
            nodes=evidence.nodes,
            quiet_index=evidence.quiet_index,
        ),
    ]


def _reaches_its_end(history: History) -> Judgement:
    """Evidence is kept after a run has become quiet: a history without that moment lost its end."""
    lost = history.cut_off or "it does not say when the run became quiet"
    whole = not history.cut_off and any(mark.name == QUIET for mark in history.marks)
    text = f"the end of the history is missing: {lost}; what clients were told then is not judged"
    findings = [] if whole else [Finding(text, undecided=True)]
    return judged(TO_ITS_END, findings, seen=len(history.operations), of="operations")


async def sight(urls: Sequence[str]) -> list[Sighting]:
    """What each server that answers says of itself now."""
    sightings = []
    for url in urls:
        # A new client each time: one that has learnt of other servers would ask those instead.
        async with Client([url], actor="sighting", timeout_s=LOOK_TIMEOUT_S, stale=True) as client:
            with suppress(CoordError):
                view = await client.cluster()
                sightings.append(
                    Sighting(
                        view.node,
                        view.applied_index,
                        view.digest,
                        view.term,
                        view.role,
                        time.monotonic_ns(),
                    )
                )
    return sightings


class Final(msgspec.Struct):
    """How a run was left."""

    nodes: tuple[int, ...] = ()
    quiet_index: int = 0
    sightings: list[Sighting] = []


async def look_around(ctx: Context, patience_s: float = 30.0) -> Final:
    """After healing: who is a member, how far the log is, and every member's word once it has come
    so far. Members that do not come so far in time are left as they were last seen."""
    deadline_s = time.monotonic() + patience_s
    final = Final()
    urls = dict.fromkeys(base_url(url) for url in ctx.cluster.urls)
    scheme = next(iter(urls)).partition("://")[0]
    async with ctx.open_client("final look") as client:
        while not final.nodes and time.monotonic() < deadline_s:
            with suppress(CoordError):
                view = await client.cluster()
                final.nodes = tuple(member.node for member in view.members)
                final.quiet_index = view.applied_index
                members = [member.api_address for member in view.members if member.api_address]
                urls.update(dict.fromkeys(base_url(address, scheme) for address in members))
    while time.monotonic() < deadline_s:
        final.sightings += await sight(list(urls))
        there = {each.node for each in final.sightings if each.index >= final.quiet_index}
        if there >= set(final.nodes):
            break
        await wait_for(ctx.never, POLL_S)
    return final


async def export(ctx: Context, path: Path, patience_s: float = EXPORT_TIMEOUT_S) -> ExportedLog:
    """The log as an incident file, of the server that has kept most of it: one that joined late has
    not all. Raises Unavailable when no server gives one in time."""
    deadline_s = time.monotonic() + patience_s
    best: ExportedLog | None = None
    part = path.with_suffix(".part")
    while best is None:
        for url in ctx.cluster.urls:
            try:
                # A new client each time, as in `sight`.
                async with Client([url], actor="export", timeout_s=EXPORT_PAUSE_S) as client:
                    with part.open("wb") as file:
                        await client.export_incident(file)
                found = await asyncio.to_thread(read_exported, part)
            except (CoordError, IncidentError) as error:
                trouble: Exception = error
                continue
            if best is None or found.start_index < best.start_index:
                best = found
                part.replace(path)
            if best.start_index == 1:
                return best
        if best is None:
            if time.monotonic() > deadline_s:
                raise Unavailable(f"no server exports its log: {trouble}") from trouble
            await wait_for(ctx.never, POLL_S)
    return best


async def gather(
    ctx: Context,
    history: History,
    *,
    sightings: Sequence[Sighting] = (),
    true_clocks: bool = False,
) -> Evidence:
    """Everything there is to judge, once the workload has settled and while the cluster runs.
    `sightings` are those of the run."""
    final = await look_around(ctx)
    log = await export(ctx, ctx.directory / "incident.log")
    lives = await asyncio.to_thread(read_lives, ctx.truth)
    return Evidence(
        history=history,
        log=log,
        sightings=[*sightings, *final.sightings],
        nodes=final.nodes,
        quiet_index=final.quiet_index,
        truth=str(ctx.truth),
        lives=lives,
        alive=[life for life in lives if is_alive(life)],
        watched=[read_watched(each) for each in sorted(ctx.directory.glob("watches/*.jsonl"))],
        true_clocks=true_clocks,
        frozen_hosts=frozenset(
            target
            for fault in history.faults
            if fault.nemesis in FREEZING
            for target in fault.targets
        ),
    )


def is_alive(life: Life) -> bool:
    """Whether this process is there, on this machine, and not just another with its pid."""
    mark = f"COORD_TASK={life.task}".encode()
    try:
        return mark in Path(f"/proc/{life.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
