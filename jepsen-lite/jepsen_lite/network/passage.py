"""When what one party sends to another may arrive, in the proxy."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from jepsen_lite.network.port import Shape
from jepsen_lite.network.wrong import Wrong, mistreated

RETRANSMIT_S = 0.2
"""A lost chunk comes after so long, and after twice as long if it is lost again, and so on."""
MOST_LOSSES = 6

Pair = tuple[str, str]
_UNSHAPED = Shape()


class Due(NamedTuple):
    """When something may be delivered at the earliest, unless its way was healed since."""

    at_s: float
    healed: int


class Passage:
    """The shapes of all pairs, and who waits for them to change. Of one event loop. With `wrong`
    it changes what passes."""

    def __init__(self, rng: random.Random, wrong: Wrong | None = None) -> None:
        self._rng = rng
        self._wrong = wrong
        self._shapes: dict[Pair, Shape] = {}
        self._changed = asyncio.Event()
        self._healed: dict[Pair, int] = {}
        self._free_at_s: dict[Pair, float] = {}

    def reshape(self, shapes: dict[Pair, Shape]) -> None:
        """From now on these; a pair that is named no more is healed, and what was held for it goes
        at once."""
        for pair in self._shapes:
            if pair not in shapes:
                self._healed[pair] = self._healed.get(pair, 0) + 1
                self._free_at_s.pop(pair, None)
        self._shapes = shapes
        self._changed.set()
        self._changed = asyncio.Event()

    def carried(self, chunk: bytes) -> bytes:
        """What is delivered of a chunk: itself, unless this network is wrong."""
        return chunk if self._wrong is None else mistreated(chunk, self._wrong, self._rng)

    def is_cut(self, pair: Pair) -> bool:
        return self._shapes.get(pair, _UNSHAPED).cut

    def due(self, pair: Pair, size_bytes: int) -> Due:
        """For a chunk that has just been sent: late by the delay, by what is sent before it at the
        throttled rate, and by its losses."""
        now_s = asyncio.get_running_loop().time()
        healed = self._healed.get(pair, 0)
        shape = self._shapes.get(pair)
        if shape is None:
            return Due(now_s, healed)
        at_s = now_s
        if shape.bytes_s:
            at_s = max(now_s, self._free_at_s.get(pair, 0.0)) + size_bytes / shape.bytes_s
            self._free_at_s[pair] = at_s
        at_s += (shape.delay_ms + shape.jitter_ms * self._rng.random()) / 1000
        retransmit_s = RETRANSMIT_S
        for _ in range(MOST_LOSSES):
            if self._rng.random() >= shape.share:
                break
            at_s += retransmit_s
            retransmit_s *= 2
        return Due(at_s, healed)

    async def wait(self, pair: Pair, due: Due) -> None:
        """Until it may be delivered: its time has come or all was healed, and nothing is cut."""
        while True:
            changed = self._changed
            left_s: float | None = None
            if not self.is_cut(pair):
                left_s = due.at_s - asyncio.get_running_loop().time()
                if left_s <= 0 or due.healed != self._healed.get(pair, 0):
                    return
            try:
                async with asyncio.timeout(left_s):
                    await changed.wait()
            except TimeoutError:
                continue

    async def wait_open(self, *pairs: Pair) -> None:
        """Until none of these is cut."""
        while any(self.is_cut(pair) for pair in pairs):
            await self._changed.wait()
