"""An agent of one's own in a page: it runs what its host's plan says, and tells what comes of it.

It notes on disk what it has started, because after its own death the next one has to know. There is
a mistake in when it does that, which no ordinary test finds; `test_sim_agent.py` does. It does not
watch its lease, so it is not for `exclusive` tasks.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from coord_sim import AgentContext

from coord.agent.ports import LaunchError
from coord.client.agent import Agent
from coord.client.errors import CoordError
from coord.client.inbox import Superseded
from coord.model.events import LaunchFailed, TaskExited, TaskFound, TaskReaped, TaskStarted
from coord.model.plans import Action, HostPlan, TaskOrder

STARTED = "started.json"


class SmallAgent:
    """One life of it. A `careful` one notes a task before it starts it."""

    def __init__(self, context: AgentContext, *, careful: bool) -> None:
        self.host = context.host
        self.machine = context.machine
        self.files = context.files
        self.careful = careful
        self.channel: Agent = context.agent()
        self.started: list[str] = json.loads(self.files.read(STARTED) or b"[]")
        self.following: dict[str, asyncio.Task[None]] = {}
        self.stopping: list[str] = []

    async def run(self) -> None:
        async with self.channel, asyncio.TaskGroup() as self.group:
            await self.register()
            async for news in self.channel.plans():
                if isinstance(news, Superseded):
                    for task in self.machine.tasks():
                        await self.machine.clear(task)
                    await self.register()
                else:
                    self.obey(news)

    async def register(self) -> None:
        """What is not named here is gone, by our word, and its devices are given to others."""
        alive = self.machine.tasks()
        named = [TaskFound(task, alive[task]) for task in self.started if task in alive]
        await self.channel.register(named)
        for found in named:
            if found.task not in self.following:
                self.following[found.task] = self.group.create_task(self.follow(found.task))

    def obey(self, plan: HostPlan) -> None:
        orders = {order.task: order for order in plan.tasks}
        for task, order in orders.items():
            if order.action == Action.RUN and task not in self.following:
                self.following[task] = self.group.create_task(self.launch(order))
        for task in self.machine.tasks():
            ordered = orders.get(task)
            unwanted = ordered is None or ordered.action == Action.STOP
            if unwanted and task not in self.stopping:
                self.stopping.append(task)
                grace_s = ordered.grace_ms / 1000 if ordered is not None else 1.0
                self.group.create_task(self.machine.clear(task, grace_s))
        self.note([task for task in self.started if task in orders or self.machine.pids(task)])

    async def launch(self, order: TaskOrder) -> None:
        task, incarnation = order.task, self.channel.incarnation
        error, pid = LaunchError("an earlier agent began it", user_error=False), 0
        if task not in self.started:
            if self.careful:
                self.note([*self.started, task])
            try:
                pid = self.machine.start(order)
            except LaunchError as failed:
                error = failed
        if not pid:
            failure = LaunchFailed(self.host, incarnation, task, str(error), error.user_error)
            self.channel.report(failure)
            self.channel.report(TaskReaped(self.host, incarnation, task))
            return
        decided = self.channel.report(TaskStarted(self.host, incarnation, task, pid))
        if not self.careful:
            # The mistake: the process lives, and until this is decided nobody would know it again.
            with suppress(CoordError):
                await decided
            self.note([*self.started, task])
        await self.follow(task)

    async def follow(self, task: str) -> None:
        """Until nothing of it is left. Incarnations may pass meanwhile: the newest reports."""
        end = await self.machine.ended(task)
        self.channel.report(
            TaskExited(
                self.host,
                self.channel.incarnation,
                task,
                end.exit_code,
                end.signal,
                observed=end.observed,
                expected=task in self.stopping,
                oom=end.oom,
            )
        )
        await self.machine.clear(task)
        self.channel.report(TaskReaped(self.host, self.channel.incarnation, task))

    def note(self, started: list[str]) -> None:
        if started != self.started:
            self.started = started
            self.files.write(STARTED, json.dumps(started).encode())
