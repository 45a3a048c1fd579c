"""What workers say over the socket, well or badly, and what the coordinator hears of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import string
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coord.agent.daemon import Daemon
from coord.agent.records import Phase
from coord.client.inbox import Superseded
from coord.model.events import (
    CheckpointBegun,
    ProgressReported,
    ShardSaved,
    TaskExited,
    WeightsLoaded,
    WeightsPublished,
)
from coord.model.rejections import Rejection
from tests.agent.support import (
    HOST,
    FakeChannel,
    config_for,
    key,
    order,
    plan,
    python,
    running,
    stop_order,
    until,
)


class Connection:
    """A worker's end, as raw as any language has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._reader.readline(), 20)
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def say(self, **line: object) -> dict[str, Any]:
        self.write(json.dumps(line).encode() + b"\n")
        return await self.read()

    async def ended(self) -> bool:
        return await asyncio.wait_for(self._reader.read(), 20) == b""


@contextlib.asynccontextmanager
async def connected(daemon: Daemon, task: str = "") -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_unix_connection(str(daemon.socket_path))
    connection = Connection(reader, writer)
    if task:
        assert (await connection.say(type="hello", task=task))["ok"]
    try:
        yield connection
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def with_a_task(tmp_path: Path) -> AsyncIterator[tuple[FakeChannel, Daemon]]:
    channel = FakeChannel()
    channel.lease_deadline = asyncio.get_running_loop().time() + 60
    async with running(config_for(tmp_path, stop_tasks=True), channel) as daemon:
        channel.deliver(plan(order(("sleep", "1000"), grace_ms=0), version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted"])
        yield channel, daemon


def steps(channel: FakeChannel) -> list[int]:
    return [event.step for event in channel.events if isinstance(event, ProgressReported)]


async def test_progress_is_thinned_out_and_the_newest_arrives(tmp_path: Path) -> None:
    """Of a thousand steps in no time the first goes out at once and the newest soon after."""
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        for step in range(1_000):
            assert await worker.say(type="progress", step=step) == {"ok": True, "stop": False}
        await until(lambda: steps(channel)[-1:] == [999])
        assert steps(channel)[0] == 0
        assert len(steps(channel)) < 20


async def test_what_a_rank_worked_is_reported_since_the_report_before(tmp_path: Path) -> None:
    """Workers tell the sum of all their steps, so that nothing is lost with a line in between."""
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        for step in range(1, 101):
            await worker.say(type="progress", step=step, busy_us=step * 1_000)
        await until(lambda: steps(channel)[-1:] == [100])
        told = [event for event in channel.events if isinstance(event, ProgressReported)]
        assert told[0].busy_us == 1_000
        assert sum(event.busy_us for event in told) == 100_000


async def test_progress_during_an_outage_is_one_report(tmp_path: Path) -> None:
    """While the coordinator decides nothing, steps do not pile up."""
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        channel.reachable.clear()
        for step in range(5):
            await worker.say(type="progress", step=step)
        assert len(channel.undecided) == 1
        channel.reachable.set()
        channel.decide_all()
        await until(lambda: steps(channel)[-1:] == [4])


async def test_the_last_step_comes_before_the_exit(tmp_path: Path) -> None:
    """A worker that says a step and dies at once: the step is told, and before its end."""
    code = (
        "import json, os, socket\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(os.environ['COORD_SOCKET'])\n"
        "lines = [{'type': 'hello', 'task': os.environ['COORD_TASK']}]\n"
        "lines += [{'type': 'progress', 'step': n} for n in range(500)]\n"
        "s.sendall(b''.join(json.dumps(line).encode() + b'\\n' for line in lines))\n"
        "os._exit(1)"
    )
    channel = FakeChannel()
    async with running(config_for(tmp_path), channel):
        channel.deliver(plan(order(python(code)), version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted", "TaskExited", "TaskReaped"])
        at = channel.events.index(channel.one(TaskExited, key()))
        assert steps(channel)[-1] == 499
        assert not [one for one in channel.events[at:] if isinstance(one, ProgressReported)]


async def test_a_stop_order_reaches_the_worker(tmp_path: Path) -> None:
    """Both answers that carry it do."""
    channel = FakeChannel()
    code = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(1)\ntime.sleep(999)"
    async with running(config_for(tmp_path), channel) as daemon:
        channel.deliver(plan(order(python(code)), version=1))
        output = tmp_path / "logs/job/role/0/gen-1/stdout.log"
        await until(lambda: output.exists() and output.read_text())
        async with connected(daemon, key()) as worker:
            assert await worker.say(type="should_stop") == {"ok": True, "stop": False}
            channel.deliver(plan(stop_order(grace_ms=60_000), version=2))
            await until(lambda: daemon.tasks.records[key()].stopping)
            assert await worker.say(type="should_stop") == {"ok": True, "stop": True}
            assert await worker.say(type="progress", step=3) == {"ok": True, "stop": True}
            channel.deliver(plan(stop_order(grace_ms=0), version=3))
            await until(lambda: daemon.tasks.records[key()].phase is Phase.GONE)


async def test_a_checkpoint_is_answered_once_decided(tmp_path: Path) -> None:
    """The answer waits for the coordinator and carries its refusal; what another rank said already
    is no failure."""
    saved = {"type": "shard_saved", "step": 5, "path": "/c/5", "shard": "r.bin"}
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        channel.reachable.clear()
        worker.write(b'{"type":"checkpoint_begun","step":5,"path":"/c/5"}\n')
        await until(lambda: channel.undecided)
        channel.reachable.set()
        channel.decide_all()
        assert await worker.read() == {"ok": True}
        assert await worker.say(**saved, digest="ab" * 32, size_bytes=7) == {"ok": True}
        assert channel.one(CheckpointBegun, key()) == CheckpointBegun(HOST, 1, key(), 5, "/c/5")
        assert channel.one(ShardSaved, key()) == ShardSaved(
            HOST, 1, key(), 5, "/c/5", "r.bin", "ab" * 32, 7
        )
        channel.judge = lambda event: Rejection.NOTHING_TO_DO
        assert await worker.say(type="checkpoint_begun", step=6, path="/c/6") == {"ok": True}
        channel.judge = lambda event: Rejection.STEP_WENT_BACK
        answer = await worker.say(type="checkpoint_begun", step=4, path="/c/4")
        assert not answer["ok"]
        assert "step_went_back" in answer["error"]


async def test_weights_are_answered_once_decided(tmp_path: Path) -> None:
    """Published and loaded versions reach the coordinator; its refusal reaches the worker."""
    published = {"type": "weights_published", "version": 2, "step": 5, "uri": "file:/w/2"}
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        assert await worker.say(**published) == {"ok": True}
        assert await worker.say(type="weights_loaded", version=2) == {"ok": True}
        assert channel.one(WeightsPublished, key()) == WeightsPublished(
            HOST, 1, key(), 2, 5, "file:/w/2"
        )
        assert channel.one(WeightsLoaded, key()) == WeightsLoaded(HOST, 1, key(), 2)
        channel.judge = lambda event: Rejection.STALE_GENERATION
        answer = await worker.say(**published)
        assert not answer["ok"]
        assert "stale_generation" in answer["error"]
        for wrong in ({"version": 0}, {"step": -1}, {"uri": ""}, {"version": "2"}):
            answer = await worker.say(**{**published, **wrong})
            assert not answer["ok"]
            assert next(iter(wrong)) in answer["error"]


async def test_an_outage_holds_no_checkpoint_up_for_long(tmp_path: Path) -> None:
    """No heartbeat was answered for a while: the worker is told so within moments, and the report
    is made all the same once the coordinator is back, before what follows it."""
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        channel.reachable.clear()
        channel.lease_deadline = asyncio.get_running_loop().time() + 0.1
        answer = await worker.say(type="checkpoint_begun", step=5, path="/c/5")
        assert answer == {
            "ok": False,
            "error": "the coordinator decided nothing within 1 s; it may still be recorded",
        }
        channel.reachable.set()
        channel.decide_all()
        assert channel.one(CheckpointBegun, key()).step == 5


async def test_a_checkpoint_survives_a_new_registration(tmp_path: Path) -> None:
    """The incarnation ends while a shard is being recorded: it is recorded under the next one."""
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        channel.judge = lambda event: (
            Rejection.STALE_INCARNATION if getattr(event, "incarnation", 2) < 2 else ""
        )
        worker.write(b'{"type":"checkpoint_begun","step":5,"path":"/c/5"}\n')
        await until(lambda: [one for one in channel.events if isinstance(one, CheckpointBegun)])
        channel.deliver(Superseded(1, "stale_incarnation"))
        assert await worker.read() == {"ok": True}
        begun = [one for one in channel.events if isinstance(one, CheckpointBegun)]
        assert [one.incarnation for one in begun] == [1, 2]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "not understood"),
        (b"{", "not understood"),
        (b"\xff\xfe", "not understood"),
        (b"[1]", "not understood"),
        (b'{"type":"nonsense"}', "nonsense"),
        (b'{"type":"progress"}', "step"),
        (b'{"type":"progress","step":"7"}', "step"),
        (b'{"type":"progress","step":-1}', "step is -1"),
        (b'{"type":"progress","step":1,"busy_us":-1}', "busy_us is -1"),
        (b'{"type":"progress","step":1e999}', "not understood"),
        (b'{"type":"progress","step":99999999999999999999999}', "it must be 0 to"),
        (b'{"type":"checkpoint_begun","step":1,"path":""}', "path has 0 characters"),
        (b'{"type":"shard_saved","step":1,"path":"/","shard":"s","digest":"x"}', "SHA-256"),
        (b"[" * 60_000, "not understood"),
    ],
)
async def test_a_bad_line_is_answered_and_harms_nobody(
    tmp_path: Path, line: bytes, words: str
) -> None:
    """The answer says what is wrong, and the connection goes on."""
    async with with_a_task(tmp_path) as (channel, daemon), connected(daemon, key()) as worker:
        worker.write(line + b"\n")
        answer = await worker.read()
        assert not answer["ok"]
        assert words in answer["error"]
        assert (await worker.say(type="progress", step=1))["ok"]
        await until(lambda: steps(channel) == [1])


async def test_an_endless_line_ends_its_connection_only(tmp_path: Path) -> None:
    """It is answered, cut off, and another connection is none the worse."""
    async with (
        with_a_task(tmp_path) as (_, daemon),
        connected(daemon, key()) as bad,
        connected(daemon, key()) as good,
    ):
        bad.write(b"x" * 200_000)
        answer = await bad.read()
        assert "the limit is 65536" in answer["error"]
        assert await bad.ended()
        assert (await good.say(type="should_stop"))["ok"]


async def test_only_running_tasks_are_heard(tmp_path: Path) -> None:
    """No hello, an unknown task, an older generation, one that has ended: each is told why."""
    async with with_a_task(tmp_path) as (channel, daemon):
        async with connected(daemon) as worker:
            assert "hello" in (await worker.say(type="progress", step=1))["error"]
            answer = await worker.say(type="hello", task="other/role/0#1")
            assert answer["error"] == f"other/role/0#1 is not running on host {HOST}"
        channel.deliver(plan(order(("sleep", "1000"), generation=2, grace_ms=0), version=2))
        await until(lambda: channel.of(key(generation=2)) == ["TaskStarted"])
        assert channel.of(key()) == ["TaskStarted", "TaskExited", "TaskReaped"]
        async with connected(daemon) as worker:
            await worker.say(type="hello", task=key())
            answer = await worker.say(type="progress", step=1)
            assert answer["error"] == f"{key()} is not running here; {key(generation=2)} is"
        assert steps(channel) == []


async def test_who_reads_no_answers_is_not_read_either(tmp_path: Path) -> None:
    """A worker that writes and never reads cannot fill our memory; others go on."""
    async with (
        with_a_task(tmp_path) as (_, daemon),
        connected(daemon, key()) as deaf,
        connected(daemon, key()) as good,
    ):
        deaf.write(b'{"type":"should_stop"}\n' * 20_000)
        assert (await good.say(type="should_stop"))["ok"]
        for _ in range(20_000):
            assert (await deaf.read())["ok"]


async def test_noise_never_breaks_the_agent(tmp_path: Path) -> None:
    """Random bytes, split anywhere, on many connections."""
    rng = random.Random(5)
    pieces = [
        b'{"type":"progress","step":1}\n', b'{"type":"hello","task":"x"}\n', b"\n", b'{"type":',
        b"\x00\xff", b'"}\n', string.printable.encode(),
    ]  # fmt: skip
    async with with_a_task(tmp_path) as (_, daemon):
        for _ in range(30):
            async with connected(daemon) as noisy:
                noise = b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 50)))
                noisy.write(noise[: rng.randrange(1, len(noise) + 1)])
        async with connected(daemon, key()) as worker:
            assert (await worker.say(type="should_stop"))["ok"]
