"""Agents and workers of somebody else in a simulated cluster."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from coord_sim import AgentContext, Scenario, Violation, Worker, job, world

from coord.agent.socket import Recorded, ShardSaved
from coord.client.agent import Agent
from coord.client.inbox import Superseded
from coord.model.decisions import CheckpointCommitted, TasksPlaced
from coord.model.entities import HostStatus, JobStatus
from coord.model.events import CheckpointBegun as CheckpointBegunEvent
from coord.model.events import (
    HostRegistered,
    PreemptionNoticed,
    ProgressReported,
    TaskExited,
    TaskStarted,
)
from coord.model.events import (
    ShardSaved as ShardSavedEvent,
)
from coord.model.plans import Action
from coord.model.spec import RestartPolicy

EXAMPLES = Path(__file__).parents[2] / "examples"


async def idle(context: AgentContext) -> None:
    """Registers, and does nothing that it is told to."""
    async with context.agent() as agent:
        while True:
            await agent.register()
            async for news in agent.plans():
                if isinstance(news, Superseded):
                    break


class Lives:
    """What each life of an agent was given."""

    def __init__(self) -> None:
        self.contexts: list[AgentContext] = []
        self.numbers: list[int] = []

    async def agent(self, context: AgentContext) -> None:
        self.contexts.append(context)
        self.numbers.append(context.next_seq())
        count = int(context.files.read("lives") or b"0") + 1
        context.files.write("lives", str(count).encode())
        await idle(context)


def test_an_agent_of_ones_own_registers_and_is_up() -> None:
    """With what its context says of the host."""
    with world(1, hosts=0) as w:
        w.add_host("mine", agent=idle, devices=4, labels={"rack": "r1"})
        w.run_until(lambda: "mine" in w.state.hosts, 30)
        (registered,) = w.events(HostRegistered)
        assert (registered.host, registered.devices) == ("mine", 4)
        assert registered.labels == {"rack": "r1"}
        w.run_for(30)
        assert w.state.hosts["mine"].status == HostStatus.UP
        with pytest.raises(ValueError, match="there is a host mine already"):
            w.add_host("mine")


def test_what_an_agent_is_and_has_counted_survives_it() -> None:
    """Killed, and without power: its id and its files stay, its numbers go on, the boot is new."""
    lives = Lives()
    with world(2, hosts=0) as w:
        host = w.add_host("mine", agent=lives.agent)
        w.run_for(5)
        host.kill_agent(0.5)
        w.run_for(5)
        host.power_cycle(1.0)
        w.run_until(lambda: len(lives.contexts) == 3, 30)
        w.run_for(5)
        first, second, third = lives.contexts
        assert first.agent_id == second.agent_id == third.agent_id
        assert first.boot == second.boot != third.boot
        assert lives.numbers == sorted(set(lives.numbers))
        assert third.files.read("lives") == b"3"
        assert third.files.names() == ["lives"]
        third.files.remove("lives")
        assert third.files.read("lives") is None


def test_a_dead_agent_does_nothing_more() -> None:
    """Nor does a paused one, until it goes on."""
    ticks: list[float] = []

    async def ticking(context: AgentContext) -> None:
        while True:
            ticks.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1.0)

    with world(3, hosts=0) as w:
        host = w.add_host("mine", agent=ticking)
        w.run_for(3.5)
        assert len(ticks) == 4
        host.pause_agent(5.0)
        w.run_for(4.9)
        assert len(ticks) == 4
        w.run_for(2.0)
        assert len(ticks) > 4
        host.keep_agent_down()
        ticks.clear()
        w.run_for(5.0)
        assert ticks == []


def test_an_agent_that_fails_is_a_violation() -> None:
    """Its error is the cause."""

    async def broken(context: AgentContext) -> None:
        await asyncio.sleep(1.0)
        raise KeyError(context.host)

    with world(4) as w:
        w.add_host("mine", agent=broken)
        with pytest.raises(Violation, match="an agent ends only when") as found:
            w.run_for(5.0)
    assert isinstance(found.value.__cause__, KeyError)


def test_an_agent_that_lies_is_found_out() -> None:
    """It says that a task has started, and starts none."""

    async def liar(context: AgentContext) -> None:
        async with context.agent() as agent:
            await agent.register()
            async for news in agent.plans():
                if not isinstance(news, Superseded):
                    for order in news.tasks:
                        agent.report(TaskStarted(context.host, agent.incarnation, order.task, 42))

    with world(5, hosts=0) as w:
        w.add_host("mine", agent=liar)
        w.submit(job("train"))
        with pytest.raises(Violation, match="a start that counts has happened"):
            w.run_for(20.0)


def test_sigterm_and_preemption_reach_an_agent() -> None:
    """The first as an event, the second through the conversation it was given."""
    ended: list[str] = []

    async def polite(context: AgentContext) -> None:
        async with context.agent() as agent:
            await agent.register()
            await context.stop.wait()
            await agent.flush(1.0)
        ended.append(context.host)

    with world(6, hosts=0) as w:
        host = w.add_host("mine", agent=polite)
        w.run_for(5.0)
        host.preempt(3.0)
        w.run_until(lambda: w.events(PreemptionNoticed), 10)
        host.stop_agent()
        w.run_for(1.0)
        assert ended == ["mine"]


class Desk:
    """Takes in what workers say, for the simplest agent that can run a job."""

    def __init__(self, context: AgentContext, agent: Agent) -> None:
        self.host, self.agent = context.host, agent

    def progress(self, task: str, step: int) -> bool:
        self.agent.report(ProgressReported(self.host, self.agent.incarnation, task, step))
        return False

    def should_stop(self, task: str) -> bool:
        return False

    async def record(self, task: str, line: Recorded) -> None:
        here = (self.host, self.agent.incarnation, task, line.step, line.path)
        if isinstance(line, ShardSaved):
            event = ShardSavedEvent(*here, line.shard, line.digest, line.size_bytes)
            await self.agent.report(event)
        else:
            await self.agent.report(CheckpointBegunEvent(*here))


def test_an_agent_can_hear_its_workers() -> None:
    """Progress and checkpoints go the way that the contract says."""

    async def hearing(context: AgentContext) -> None:
        async with context.agent() as agent, asyncio.TaskGroup() as group:
            await agent.register()
            await context.workers.start(Desk(context, agent), group.create_task)
            seen: dict[str, int] = {}
            async for news in agent.plans():
                for order in () if isinstance(news, Superseded) else news.tasks:
                    if order.action == Action.RUN and order.task not in seen:
                        seen[order.task] = pid = context.machine.start(order)
                        here = (context.host, agent.incarnation, order.task)
                        agent.report(TaskStarted(*here, pid))

    with world(7, hosts=0) as w:
        w.add_host("mine", agent=hearing)
        w.submit(job("train", steps=100, checkpoint_every=2))
        w.run_until(lambda: len(w.decisions(CheckpointCommitted)) >= 2, 60)
        assert w.state.tasks["train/trainer/0#1"].step >= 4


# Workers


def trained(w: Scenario, **fields: object) -> None:
    w.submit(job("train", **fields))  # type: ignore[arg-type]
    w.settle()


def test_a_worker_of_ones_own_trains_from_its_checkpoint() -> None:
    """It starts again where its gang saved last, with what it had saved."""
    seen: list[tuple[int, int | None, bytes | None]] = []

    async def program(worker: Worker) -> None:
        seen.append((worker.rank, worker.restore_step, worker.restore_shard()))
        step = worker.restore_step or 0
        while step < 10 and not await worker.should_stop():
            await asyncio.sleep(0.5)
            await worker.barrier(step)
            step += 1
            worker.progress(step)
            if step % 4 == 0:
                assert await worker.checkpoint(step, f"{worker.rank}@{step}".encode())

    with world(10) as w:
        w.worker("train/trainer", program)
        w.submit(job("train", replicas=2, checkpoint_every=0))
        w.run_until(lambda: len(w.decisions(CheckpointCommitted)) == 1, 60)
        w.rank("train/trainer/1").exit(3)
        w.settle()
        assert w.job("train").status == JobStatus.COMPLETED
        assert sorted(seen[:2]) == [(0, None, None), (1, None, None)]
        assert sorted(seen[2:]) == [(0, 4, b"0@4"), (1, 4, b"1@4")]


@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [(SystemExit(3), 3, ""), (SystemExit(), 0, ""), (KeyError("shape"), 1, "KeyError: 'shape'")],
)
def test_how_a_worker_ends_is_how_its_process_ends(
    ending: BaseException, code: int, words: str
) -> None:
    """As it is with Python's own exit codes."""

    async def program(worker: Worker) -> None:
        await asyncio.sleep(1.0)
        raise ending

    with world(11, hosts=1) as w:
        w.add_host("other", worker=program)
        w.worker("trainer", program)
        w.submit(job("train", restart=RestartPolicy(user_limit=0, unknown_limit=0)))
        (exited,) = w.run_until(lambda: w.events(TaskExited), 30)
        assert (exited.exit_code, exited.error) == (code, words)


def test_an_assertion_in_a_worker_fails_the_test() -> None:
    """It is the test's own."""

    async def program(worker: Worker) -> None:
        await asyncio.sleep(1.0)
        assert worker.world_size == 2, "alone"

    with world(12) as w:
        w.worker("trainer", program)
        w.submit(job("train"))
        with pytest.raises(AssertionError, match="alone"):
            w.run_for(20.0)


def test_a_worker_is_asked_to_stop_and_knows_who_it_is() -> None:
    """On one host only; ranks elsewhere run what they always ran."""
    left: list[Worker] = []

    async def program(worker: Worker) -> None:
        step = 0
        while not await worker.should_stop():
            await asyncio.sleep(0.5)
            step += 1
            worker.progress(step)
        left.append(worker)

    with world(13, hosts=0) as w:
        w.add_host("mine", worker=program)
        w.run_until(lambda: "mine" in w.state.hosts, 30)
        w.submit(job("train", steps=0))
        w.run_until(w.ranks, 30)
        w.run_for(3.0)
        w.cancel("train")
        w.run_until(lambda: left, 30)
        (worker,) = left
        assert (worker.job, worker.role, worker.index, worker.rank) == ("train", "trainer", 0, 0)
        assert (worker.world_size, worker.generation, worker.host) == (1, 1, "mine")
        assert worker.devices == (0,)
        w.settle()


def test_a_worker_without_an_agent_goes_on() -> None:
    """Nothing it tells is heard, nothing it asks is answered, and a checkpoint is not recorded."""
    recorded: list[bool] = []

    async def program(worker: Worker) -> None:
        await asyncio.sleep(2.0)
        worker.progress(1)
        assert not await worker.should_stop()
        recorded.append(await worker.checkpoint(1, b"x"))

    with world(14, hosts=1) as w:
        w.worker("trainer", program)
        w.submit(job("train"))
        w.run_until(w.ranks, 30)
        w.run_for(0.5)
        w.host("h1").keep_agent_down()
        w.run_until(lambda: recorded, 30)
        assert recorded == [False]
        assert len(w.decisions(TasksPlaced)) == 1


PROGRAM = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
from sim_agent import SmallAgent
from coord_sim import job, world
async def agent(context):
    await SmallAgent(context, careful=True).run()
with world(5, hosts=0, network="chaos", faults="agent,server", fault_gap_s=2.0) as w:
    for name in ("left", "right"):
        w.add_host(name, agent=agent)
    w.submit(job("train", replicas=3))
    w.run_for(20)
    w.settle()
    print(w.digest)
"""


def test_a_seed_is_a_seed_with_an_agent_of_ones_own_under_any_hash_seed() -> None:
    """In processes of their own."""

    def told(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    first = told("0")
    assert len(first.strip()) == 32
    assert told("77") == first


def test_an_agent_that_was_killed_leaves_nothing_to_the_collector() -> None:
    """Its nested blocks are closed from within when the world is taken apart: nothing of it speaks
    up afterwards."""
    heard: list[object] = []

    async def nested(context: AgentContext) -> None:
        async with context.agent() as agent, asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1_000))
            await agent.register()
            async for _ in agent.plans():
                await asyncio.sleep(0.1)

    before, sys.unraisablehook = sys.unraisablehook, heard.append
    try:
        with world(15, hosts=0, nodes=1) as w:
            host = w.add_host("mine", agent=nested)
            w.run_for(5.0)
            host.kill_agent(1.0)
            w.run_for(5.0)
        del w, host
        gc.collect()
    finally:
        sys.unraisablehook = before
    assert heard == []
