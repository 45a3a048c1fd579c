"""What stands for the operating system in a simulated host: its runner, its workers' socket."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from coord_sim.kernel import Kernel, SimProcess
from coord_sim.world.agent_disk import SimFiles
from coord_sim.world.hosts import SimHost
from coord_sim.world.ranks import SimRank
from coord_sim.world.runner import SimRunner
from coord_sim.world.worker_socket import Away, SimWorkerSocket

from coord.agent.exits import ExitNotes, Note
from coord.agent.ports import ExitStatus, LaunchError, LaunchSpec
from coord.agent.proctable import AGENT_MARK
from coord.agent.records import Process
from coord.agent.socket import Answer, CheckpointBegun, Progress, Recorded, Refusal
from tests.sim.small_fleet import SmallFleet

TASK = "job/role/0#1"


class Agents:
    """One runner after another on a host whose real agent is away."""

    def __init__(self, fleet: SmallFleet) -> None:
        self.fleet = fleet
        self.host: SimHost = fleet.host()
        self.host.agent_kill(float("inf"))
        self.exits: list[tuple[str, ExitStatus]] = []
        self.start()

    def start(self) -> None:
        """The next agent, of the same identity."""
        self.process: SimProcess = self.fleet.kernel.spawn("agent", _forever)
        files = SimFiles(self.host.disk, self.host.data_dir, self.process)
        self.notes = ExitNotes(files)
        self.runner = SimRunner(self.host, "agent-1", self.process, self.notes)
        self.runner.on_exit(lambda task, status: self.exits.append((task, status)))
        self.host.runner = self.runner

    def kill(self) -> None:
        self.process.kill()
        self.host.runner = None

    def launch(self, task: str = TASK) -> SimRank:
        env = {
            "COORD_TASK": task,
            "COORD_JOB": "job",
            "COORD_ROLE": "role",
            "COORD_DEVICES": "",
            "SIM_LAST_STEP": "0",
            AGENT_MARK: "agent-1",
        }
        out = Path("out")
        process = self.process.run(
            self.runner.launch, LaunchSpec(task, ("train",), env, "", out, out)
        )
        (rank,) = [rank for rank in self.host.runs if rank.process == process]
        return rank


@pytest.fixture
def agents() -> Iterator[Agents]:
    with SmallFleet(hosts=1) as fleet:
        made = Agents(fleet)
        made.host.kernel_tells = True
        yield made


async def _forever() -> None:
    await asyncio.Event().wait()


class TestRunner:
    @pytest.mark.parametrize(
        ("end", "status"),
        [
            (lambda rank: rank.exit(3), ExitStatus(exit_code=3)),
            (lambda rank: rank.die(11), ExitStatus(signal=11)),
            (lambda rank: rank.die(9, oom=True), ExitStatus(signal=9, oom=True)),
        ],
    )
    def test_an_exit_is_told_once(
        self, agents: Agents, end: Callable[[SimRank], None], status: ExitStatus
    ) -> None:
        """With code or signal, on the agent's loop and not at once."""
        rank = agents.launch()
        end(rank)
        assert agents.exits == []
        agents.fleet.run_for(1)
        assert agents.exits == [(TASK, status)]

    def test_a_kill_of_our_own_is_not_for_lack_of_memory(self, agents: Agents) -> None:
        """SIGKILL reaches main process and child, and is told as such."""
        rank = agents.launch()
        rank.child_pid = rank.process.pid + 1
        pids = agents.runner.survivors(TASK, rank.process)
        assert pids == (rank.process.pid, rank.child_pid)
        assert agents.runner.signal(TASK, rank.process, signal.SIGKILL) == pids
        assert agents.runner.survivors(TASK, rank.process) == ()
        agents.fleet.run_for(1)
        assert agents.exits == [(TASK, ExitStatus(signal=9))]

    def test_what_an_earlier_agent_started_is_found_by_its_mark(self, agents: Agents) -> None:
        """And taken over; another agent's, another task's and dead ones are not."""
        rank = agents.launch()
        agents.kill()
        agents.start()
        assert agents.runner.find(TASK) == rank.process
        assert agents.runner.find("job/role/1#1") is None
        stranger = SimRunner(agents.host, "agent-2", agents.process, agents.notes)
        assert stranger.find(TASK) is None
        assert stranger.survivors(TASK, None) == ()
        agents.runner.adopt(TASK, rank.process)
        rank.exit(4)
        assert agents.runner.find(TASK) is None
        agents.fleet.run_for(1)
        assert agents.exits == [(TASK, ExitStatus(exit_code=4))]

    @pytest.mark.parametrize(
        ("note", "status"),
        [
            (Note(4 << 8), ExitStatus(exit_code=4)),
            (Note(11), ExitStatus(signal=11)),
            (Note(), ExitStatus(observed=False)),
        ],
    )
    def test_an_end_before_its_time_is_known_from_a_note_or_not(
        self, agents: Agents, note: Note, status: ExitStatus
    ) -> None:
        """Nobody of ours was its parent."""
        rank = agents.launch()
        agents.kill()
        rank.exit(4)
        agents.start()
        agents.notes.write(TASK, note)
        agents.runner.adopt(TASK, rank.process)
        agents.fleet.run_for(1)
        assert agents.exits == [(TASK, status)]

    def test_an_old_kernel_does_not_tell_of_a_foreign_child(self, agents: Agents) -> None:
        """Of one's own child it always does."""
        agents.host.kernel_tells = False
        agents.launch().exit(2)
        agents.fleet.run_for(1)
        rank = agents.launch("job/role/0#2")
        agents.kill()
        agents.start()
        agents.runner.adopt(rank.task, rank.process)
        rank.exit(2)
        agents.fleet.run_for(1)
        told = [status for _, status in agents.exits]
        assert told == [ExitStatus(exit_code=2), ExitStatus(observed=False)]

    def test_nothing_of_another_boot_lives(self, agents: Agents) -> None:
        """Whatever pid and start time a record names."""
        rank = agents.launch()
        before = Process(rank.process.pid, rank.process.start_ticks, "another boot")
        assert agents.runner.survivors(TASK, before) == ()
        agents.runner.release(TASK)
        agents.runner.adopt(TASK, before)
        agents.fleet.run_for(1)
        assert agents.exits == [(TASK, ExitStatus(observed=False))]
        assert rank.alive

    def test_a_released_task_is_not_told_of(self, agents: Agents) -> None:
        """Its process goes on."""
        rank = agents.launch()
        agents.runner.release(TASK)
        agents.runner.release(TASK)
        rank.exit(0)
        agents.fleet.run_for(1)
        assert agents.exits == []

    def test_a_launch_may_fail(self, agents: Agents) -> None:
        """As often as was asked for, and with a full disk; then there is no process."""
        failure = LaunchError("no such file", user_error=True)
        agents.host.launch_failures.append(failure)
        with pytest.raises(LaunchError) as caught:
            agents.launch()
        assert caught.value is failure
        agents.host.disk.full = True
        with pytest.raises(LaunchError, match="disk full"):
            agents.launch()
        assert agents.host.runs == []


class FakeDesk:
    """Notes what it hears; answers checkpoints when told to."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.recorded = asyncio.Event()

    def progress(self, task: str, step: int) -> bool:
        self.heard.append(step)
        if step < 0:
            raise Refusal("no such step")
        return step > 5

    def should_stop(self, task: str) -> bool:
        return False

    async def record(self, task: str, line: Recorded) -> None:
        self.heard.append(line.step)
        try:
            await self.recorded.wait()
        except asyncio.CancelledError:
            self.heard.append("given up")
            raise


class Talk:
    """An agent's socket and somebody who speaks to it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.agent = kernel.spawn("agent", _forever)
        self.worker = kernel.spawn("worker", _forever)
        self.socket = SimWorkerSocket(Path("worker.sock"), self.agent)
        self.desk = self.agent.run(FakeDesk)
        kernel.run_until(self.socket.start(self.desk, self._spawn))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    def say(self, *lines: Progress | CheckpointBegun) -> list[asyncio.Future[Answer]]:
        futures: list[asyncio.Future[Answer]] = []
        for line in lines:
            self.worker.call_soon(lambda line=line: futures.append(self.socket.say(TASK, line)))
        self.kernel.run_for(0.1)
        return futures


@pytest.fixture
def talk() -> Iterator[Talk]:
    with Kernel(1) as kernel:
        yield Talk(kernel)


class TestWorkerSocket:
    def test_lines_are_answered_in_order(self, talk: Talk) -> None:
        """Whether to stop, or why not."""
        told = [future.result() for future in talk.say(Progress(1), Progress(6), Progress(-1))]
        assert told == [
            Answer(True, stop=False), Answer(True, stop=True), Answer(False, error="no such step"),
        ]  # fmt: skip
        assert talk.desk.heard == [1, 6, -1]

    def test_lines_wait_for_an_agent_that_is_paused(self, talk: Talk) -> None:
        """As in the buffer of a socket, also those of a rank that has died since."""
        talk.agent.pause()
        (future,) = talk.say(Progress(1))
        assert not future.done()
        talk.worker.kill()
        talk.socket.rank_died(TASK)
        talk.agent.resume()
        talk.kernel.run_for(0.1)
        assert talk.desk.heard == [1]

    def test_an_agent_that_dies_leaves_no_answer(self, talk: Talk) -> None:
        """Whoever waits learns that it went away, and nobody can speak any more."""
        (future,) = talk.say(CheckpointBegun(1, "/c"))
        talk.agent.kill()
        with pytest.raises(Away):
            future.result()
        with pytest.raises(Away):
            talk.worker.run(talk.socket.say, TASK, Progress(2))

    def test_a_rank_that_dies_is_not_waited_for(self, talk: Talk) -> None:
        """What its checkpoint waits for is given up."""
        talk.say(CheckpointBegun(1, "/c"))
        talk.socket.rank_died(TASK)
        talk.kernel.run_for(0.1)
        assert talk.desk.heard == [1, "given up"]

    def test_drain_returns_when_all_was_heard(self, talk: Talk) -> None:
        """So that what a task said before its end counts before its end."""

        async def drained() -> list[object]:
            await talk.socket.drain(TASK)
            return list(talk.desk.heard)

        heard: list[list[object]] = []

        def both() -> None:
            talk.worker.run(talk.socket.say, TASK, Progress(3))
            drain = talk.agent.run(asyncio.get_running_loop().create_task, drained())
            drain.add_done_callback(lambda done: heard.append(done.result()))

        talk.kernel.call_later(0.0, both)
        talk.kernel.run_for(0.1)
        assert heard == [[3]]
