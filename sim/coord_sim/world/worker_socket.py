"""The workers' socket of one agent, without bytes: ranks on one side, its desk on the other."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from coord.agent.socket import (
    Answer,
    Progress,
    Recorded,
    Refusal,
    ShouldStop,
    Spawn,
    WorkerDesk,
)
from coord_sim.kernel import SimProcess

Line = Progress | ShouldStop | Recorded


class Away(Exception):
    """There is no agent, or it went away before it answered."""


class SimWorkerSocket:
    """See `ports.WorkerListener`. Lines wait while the agent is paused, as in a socket's buffer,
    and are lost with it."""

    def __init__(self, path: Path, process: SimProcess) -> None:
        self.path = path
        self._process = process
        self._desk: WorkerDesk | None = None
        self._spawn: Spawn | None = None
        self._unread: dict[str, int] = {}
        self._owed: dict[asyncio.Future[Answer], str] = {}
        self._answering: dict[asyncio.Task[None], str] = {}
        process.on_death.append(self._hang_up)

    # For the agent

    async def start(self, desk: WorkerDesk, spawn: Spawn) -> None:
        self._desk, self._spawn = desk, spawn

    async def drain(self, task: str) -> None:
        for _ in itertools.count():
            if not self._unread.get(task):
                return
            await asyncio.sleep(0)

    async def close(self) -> None:
        self._desk = self._spawn = None
        for answering in list(self._answering):
            answering.cancel()
        self._hang_up()

    # For ranks

    def say(self, task: str, line: Line) -> asyncio.Future[Answer]:
        """Send a line. The future, of the process that says it, yields the answer, or raises Away.
        Raises Away where nobody listens."""
        if self._desk is None or not self._process.alive:
            raise Away(f"no agent at {self.path}")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._owed[answer] = task
        self._unread[task] = self._unread.get(task, 0) + 1
        self._process.call_soon(self._arrived, task, line, answer)
        return answer

    def rank_died(self, task: str) -> None:
        """Its connections are closed: what its lines still wait for is given up."""
        if self._process.alive:
            self._process.call_soon(self._give_up, task)

    # In the agent's process

    def _arrived(self, task: str, line: Line, answer: asyncio.Future[Answer]) -> None:
        self._unread[task] -= 1
        desk, spawn = self._desk, self._spawn
        if desk is None or spawn is None:
            return
        if isinstance(line, Recorded):
            answering = spawn(self._answer_later(desk, task, line, answer))
            self._answering[answering] = task
            answering.add_done_callback(lambda done: self._answering.pop(done, None))
            return
        try:
            if isinstance(line, Progress):
                stop = desk.progress(task, line.step)
            else:
                stop = desk.should_stop(task)
            self._answer(answer, Answer(True, stop=stop))
        except Refusal as refusal:
            self._answer(answer, Answer(False, error=str(refusal)))

    async def _answer_later(
        self,
        desk: WorkerDesk,
        task: str,
        line: Recorded,
        answer: asyncio.Future[Answer],
    ) -> None:
        try:
            await desk.record(task, line)
        except Refusal as refusal:
            self._answer(answer, Answer(False, error=str(refusal)))
        else:
            self._answer(answer, Answer(True))

    def _answer(self, answer: asyncio.Future[Answer], said: Answer) -> None:
        self._owed.pop(answer, None)
        if not answer.done():
            answer.set_result(said)

    def _give_up(self, task: str) -> None:
        for answering, of_task in list(self._answering.items()):
            if of_task == task:
                answering.cancel()

    def _hang_up(self) -> None:
        owed, self._owed = self._owed, {}
        for answer in owed:
            if not answer.done():
                answer.set_exception(Away(f"the agent at {self.path} has gone"))
                answer.exception()  # Whether or not anybody still waits for it.
