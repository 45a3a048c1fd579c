"""Linux calls that Python's `os` lacks."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

PR_SET_CHILD_SUBREAPER = 36
FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02

_PIDFD_INFO = struct.Struct("QQ11Ii")
"""linux/pidfd.h, struct pidfd_info, first version: mask, cgroup, eleven ids, exit code."""
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11


def become_subreaper() -> None:
    """From now on, processes orphaned below this one become its children, not init's."""
    if _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def punch_hole(descriptor: int, offset: int, size_bytes: int) -> None:
    """Give the blocks of a range back to the file system; the file's length stays."""
    mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    if _LIBC.fallocate(descriptor, mode, offset, size_bytes) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"fallocate(PUNCH_HOLE): {os.strerror(number)}")


def reaped_status(pidfd: int) -> int | None:
    """The wait status of a process that its parent, whoever that is, has reaped; None while it has
    not, or when the kernel (before 6.15) does not keep it."""
    buffer = bytearray(_PIDFD_INFO.size)
    struct.pack_into("Q", buffer, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    fields = _PIDFD_INFO.unpack(buffer)
    return int(fields[-1]) if fields[0] & _PIDFD_INFO_EXIT else None
