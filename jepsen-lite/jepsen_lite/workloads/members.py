"""Servers that are added and removed, that hand over the lead and write snapshots, under load."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, cast

from coord.model.events import NoteAdded
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.exported import named
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.workloads.asking import Answer, Asker, Pace, wait_for
from jepsen_lite.workloads.judging import judge_common
from jepsen_lite.workloads.port import Context, Evidence, GrowingCluster
from jepsen_lite.workloads.quiet import POLL_S

WRITERS = 3
MOST_ADDED = 2
"""Servers beside those that were there at first, at any one time."""
MOST_STARTED = 60
"""In a whole run: a cluster has so many numbers to give, and each is used once."""
CHANGE_PERIOD_S = 1.5
"""Between two requests for a change, on average: each is a matter of elections and snapshots."""
SETTLE_S = 60.0
KEY = "members"
AS_ASKED = "a server that was added is a member until it is removed"


class Members:
    """See `port.Workload`. One client asks for changes, one at a time; others write notes."""

    name = "members"
    line = "Servers added, removed, handing over and writing snapshots, beside writers of notes."
    needs: frozenset[str] = frozenset({"join"})
    clients = 1 + WRITERS
    makes = frozenset({AS_ASKED})

    def __init__(self) -> None:
        self._first: list[int] = []
        self._added: list[int] = []
        """Servers started by us that are members, or may be."""
        self._started = 0
        self._acknowledged = 0
        """Additions."""

    async def prepare(self, ctx: Context) -> None:
        async with Asker(ctx, self.name, self.clients) as asker:
            self._first = await self._look(asker) or []
        if not self._first:
            raise RuntimeError("no server said who is a member; see whether a majority runs")

    async def client(self, ctx: Context, number: int) -> None:
        rng = ctx.rng(f"{self.name}/{number}")
        async with Asker(ctx, self.name, number) as asker:
            if number:
                pace = Pace(ctx, WRITERS, rng)
                while await pace.turn():
                    await _note(asker, f"notes-{number}")
            else:
                while not await wait_for(ctx.stopping, CHANGE_PERIOD_S * rng.uniform(0.5, 1.5)):
                    await self._change(ctx, asker, rng)

    async def settle(self, ctx: Context) -> None:
        """Take out whatever was added, and look once more. If no addition was acknowledged, one is
        made and looked at first: a run without any would say nothing of members."""
        deadline_s = time.monotonic() + SETTLE_S
        async with Asker(ctx, self.name, self.clients + 1) as asker:
            while not self._acknowledged and time.monotonic() < deadline_s:
                if self._may_add:
                    await self._add(ctx, asker)
                    await self._look(asker)
                elif self._added:
                    await self._remove(ctx, asker, self._added[0])
                else:
                    break
                await wait_for(ctx.never, POLL_S)
            while self._added and time.monotonic() < deadline_s:
                await self._remove(ctx, asker, self._added[0])
                await wait_for(ctx.never, POLL_S)
            while await self._look(asker) is None and time.monotonic() < deadline_s:
                await wait_for(ctx.never, POLL_S)

    def judge(self, evidence: Evidence) -> list[Judgement]:
        return [judge_members(evidence.history.operations), *judge_common(evidence)]

    @property
    def _may_add(self) -> bool:
        return len(self._added) < MOST_ADDED and self._started < MOST_STARTED

    async def _change(self, ctx: Context, asker: Asker, rng: random.Random) -> None:
        weights = {
            "add": 4 if self._may_add else 0,
            "remove": 3 if self._added else 0,
            "transfer": 3,
            "snapshot": 1,
            "read": 1,
        }
        what = rng.choices(list(weights), list(weights.values()))[0]
        if what == "add":
            await self._add(ctx, asker)
        elif what == "remove":
            await self._remove(ctx, asker, rng.choice(self._added))
        elif what == "transfer":
            node = rng.choice((0, *self._first, *self._added))
            await _ask(asker, what, node, lambda: asker.client.transfer(node))
        elif what == "snapshot":
            await _ask(asker, what, None, asker.client.snapshot)
        else:
            await self._look(asker)

    async def _add(self, ctx: Context, asker: Asker) -> None:
        cluster = cast(GrowingCluster, ctx.cluster)
        server = await cluster.join_server()
        self._started += 1
        operation = await _ask(
            asker,
            "add",
            server.node,
            lambda: asker.client.add_member(server.node, server.peer_address, server.api_address),
        )
        self._acknowledged += _has_effect(operation)
        if _has_effect(operation) or operation.outcome is Outcome.INFO:
            self._added.append(server.node)
        else:
            await cluster.end_server(server.node)

    async def _remove(self, ctx: Context, asker: Asker, node: int) -> None:
        operation = await _ask(asker, "remove", node, lambda: asker.client.remove_member(node))
        if _has_effect(operation) or operation.result == "unknown_node":
            self._added.remove(node)
            await cast(GrowingCluster, ctx.cluster).end_server(node)
        elif operation.note.startswith("NotDone"):
            # It leads, and cannot be removed before it has handed over.
            to = self._first[0]
            await _ask(asker, "transfer", to, lambda: asker.client.transfer(to))

    async def _look(self, asker: Asker) -> list[int] | None:
        async def look() -> tuple[Any, int]:
            view = await asker.client.cluster()
            return sorted(member.node for member in view.members), view.applied_index

        operation = await asker.read(KEY, "read", look)
        found: list[int] | None = operation.result
        return found if operation.outcome is Outcome.OK else None


async def _ask(
    asker: Asker, action: str, argument: Any, change: Callable[[], Awaitable[None]]
) -> Operation:
    async def ask() -> Answer:
        await change()
        return Answer(Outcome.OK)

    return await asker.record(KEY, action, ask, argument)


async def _note(asker: Asker, key: str) -> None:
    await asker.write(key, "note", lambda token: NoteAdded(asker.name, key, token))


def _has_effect(operation: Operation) -> bool:
    return operation.outcome is Outcome.OK and operation.result is None


def judge_members(operations: Iterable[Operation]) -> Judgement:
    """What was seen of the members, against what was asked. Changes are asked for one at a time, so
    each look shows exactly what was done before it, but for changes in doubt. Of servers that this
    workload did not add nothing is said: a nemesis may have done so."""
    asked = [each for each in operations if each.key == KEY and each.completed_ns]
    added = sum(each.action == "add" and _has_effect(each) for each in asked)
    looks = sum(each.action == "read" and each.outcome is Outcome.OK for each in asked)
    return judged(
        AS_ASKED,
        _unlike(sorted(asked, key=_invocation)),
        seen=added if looks else 0,
        of=f"servers added and looked for, by {looks} looks at {len(asked)} operations",
    )


def _invocation(operation: Operation) -> int:
    return operation.invoked_ns


def _unlike(asked: list[Operation]) -> Iterator[Finding]:
    ours = {each.argument for each in asked if each.action == "add"}
    members: set[int] = set()
    doubtful: dict[int, str] = {}
    """Nodes of which a change may have happened, or may happen yet: which."""
    for each in asked:
        if each.action == "read" and each.outcome is Outcome.OK:
            seen = ours & set(each.result)
            if seen - set(doubtful) != members - set(doubtful):
                doubt = f", {sorted(doubtful)} being in doubt" if doubtful else ""
                yield Finding(
                    f"{named(each)} saw {sorted(each.result)}; of those that were added, by what "
                    f"was acknowledged, {sorted(members) or 'none'} are members{doubt}",
                    (each,),
                )
        elif each.action in ("add", "remove"):
            _changed(each, members, doubtful)


def _changed(each: Operation, members: set[int], doubtful: dict[int, str]) -> None:
    node: int = each.argument
    if each.outcome is Outcome.INFO:
        doubtful[node] = each.action
    elif _has_effect(each):
        doubtful.pop(node, None)
        (members.add if each.action == "add" else members.discard)(node)
    elif each.result == "unknown_node":
        members.discard(node)
        if doubtful.get(node) == "remove":
            del doubtful[node]
