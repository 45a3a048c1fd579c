"""What servers use: CPU and memory of their processes, and pages of their logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lmdb
import psutil

MIB = 1 << 20


def cpu_s(pids: Sequence[int]) -> float:
    """User and system time of all of them so far, in seconds; the kernel counts in hundredths."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(one.user + one.system for one in times)


def largest_mib(pids: Sequence[int]) -> float:
    """Resident memory of the largest."""
    return max(float(psutil.Process(pid).memory_info().rss) for pid in pids) / MIB


def logged_bytes(directory: Path, database: str) -> int:
    """Pages that one database of a server takes on disk, as of its last commit."""
    with (
        lmdb.open(str(directory), readonly=True, max_dbs=16) as environment,
        environment.begin() as transaction,
    ):
        found = environment.open_db(database.encode(), txn=transaction, create=False)
        stat = transaction.stat(found)
    pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return int(pages * stat["psize"])
