"""The lease deadline on disk: an agent started anew knows when its exclusive tasks must be gone."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Lease(msgspec.Struct, frozen=True):
    """`deadline` is in seconds of the event loop's clock, which counts from boot."""

    boot: str
    deadline: float


class LeaseFile:
    """The file `lease.json`. Replaced whole, but not synced: it means nothing after a boot."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._written: float | None = None

    def read(self) -> float | None:
        """The deadline that an earlier agent wrote since boot; None where there is none."""
        try:
            lease = msgspec.json.decode(self._path.read_bytes(), type=Lease)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return lease.deadline if lease.boot == self._boot else None

    def write(self, deadline: float) -> None:
        """Keep the deadline, if it has changed."""
        if deadline == self._written:
            return
        temporary = self._path.with_name(self._path.name + ".new")
        temporary.write_bytes(msgspec.json.encode(Lease(self._boot, deadline)))
        temporary.rename(self._path)
        self._written = deadline
