"""Are the flags of `flags.py` right? Asked of a real cluster whose leader stands still for a while.

pytest examples/test_flags.py                  # a stale answer is found, with a picture
FLAGS=careful pytest examples/test_flags.py    # the mistake mended: it passes
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress

import pytest
from flags import Flags
from jepsen_lite import Nemeses, Register, RunningCluster, SharedHistory

from coord.client import CoordError, NotDone

CAREFUL = os.environ.get("FLAGS") == "careful"


async def use(copy: Flags, history: SharedHistory, rng: random.Random) -> None:
    """Set and get two flags for ever, one operation at a time, and record what comes of it."""
    for number in range(1_000_000):
        flag = rng.choice(("dark-mode", "new-checkout"))
        with suppress(CoordError, TimeoutError):  # They are on record.
            if rng.random() < 0.3:
                value = f"{copy.name}:{number}"
                with history.asking(
                    flag, "write", value, client=copy.name, failed=(NotDone,)
                ) as asked:
                    asked.answered(None, await copy.set(flag, value))
            else:
                with history.asking(flag, "read", client=copy.name) as asked:
                    asked.answered(await copy.get(flag))
        await asyncio.sleep(rng.uniform(0.0, 0.04))


async def until_each_answers(history: SharedHistory, copies: list[Flags], times: int) -> None:
    """Let them work until each is done with so many more questions."""
    before = len(history.operations)
    answers: Counter[str] = Counter()
    async with asyncio.timeout(60):
        while any(answers[copy.name] < times for copy in copies):
            await asyncio.sleep(0.05)
            since = history.operations[before:]
            asked = [one for one in since if one.action == "read" and one.completed_ns]
            # After one that was never answered a client goes on as copy-1.1.
            answers = Counter(one.client.partition(".")[0] for one in asked)


@pytest.mark.coord_cluster(servers=3, hosts=0)
async def test_a_flag_that_was_set_is_seen_by_everybody(
    coord_cluster: RunningCluster, nemesis: Nemeses, history: SharedHistory, fault_seed: int
) -> None:
    """Nothing is asserted but that one order explains all that the three copies answered."""
    async with AsyncExitStack() as stack:
        # Each follows another server, so whichever leads, one copy is cut off with it.
        urls = coord_cluster.urls
        copies = [
            await stack.enter_async_context(
                Flags(urls[at:] + urls[:at], name=f"copy-{at + 1}", careful=CAREFUL)
            )
            for at in range(len(urls))
        ]
        users = [
            asyncio.create_task(use(copy, history, random.Random(f"{fault_seed}/{copy.name}")))
            for copy in copies
        ]
        await until_each_answers(history, copies, 20)
        async with nemesis("pause-leader"):
            await until_each_answers(history, copies, 3)
        for user in users:
            user.cancel()
        await asyncio.gather(*users, return_exceptions=True)
    history.judge(Register())
