"""The worker library: outside an agent, against a stub of one, and when that goes away."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 20.0
IMPORTS = "import pathlib, sys\nfrom coord import worker\n"


class StubAgent:
    """Answers lines on a Unix socket; what it hears is in `lines`, hellos aside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        self.hellos: list[str] = []
        self.stop = False
        self.answer: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda line: {"ok": True}
        """What to answer; None for nothing at all."""
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        self._go(self._accept, self._listener)

    def _go(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._connections.append(connection)
                self._go(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rwb") as file:
            for raw in file:
                line = json.loads(raw)
                if line["type"] == "hello":
                    self.hellos.append(line["task"])
                else:
                    self.lines.append(line)
                answer = self.answer(line)
                if answer is not None:
                    file.write(json.dumps({"stop": self.stop, **answer}).encode() + b"\n")
                    file.flush()

    def end(self) -> None:
        """As if killed: every connection breaks."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._connections.clear()
        self._threads.clear()

    def steps(self) -> list[int]:
        return [line["step"] for line in self.lines if line["type"] == "progress"]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[StubAgent]:
    stub = StubAgent(tmp_path / "a.sock")
    stub.start()
    yield stub
    stub.end()


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A worker that runs this code and ends."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTS + code],
        env={**os.environ, **env},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def start(code: str, **env: str) -> subprocess.Popen[str]:
    """A worker that reads lines from its stdin."""
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            "import pathlib, sys\nfrom coord import worker\n" + code,
        ],
        env={**os.environ, **env},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=1,
    )


def inside(agent: StubAgent, **env: str) -> dict[str, str]:
    return {"COORD_SOCKET": str(agent.path), "COORD_TASK": "job/role/0#2", **env}


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def test_the_import_is_quick_and_brings_only_the_standard_library() -> None:
    """Everything that importing it loads is in the standard library, and it takes under 50 ms of
    processor time; the best of several tries counts, because the machine may be busy."""
    code = (
        "import sys, time\n"
        "before = set(sys.modules)\n"
        "begun = time.process_time()\n"
        "import coord.worker\n"
        "print(time.process_time() - begun)\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'coord'}))"
    )
    seconds = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", code], text=True, capture_output=True, timeout=60, check=True
        )
        took, others = done.stdout.splitlines()
        assert others == "[]"
        seconds.append(float(took))
    assert min(seconds) < 0.05


def test_outside_an_agent_everything_is_harmless(tmp_path: Path) -> None:
    """Nothing is reported, nothing is printed, a checkpoint is still a file."""
    code = (
        "worker.progress(1, loss=0.5)\n"
        "assert worker.should_stop() is False\n"
        "assert worker.restore_path() is None and worker.restore_shard() is None\n"
        "assert (worker.rank(), worker.world_size(), worker.generation()) == (0, 1, 0)\n"
        f"with worker.checkpoint(7, directory={str(tmp_path)!r}) as shard:\n"
        "    pathlib.Path(shard.path).write_bytes(b'weights')\n"
    )
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "step-0000000007-gen-0" / "rank-00000.bin").read_bytes() == b"weights"


def test_where_to_restore_from_is_in_the_environment() -> None:
    """The directory, and this or any rank's shard in it."""
    done = run(
        "print(worker.restore_path(), worker.restore_shard(), worker.restore_shard(0))",
        COORD_RESTORE="/c/step-0000000010-gen-1",
        RANK="3",
    )
    assert done.stdout.split() == [
        "/c/step-0000000010-gen-1",
        "/c/step-0000000010-gen-1/rank-00003.bin",
        "/c/step-0000000010-gen-1/rank-00000.bin",
    ]


def test_progress_is_told_even_if_the_program_dies_next(agent: StubAgent) -> None:
    """The first step is on its way when `progress` returns."""
    run("import os\nworker.progress(5)\nos._exit(1)", **inside(agent))
    until(lambda: agent.steps() == [5])
    assert agent.hellos == ["job/role/0#2"]


def test_what_it_worked_is_added_up_whatever_is_given(agent: StubAgent) -> None:
    """Seconds of each step; what is no time at all counts nothing and breaks nothing."""
    given = "(0.5, 0.25, float('nan'), -1, float('inf'), 0)"
    run(
        f"for step, busy in enumerate({given}): worker.progress(step, busy_s=busy)", **inside(agent)
    )
    until(lambda: agent.steps()[-1:] == [5])
    assert [line for line in agent.lines if line["type"] == "progress"][-1]["busy_us"] == 750_000


def test_quick_steps_are_told_together_and_the_newest_is_never_lost(agent: StubAgent) -> None:
    """Thousands of steps become few lines, and the last one comes before the program ends."""
    done = run("for step in range(5_000): worker.progress(step)", **inside(agent))
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: agent.steps()[-1:] == [4_999])
    assert len(agent.steps()) < 1_000
    assert agent.steps() == sorted(agent.steps())


def test_a_late_step_is_told_without_another_call(agent: StubAgent) -> None:
    """Two steps in a row, then silence: the second is told all the same."""
    with start(
        "for step in (1, 2): worker.progress(step)\nsys.stdin.readline()", **inside(agent)
    ) as child:
        until(lambda: agent.steps()[-1:] == [2])
        child.communicate("\n", timeout=60)
    assert child.returncode == 0


def test_a_new_agent_hears_the_newest_step(agent: StubAgent) -> None:
    """What was said to an agent that died is said again to the one that takes its place."""
    code = "for line in sys.stdin: worker.progress(int(line)); print(line.strip(), flush=True)"
    with start(code, **inside(agent)) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("1\n")
        until(lambda: agent.steps() == [1])
        agent.end()
        child.stdin.write("2\n")
        assert [child.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
        agent.start()
        until(lambda: agent.steps()[-1:] == [2])
        child.stdin.write("3\n")
        until(lambda: agent.steps()[-1:] == [3])
        _, stderr = child.communicate(timeout=60)
    assert (child.returncode, stderr) == (0, "")


def test_a_mute_agent_holds_nobody_up(agent: StubAgent) -> None:
    """An agent that takes lines and never answers costs some hundred milliseconds in all."""
    agent.answer = lambda line: None
    code = (
        "import time\n"
        "begun = time.monotonic()\n"
        "for step in range(2_000): worker.progress(step); worker.should_stop()\n"
        "print(time.monotonic() - begun)"
    )
    done = run(code, **inside(agent))
    assert done.returncode == 0
    assert float(done.stdout) < 5.0


def test_a_stop_order_is_seen_and_kept(agent: StubAgent) -> None:
    """`should_stop` turns true, and stays so when the agent is gone."""
    code = (
        "while not worker.should_stop(): pass\n"
        "print('stopping', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(worker.should_stop())"
    )
    with start(code, **inside(agent)) as child:
        assert child.stdout is not None
        until(lambda: agent.lines)
        agent.stop = True
        assert child.stdout.readline() == "stopping\n"
        agent.end()
        stdout, _ = child.communicate("\n", timeout=60)
    assert stdout == "True\n"


def test_sigterm_sets_the_flag_only_when_asked_to() -> None:
    """Without `install_sigterm_flag` signals are left alone; with it a handler set before is still
    called."""
    code = (
        "import os, signal\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
        "worker.install_sigterm_flag()\n"
        "assert not worker.should_stop()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(worker.should_stop())"
    )
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "mine\nTrue\n")


SAVE = (
    "with worker.checkpoint(20{more}) as shard:\n"
    "    pathlib.Path(shard.path).write_bytes(b'weights')\n"
    "print('after')"
)


def test_a_checkpoint_is_begun_written_and_reported(agent: StubAgent, tmp_path: Path) -> None:
    """Begin comes before the file, the shard's report after it is whole under its own name."""
    seen: list[bool] = []
    shard = tmp_path / "step-0000000020-gen-2" / "rank-00001.bin"

    def answer(line: dict[str, Any]) -> dict[str, Any]:
        if line["type"] != "hello":
            seen.append(shard.exists())
        return {"ok": True}

    agent.answer = answer
    env = inside(agent, COORD_CHECKPOINT_DIR=str(tmp_path), COORD_GENERATION="2", RANK="1")
    done = run(SAVE.format(more=""), **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "after\n", "")
    assert agent.lines == [
        {"type": "checkpoint_begun", "step": 20, "path": str(shard.parent)},
        {
            "type": "shard_saved",
            "step": 20,
            "path": str(shard.parent),
            "shard": "rank-00001.bin",
            "digest": hashlib.sha256(b"weights").hexdigest(),
            "size_bytes": 7,
        },
    ]
    assert seen == [False, True]
    assert [path.name for path in shard.parent.iterdir()] == ["rank-00001.bin"]


def test_a_refused_checkpoint_is_said_and_training_goes_on(
    agent: StubAgent, tmp_path: Path
) -> None:
    """By default on stderr; as an exception only where asked for."""
    agent.answer = lambda line: {"ok": line["type"] == "hello", "error": "task_stopping"}
    env = inside(agent, COORD_CHECKPOINT_DIR=str(tmp_path))
    done = run(SAVE.format(more=""), **env)
    assert (done.returncode, done.stdout) == (0, "after\n")
    assert done.stderr == "coord.worker: checkpoint of step 20 is not recorded: task_stopping\n"
    strict = run(SAVE.format(more=", required=True"), **env)
    assert strict.returncode == 1
    assert "CheckpointNotRecorded: checkpoint of step 20 is not recorded" in strict.stderr


PUBLISH = "worker.publish_weights(3, 'file:/w/3', step=20{more})\nprint('after')"


def test_weights_are_told_with_their_version(agent: StubAgent) -> None:
    """Who trains says where they are, who works with them which ones it has."""
    both = "worker.publish_weights(3, 'file:/w/3', step=20)\nworker.weights_loaded(3)"
    done = run(both, **inside(agent))
    assert (done.returncode, done.stderr) == (0, "")
    assert agent.lines == [
        {"type": "weights_published", "version": 3, "step": 20, "uri": "file:/w/3"},
        {"type": "weights_loaded", "version": 3},
    ]


def test_refused_weights_are_said_and_training_goes_on(agent: StubAgent) -> None:
    """By default on stderr; as an exception only where asked for."""
    agent.answer = lambda line: {"ok": line["type"] == "hello", "error": "version_went_back"}
    done = run(PUBLISH.format(more=""), **inside(agent))
    assert (done.returncode, done.stdout) == (0, "after\n")
    said = "coord.worker: version 3 of the weights is not recorded: version_went_back\n"
    assert done.stderr == said
    strict = run(PUBLISH.format(more=", required=True"), **inside(agent))
    assert strict.returncode == 1
    assert "WeightsNotRecorded: version 3 of the weights is not recorded" in strict.stderr


def test_the_newest_weights_are_in_the_environment() -> None:
    """None where nobody had published any, and outside an agent."""
    code = "print(worker.weights())"
    assert run(code).stdout == "None\n"
    known = run(code, COORD_WEIGHTS_VERSION="7", COORD_WEIGHTS_URI="file:/w/7")
    assert known.stdout == "Weights(version=7, uri='file:/w/7')\n"


def test_without_an_agent_a_checkpoint_gives_up_in_time(tmp_path: Path) -> None:
    """The agent's socket is there no more: the file is written, the wait is bounded."""
    env = {"COORD_SOCKET": str(tmp_path / "no.sock"), "COORD_TASK": "job/role/0#2"}
    begun = time.monotonic()
    done = run(SAVE.format(more=", timeout_s=0.3"), **env, COORD_CHECKPOINT_DIR=str(tmp_path / "c"))
    assert (done.returncode, done.stdout) == (0, "after\n")
    assert "is not recorded: no agent at" in done.stderr
    assert time.monotonic() - begun < 10
    assert len(list((tmp_path / "c").glob("*/rank-00000.bin"))) == 1


def test_a_checkpoint_survives_a_change_of_agents(agent: StubAgent, tmp_path: Path) -> None:
    """An agent that dies with the report in hand is replaced; the report is made to the new one."""
    agent.answer = lambda line: {"ok": True} if line["type"] == "hello" else None
    env = inside(agent, COORD_CHECKPOINT_DIR=str(tmp_path))
    with start(SAVE.format(more=", required=True"), **env) as child:
        until(lambda: agent.lines)
        agent.end()
        agent.lines.clear()
        agent.answer = lambda line: {"ok": True}
        agent.start()
        stdout, stderr = child.communicate(timeout=60)
    assert (child.returncode, stdout, stderr) == (0, "after\n", "")
    assert [line["type"] for line in agent.lines] == ["checkpoint_begun", "shard_saved"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise KeyError('user')", "KeyError: 'user'"),
        (
            "pathlib.Path(shard.path + '.npy').touch()",
            "checkpoint(20): nothing was written",
        ),
        (
            "open(shard.path, 'x').close(); raise KeyError('user')",
            "KeyError: 'user'",
        ),
    ],
)
def test_a_failed_block_reports_no_shard(
    agent: StubAgent, tmp_path: Path, body: str, error: str
) -> None:
    """The exception goes on, and neither a shard nor half of one is left under its name."""
    env = inside(agent, COORD_CHECKPOINT_DIR=str(tmp_path))
    done = run(f"with worker.checkpoint(20) as shard:\n    {body}", **env)
    assert done.returncode == 1
    assert error in done.stderr
    assert [line["type"] for line in agent.lines] == ["checkpoint_begun"]
    assert not [path for path in tmp_path.rglob("*rank*") if path.suffix != ".npy"]


def test_a_forked_child_says_nothing(agent: StubAgent) -> None:
    """Helpers that a program forks do not speak for its rank."""
    code = (
        "import os\n"
        "worker.progress(1)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    worker.progress(99)\n"
        "    sys.exit(0) if worker.should_stop() is False else os._exit(3)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "worker.progress(2)"
    )
    done = run("import sys\n" + code, **inside(agent))
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: agent.steps()[-1:] == [2])
    assert 99 not in agent.steps()


# Hot spares

STANDS_BY = "print(worker.stand_by(), worker.rank(), worker.world_size(), worker.generation())"


def test_who_is_no_hot_spare_does_not_wait(agent: StubAgent) -> None:
    """Outside an agent, and in a rank."""
    assert run(STANDS_BY).stdout == "True 0 1 0\n"
    assert run(STANDS_BY, **inside(agent, RANK="1", WORLD_SIZE="2")).stdout == "True 1 2 0\n"
    assert agent.lines == []


def test_a_hot_spare_asks_until_it_has_a_rank(agent: StubAgent) -> None:
    """Also while its agent is replaced. Then it is that rank, in all that the library says."""
    env = {"RANK": "3", "WORLD_SIZE": "4", "COORD_GENERATION": "7"}
    process = start(STANDS_BY, **inside(agent, COORD_STANDBY="1"))
    with process:
        until(lambda: len(agent.lines) >= 2)
        agent.end()
        agent.answer = lambda line: (
            {"ok": True, "env": env} if line["type"] == "stand_by" else {"ok": True}
        )
        agent.start()
        out, errors = process.communicate(timeout=PATIENCE_S)
    assert (out, errors) == ("True 3 4 7\n", "")
    assert {line["type"] for line in agent.lines} == {"stand_by"}


def test_a_hot_spare_that_is_to_end_or_unknown_never_has_a_rank(agent: StubAgent) -> None:
    agent.stop = True
    assert run(STANDS_BY, **inside(agent, COORD_STANDBY="1")).stdout == "False 0 1 0\n"
    agent.stop = False
    agent.answer = lambda line: {"ok": False, "error": "job/role/0#2 is not running here"}
    refused = run(STANDS_BY, **inside(agent, COORD_STANDBY="1"))
    assert refused.stdout == "False 0 1 0\n"
    assert "is not running here" in refused.stderr
