"""Real processes through the runner alone, and endings that do not end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coord.agent import proctable
from coord.agent.endings import Ending
from coord.agent.oom import OomWatch, counter_file, read_kills
from coord.agent.ports import ExitStatus, LaunchError, LaunchSpec
from coord.agent.records import Process
from coord.agent.runner import PosixRunner
from tests.agent.support import python, until, until_file

AGENT = uuid.uuid4().hex
"""Of this run alone: another one on this machine must not take our processes for its own."""


class Seen:
    """A runner and the exits it told of."""

    def __init__(self, runner: PosixRunner, root: Path) -> None:
        self.runner = runner
        self.root = root
        self.exits: dict[str, list[ExitStatus]] = {}
        runner.on_exit(lambda task, status: self.exits.setdefault(task, []).append(status))

    def launch(self, task: str, *command: str) -> Process:
        return self.runner.launch(
            LaunchSpec(
                task,
                command,
                {**os.environ, "COORD_TASK": task, "COORD_AGENT": AGENT},
                "",
                self.root / "out",
                self.root / "err",
            )
        )

    async def exit_of(self, task: str) -> ExitStatus:
        await until(lambda: self.exits.get(task))
        assert len(self.exits[task]) == 1
        return self.exits[task][0]


ORPHAN = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
with open(sys.argv[1], 'w') as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1], sys.argv[1] + '.done')
time.sleep(1000)
"""


def start_orphan(tmp_path: Path) -> int:
    """A process with our mark that is nobody's child but init's, or a subreaper's."""
    env = {**os.environ, "COORD_TASK": "orphan", "COORD_AGENT": AGENT}
    subprocess.run([*python(ORPHAN), str(tmp_path / "pid")], env=env, timeout=60, check=True)
    done = tmp_path / "pid.done"
    deadline = time.monotonic() + 20
    while not done.exists():
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return int(done.read_text())


def start_foreign(task: str) -> subprocess.Popen[bytes]:
    """A task of this name, of another agent."""
    env = {**os.environ, "COORD_TASK": task, "COORD_AGENT": uuid.uuid4().hex}
    return subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True)


def a_dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def _no_pidfd(pid: int) -> int:
    raise OSError(38, "Function not implemented")


@pytest.fixture(params=["pidfd", "polling"])
async def seen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Seen]:
    """With pidfds, and as on a kernel that has none."""
    opener = os.pidfd_open if request.param == "pidfd" else _no_pidfd
    runner = PosixRunner(AGENT, owns_process=False, open_pidfd=opener)
    yield Seen(runner, tmp_path)
    runner.close()


async def test_exits_are_noticed_with_their_status(seen: Seen) -> None:
    """Codes and signals, of many processes at once, each told once."""
    for code in (0, 1, 93, 255):
        seen.launch(f"code{code}", "sh", "-c", f"exit {code}")
    seen.launch("killed", "sh", "-c", "kill -9 $$")
    for code in (0, 1, 93, 255):
        assert await seen.exit_of(f"code{code}") == ExitStatus(exit_code=code)
    assert await seen.exit_of("killed") == ExitStatus(signal=signal.SIGKILL)


async def test_an_exit_is_told_within_moments(seen: Seen) -> None:
    """Under 50 ms with and without a pidfd: the best of ten, as the machine may be busy."""
    loop = asyncio.get_running_loop()
    late = []
    for attempt in range(10):
        process = seen.launch(f"t{attempt}", "sleep", "1000")
        os.kill(process.pid, signal.SIGKILL)
        killed = loop.time()
        await until(lambda task=f"t{attempt}": task in seen.exits)
        late.append(loop.time() - killed)
    assert min(late) < 0.05


async def test_a_non_child_is_watched(seen: Seen, tmp_path: Path) -> None:
    """A process that somebody else started is adopted; its end is noticed, and where its zombie or
    the kernel tells how it ended, so do we."""
    pid = start_orphan(tmp_path)
    await until(lambda: os.getsid(pid) == pid)
    process = seen.runner.find("orphan")
    assert process is not None
    assert process.pid == pid
    seen.runner.adopt("orphan", process)
    assert seen.runner.survivors("orphan", process) == (pid,)
    seen.runner.signal("orphan", process, signal.SIGKILL)
    status = await seen.exit_of("orphan")
    assert status.signal == (signal.SIGKILL if status.observed else 0)
    assert not status.oom


async def test_adopting_what_is_gone_says_so(seen: Seen) -> None:
    """A pid of nobody, a pid of another process, a process of another boot."""
    boot = proctable.boot_id()
    seen.runner.adopt("nobody", Process(a_dead_pid(), 1, boot))
    seen.runner.adopt("another", Process(os.getpid(), 1, boot))
    me = proctable.read_entry(os.getpid())
    assert me is not None
    seen.runner.adopt("boot", Process(os.getpid(), me.start_ticks, "another boot"))
    for task in ("nobody", "another", "boot"):
        assert await seen.exit_of(task) == ExitStatus(observed=False)
    assert seen.runner.survivors("boot", Process(os.getpid(), me.start_ticks, "other")) == ()


async def test_only_the_tasks_own_processes_are_found(seen: Seen) -> None:
    """Neither those of another task nor those of another agent on the machine, though it be a task
    of the same name; and never ourselves."""
    mine = seen.launch("job/r/0#1", "sleep", "1000")
    other = seen.launch("job/r/0#2", "sleep", "1000")
    foreign = start_foreign("job/r/0#1")
    try:
        assert seen.runner.survivors("job/r/0#1", mine) == (mine.pid,)
        assert seen.runner.survivors("job/r/0#1", None) == (mine.pid,)
        seen.runner.signal("job/r/0#1", mine, signal.SIGKILL)
        await seen.exit_of("job/r/0#1")
        assert foreign.poll() is None
        assert seen.runner.survivors("job/r/0#2", other) == (other.pid,)
    finally:
        foreign.kill()
        foreign.wait()
        seen.runner.signal("job/r/0#2", other, signal.SIGKILL)
        await seen.exit_of("job/r/0#2")


async def test_output_that_cannot_be_written_is_not_the_users_error(tmp_path: Path) -> None:
    """The log directory is gone: the launch fails, as nobody's fault."""
    runner = PosixRunner(AGENT, owns_process=False)
    spec = LaunchSpec("t", ("true",), {}, "", tmp_path / "no/out", tmp_path / "no/err")
    with pytest.raises(LaunchError, match="no/out") as caught:
        runner.launch(spec)
    assert not caught.value.user_error
    runner.close()


def test_orphans_come_to_the_agent_and_are_reaped(tmp_path: Path) -> None:
    """With `owns_process` a double-forked process becomes a child of the agent's, not init's; once
    it ends, `collect` reaps it. In a process of its own, as this is a setting for ever."""
    code = f"""
import asyncio, os, pathlib, signal, sys
from coord.agent.ports import LaunchSpec
from coord.agent.proctable import read_entry
from coord.agent.runner import PosixRunner
root = pathlib.Path({str(tmp_path)!r})

async def main():
    runner = PosixRunner({AGENT!r}, owns_process=True)
    spec = LaunchSpec('t', ('sh', '-c', 'setsid sleep 1000 & echo $! > {tmp_path}/pid'),
                      dict(os.environ, COORD_TASK='t', COORD_AGENT={AGENT!r}), '',
                      root / 'out', root / 'err')
    ended = asyncio.Event()
    runner.on_exit(lambda task, status: ended.set())
    process = runner.launch(spec)
    await ended.wait()
    while not (pids := runner.survivors('t', process)):
        await asyncio.sleep(0.005)
    entry = read_entry(pids[0])
    assert entry.parent == os.getpid(), entry
    runner.signal('t', process, signal.SIGKILL)
    while read_entry(pids[0]) is not None:
        runner.collect()
        await asyncio.sleep(0.005)
    print('reaped')

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("reaped\n", "")


def test_an_ignored_sigchld_is_not_inherited(tmp_path: Path) -> None:
    """Some parents ignore SIGCHLD; then every child would seem to exit with 0."""
    code = f"""
import asyncio, os, pathlib, signal
from coord.agent.ports import LaunchSpec
from coord.agent.runner import PosixRunner
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
root = pathlib.Path({str(tmp_path)!r})

async def main():
    runner = PosixRunner({AGENT!r}, owns_process=True)
    ended = asyncio.get_running_loop().create_future()
    runner.on_exit(lambda task, status: ended.set_result(status.exit_code))
    command = ('sh', '-c', 'exit 3')
    runner.launch(LaunchSpec('t', command, dict(os.environ), '', root / 'o', root / 'e'))
    print(await ended)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


class Stubborn:
    """A runner whose one process cannot be killed, until told that it can."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.left: tuple[int, ...] = (7,)

    def survivors(self, task: str, process: Process | None) -> tuple[int, ...]:
        return self.left

    def signal(self, task: str, process: Process | None, number: int) -> tuple[int, ...]:
        self.signals.append(number)
        return self.left


class Listener:
    def __init__(self) -> None:
        self.gone = 0
        self.unkillable: list[int] = []

    def on_gone(self, task: str) -> None:
        self.gone += 1

    def on_unkillable(self, task: str, pid: int) -> None:
        self.unkillable.append(pid)


async def test_what_outlives_sigkill_is_called_unkillable_and_awaited() -> None:
    """Told once, its pid named; when it goes after all, the task is gone."""
    runner, listener = Stubborn(), Listener()
    now = asyncio.get_running_loop().time()
    ending = Ending("t", None, runner, listener, 0.05, now + 0.02)  # type: ignore[arg-type]
    running = asyncio.create_task(ending.run())
    await until(lambda: listener.unkillable)
    assert runner.signals[:2] == [signal.SIGTERM, signal.SIGKILL]
    assert listener.gone == 0
    ending.main_exited()
    runner.left = ()
    await running
    assert (listener.gone, listener.unkillable) == (1, [7])
    assert runner.signals.count(signal.SIGTERM) == 1


def test_an_oom_kill_explains_one_sigkill() -> None:
    """Each kill that the kernel counted explains one exit, for a few seconds."""
    count = 4
    watch = OomWatch(lambda: count)
    assert not watch.explains(0.0)
    count = 6
    assert [watch.explains(1.0), watch.explains(1.0), watch.explains(1.0)] == [True, True, False]
    count = 7
    watch.look(2.0)
    assert not watch.explains(60.0)


def test_where_oom_kills_are_counted(tmp_path: Path) -> None:
    """The own cgroup's events where they can be read, else the whole machine's."""
    cgroup = tmp_path / "cgroup"
    cgroup.write_text("4:memory:/old\n0::/slice/agent\n")
    assert counter_file(str(cgroup), str(tmp_path)) == Path("/proc/vmstat")
    events = tmp_path / "slice/agent/memory.events"
    events.parent.mkdir(parents=True)
    events.write_text("low 0\nhigh 3\nmax 2\noom 1\noom_kill 5\noom_group_kill 0\n")
    assert counter_file(str(cgroup), str(tmp_path)) == events
    assert read_kills(events) == 5
    assert read_kills(Path("/proc/vmstat")) >= 0


async def test_a_name_with_spaces_and_parentheses_is_read(seen: Seen, tmp_path: Path) -> None:
    """The process table survives what programs call themselves."""
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    process = seen.launch("t", str(program), "1000")
    entry = proctable.read_entry(process.pid)
    assert entry is not None
    assert (entry.session, entry.start_ticks) == (process.pid, process.start_ticks)
    seen.runner.signal("t", process, signal.SIGKILL)
    await seen.exit_of("t")


async def test_a_zombie_leader_with_live_threads_is_alive(seen: Seen, tmp_path: Path) -> None:
    """A main thread that ended while another works on does not make the process dead."""
    ready = tmp_path / "ready"
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        f"open({str(ready)!r}, 'w').write('up\\n')\n"
        "ctypes.CDLL(None).syscall(60, 0)"
    )
    process = seen.launch("t", *python(code))
    await until_file(ready)

    def leader_is_zombie() -> bool:
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"

    await until(leader_is_zombie)
    assert seen.runner.survivors("t", process) == (process.pid,)
    assert not seen.exits
    seen.runner.signal("t", process, signal.SIGKILL)
    assert (await seen.exit_of("t")).signal == signal.SIGKILL
