"""What a power cut takes from a data directory, out of what the shim kept.

The page cache is what is lost. Each write since its file's last sync may have reached the disk,
may not have, or may have in part, in sectors of 512 bytes; in any order between syncs. Names come
in the order in which they were made, because file systems journal them: some of the last are lost.
A sync of a file says nothing about its name; that takes a sync of the directory, as POSIX has it.
"""

from __future__ import annotations

import itertools
import os
import random
import struct
from enum import IntEnum
from pathlib import Path

import msgspec

from jepsen_lite.disks.port import DiskError

SECTOR_BYTES = 512
_MAGIC = 0x4F444E55
_UNDO = struct.Struct("=IIQQQQ")
_NAME = struct.Struct("=IIQQ1000s1000s")


class Kind(IntEnum):
    """Of a change of contents."""

    WRITTEN = 1
    WRITTEN_DURABLY = 2
    CUT = 3
    SYNC_SWALLOWED = 4


class Naming(IntEnum):
    """Of a change of names."""

    MADE = 1
    RENAMED = 2
    REMOVED = 3


class Change(msgspec.Struct):
    """One change of a file's contents, and how to take it back."""

    kind: Kind
    offset: int
    """Of a cut: the new size."""
    length: int
    size_before: int
    before: bytes
    """What was there from `offset` on."""
    after: bytes = b""
    """What it wrote; known once it is taken back."""


class NameChange(msgspec.Struct):
    """One change of a directory."""

    kind: Naming
    inode: int
    grave: int
    """Number of the file that was replaced or removed; 0 if there was none."""
    old: Path
    new: Path


class Loss(msgspec.Struct):
    """What a crash took."""

    writes: int = 0
    """Lost as a whole."""
    torn: int = 0
    """Lost in part."""
    survived: int = 0
    """Not synced and there all the same."""
    syncs: int = 0
    """Answered with success and lost: only of a disk that lies."""
    names: int = 0
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not (self.writes or self.torn or self.names or self.syncs):
            return f"nothing was lost ({self.survived} unsynced writes had reached the disk)"
        told = [f"{self.writes} unsynced writes lost, {self.torn} torn, {self.survived} kept"]
        if self.syncs:
            told.append(f"{self.syncs} syncs that were swallowed lost")
        if self.names:
            told.append(f"{self.names} names undone")
        return "; ".join(told) + (f" (of {', '.join(self.files)})" if self.files else "")


def roll_back(data: Path, undo: Path, graves: Path, rng: random.Random) -> Loss:
    """Bring the directory into a state that a power cut could have left. Raises DiskError."""
    names = _read_names(undo / "names")
    where = _files_by_inode(data, graves)
    everything = rng.random() < 1 / 3
    loss = Loss()
    kept = {int(path.name): path for path in undo.iterdir() if path.name.isdecimal()}
    touched = []
    for inode in sorted(kept.keys() & where.keys(), key=lambda inode: where[inode]):
        changes = read_changes(kept[inode])
        if changes:
            if where[inode].parent != graves:
                touched.append(where[inode].name)
            _crash_file(where[inode], changes, everything, rng, loss)
    loss.files = tuple(touched)
    loss.names = len(names) if everything else rng.randint(0, len(names))
    for change in reversed(names[len(names) - loss.names :]):
        _take_name_back(change, graves)
    return loss


def read_changes(path: Path) -> list[Change]:
    """In order; what the process was killed over is left out, for it never came to be."""
    content = path.read_bytes()
    found = []
    at = 0
    while at + _UNDO.size <= len(content):
        magic, kind, offset, length, size_before, kept = _UNDO.unpack_from(content, at)
        at += _UNDO.size
        if magic != _MAGIC:
            raise DiskError(f"{path} cannot be understood at byte {at - _UNDO.size}")
        if at + kept > len(content):
            break
        before = content[at : at + kept]
        found.append(Change(Kind(kind), offset, length, size_before, before))
        at += kept
    return found


def _read_names(path: Path) -> list[NameChange]:
    if not path.exists():
        return []
    content = path.read_bytes()
    found = []
    for at in range(0, len(content) - _NAME.size + 1, _NAME.size):
        magic, kind, inode, grave, old, new = _NAME.unpack_from(content, at)
        if magic != _MAGIC:
            raise DiskError(f"{path} cannot be understood at byte {at}")
        paths = (Path(os.fsdecode(text.rstrip(b"\0"))) for text in (old, new))
        found.append(NameChange(Naming(kind), inode, grave, *paths))
    return found


def _files_by_inode(*folders: Path) -> dict[int, Path]:
    return {
        path.stat().st_ino: path
        for folder in reversed(folders)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _crash_file(
    path: Path, changes: list[Change], everything: bool, rng: random.Random, loss: Loss
) -> None:
    swallowed = [
        place for place, change in enumerate(changes) if change.kind == Kind.SYNC_SWALLOWED
    ]
    with path.open("r+b") as file:
        if swallowed:
            # A disk that lies and keeps order: all from some sync on is gone.
            first = rng.randrange(len(swallowed))
            undone = changes[swallowed[first] :]
            _take_back(file.fileno(), undone)
            lost = sum(change.kind != Kind.SYNC_SWALLOWED for change in undone)
            loss.syncs += len(swallowed) - first
            loss.writes += lost
            loss.survived += len(changes) - len(swallowed) - lost
            return
        _take_back(file.fileno(), changes)
        share = 0.0 if everything else rng.random()
        for change in changes:
            _happen_perhaps(file.fileno(), change, share, rng, loss)


def _take_back(descriptor: int, changes: list[Change]) -> None:
    """Undo them, the newest first, and remember what each had written."""
    for change in reversed(changes):
        if change.kind == Kind.SYNC_SWALLOWED:
            continue
        if change.kind != Kind.CUT:
            change.after = os.pread(descriptor, change.length, change.offset)
        os.pwrite(descriptor, change.before, change.offset)
        os.ftruncate(descriptor, change.size_before)


def _happen_perhaps(
    descriptor: int, change: Change, share: float, rng: random.Random, loss: Loss
) -> None:
    """Do a change that was taken back again: all of it, some of it or nothing."""
    if change.kind == Kind.WRITTEN_DURABLY:
        os.pwrite(descriptor, change.after, change.offset)
    elif rng.random() >= share:
        loss.writes += 1
    elif change.kind == Kind.CUT:
        loss.survived += 1
        os.ftruncate(descriptor, change.offset)
    elif rng.random() < 1 / 3 and change.offset // SECTOR_BYTES != (
        (change.offset + change.length - 1) // SECTOR_BYTES
    ):
        loss.torn += 1
        for start, stop in _sectors(change.offset, len(change.after)):
            if rng.random() < 1 / 2:
                piece = change.after[start - change.offset : stop - change.offset]
                os.pwrite(descriptor, piece, start)
    else:
        loss.survived += 1
        os.pwrite(descriptor, change.after, change.offset)


def _sectors(offset: int, length: int) -> list[tuple[int, int]]:
    """Where a write begins and ends within each sector."""
    end = offset + length
    bounds = [offset, *range((offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    return list(itertools.pairwise(bounds))


def _take_name_back(change: NameChange, graves: Path) -> None:
    """Undo it, unless something later, which is durable, stands in its place."""
    there = change.new.exists() and change.new.stat().st_ino == change.inode
    if change.kind == Naming.MADE:
        if there:
            change.new.unlink()
        return
    if change.kind == Naming.RENAMED:
        if not there or change.old.exists():
            return
        change.new.rename(change.old)
    grave = graves / str(change.grave)
    if change.grave and grave.exists() and not change.new.exists():
        grave.rename(change.new)
