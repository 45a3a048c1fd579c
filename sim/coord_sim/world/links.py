"""One connection between two processes, as TCP gives it to a WebSocket: frames in order, or none.

A connection never loses a frame and then delivers a later one. What a cut or a slow way holds up
arrives in order once the way is open again, or is lost together with all that follows it.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from coord.listening.connection import PING_S
from coord_sim.kernel import Kernel, SimProcess

WINDOW_BYTES = 512 * 1024
"""Of frames sent and not yet taken by their reader; whoever sends more waits."""
RETRANSMIT_S = 1.0
"""At most so long after a way is open again what it held is sent anew."""


class Signal(enum.Enum):
    """What travels beside frames."""

    OPEN = "open"
    ACCEPTED = "accepted"
    PING = "ping"
    PONG = "pong"
    END = "end"
    """Nothing follows: the other side closed, or its process ended."""


Item = bytes | Signal


class Delay(NamedTuple):
    """Seconds that a frame takes: at least so many, and an exponential tail with this mean. With
    the probability `rare`, evenly up to `rare_s` more."""

    least_s: float = 0.0005
    mean_s: float = 0.0015
    rare: float = 0.0
    rare_s: float = 0.0

    def draw(self, rng: random.Random) -> float:
        delay_s = self.least_s + rng.expovariate(1.0) * self.mean_s
        if self.rare and rng.random() < self.rare:
            delay_s += rng.random() * self.rare_s
        return delay_s


class Way:
    """How it goes in one direction between a caller and a server, for all of their connections."""

    def __init__(self, delay: Delay) -> None:
        self.cut = False
        """Nothing arrives, and nobody is told."""
        self.delay = delay
        self.slow_s = 0.0
        """Every frame takes so much longer."""
        self.bytes_per_s = 0.0
        """0: as fast as one likes."""


class _Flight:
    __slots__ = ("arrival_s", "item", "timer")

    def __init__(self, arrival_s: float, item: Item, timer: asyncio.TimerHandle | None) -> None:
        self.arrival_s = arrival_s
        self.item = item
        self.timer = timer


class Line:
    """One direction of a connection. `deliver` hears of each item when it arrives."""

    def __init__(
        self, kernel: Kernel, way: Way, rng: random.Random, deliver: Callable[[Item], None]
    ) -> None:
        self.unread_bytes = 0
        """Sent, and not yet taken by the reader."""
        self.room = asyncio.Event()
        self.room.set()
        self.lost = False
        """Nothing more arrives: the connection was reset, or a machine lost its power."""
        self.way = way
        self._kernel = kernel
        self._rng = rng
        self._deliver = deliver
        self._flying: deque[_Flight] = deque()
        self._held: deque[Item] = deque()
        self._busy_until_s = 0.0
        self._last_s = 0.0

    def post(self, item: Item, leaves_s: float, extra_s: float = 0.0) -> None:
        """Send after all before it; `extra_s` holds up whatever follows, too."""
        if self.lost:
            return
        if isinstance(item, bytes):
            self.unread_bytes += len(item)
            if self.unread_bytes > WINDOW_BYTES:
                self.room.clear()
        if self.way.cut or self._held:
            self._held.append(item)
        else:
            self._fly(item, leaves_s, extra_s)

    def taken(self, frame: bytes) -> None:
        """The reader has it."""
        self.unread_bytes -= len(frame)
        if self.unread_bytes <= WINDOW_BYTES:
            self.room.set()

    def cut(self) -> None:
        """What is on its way stays there until the way is open."""
        on_the_way = self._take_flying()
        self._held.extendleft(reversed(on_the_way))

    def flush(self) -> None:
        """The way is open again."""
        held, self._held = self._held, deque()
        resent_s = self._kernel.now_s() + self._rng.random() * RETRANSMIT_S
        for item in held:
            self._fly(item, resent_s, 0.0)

    def lose(self) -> None:
        """What is under way is gone, and so is all that is sent from now on. The reader is not
        told."""
        self._keep(0)

    def lose_a_part(self) -> float:
        """As `lose`, but for as many as chance lets through; returns when the reader can know."""
        self._keep(self._rng.randint(0, len(self._flying)))
        notice_s = self._kernel.now_s() + self.way.delay.draw(self._rng)
        return max(notice_s, self._flying[-1].arrival_s) if self._flying else notice_s

    def _keep(self, count: int) -> None:
        self.lost = True
        self._held.clear()
        while len(self._flying) > count:
            timer = self._flying.pop().timer
            assert timer is not None
            timer.cancel()
        self.room.set()

    def hold_end(self) -> None:
        """On a way that is cut: the connection is over, and that is all that will ever arrive."""
        self._held.clear()
        self._held.append(Signal.END)
        self.room.set()

    def _fly(self, item: Item, leaves_s: float, extra_s: float) -> None:
        way = self.way
        leaves_s = max(leaves_s, self._kernel.now_s(), self._busy_until_s)
        if way.bytes_per_s and isinstance(item, bytes):
            leaves_s += len(item) / way.bytes_per_s
            self._busy_until_s = leaves_s
        arrival_s = leaves_s + way.delay.draw(self._rng) + way.slow_s + extra_s
        self._last_s = arrival_s = max(arrival_s, self._last_s)
        flight = _Flight(arrival_s, item, None)
        flight.timer = self._kernel.call_at(arrival_s, self._arrived, flight)
        self._flying.append(flight)

    def _arrived(self, flight: _Flight) -> None:
        self._flying.remove(flight)
        self._deliver(flight.item)

    def _take_flying(self) -> list[Item]:
        items = []
        for flight in self._flying:
            assert flight.timer is not None
            flight.timer.cancel()
            items.append(flight.item)
        self._flying.clear()
        return items


class End:
    """One side's end of a connection, used by its process. See `coord.listening`, Connection.

    Whatever its process does once that is dead has no effect.
    """

    def __init__(self, process: SimProcess | None, peer: str) -> None:
        self.process = process
        """None until a server took the connection."""
        self.peer = peer
        self.over = ""
        """Why nothing more can come; empty while something may."""
        self.shut_here = False
        """This side said that nothing follows."""
        self.heard_s = 0.0
        self.line_in: Line
        self.line_out: Line
        self.settled: Callable[[], None]
        """Called when this side has nothing to do with the connection any more."""
        self._inbox: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._accepted = False
        self._ping: asyncio.TimerHandle | None = None

    # For the process

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return bool(self.over) or self.shut_here

    async def opened(self) -> None:
        """Return once the other side has taken the connection. Raises ConnectionError."""
        while not self._accepted:
            if self.over:
                raise ConnectionRefusedError(self.over)
            self._ready.clear()
            await self._ready.wait()

    async def receive(self) -> bytes | None:
        """The next frame; None at the end."""
        while not self._inbox:
            if self.closed:
                return None
            self._ready.clear()
            await self._ready.wait()
        frame = self._inbox.popleft()
        self.line_in.taken(frame)
        return frame

    async def send(self, frame: bytes, extra_s: float = 0.0) -> None:
        """Raises ConnectionError. `extra_s` is what the network takes beyond the usual."""
        self._refuse_if_closed()
        self._post(frame, extra_s)
        while not self.line_out.room.is_set():
            await self.line_out.room.wait()
            self._refuse_if_closed()

    async def close(self) -> None:
        """Say that nothing follows, and wait for the other side to say the same. Idempotent."""
        self.shut()
        while not self.over:
            await self._ended.wait()

    def shut(self) -> None:
        """As `close`, without waiting."""
        if not self.shut_here:
            self.shut_here = True
            self._stop_pings()
            self._post(Signal.END)
            self._ready.set()
            self.settled()

    def begin_pings(self) -> None:
        """Find out when the other side is silent for good, as aiohttp's servers do."""
        assert self.process is not None
        self.heard_s = self._now_s()
        self._ping = self.process.call_at(self.heard_s + PING_S, self._ping_if_silent)

    # For the network

    @property
    def done(self) -> bool:
        """Whether this side has nothing to do with the connection any more."""
        return self.closed or (self.process is not None and not self.process.alive)

    def arrived(self, item: Item) -> None:
        """As code of the process: something is in its socket."""
        self.heard_s = self._now_s()
        if self.over:
            return
        if isinstance(item, bytes):
            if self.shut_here:
                return
            self._inbox.append(item)
            self._ready.set()
        elif item is Signal.PING:
            self._post(Signal.PONG)
        elif item is Signal.ACCEPTED:
            self._accepted = True
            self._ready.set()
        elif item is Signal.END:
            self.broken("closed by the other side")

    def broken(self, why: str) -> None:
        """As code of the process: nothing more can come."""
        if self.over:
            return
        self.over = why
        self._stop_pings()
        self._ready.set()
        self._ended.set()
        self.line_out.room.set()
        self.settled()

    # Inside

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise ConnectionResetError(self.over or "closed by this side")

    def _post(self, item: Item, extra_s: float = 0.0) -> None:
        process = self.process
        if process is None or process.alive:
            leaves_s = process.stalled_until_s if process is not None else 0.0
            self.line_out.post(item, leaves_s, extra_s)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _ping_if_silent(self) -> None:
        assert self.process is not None
        due_s = self.heard_s + PING_S
        if self._now_s() < due_s:
            self._ping = self.process.call_at(due_s, self._ping_if_silent)
            return
        self._post(Signal.PING)
        give_up_s = self._now_s() + PING_S / 2
        self._ping = self.process.call_at(give_up_s, self._pong_or_give_up, self._now_s())

    def _pong_or_give_up(self, asked_s: float) -> None:
        assert self.process is not None
        if self.heard_s >= asked_s:
            self._ping = self.process.call_at(self.heard_s + PING_S, self._ping_if_silent)
        else:
            self.broken(f"no answer to a ping within {PING_S / 2:g} s")

    def _stop_pings(self) -> None:
        if self._ping is not None:
            self._ping.cancel()
            self._ping = None
