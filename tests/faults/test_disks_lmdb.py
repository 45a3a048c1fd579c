"""Power cuts under a real LMDB: what it called committed is there, and whole, unless disks lie."""

from __future__ import annotations

import random
import time

import lmdb
from jepsen_lite.disks.machine import MachineDisk
from jepsen_lite.disks.undo import Loss

from tests.faults.disk_cases import Writer, disk, disks
from tests.faults.disk_writer import row
from tests.faults.lone_server import wait_until

__all__ = ["disk", "disks"]


def cut_power(disk: MachineDisk, kind: str, rng: random.Random) -> tuple[int, Loss]:
    """The last row that a writer called durable before it was killed, and what was then lost."""
    with Writer(disk, kind) as writer:
        numbers = [writer.line() for _ in range(rng.randint(1, 12))]
        numbers += [text for text in writer.kill() if text]
    return max(int(number) for number in numbers), disk.lose_unsynced(rng)


def committed(disk: MachineDisk) -> int:
    """How many rows there are; each must be what was written, and none may be missing between."""
    environment = lmdb.open(str(disk.directory), max_dbs=2, lock=False, readonly=True)
    try:
        rows = environment.open_db(b"rows", create=False)
        with environment.begin(db=rows) as transaction:
            found = [(int.from_bytes(key, "big"), value) for key, value in transaction.cursor()]
    finally:
        environment.close()
    assert found == [(number, row(number)) for number in range(1, len(found) + 1)]
    return len(found)


def test_what_was_committed_outlives_any_power_cut(disk: MachineDisk) -> None:
    """Over many seeds, one life after the other in the same file, while syncs are slow enough that
    most kills come in the midst of a commit."""
    disk.slow_fsync(4)
    lost = Loss()
    for seed in range(40):
        acknowledged, loss = cut_power(disk, "lmdb", random.Random(seed))
        assert committed(disk) in (acknowledged, acknowledged + 1), f"seed {seed}: {loss}"
        for count in ("writes", "torn", "survived"):
            setattr(lost, count, getattr(lost, count) + getattr(loss, count))
    assert lost.writes > 5, f"the kills came at the wrong moments: {lost}"
    assert lost.torn + lost.survived > 0


def test_without_syncs_a_power_cut_is_noticed(disk: MachineDisk) -> None:
    """A database that never syncs loses what it called committed, or all sense."""
    harm = set()
    for seed in range(12):
        try:
            acknowledged, _ = cut_power(disk, "lmdb-unsynced", random.Random(seed))
            harm.add("lost" if committed(disk) < acknowledged else "unharmed")
        except (AssertionError, ValueError, lmdb.Error):
            harm.add("senseless")
            break
    assert harm & {"lost", "senseless"}, harm


def test_a_disk_that_lies_loses_what_was_committed(disk: MachineDisk) -> None:
    """And the database is whole all the same: it is as it was some commits ago."""
    cut_power(disk, "lmdb", random.Random(1))
    disk.swallow_syncs()
    lost = []
    for seed in range(8):
        before = committed(disk)
        acknowledged, loss = cut_power(disk, "lmdb", random.Random(seed))
        assert loss.syncs > 0
        assert before <= committed(disk) <= acknowledged + 1
        lost.append(acknowledged - committed(disk))
    assert sum(number > 0 for number in lost) >= 6, lost


def test_a_slow_sync_delays_a_commit(disk: MachineDisk) -> None:
    """Each of its waits for the disk; and once the disk is healed it is quick again at once, also
    for the commit that was under way."""
    shim = disk.shim
    assert shim is not None
    with Writer(disk, "lmdb") as writer:
        writer.line()
        disk.slow_fsync(100)
        before, begun = shim.syncs, time.monotonic()
        wait_until("five syncs were done", lambda: shim.syncs >= before + 5)
        assert time.monotonic() - begun > 0.4
        disk.slow_fsync(600_000)
        before, begun = shim.syncs, time.monotonic()
        wait_until("a slow sync is under way", lambda: time.monotonic() - begun > 0.2)
        assert shim.syncs <= before + 1
        disk.heal()
        wait_until("twenty syncs were done", lambda: shim.syncs >= before + 20)
    assert shim.troubles == 0
