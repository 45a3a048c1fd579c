"""The lease deadline on disk, for an agent started anew and for the keeper."""

from __future__ import annotations

import msgspec

from coord.agent.files import AgentFiles

LEASE = "lease.json"


class Lease(msgspec.Struct, frozen=True):
    """Both are in seconds of the event loop's clock, which counts from boot. `kill_at` is when the
    agent sends SIGKILL; the keeper does half-way from there to the deadline."""

    boot: str
    deadline: float
    kill_at: float


class LeaseFile:
    """The file `lease.json`. Not synced: it means nothing after a boot."""

    def __init__(self, files: AgentFiles, boot: str) -> None:
        self._files = files
        self._boot = boot
        self._written: float | None = None

    def read(self) -> Lease | None:
        """What an agent wrote last since boot; None where there is none."""
        try:
            lease = msgspec.json.decode(self._files.read(LEASE) or b"", type=Lease)
        except msgspec.DecodeError:
            return None
        return lease if lease.boot == self._boot else None

    def read_keeper_kill(self) -> float | None:
        """When the keeper is to kill; None where nobody has said."""
        lease = self.read()
        return None if lease is None else (lease.kill_at + lease.deadline) / 2

    def write(self, deadline: float, kill_at: float) -> None:
        """Keep the deadline, if it has changed."""
        if deadline == self._written:
            return
        lease = Lease(self._boot, deadline, kill_at)
        self._files.replace(LEASE, msgspec.json.encode(lease), synced=False)
        self._written = deadline
