"""Processes that write below a disk's directory until they are killed, for its tests.

`python disk_writer.py KIND DIRECTORY`: `files` obeys a Python statement a line and
answers `done`; `lmdb` commits a row a transaction and prints its number once it is durable, and
`lmdb-unsynced` does so though it never syncs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def row(number: int) -> bytes:
    """The value of a row: one to three pages, different for each number."""
    return f"{number:08d}".encode() * (100 + 397 * number % 1_100)


def obey(directory: Path) -> None:
    os.chdir(directory)
    names: dict[str, object] = {"os": os, "directory": directory}
    for line in sys.stdin:
        exec(line, names)
        print("done", flush=True)


def commit(directory: Path, synced: bool) -> None:
    import lmdb  # the writer of files starts quicker without

    environment = lmdb.open(str(directory), map_size=1 << 26, sync=synced, max_dbs=2)
    rows = environment.open_db(b"rows")
    if synced:  # LMDB leaves it to its users to make the names of its files durable
        os.fsync(os.open(directory, os.O_RDONLY))
    with environment.begin(db=rows) as transaction:
        number = int(transaction.stat(rows)["entries"])
    while True:
        number += 1
        with environment.begin(write=True, db=rows) as transaction:
            transaction.put(number.to_bytes(8, "big"), row(number))
        print(number, flush=True)


if __name__ == "__main__":
    kind, where = sys.argv[1], Path(sys.argv[2])
    if kind == "files":
        obey(where)
    else:
        commit(where, kind == "lmdb")
