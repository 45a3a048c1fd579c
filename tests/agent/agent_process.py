"""An agent in a process of its own, for tests that kill it. Its coordinator is a directory.

`plan.json` is the newest plan; it is obeyed under the incarnation of the newest registration.
`events.jsonl` gets every event, registrations as `{"type":"Registered",...}` among them.
`away` existing means that the coordinator cannot be reached. The arguments are the two
directories, the lease in milliseconds, and `keeper` or `alone`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec

from coord.agent.daemon import Daemon
from coord.agent.posix import posix_ports
from coord.agent.proctable import boot_id
from coord.agent.records import Records
from coord.client.inbox import Superseded
from coord.client.views import Decided
from coord.model.events import AnyEvent, TaskFound
from coord.model.plans import HostPlan
from coord.model.settings import Settings
from tests.agent.support import FakeChannel, config_for, until

POLL_S = 0.005


class FileChannel(FakeChannel):
    """A coordinator that is a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._beat_at = 0.0
        self._events = directory / "events.jsonl"

    def _append(self, line: bytes) -> None:
        with self._events.open("ab") as file:
            file.write(line + b"\n")

    async def register(self, tasks: Iterable[TaskFound] = ()) -> int:
        await until(lambda: not self._away())
        before = self._events.read_bytes() if self._events.exists() else b""
        self.incarnation = before.count(b'"type":"Registered"') + 1
        found = {one.task: one.running for one in tasks}
        line = {"type": "Registered", "incarnation": self.incarnation, "tasks": found}
        self._append(msgspec.json.encode(line))
        self._beat_at = asyncio.get_running_loop().time()
        self._acknowledge()
        return self.incarnation

    def _acknowledge(self) -> None:
        """The beat of the last time is in the log; the next one goes out."""
        lease_s = self.settings.lease_ms / 1000
        self.lease_deadline = self._beat_at + lease_s
        self._beat_at = asyncio.get_running_loop().time()

    async def plans(self) -> AsyncIterator[HostPlan | Superseded]:
        last = b""
        while True:
            path = self._directory / "plan.json"
            text = path.read_bytes() if path.exists() and not self._away() else last
            if text != last:
                last = text
                item = msgspec.json.decode(text, type=HostPlan)
                yield msgspec.structs.replace(item, incarnation=self.incarnation)
            if not self._away():
                self._acknowledge()
            await asyncio.sleep(POLL_S)

    def report(self, event: AnyEvent) -> asyncio.Future[Decided]:
        self._append(msgspec.json.encode(event))
        return super().report(event)

    def _away(self) -> bool:
        return (self._directory / "away").exists()


async def main(data_dir: Path, coordinator: Path, lease_ms: int, keeper: bool) -> None:
    config = config_for(data_dir, owns_process=True, keeper=keeper)
    disk = Records.open(data_dir, config.host, os.urandom(16).hex(), boot_id())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    channel = FileChannel(coordinator)
    channel.settings = Settings(lease_ms=lease_ms)
    await Daemon(config, posix_ports(config, disk), channel).run(stop)


if __name__ == "__main__":
    data, coordinator, lease, with_keeper = sys.argv[1:]
    asyncio.run(main(Path(data), Path(coordinator), int(lease), with_keeper == "keeper"))
