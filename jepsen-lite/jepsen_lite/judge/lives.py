"""The ground truth: what each process of a task wrote down about itself (`workloads.rank`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec


class TruthDamaged(Exception):
    """A file of the ground truth that cannot be read: names file and line."""


class Line(msgspec.Struct, gc=False):
    """One line of a rank's file. What a line does not say is at its default."""

    what: str
    at_ns: int
    wall_ns: int
    pid: int
    boot: str
    host: str
    task: str
    generation: int
    devices: tuple[int, ...] = ()
    step: int = -1
    path: str = ""
    digest: str = ""
    restore: str = ""
    restore_step: int = -1
    code: int = 0
    done: bool = False
    why: str = ""
    silent_ns: int = 0


class Shard(msgspec.Struct, frozen=True):
    """A part of a checkpoint, in the directory `path`."""

    path: str
    step: int
    digest: str


class Thaw(msgspec.Struct, frozen=True):
    """The process noticed that it, or its whole machine, had stood still for `silent_ns`."""

    at_ns: int
    silent_ns: int


class Life(msgspec.Struct):
    """One process, from its first line to its last: in between it certainly lived.

    `first_ns` and `last_ns` are CLOCK_MONOTONIC, comparable within one `boot`.
    """

    task: str
    """`job/role/index#generation`"""
    generation: int
    host: str
    devices: tuple[int, ...]
    pid: int
    boot: str
    first_ns: int
    last_ns: int
    last_wall_ns: int
    restore: str = ""
    restore_step: int = -1
    restored: Shard | None = None
    """What it read there."""
    trouble: str = ""
    """Why it could not restore."""
    written: list[Shard] = []
    """What it was about to write, and so may have."""
    recorded: list[Shard] = []
    """What the agent told it was recorded."""
    code: int | None = None
    """With what it was about to exit; None when it was killed before that."""
    done: bool = False
    """It had come to its last step."""
    thaws: list[Thaw] = []

    def thawed_late(self, since_ns: int, within_ns: int) -> bool:
        """Whether it stood still at `since_ns` already, and ended within so long after it went on
        again."""
        return any(
            thaw.at_ns - thaw.silent_ns <= since_ns and self.last_ns <= thaw.at_ns + within_ns
            for thaw in self.thaws
        )

    @property
    def seat(self) -> str:
        """The task in all its generations: `job/role/index`."""
        return self.task.rpartition("#")[0]

    @property
    def job(self) -> str:
        return self.task.partition("/")[0]

    def overlaps(self, other: Life) -> bool:
        """Whether both certainly lived at one moment, of which one clock tells."""
        if self.boot != other.boot:
            return False
        return self.first_ns <= other.last_ns and other.first_ns <= self.last_ns

    def __str__(self) -> str:
        return f"{self.task} (pid {self.pid} on {self.host})"


_LINE = msgspec.json.Decoder(Line)


def read_lives(directory: Path) -> list[Life]:
    """Every process that left a file there, in order of its first line. A last line that a kill cut
    off is passed over. Raises TruthDamaged."""
    lives = [life for path in sorted(directory.glob("*.jsonl")) for life in _read(path)]
    return sorted(lives, key=lambda life: life.first_ns)


def _read(path: Path) -> Iterator[Life]:
    texts = path.read_bytes().split(b"\n")
    texts.pop()
    life = None
    for number, text in enumerate(texts, 1):
        try:
            line = _LINE.decode(text)
        except msgspec.DecodeError as error:
            raise TruthDamaged(
                f"{path}, line {number}: {error}; ranks write whole lines, so something else wrote "
                "there: give each run a directory of its own"
            ) from error
        if life is None:
            life = _born(line)
        _take(life, line)
    if life is not None:
        yield life


def _born(line: Line) -> Life:
    return Life(
        task=line.task,
        generation=line.generation,
        host=line.host,
        devices=line.devices,
        pid=line.pid,
        boot=line.boot,
        first_ns=line.at_ns,
        last_ns=line.at_ns,
        last_wall_ns=line.wall_ns,
        restore=line.restore,
        restore_step=line.restore_step,
    )


def _take(life: Life, line: Line) -> None:
    life.last_ns = line.at_ns
    life.last_wall_ns = line.wall_ns
    shard = Shard(line.path, line.step, line.digest)
    if line.what == "saving":
        life.written.append(shard)
    elif line.what == "saved":
        life.recorded.append(shard)
    elif line.what == "restored":
        life.restored = shard
    elif line.what == "restore_failed":
        life.trouble = line.why
    elif line.what == "thawed":
        life.thaws.append(Thaw(line.at_ns, line.silent_ns))
    elif line.what == "ending":
        life.code = line.code
        life.done = line.done
