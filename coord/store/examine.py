"""Whether everything in a data directory can be read, tried in a process of its own.

LMDB reads its file as memory. Where a page is missing that memory cannot be read, and the kernel
ends whoever tries: so somebody else tries. `python -m coord.store.examine DIRECTORY`.
"""

from __future__ import annotations

import subprocess
import sys

import lmdb

EXAMINE_TIMEOUT_S = 600.0


def is_readable(path: str) -> bool:
    """Read all of it in another process, which may die of it."""
    command = [sys.executable, "-m", "coord.store.examine", path]
    examined = subprocess.run(command, check=False, capture_output=True, timeout=EXAMINE_TIMEOUT_S)
    return examined.returncode == 0


def _read_all(path: str) -> None:
    with lmdb.open(path, readonly=True, lock=False, max_dbs=64) as environment:
        with environment.begin() as transaction:
            names = [bytes(name) for name, _ in transaction.cursor()]
        for name in names:
            handle = environment.open_db(name, create=False)
            with environment.begin(db=handle) as transaction:
                for key, value in transaction.cursor():
                    # Only what is looked at is read from the file.
                    sum(key), sum(value)


if __name__ == "__main__":
    _read_all(sys.argv[1])
