"""A process that writes until it is killed: `python -m tests.store.writing_child DIRECTORY`.

Prints the index of each entry once it is durable.
"""

from __future__ import annotations

import sys

from coord.store.environment import Environment, Identity
from coord.store.events import LmdbEventStore
from tests.store.records import record


def main() -> None:
    environment = Environment.open(sys.argv[1], 1 << 20, Identity("c1", 1))
    store = LmdbEventStore(environment)
    index = store.last_index
    while True:
        index += 1
        store.append((record(index),), index)
        environment.stage("raft_log", index.to_bytes(8, "big"), b"payload")
        if index % 3 == 0:
            store.put_state({"hosts": {"newest": str(index).encode(), str(index % 50): b"x" * 500}})
        store.flush()
        print(index, flush=True)


if __name__ == "__main__":
    main()
