"""A rank that trains nothing and obeys the worker contract, writing down the truth about itself.

Run as a script, so that starting it imports the standard library and `coord.worker` alone. Every
line goes to a file of this process's own with one write, before and after each act; what was
written stays when the process is killed. `judge.truth` reads it.

    python rank.py --truth DIRECTORY --steps 200 --step-ms 20 --save-every 10

Lines have `what`, `at_ns` (CLOCK_MONOTONIC of this machine), `wall_ns`, and who writes; `began` has
where it restored from as well. The others: `restored` and `restore_failed`; `alive`, after each
step; `saving` before and `saved` or `not_saved` after a checkpoint; `asked` when told to stop;
`thawed`, when the process finds that it stood still; `ending`, with the exit code, as the very last
thing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from coord import worker

TICK_S = 0.05
STOOD_STILL_S = 1.0
"""A longer time between two ticks is no matter of a busy machine."""
PADDING_BYTES = 256
"""A shard has that much beside what it says about its writer."""


class Diary:
    """This process's own file."""

    def __init__(self, directory: Path) -> None:
        self.identity: dict[str, Any] = {
            "pid": os.getpid(),
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "host": os.environ.get("COORD_HOST", ""),
            "task": os.environ.get("COORD_TASK", ""),
            "generation": worker.generation(),
            "devices": _numbers(os.environ.get("COORD_DEVICES", "")),
        }
        directory.mkdir(parents=True, exist_ok=True)
        task = self.identity["task"].replace("/", "_")
        name = f"{task}@{self.identity['host']}.{os.getpid()}-{time.monotonic_ns()}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(directory / name, flags, 0o644)

    def write(self, what: str, **more: Any) -> None:
        """One line. `at_ns` is taken before it is written, so it was true then."""
        times = {"what": what, "at_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        os.write(self._file, json.dumps({**times, **self.identity, **more}).encode() + b"\n")

    def watch_for_standstill(self) -> None:
        """Never returns: for a thread of its own."""
        last_ns = time.monotonic_ns()
        while True:
            time.sleep(TICK_S)
            now_ns = time.monotonic_ns()
            if now_ns - last_ns > STOOD_STILL_S * 1e9:
                self.write("thawed", silent_ns=now_ns - last_ns)
            last_ns = now_ns


class Rank:
    """One life: restore, step, save, leave."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._diary = Diary(Path(options.truth))
        self._step = 0

    def run(self) -> int:
        """Exit code: 0 when done or asked to leave, 2 when the restore point is not whole."""
        self._diary.write(
            "began",
            restore=os.environ.get("COORD_RESTORE", ""),
            restore_step=_number(os.environ.get("COORD_RESTORE_STEP", ""), -1),
            rank=worker.rank(),
            world_size=worker.world_size(),
        )
        if self._options.stubborn:
            # Only SIGKILL ends it: what an agent promises about `exclusive` must hold for it too.
            signal.signal(signal.SIGTERM, lambda *_: self._diary.write("asked", by="signal"))
        else:
            worker.install_sigterm_flag()
        threading.Thread(target=self._diary.watch_for_standstill, daemon=True).start()
        code = 0 if self._restore() else 2
        if code == 0:
            self._train()
        self._diary.write("ending", code=code, step=self._step, done=self._done)
        return code

    @property
    def _done(self) -> bool:
        return self._step >= int(self._options.steps)

    def _restore(self) -> bool:
        directory = worker.restore_path()
        if directory is None:
            return True
        wanted = _number(os.environ.get("COORD_RESTORE_STEP", ""), -1)
        # After a resize there may be no shard of this rank: the first rank's is always there.
        own = worker.restore_shard()
        path = own if own is not None and os.path.exists(own) else worker.restore_shard(0)
        try:
            content = Path(path or "").read_bytes()
            said = json.loads(content.partition(b"\n")[0])
            step = int(said["step"])
        except (OSError, ValueError, KeyError) as error:
            self._diary.write("restore_failed", path=path, why=f"{type(error).__name__}: {error}")
            return False
        digest = hashlib.sha256(content).hexdigest()
        self._diary.write(
            "restored", path=directory, shard=path, step=step, digest=digest, by=said["task"]
        )
        self._step = step
        return step == wanted

    def _train(self) -> None:
        step_s = self._options.step_ms / 1000
        while not self._done:
            if worker.should_stop() and not self._options.stubborn:
                self._diary.write("asked", by="agent", step=self._step)
                return
            time.sleep(step_s)
            self._step += 1
            self._diary.write("alive", step=self._step)
            worker.progress(self._step)
            if self._step % self._options.save_every == 0:
                self._save()

    def _save(self) -> None:
        said = {
            "task": self._diary.identity["task"],
            "pid": os.getpid(),
            "step": self._step,
            "padding": os.urandom(PADDING_BYTES).hex(),
        }
        content = json.dumps(said).encode() + b"\n"
        about = {"step": self._step, "digest": hashlib.sha256(content).hexdigest()}
        try:
            with worker.checkpoint(self._step, required=True, timeout_s=5.0) as shard:
                about["path"] = shard.directory
                self._diary.write("saving", **about)
                Path(shard.path).write_bytes(content)
        except worker.CheckpointNotRecorded as error:
            self._diary.write("not_saved", **about, why=str(error))
        else:
            self._diary.write("saved", **about)


def _numbers(listed: str) -> list[int]:
    return [int(number) for number in listed.split(",") if number]


def _number(text: str, default: int) -> int:
    return int(text) if text.isdigit() else default


def main() -> int:
    """Parse what the job's command says and live."""
    parser = argparse.ArgumentParser(description="A rank for fault tests.")
    parser.add_argument("--truth", required=True, help="directory of the ground truth")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-ms", type=int, default=20)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--stubborn", action="store_true", help="leave at SIGKILL alone")
    return Rank(parser.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
