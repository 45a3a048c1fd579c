"""Rot in a server's journal: bytes flipped in its rows, sectors torn on its pages."""

from __future__ import annotations

import os
import random
from pathlib import Path

from jepsen_lite.disks.pages import DataFile, Row
from jepsen_lite.disks.port import DiskError
from jepsen_lite.disks.undo import SECTOR_BYTES

JOURNALS = ("raft_log", "events")
"""Databases that hold what was decided: raft's entries, and the event log."""


def damage_journal(data: Path, rng: random.Random) -> str:
    """Flip bits in a row of the journal, or tear a sector of a page that holds one.

    What is damaged is in use, so that whoever reads it meets the damage. The server must not run.
    Raises DiskError, also where there is no row yet.
    """
    file = data / "data.mdb"
    content = DataFile(file)
    rows = [row for row in content.rows() if row.database in JOURNALS and row.size_bytes]
    if not rows:
        raise DiskError(f"{file} holds no row of {' or '.join(JOURNALS)} to damage")
    database = rng.choice(sorted({row.database for row in rows}))
    row = rng.choice([row for row in rows if row.database == database])
    if rng.random() < 1 / 2:
        return flip(file, row, rng)
    return tear(file, row, rng)


def flip(file: Path, row: Row, rng: random.Random) -> str:
    """Flip one to eight bits of a row's value, each in a byte of its own."""
    places = rng.sample(range(row.size_bytes), min(rng.randint(1, 8), row.size_bytes))
    with file.open("r+b") as opened:
        for place in places:
            (byte,) = os.pread(opened.fileno(), 1, row.offset + place)
            flipped = bytes([byte ^ 1 << rng.randrange(8)])
            os.pwrite(opened.fileno(), flipped, row.offset + place)
        os.fsync(opened.fileno())
    return f"flipped {len(places)} bits {_told(file, row)}"


def tear(file: Path, row: Row, rng: random.Random) -> str:
    """Replace the rest of a sector, from some byte of the row's value on, as a torn write does."""
    start = row.offset + rng.randrange(row.size_bytes)
    stop = (start // SECTOR_BYTES + 1) * SECTOR_BYTES
    with file.open("r+b") as opened:
        before = os.pread(opened.fileno(), stop - start, start)
        after = bytes(len(before)) if before[0] and rng.random() < 1 / 2 else _other(before, rng)
        os.pwrite(opened.fileno(), after, start)
        os.fsync(opened.fileno())
    return f"tore {len(before)} bytes from byte {start} on, {_told(file, row)}"


def _other(before: bytes, rng: random.Random) -> bytes:
    """As many bytes, the first of which differs."""
    return bytes([before[0] ^ rng.randint(1, 255)]) + rng.randbytes(len(before) - 1)


def _told(file: Path, row: Row) -> str:
    index = int.from_bytes(row.key, "big")
    return f"in {file.name}, {row.database} entry {index}, page {row.page}"
