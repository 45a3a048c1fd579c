"""Random changes of files, random syncs, a power cut: against a model that is deliberately dumb."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from jepsen_lite.disks.machine import MachineDisk
from jepsen_lite.disks.undo import SECTOR_BYTES

from tests.faults.disk_cases import Writer, disk, disks

__all__ = ["disk", "disks"]

FILES = ("a", "b")
OPEN = "files = {name: os.open(name, os.O_RDWR | os.O_CREAT, 0o600) for name in 'ab'}"
DURABLE = "folder = os.open('.', os.O_RDONLY); os.fsync(folder)"


class Versions:
    """All contents that a file has had since its last sync, the durable one first."""

    def __init__(self) -> None:
        self.contents = [b""]

    @property
    def newest(self) -> bytes:
        return self.contents[-1]

    def write(self, offset: int, piece: bytes) -> None:
        newest = self.newest.ljust(offset, b"\0")
        self.contents.append(newest[:offset] + piece + newest[offset + len(piece) :])

    def cut(self, size: int) -> None:
        self.contents.append(self.newest[:size].ljust(size, b"\0"))

    def sync(self) -> None:
        self.contents = [self.newest]

    def could_be(self, content: bytes) -> bool:
        """Whether every byte is one that stood there, or the nothing of a gap; as a whole it may
        be what no version was."""
        return len(content) <= max(map(len, self.contents)) and all(
            byte == 0 or any(place < len(old) and old[place] == byte for old in self.contents)
            for place, byte in enumerate(content)
        )


def statements(rng: random.Random, files: dict[str, Versions], count: int) -> list[str]:
    """Random ones, which the model follows."""
    made = []
    for _ in range(count):
        name = rng.choice(FILES)
        versions = files[name]
        match rng.randrange(6):
            case 0:
                versions.sync()
                made.append(f"{rng.choice(['os.fsync', 'os.fdatasync'])}(files[{name!r}])")
            case 1:
                size = rng.randrange(4 * SECTOR_BYTES)
                versions.cut(size)
                made.append(f"os.ftruncate(files[{name!r}], {size})")
            case _:
                offset, length = rng.randrange(5 * SECTOR_BYTES), rng.randint(1, 1_500)
                piece = bytes([rng.randint(1, 255)]) * length
                versions.write(offset, piece)
                byte = piece[:1]
                made.append(f"os.pwrite(files[{name!r}], {byte!r} * {length}, {offset})")
    return made


@pytest.mark.parametrize("first_seed", range(0, 40, 10))
def test_a_power_cut_leaves_what_could_be(disk: MachineDisk, first_seed: int) -> None:
    """Ten lives in the same two files. What was synced is there; what was not is in any part; and
    a cut that takes everything leaves what the last sync left, to the byte."""
    files = {name: Versions() for name in FILES}
    changed = 0
    for seed in range(first_seed, first_seed + 10):
        rng = random.Random(seed)
        with Writer(disk) as writer:
            writer.do(OPEN, DURABLE, *statements(rng, files, 25))
            for name, versions in files.items():
                assert (disk.directory / name).read_bytes() == versions.newest
            writer.kill()
        cut = random.Random(seed)
        everything = random.Random(seed).random() < 1 / 3
        told = disk.crash(cut)
        for name, versions in files.items():
            left = (disk.directory / name).read_bytes()
            context = f"seed {seed}, file {name}: {told}"
            if everything:
                assert left == versions.contents[0], context
            assert versions.could_be(left), context
            changed += left != versions.newest
            versions.contents = [left]
    assert changed > 5


def test_the_model_knows_what_cannot_be() -> None:
    versions = Versions()
    versions.write(0, b"abc")
    versions.sync()
    versions.write(1, b"x")
    assert versions.could_be(b"axc")
    assert versions.could_be(b"abc")
    assert not versions.could_be(b"ayc")
    assert not versions.could_be(b"axcd")


def test_a_disk_is_one_machine_s(disk: MachineDisk, tmp_path: Path) -> None:
    """Two processes on it, as agent and keeper are: what either wrote is lost with the other's."""
    with Writer(disk) as agent, Writer(disk) as keeper:
        agent.do(OPEN, DURABLE, "os.pwrite(files['a'], b'a' * 10, 0)", "os.fsync(files['a'])")
        keeper.do(OPEN, "os.pwrite(files['a'], b'k' * 10, 5)", "os.pwrite(files['b'], b'k', 0)")
        agent.do("os.fsync(files['b'])")
        agent.kill()
        keeper.kill()
    assert disk.shim is not None
    assert disk.shim.attached == 2
    disk.crash(random.Random(everything_seed()))
    assert (disk.directory / "a").read_bytes() == b"a" * 10
    assert (disk.directory / "b").read_bytes() == b"k"


def everything_seed() -> int:
    """A seed with which a power cut takes all that it can."""
    return next(seed for seed in range(100) if random.Random(seed).random() < 1 / 3)
