"""Following the log across server failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable

from coord.client.backoff import Backoff
from coord.client.errors import EventsGone, Unavailable
from coord.client.http import Applied, Http
from coord.client.views import EventPage
from coord.model.entry import Recorded

WAIT_MS = 10_000
"""How long a server holds a request open when there is nothing new."""
PAGE = 1_000


async def watch_events(
    http: Http,
    start: int | None,
    *,
    stale: bool,
    timeout_s: float,
    patience_s: float,
    rng: random.Random,
    on_trouble: Callable[[Unavailable], object] | None = None,
) -> AsyncGenerator[Recorded, None]:
    """Entries from index `start` on (None: what comes from now on), each exactly once, in order.

    Goes on by index with the next server when one fails. Raises EventsGone when retention was
    faster, Unavailable when no server answered for `timeout_s` at first or `patience_s` later.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff(rng, 0.1, 2.0)
    extra = {"stale": 1} if stale else {}
    if start is None:
        now = await http.get("/v1/cluster", Applied, extra, timeout_s)
        start = now.applied_index + 1
    next_index = max(start, 1)
    heard_s = loop.time()
    wait_ms = 0
    while True:
        params = {"from": next_index, "limit": PAGE, "wait_ms": wait_ms, **extra}
        try:
            page = await http.get("/v1/events", EventPage, params, timeout_s, wait_ms)
        except Unavailable as error:
            if loop.time() - heard_s >= patience_s:
                raise
            if on_trouble is not None:
                on_trouble(error)
            await asyncio.sleep(backoff.next_s())
            continue
        except EventsGone as error:
            raise EventsGone(next_index, error.first_index) from error
        backoff.reset()
        heard_s = loop.time()
        # Having waited for nothing, ask without waiting: that must be confirmed by the leader, so
        # a server cut off from it is found out.
        wait_ms = WAIT_MS if page.events or not wait_ms else 0
        if not page.events and next_index < page.first_index:
            raise EventsGone(next_index, page.first_index)
        for recorded in page.events:
            index = recorded.entry.index
            if index < next_index:
                continue
            if index > next_index:
                raise EventsGone(next_index, index)
            next_index += 1
            yield recorded
