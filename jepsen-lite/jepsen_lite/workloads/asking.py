"""One client of a workload: asks, and records what it asked and what it was told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from coord.client import (
    Client,
    Decided,
    DoneButUnread,
    NotDone,
    NotFound,
    OutcomeUnknown,
    Rejected,
)
from coord.model.events import AnyEvent
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.workloads.port import CALL_TIMEOUT_S, Context

HANG_S = 4 * CALL_TIMEOUT_S
"""The client library bounds its calls; one that hangs beyond this is given up, in doubt."""


class Answer(msgspec.Struct, frozen=True):
    """What is recorded of an answer."""

    outcome: Outcome
    result: Any = None
    index: int = 0
    note: str = ""


class Asker:
    """Asks one thing at a time. An async context manager."""

    def __init__(self, ctx: Context, workload: str, number: int) -> None:
        self._history = ctx.history
        self._workload = workload
        self._base = f"{workload}/{number}"
        self._lost = 0
        self._tokens = 0
        self._run = ctx.run
        self.client: Client = ctx.open_client(self._base, number)

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.client.close()

    @property
    def name(self) -> str:
        """Another one after each operation whose outcome is in doubt."""
        return f"{self._base}.{self._lost}" if self._lost else self._base

    def token(self) -> str:
        """A text that nobody else in this run uses; fit to be a job's name."""
        self._tokens += 1
        return f"{self._base.replace('/', '-')}-{self._tokens}{self._run}"

    async def write(
        self,
        key: str,
        action: str,
        event: Callable[[str], AnyEvent],
        argument: Any = None,
    ) -> Operation:
        """Have an event decided; `event` makes it with the token that it is to carry."""
        token = self.token()

        async def ask() -> Answer:
            decided: Decided = await self.client.submit(event(token))
            return Answer(Outcome.OK, index=decided.index)

        return await self.record(key, action, ask, argument, token)

    async def read(
        self, key: str, action: str, ask: Callable[[], Awaitable[tuple[Any, int]]]
    ) -> Operation:
        """Look at something; `ask` gives what was seen and the index that it reflects."""

        async def looked() -> Answer:
            result, index = await ask()
            return Answer(Outcome.OK, result, index)

        return await self.record(key, action, looked)

    async def record(
        self,
        key: str,
        action: str,
        ask: Callable[[], Awaitable[Answer]],
        argument: Any = None,
        token: str = "",
    ) -> Operation:
        """Ask, between two lines of the history."""
        operation = self._history.invoke(
            client=self.name,
            workload=self._workload,
            key=key,
            action=action,
            argument=argument,
            token=token,
        )
        try:
            async with asyncio.timeout(HANG_S):
                answer = await ask()
        except Exception as error:
            answer = told_by(error)
        except asyncio.CancelledError:
            self._complete(operation, Answer(Outcome.INFO, note="cancelled"))
            raise
        self._complete(operation, answer)
        return operation

    def _complete(self, operation: Operation, answer: Answer) -> None:
        self._history.complete(
            operation,
            answer.outcome,
            result=answer.result,
            index=answer.index,
            note=answer.note,
        )
        if answer.outcome is Outcome.INFO:
            self._lost += 1


def told_by(error: Exception) -> Answer:
    """What an error says of the operation. Raises it again if it says nothing: a defect of ours."""
    note = f"{type(error).__name__}: {error}"
    match error:
        case Rejected():
            return Answer(Outcome.OK, error.rejection, error.index, note)
        case NotFound():
            return Answer(Outcome.OK, error.reason or "not_found", 0, note)
        case DoneButUnread():
            return Answer(Outcome.OK, None, error.index, note)
        case NotDone():
            return Answer(Outcome.FAIL, note=note)
        case OutcomeUnknown() | TimeoutError():
            return Answer(Outcome.INFO, note=note)
        case _:
            raise error


class Pace:
    """When a client's next operation is due, so that all together keep to the rate."""

    def __init__(self, ctx: Context, clients: int, rng: random.Random) -> None:
        self._stopping = ctx.stopping
        self._period_s = clients / ctx.rate
        self._rng = rng

    async def turn(self) -> bool:
        """Wait for one's turn; False when it is time to end."""
        return not await wait_for(self._stopping, self._period_s * self._rng.uniform(0.5, 1.5))


async def wait_for(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether it was set within that time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return event.is_set()
