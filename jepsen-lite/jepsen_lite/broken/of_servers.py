"""Servers that break a promise about the log, about answers, or about the table of requests."""

from __future__ import annotations

from jepsen_lite.broken.breakage import Breakage, Edit
from jepsen_lite.broken.of_guard import without

SERVERS = (
    Breakage(
        name="no-fsync",
        what="nothing is fsynced before it is acknowledged",
        workload="registers",
        nemesis="power-cut",
        edits=(
            Edit(
                "store/environment.py",
                "lmdb.open(path, map_size=map_size_bytes,",
                "lmdb.open(path, sync=False, map_size=map_size_bytes,",
            ),
            Edit(
                "store/environment.py",
                "lmdb.open(self._path, map_size=map_size_bytes,",
                "lmdb.open(self._path, sync=False, map_size=map_size_bytes,",
            ),
        ),
    ),
    Breakage(
        name="applied-twice",
        what="a server that restarts applies to its state what the state holds already (rule G13)",
        workload="registers",
        nemesis="kill-follower",
        edits=(
            *without("G13"),
            Edit(
                "raft/guarded_raft.py",
                "if self.failure is not None or index <= self._state_index:",
                "if self.failure is not None:",
            ),
        ),
    ),
    Breakage(
        name="stale-reads",
        what="a read is answered at once, without asking the leader",
        workload="registers",
        nemesis="isolate-leader",
        edits=(Edit("node/reads.py", "self._waiting.append(future)", "return"),),
    ),
    Breakage(
        name="dedup-dropped",
        what="the table of requests that were decided is dropped when a snapshot is taken",
        workload="registers",
        nemesis="halves+slow",
        edits=(
            Edit(
                "node/machine.py",
                "        write = self._store.begin_snapshot()\n",
                "        for client in list(self.state.requests):\n"
                "            self.state.requests.drop(client)\n"
                "        write = self._store.begin_snapshot()\n",
            ),
        ),
        options={"rate": 150.0, "snapshot_entries": 20},
    ),
)
