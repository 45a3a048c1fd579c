"""What training code imports: progress, checkpoints, requests to stop.

    from coord import worker

    state = load(worker.restore_shard()) if worker.restore_path() else fresh()
    while not worker.should_stop():
        ...one step...
        worker.progress(step)
        if step % 100 == 0:
            with worker.checkpoint(step) as shard:
                save(state, shard.path)

Started by an agent, it speaks with it over COORD_SOCKET; started otherwise, the same code runs and
nothing is reported. Nothing here stops training: what cannot be reported is said once on stderr,
unless the caller asks for an error. Only the standard library is used, and signals are left alone.
Any thread may call; a forked child has no connection of its own and reports nothing.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from coord.worker_link import Away, Link, Refused, await_rank

__all__ = [
    "Checkpoint", "CheckpointNotRecorded", "Weights", "WeightsNotRecorded", "checkpoint",
    "generation", "install_sigterm_flag", "progress", "publish_weights", "rank", "restore_path",
    "restore_shard", "should_stop", "stand_by", "weights", "weights_loaded", "world_size",
]  # fmt: skip

PROGRESS_PERIOD_S = 0.02
"""Steps that follow each other faster are told together, as the newest."""
STOP_PERIOD_S = 0.05
"""How often the agent is asked at most whether to stop."""
ANSWER_S = 0.25
"""How long the agent may take to connect, or to answer what it can answer at once."""
AWAY_S = 0.25
AWAY_LIMIT_S = 8.0
"""After a failure the agent is left alone for so long: doubled with each, up to the limit."""
FLUSH_S = 0.2
"""How long the end of the program may wait for the newest step to be told."""
RECORDED_S = 10.0
"""How long recording one checkpoint, or version of the weights, may hold up training."""


class CheckpointNotRecorded(RuntimeError):
    """The coordinator did not record this checkpoint, or nobody knows. The file is written."""


class WeightsNotRecorded(RuntimeError):
    """The coordinator did not record what was said of these weights, or nobody knows."""


class Weights(NamedTuple):
    """A version of the job's weights, and where they are."""

    version: int
    uri: str


class Checkpoint:
    """A checkpoint being written. `path` is where this rank's shard goes: an ordinary file, under a
    name for the time being; it gets its own when it is whole and durable."""

    def __init__(self, step: int, directory: str, shard: str) -> None:
        self.step = step
        self.directory = directory
        self.shard = shard
        self.path = os.path.join(directory, f".{shard}.part")


# Who we are


def rank() -> int:
    """This task's number within its gang, from 0; 0 outside an agent."""
    return _number("RANK", 0)


def world_size() -> int:
    """How many ranks the gang has; 1 outside an agent."""
    return _number("WORLD_SIZE", 1)


def generation() -> int:
    """How often the gang has been placed, from 1; 0 outside an agent."""
    return _number("COORD_GENERATION", 0)


def restore_path() -> str | None:
    """Directory of the checkpoint to start from, as an absolute path; None for a fresh start."""
    return os.environ.get("COORD_RESTORE") or None


def restore_shard(of_rank: int | None = None) -> str | None:
    """The file that a rank (this one, unless given) saved in that checkpoint; None for a fresh
    start. After a resize there may be none for this rank: name one that there was."""
    directory = restore_path()
    if directory is None:
        return None
    return os.path.join(directory, _shard_name(rank() if of_rank is None else of_rank))


def stand_by() -> bool:
    """Wait, in a hot spare, until this process takes a rank: call it once all is imported, before
    anything is asked of this module. At once True in any other task, and outside an agent.

    Then `os.environ`, and with it `rank()`, `restore_path()` and all else here, is that of the
    rank. False: the process is to end, and never had one. Read the environment after this call.
    """
    if not os.environ.get("COORD_STANDBY"):
        return True
    path, task = _address()
    try:
        env = await_rank(path, task, lambda: bool(_flagged)) if path and task else None
    except Refused as refused:
        _warn(str(refused))
        env = None
    if env is None:
        return False
    del os.environ["COORD_STANDBY"]
    os.environ.update(env)
    return True


# What to tell


def progress(step: int, **metrics: float) -> None:
    """Tell that `step` is finished. Takes microseconds, never fails, never waits for anybody.

    Of steps in quick succession only the newest is told. `busy_s` is what this rank worked on the
    step without waiting for others: it tells slow ranks apart. Other metrics go no further.
    """
    session = _session()
    if session is not None:
        session.progress(int(step), metrics.get("busy_s", 0.0))


def should_stop() -> bool:
    """Whether this task is to end soon: save, then leave. Once true, always true.

    The answer may be STOP_PERIOD_S old; while the agent cannot be asked it is the last one known.
    """
    if _flagged:
        return True
    session = _session()
    return session is not None and session.should_stop()


def install_sigterm_flag() -> None:
    """Let SIGTERM make `should_stop` true instead of ending the program at once.

    Only for the main thread. A handler the program had set before is still called.
    """
    import signal

    before = signal.getsignal(signal.SIGTERM)

    def flag(number: int, frame: object) -> None:
        _flagged.append(number)
        if callable(before):
            before(number, frame)  # type: ignore[arg-type]

    signal.signal(signal.SIGTERM, flag)


@contextmanager
def checkpoint(
    step: int,
    *,
    directory: str | None = None,
    required: bool = False,
    timeout_s: float = RECORDED_S,
) -> Iterator[Checkpoint]:
    """Save this rank's part of the checkpoint of `step`: write a file at `.path` within the block.

    Every rank enters with the same step. After the block the file is synced, digested (SHA-256),
    renamed to `rank-NNNNN.bin` in the step's directory, and reported; the checkpoint counts once
    every rank has reported. An exception inside the block leaves nothing behind and goes on.

    `directory` (default COORD_CHECKPOINT_DIR, else `checkpoints`) must be visible to all ranks.
    Where nothing could be recorded within `timeout_s` in all, stderr says so and training goes on;
    with `required`, CheckpointNotRecorded is raised. FileNotFoundError: the block wrote no file at
    `.path`.
    """
    root = directory or os.environ.get("COORD_CHECKPOINT_DIR") or "checkpoints"
    name = f"step-{step:010d}-gen-{generation()}"
    saving = Checkpoint(step, os.path.join(os.path.abspath(root), name), _shard_name(rank()))
    os.makedirs(saving.directory, exist_ok=True)
    report = _Recording(f"checkpoint of step {step}", CheckpointNotRecorded, required, timeout_s)
    about = {"step": step, "path": saving.directory}
    report.send({"type": "checkpoint_begun", **about})
    try:
        yield saving
        digest, size_bytes = _make_durable(saving)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(saving.path)
        raise
    shard = {"shard": saving.shard, "digest": digest, "size_bytes": size_bytes}
    report.send({"type": "shard_saved", **about, **shard})


# Weights, from who trains them to who works with them


def weights() -> Weights | None:
    """The newest that were published when this task was placed; None: nobody had published any.

    A trainer goes on counting from there, also when it starts from a checkpoint before them.
    """
    version = _number("COORD_WEIGHTS_VERSION", 0)
    return Weights(version, os.environ.get("COORD_WEIGHTS_URI", "")) if version > 0 else None


def publish_weights(
    version: int, uri: str, *, step: int, required: bool = False, timeout_s: float = RECORDED_S
) -> None:
    """Tell that the weights of `step` are whole and durable at `uri`, as this version.

    Versions grow within the job, whoever publishes. What is refused, because this task has been
    replaced or the version is not new, or is not recorded within `timeout_s`, stderr says; with
    `required`, WeightsNotRecorded is raised.
    """
    report = _Recording(
        f"version {version} of the weights", WeightsNotRecorded, required, timeout_s
    )
    request = {"type": "weights_published", "version": version, "step": step, "uri": uri}
    report.send(request)


def weights_loaded(version: int, *, timeout_s: float = RECORDED_S) -> None:
    """Tell that this task works with that version from now on. Never fails."""
    report = _Recording(f"having version {version}", WeightsNotRecorded, False, timeout_s)
    report.send({"type": "weights_loaded", "version": version})


# Files


def _shard_name(of_rank: int) -> str:
    return f"rank-{of_rank:05d}.bin"


def _make_durable(saving: Checkpoint) -> tuple[str, int]:
    """Sync the shard, give it its name, sync the directory; (SHA-256 in hex, size in bytes)."""
    import hashlib

    if not os.path.exists(saving.path):
        raise FileNotFoundError(
            f"checkpoint({saving.step}): nothing was written to {saving.path}; write to exactly "
            "this path (numpy.save and savez add an ending to a name; give them an open file)"
        )
    with open(saving.path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size_bytes = os.fstat(file.fileno()).st_size
        os.fsync(file.fileno())
    os.replace(saving.path, os.path.join(saving.directory, saving.shard))
    # The shard's name is in the directory, the directory's own in its parent.
    for path in (saving.directory, os.path.dirname(saving.directory)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return digest, size_bytes


# The conversation with the agent


class _Session:
    """This process's progress and its wish to know whether to stop.

    A step is sent from the caller's thread over the connection there is. A thread of ours makes
    connections, sends what came too soon after another, and sends again what a dead agent may not
    have read.
    """

    def __init__(self, path: str, task: str) -> None:
        self._link = Link(path, task)
        self._wake = threading.Condition()
        self._newest: int | None = None
        """The newest step that no answer confirms."""
        self._unsent = False
        self._busy_us = 0
        self._send_at = self._ask_at = self._away_until = 0.0
        self._away_s = AWAY_S
        self._stop = False
        self._thread: threading.Thread | None = None

    def progress(self, step: int, busy_s: float) -> None:
        with self._wake:
            self._newest, self._unsent = step, True
            self._busy_us += int(busy_s * 1_000_000) if 0 < busy_s < 1_000_000 else 0
            now = time.monotonic()
            if self._thread is None:
                # The very first: worth a moment, so that it is told even if the program dies next.
                self._reach(now)
                self._thread = threading.Thread(target=self._run, name="coord.worker", daemon=True)
                self._thread.start()
            if now >= self._send_at and self._link.connected:
                self._tell(now)
            self._wake.notify()

    def should_stop(self) -> bool:
        with self._wake:
            now = time.monotonic()
            if not self._stop and now >= self._ask_at:
                self._ask_at = now + STOP_PERIOD_S
                if self._reach(now):
                    self._ask(now)
            return self._stop

    def flush(self, pid: int, timeout_s: float) -> None:
        """Tell what is not told yet, before process `pid` ends."""
        if os.getpid() != pid:
            return
        with self._wake:
            deadline = time.monotonic() + timeout_s
            if self._unsent and self._reach(time.monotonic()):
                self._tell(time.monotonic())
            self._take_answers(deadline)

    def _run(self) -> None:
        with self._wake:
            while True:
                self._wake.wait(None if self._newest is None else PROGRESS_PERIOD_S)
                now = time.monotonic()
                if self._unsent and now >= self._send_at and self._reach(now):
                    self._tell(now)
                else:
                    self._take_answers(None)

    def _tell(self, now: float) -> None:
        try:
            busy = {"busy_us": self._busy_us} if self._busy_us else {}
            self._link.send({"type": "progress", "step": self._newest, **busy}, None)
        except Away:
            self._lost()
            return
        self._unsent = False
        self._send_at = now + PROGRESS_PERIOD_S
        self._take_answers(None)

    def _ask(self, now: float) -> None:
        try:
            self._link.send({"type": "should_stop"}, now + ANSWER_S)
        except Away:
            self._lost()
            return
        self._take_answers(now + ANSWER_S)

    def _take_answers(self, deadline: float | None) -> None:
        """Take in all answers by the deadline; without one, those that are here."""
        while self._link.connected and self._link.unanswered:
            try:
                answer = self._link.receive(deadline)
            except Away:
                self._lost()
                return
            except Refused as refused:
                _warn(str(refused))
                continue
            if answer is None:
                return
            self._heard(answer)
        if not self._unsent:
            self._newest = None

    def _heard(self, answer: dict[str, object]) -> None:
        self._stop = self._stop or bool(answer.get("stop"))
        self._ask_at = time.monotonic() + STOP_PERIOD_S
        self._away_s = AWAY_S

    def _reach(self, now: float) -> bool:
        """Connect unless connected, or failed only now; returns whether we are."""
        if self._link.connected or now < self._away_until:
            return self._link.connected
        try:
            self._link.connect(now + ANSWER_S)
            self._heard({})
        except Away:
            self._lost()
        except Refused as refused:
            _warn(str(refused))
            self._lost()
        return self._link.connected

    def _lost(self) -> None:
        """What was not answered may not have been read: it is to be said again."""
        self._link.close()
        self._unsent = self._newest is not None
        self._away_until = self._send_at = time.monotonic() + self._away_s
        self._away_s = min(self._away_s * 2, AWAY_LIMIT_S)


class _Recording:
    """What the coordinator is to record. `timeout_s` counts only while it holds up training."""

    def __init__(
        self, what: str, error: type[RuntimeError], required: bool, timeout_s: float
    ) -> None:
        self._what = what
        self._error = error
        self._required = required
        self._left_s = timeout_s
        self._path, self._task = _address()

    def send(self, request: dict[str, object]) -> None:
        """Wait until this is recorded. Raises the error if that is asked for."""
        if not self._path or not self._task:
            return
        begun = time.monotonic()
        try:
            self._exchange(request, begun + self._left_s)
        except (Away, Refused) as error:
            message = f"{self._what} is not recorded: {error}"
            if self._required:
                raise self._error(message) from error
            _warn(message)
        finally:
            self._left_s = max(self._left_s - (time.monotonic() - begun), 0.0)

    def _exchange(self, request: dict[str, object], deadline: float) -> None:
        """Say it on a connection of its own, again if the agent went away: it counts once."""
        while True:
            link = Link(self._path, self._task)
            try:
                link.connect(min(deadline, time.monotonic() + ANSWER_S))
                link.send(request, deadline)
                link.receive(deadline)
                return
            except Away:
                # An agent being replaced is back within moments.
                if time.monotonic() + AWAY_S >= deadline:
                    raise
            finally:
                link.close()
            time.sleep(AWAY_S)


_flagged: list[int] = []
_warned: list[str] = []
_sessions: dict[int, _Session | None] = {}
_making = threading.Lock()


def _session() -> _Session | None:
    """The one of this process; None outside an agent and in a forked child."""
    pid = os.getpid()
    if pid in _sessions:
        return _sessions[pid]
    with _making:
        if pid not in _sessions:
            path, task = _address()
            session = _Session(path, task) if path and task and not _sessions else None
            _sessions[pid] = session
            if session is not None:
                atexit.register(session.flush, pid, FLUSH_S)
    return _sessions[pid]


def _address() -> tuple[str, str]:
    return os.environ.get("COORD_SOCKET", ""), os.environ.get("COORD_TASK", "")


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.lstrip("-").isdigit() else default


def _warn(message: str) -> None:
    """Say it on stderr, once."""
    if message not in _warned:
        _warned.append(message)
        print(f"coord.worker: {message}", file=sys.stderr, flush=True)
