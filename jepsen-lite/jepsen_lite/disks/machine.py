"""The disks of a run: one a machine, with all that this computer allows of the faults."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Mapping
from pathlib import Path

import psutil
import structlog

from jepsen_lite.disks import capped
from jepsen_lite.disks.damage import damage_journal
from jepsen_lite.disks.port import DAMAGE, FULL, LOSE_UNSYNCED, SLOW_FSYNC, DiskError
from jepsen_lite.disks.shim import Shim, build_shim
from jepsen_lite.disks.undo import Loss, roll_back

BROKEN_DISK = "JEPSEN_LITE_BROKEN_DISK"
"""Environment variable by which a run is given disks that lie, to see whether it is noticed."""
SWALLOW_FSYNC = "swallow_fsync"

log = structlog.get_logger()


class Disks:
    """Makes the disks below one directory, each of the same size.

    `missing` says what this computer does not allow, and why; it is logged as well.
    """

    def __init__(
        self,
        directory: Path,
        *,
        size_bytes: int = capped.DEFAULT_SIZE_BYTES,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.directory = directory.resolve()
        self.missing: dict[str, str] = {}
        self.disks: list[MachineDisk] = []
        self._size_bytes = size_bytes
        self._preloaded = environ.get("LD_PRELOAD", "")
        broken = environ.get(BROKEN_DISK, "")
        if broken not in {"", SWALLOW_FSYNC}:
            raise DiskError(f"{BROKEN_DISK} is {broken!r}; it may be {SWALLOW_FSYNC!r}, or not set")
        self._lies = bool(broken)
        self._library: Path | None = None
        try:
            self._library = build_shim(self.directory)
        except DiskError as error:
            if self._lies:
                raise
            self._lacks(SLOW_FSYNC, error)
            self._lacks(LOSE_UNSYNCED, error)

    def open(self, name: str) -> MachineDisk:
        """A new, empty disk for the machine of this name."""
        home = self.directory / name
        mounted = home / "disk"
        is_capped = FULL not in self.missing
        try:
            if is_capped:
                capped.mount(mounted, self._size_bytes)
        except DiskError as error:
            self._lacks(FULL, error)
            is_capped = False
        shim = None
        if self._library is not None:
            shim = Shim(self._library, mounted / "data", home / "undo", mounted / "graves")
            shim.swallow_syncs(self._lies)
        disk = MachineDisk(mounted, shim, is_capped=is_capped, preloaded=self._preloaded)
        self.disks.append(disk)
        return disk

    def close(self) -> None:
        """Give all of them up. Idempotent."""
        while self.disks:
            self.disks.pop().close()

    def _lacks(self, what: str, why: DiskError) -> None:
        self.missing[what] = str(why)
        log.warning("disk_fault_not_possible", fault=what, why=str(why))


class MachineDisk:
    """See `Disk`. Its processes use `directory`; what the faults need lies beside it."""

    def __init__(
        self, mounted: Path, shim: Shim | None, *, is_capped: bool, preloaded: str = ""
    ) -> None:
        self.directory = mounted / "data"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.shim = shim
        self._mounted = mounted
        self._capped = is_capped
        self._preloaded = preloaded
        can = {DAMAGE} | ({FULL} if is_capped else set())
        self.can = frozenset(can | ({SLOW_FSYNC, LOSE_UNSYNCED} if shim is not None else set()))
        self._closed = False

    def environ(self) -> dict[str, str]:
        if self.shim is None:
            return {}
        environ = self.shim.environ()
        if self._preloaded:
            environ["LD_PRELOAD"] += f":{self._preloaded}"
        return environ

    def fill(self) -> None:
        if not self._capped:
            raise DiskError(
                f"{self.directory} has no room of its own to fill; mounting a tmpfs needs root"
            )
        capped.fill(self._mounted)

    def free(self) -> None:
        capped.free(self._mounted)

    def slow_fsync(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"a sync cannot take {ms} ms longer")
        self._needed().delay_syncs(ms)

    def swallow_syncs(self, on: bool = True) -> None:
        """Have the disk lie from now on: what it calls durable is not. For broken builds only."""
        self._needed().swallow_syncs(on)

    def crash(self, rng: random.Random) -> str:
        return str(self.lose_unsynced(rng))

    def lose_unsynced(self, rng: random.Random) -> Loss:
        """`crash`, in figures."""
        shim = self._needed()
        self._refuse_users()
        if not shim.attached:
            raise DiskError(
                f"no process ran with the shim over {self.directory} since the last crash; start "
                "it with what environ() gives, and not from a static binary"
            )
        if shim.troubles:
            raise DiskError(
                f"the shim could not keep {shim.troubles} changes of {self.directory}, so what a "
                f"power cut takes is not known; is there room at {shim.undo}?"
            )
        loss = roll_back(shim.data, shim.undo, shim.graves, rng)
        shim.begin_anew()
        return loss

    def damage(self, rng: random.Random) -> str:
        self._refuse_users()
        return damage_journal(self.directory, rng)

    def heal(self) -> None:
        self.free()
        if self.shim is not None:
            self.shim.delay_syncs(0)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self.shim is not None:
            self.shim.close()
        if self._capped:
            capped.unmount(self._mounted)

    def _needed(self) -> Shim:
        if self.shim is None:
            raise DiskError(
                f"syncs of {self.directory} can be neither slow nor lost: the shim could not be "
                "built, as the log says; install a C compiler"
            )
        return self.shim

    def _refuse_users(self) -> None:
        """Whoever still runs would write into what is being changed."""
        found = [] if self.shim is None else users(self.shim.control)
        if found:
            raise DiskError(f"{self.directory} is still in use by {found}; kill them first")
        lock = self.directory / "in-use-by"
        if not lock.exists():
            return
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DiskError(f"a server still has {self.directory} open; stop it") from error


def users(control: Path) -> list[int]:
    """Processes that were started under the shim with this control page, and have not ended."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if environ.get("JEPSEN_LITE_DISK_CONTROL") == str(control):
            found.append(process.pid)
    return found
