"""A data directory: whose process has it open, how much room it has, making it durable."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from coord.store.ports import DataDirectoryInUse, StorageFull

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def fsync_path(path: str) -> None:
    """Make a file's contents, or a directory's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_directory(path: str) -> int:
    """An open file whose lock keeps other processes out until it is closed."""
    name = os.path.join(path, "in-use-by")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise DataDirectoryInUse(
            f"{path} is open in the process with id {owner}; stop that one, or give this one a "
            "directory of its own"
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def no_room(path: str, why: str) -> StorageFull:
    """The error to raise for a write that did not fit."""
    return StorageFull(
        f"{path}: {why} ({free_bytes(path)} bytes free on its disk); nothing was written; make "
        "room and the next commit writes what is pending"
    )


def free_bytes(path: str) -> int:
    """On the disk that holds the path, or that would hold it."""
    folder = Path(path).absolute()
    while not folder.exists():
        folder = folder.parent
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
