"""What a power cut takes from files, and what it must leave."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from jepsen_lite.disks.machine import MachineDisk
from jepsen_lite.disks.port import DiskError
from jepsen_lite.disks.undo import SECTOR_BYTES

from tests.faults.disk_cases import Writer, disk, disks

__all__ = ["disk", "disks"]
OPEN = "file = os.open('journal', os.O_RDWR | os.O_CREAT, 0o600)"
MAKE = (
    OPEN,
    "os.pwrite(file, b'a' * 3000, 0)",
    "os.fsync(file)",
    "folder = os.open('.', os.O_RDONLY)",
    "os.fsync(folder)",
)
"""A file of 3,000 times `a` that is durable, name and all."""


class Everything(random.Random):
    """Draws that lose all that can be lost."""

    def random(self) -> float:
        return 0.0


def after_crash(disk: MachineDisk, *statements: str, seed: int | None = None) -> str:
    """What `crash` said when the process was killed after these."""
    with Writer(disk) as writer:
        writer.do(*statements)
        writer.kill()
    return disk.crash(Everything() if seed is None else random.Random(seed))


UNSYNCED = {
    "pwrite": "os.pwrite(file, b'b' * 5000, 100)",
    "pwritev": "os.pwritev(file, [b'b' * 700, b'c' * 700], 2500)",
    "write": "os.lseek(file, 10, 0); os.write(file, b'b' * 20)",
    "writev": "os.lseek(file, 2990, 0); os.writev(file, [b'b' * 20, b'c' * 20])",
    "shorten": "os.ftruncate(file, 17)",
    "lengthen": "os.ftruncate(file, 9000)",
    "truncate": "os.truncate('journal', 5)",
    "open to truncate": "open('journal', 'wb').write(b'b')",
    "append": "open('journal', 'ab').write(b'bbb')",
    "overlapping": "[os.pwrite(file, bytes([n]) * n, 5 * n) for n in range(1, 200)]",
    "shorten and write": "os.ftruncate(file, 0); os.pwrite(file, b'b' * 50, 2000)",
}


@pytest.mark.parametrize("change", UNSYNCED.values(), ids=UNSYNCED)
def test_what_was_not_synced_can_be_lost(disk: MachineDisk, change: str) -> None:
    """All of it: the file is then as it was at its last sync."""
    told = after_crash(disk, *MAKE, change)
    assert (disk.directory / "journal").read_bytes() == b"a" * 3000
    assert "unsynced writes lost" in told
    assert "journal" in told


@pytest.mark.parametrize("sync", ["os.fsync(file)", "os.fdatasync(file)"])
@pytest.mark.parametrize("change", UNSYNCED.values(), ids=UNSYNCED)
def test_what_was_synced_stays(disk: MachineDisk, change: str, sync: str) -> None:
    with Writer(disk) as writer:
        writer.do(*MAKE, change)
        before = (disk.directory / "journal").read_bytes()
        assert before != b"a" * 3000
        writer.do(sync)
        writer.kill()
    assert disk.crash(Everything()) == "nothing was lost (0 unsynced writes had reached the disk)"
    assert (disk.directory / "journal").read_bytes() == before


def test_a_write_that_is_a_sync_stays(disk: MachineDisk) -> None:
    """Through O_DSYNC, even where an older write of the same bytes is lost."""
    after_crash(
        disk,
        *MAKE,
        "os.pwrite(file, b'b' * 2000, 0)",
        "synced = os.open('journal', os.O_WRONLY | os.O_DSYNC)",
        "os.pwrite(synced, b'c' * 100, 500)",
        "os.pwrite(file, b'd' * 10, 550)",
    )
    expected = b"a" * 500 + b"c" * 100 + b"a" * 2400
    assert (disk.directory / "journal").read_bytes() == expected


def test_a_write_is_torn_at_sectors(disk: MachineDisk) -> None:
    """Over many seeds: lost, whole and torn, and no sector ever mixed."""
    seen = set()
    for seed in range(30):
        after_crash_again = (
            MAKE if seed == 0 else (OPEN, "os.pwrite(file, b'a' * 3000, 0)", "os.fsync(file)")
        )
        after_crash(disk, *after_crash_again, "os.pwrite(file, b'b' * 2000, 300)", seed=seed)
        content = (disk.directory / "journal").read_bytes()
        assert len(content) == 3000
        pieces = [content[at : at + SECTOR_BYTES] for at in range(0, 3000, SECTOR_BYTES)]
        assert content[:300] + content[2300:] == b"a" * 1000
        assert all(len(set(piece)) == 1 for piece in pieces[1:4])
        fates = "".join(chr(piece[0]) for piece in pieces[1:4])
        seen.add({"aaa": "lost", "bbb": "whole"}.get(fates, "torn"))
    assert seen == {"lost", "whole", "torn"}


def test_several_writes_have_fates_of_their_own(disk: MachineDisk) -> None:
    """Some of them are lost and others not, in any order."""
    writes = [f"os.pwrite(file, b'{number}' * 10, {600 * number})" for number in range(1, 5)]
    seen = set()
    for seed in range(30):
        if seed == 0:
            after_crash(disk, *MAKE, *writes, seed=seed)
        else:
            after_crash(disk, OPEN, *writes, seed=seed)
        content = (disk.directory / "journal").read_bytes()
        seen.add(
            tuple(content[600 * n : 600 * n + 10] == str(n).encode() * 10 for n in range(1, 5))
        )
        after_crash(disk, OPEN, "os.pwrite(file, b'a' * 3000, 0)", "os.fsync(file)")
    assert (False, False, False, False) in seen
    assert any(kept[3] and not kept[0] for kept in seen)
    assert any(kept[0] and not kept[3] for kept in seen)


REPLACE = (
    "new = os.open('journal.new', os.O_WRONLY | os.O_CREAT, 0o600)",
    "os.write(new, b'n' * 100)",
    "os.fsync(new)",
    "os.rename('journal.new', 'journal')",
)


def test_a_name_that_was_not_synced_can_be_lost(disk: MachineDisk) -> None:
    """A file that was made, one that was replaced, one that was removed."""
    after_crash(disk, *MAKE, "open('young', 'w').write('y')", *REPLACE)
    assert sorted(os.listdir(disk.directory)) == ["journal"]
    assert (disk.directory / "journal").read_bytes() == b"a" * 3000
    after_crash(disk, "os.unlink('journal')")
    assert (disk.directory / "journal").read_bytes() == b"a" * 3000


def test_a_name_that_was_synced_stays(disk: MachineDisk) -> None:
    sync = ("os.fsync(os.open('.', os.O_RDONLY))",)
    after_crash(disk, *MAKE, *REPLACE, *sync)
    assert (disk.directory / "journal").read_bytes() == b"n" * 100
    after_crash(disk, "os.unlink('journal')", *sync)
    assert os.listdir(disk.directory) == []


def test_names_are_lost_from_the_end(disk: MachineDisk) -> None:
    """A later one is never there without an earlier one of its directory."""
    seen = set()
    for seed in range(30):
        after_crash(disk, *[f"open('{n}', 'w').close()" for n in range(4)], seed=seed)
        there = sorted(os.listdir(disk.directory))
        assert there == [str(number) for number in range(len(there))]
        seen.add(len(there))
        after_crash(disk, *[f"os.unlink('{n}')" for n in there], "os.fsync(os.open('.', 0))")
    assert seen == {0, 1, 2, 3, 4}


def test_a_renamed_file_loses_what_was_never_synced(disk: MachineDisk) -> None:
    """The usual mistake: replaced without a sync of the contents."""
    for seed in range(40):
        after_crash(
            disk, "open('f.new', 'w').write('n' * 2000)", "os.rename('f.new', 'f')", seed=seed
        )
        left = [path.read_bytes() for path in disk.directory.glob("f")]
        if left and left != [b"n" * 2000]:
            return
        after_crash(disk, "open('f', 'w').write('o' * 2000)", "os.sync()")
    pytest.fail("no seed left a name without the contents")


def test_what_lies_elsewhere_is_left_alone(disk: MachineDisk, tmp_path: Path) -> None:
    """Also a directory whose name begins alike."""
    other = tmp_path / "elsewhere"
    told = after_crash(disk, f"open({str(other)!r}, 'w').write('mine')")
    assert other.read_text() == "mine"
    assert told.startswith("nothing was lost")


def test_a_kill_alone_loses_nothing(disk: MachineDisk) -> None:
    """The page cache outlives the process; the next one's sync covers what the first wrote."""
    with Writer(disk) as writer:
        writer.do(*MAKE, "os.pwrite(file, b'b' * 10, 0)")
        writer.kill()
    assert (disk.directory / "journal").read_bytes()[:11] == b"b" * 10 + b"a"
    after_crash(disk, OPEN, "os.fsync(file)")
    assert (disk.directory / "journal").read_bytes()[:11] == b"b" * 10 + b"a"


def test_a_crash_waits_for_nobody(disk: MachineDisk) -> None:
    """Under a process that still runs it is refused, and without the shim as well."""
    with Writer(disk) as writer:
        writer.do(*MAKE)
        with pytest.raises(DiskError, match=r"still in use by \[\d+\]; kill them first"):
            disk.crash(random.Random(1))
    disk.crash(random.Random(1))
    with pytest.raises(DiskError, match="no process ran with the shim"):
        disk.crash(random.Random(1))


def test_a_swallowed_sync_saves_nothing(disk: MachineDisk) -> None:
    """What was called durable is gone, from some sync on, and the older syncs' is there."""
    after_crash(disk, *MAKE)
    assert disk.shim is not None
    disk.swallow_syncs()
    writes = [f"os.pwrite(file, b'{n}' * 10, {10 * n}); os.fsync(file)" for n in range(1, 6)]
    seen: set[int] = set()
    for seed in range(30):
        after_crash(disk, OPEN, *writes, seed=seed)
        content = (disk.directory / "journal").read_bytes()
        kept = [content[10 * n : 10 * n + 10] == str(n).encode() * 10 for n in range(1, 6)]
        assert kept == sorted(kept, reverse=True)
        seen.add(sum(kept))
        disk.swallow_syncs(False)
        after_crash(disk, OPEN, "os.pwrite(file, b'a' * 3000, 0)", "os.fsync(file)")
        disk.swallow_syncs()
    assert disk.shim.swallowed == 150
    assert seen == {1, 2, 3, 4, 5}
