"""The keeper of a simulated host: `coord.agent.keeper` without pidfds and process tables.

It stays until the host loses its power. What it reads and writes are the same files, through the
same classes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from coord.agent.exits import REAP_WAIT_S, ExitNotes, Note
from coord.agent.keeper import LOOK_S
from coord.agent.lease import LeaseFile
from coord.agent.ports import ExitStatus
from coord.agent.records import TASKS, Phase, TaskRecord
from coord_sim.world.agent_disk import SimFiles
from coord_sim.world.ranks import SimRank

if TYPE_CHECKING:
    from coord_sim.world.hosts import SimHost

KILL_AGAIN_S = 0.02


class SimKeeper:
    """Kills exclusive tasks that nobody else fences, and notes how tasks end."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._disk = host.disk
        self._rng = host.kernel.rng(f"keeper/{host.name}")
        self._contents: dict[str, bytes] = {}
        self._records: dict[str, TaskRecord] = {}
        self._watched: dict[str, SimRank] = {}
        self._fenced: dict[str, None] = {}
        self._disk.changed = asyncio.Event()
        self.process = host.kernel.spawn(f"{host.name}:keeper", self._main)
        files = SimFiles(host.disk, host.data_dir, self.process)
        self._notes = ExitNotes(files)
        self._lease = LeaseFile(files, host.boot)

    def rank_ended(self, rank: SimRank) -> None:
        """A main process has ended, whoever watches it."""
        if self._watched.get(rank.task) is rank and self.process.alive:
            self.process.call_soon(self._note, rank)

    async def _main(self) -> None:
        while True:
            self._disk.changed.clear()
            self._read_records()
            self._watch_new()
            wait_s = self._fence(asyncio.get_running_loop().time())
            if wait_s is None:
                await self._disk.changed.wait()
                # It is not told, but looks now and then.
                wait_s = self._rng.random() * LOOK_S
            await asyncio.sleep(min(wait_s, LOOK_S))

    def _read_records(self) -> None:
        contents, records = {}, {}
        for name in self._disk.names(TASKS):
            content = self._disk.read(name) or b""
            record = self._records.get(name)
            if record is None or self._contents.get(name) is not content:
                try:
                    record = msgspec.json.decode(content, type=TaskRecord)
                except msgspec.DecodeError:
                    continue
            contents[name], records[name] = content, record
        self._contents, self._records = contents, records

    def _watch_new(self) -> None:
        running = {
            record.order.task: record.process
            for record in self._records.values()
            if record.phase is Phase.RUNNING
        }
        self._watched = {task: rank for task, rank in self._watched.items() if task in running}
        for rank in self._host.runs:
            if rank.alive and running.get(rank.task) == rank.process:
                self._watched[rank.task] = rank

    def _fence(self, now: float) -> float | None:
        """Kill what is due; seconds until it has to look again, None for when something changes."""
        exclusive = [
            record for record in self._records.values() if record.holds and record.order.exclusive
        ]
        kill_at = self._lease.read_keeper_kill() if exclusive else None
        if kill_at is None:
            return None
        if now < kill_at:
            return kill_at - now
        left = sum(self._kill(record) for record in exclusive)
        return KILL_AGAIN_S if left else LOOK_S

    def _kill(self, record: TaskRecord) -> int:
        task = record.order.task
        if record.process is not None and record.process.boot != self._host.boot:
            return 0
        family = [rank for rank in self._host.runs if rank.task == task and not rank.gone]
        for rank in family:
            self._fenced[task] = None
            self._host.kernel.trace.note("keeper.kills", host=self._host.name, task=task)
            rank.signal(9)
        return len(family)

    def _note(self, rank: SimRank) -> None:
        if self._host.kernel_tells:
            self._write(rank, rank.status)
        else:
            at_s = self._host.kernel.now_s() + REAP_WAIT_S
            self.process.call_at(at_s, self._write, rank, None)

    def _write(self, rank: SimRank, status: ExitStatus | None) -> None:
        wait_status = None if status is None else status.exit_code << 8 | status.signal
        note = Note(wait_status, rank.task in self._fenced)
        try:
            self._notes.write(rank.task, note)
        except OSError:
            at_s = self._host.kernel.now_s() + LOOK_S
            self.process.call_at(at_s, self._write, rank, status)


class SimKeeperPost:
    """See `ports.KeeperPost`."""

    def __init__(self, host: SimHost) -> None:
        self._host = host

    def fill(self) -> None:
        keeper = self._host.keeper
        if keeper is None or not keeper.process.alive:
            self._host.keeper = SimKeeper(self._host)

    def leave(self) -> None:
        return
