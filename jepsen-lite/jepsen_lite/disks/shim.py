"""The library between a process and its data directory, from this side. See shim.c and kept.c."""

from __future__ import annotations

import hashlib
import mmap
import shutil
import struct
import subprocess
import uuid
from importlib import resources
from pathlib import Path

from jepsen_lite.disks.port import DiskError

_PAGE_BYTES = 4096
_STATE, _DELAY_MS, _SWALLOW, _TROUBLES, _ATTACHED = 0, 4, 8, 12, 16
_SYNCS, _SWALLOWED, _KEPT = 24, 32, 40
_BUILD_TIMEOUT_S = 60.0


def build_shim(directory: Path) -> Path:
    """The shared library, compiled at the first call into this directory. Raises DiskError."""
    folder = resources.files("jepsen_lite.disks")
    source = b"".join(folder.joinpath(name).read_bytes() for name in ("kept.c", "shim.c"))
    library = directory / f"disk-shim-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if any(character in str(library) for character in " :"):
        raise DiskError(
            f"{library} cannot be preloaded, because its name has a blank or a colon, so syncs can "
            "be neither slow nor lost; choose another directory"
        )
    if library.exists():
        return library
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise DiskError(
            "there is no C compiler (cc, gcc, clang), so syncs can be neither slow nor lost; "
            "install one, such as Debian's package gcc with libc6-dev"
        )
    directory.mkdir(parents=True, exist_ok=True)
    partial = library.with_suffix(".part")
    command = [compiler, "-x", "c", "-O2", "-fPIC", "-shared", "-pthread", "-o", str(partial), "-"]
    try:
        built = subprocess.run(
            command, input=source, capture_output=True, timeout=_BUILD_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskError(f"{compiler} could not be run: {error}") from error
    if built.returncode:
        raise DiskError(
            f"{compiler} cannot build the shim, so syncs can be neither slow nor lost: "
            f"{built.stderr.decode(errors='replace').strip()}"
        )
    partial.rename(library)
    return library


class Shim:
    """The shim of one disk: `data` is watched, `undo` and `graves` are its own folders.

    `graves` must be on the same file system as `data`, and `undo` should not be, for it takes as
    much room as what is not synced.
    """

    def __init__(self, library: Path, data: Path, undo: Path, graves: Path) -> None:
        self.library = library
        self.data, self.undo, self.graves = (path.resolve() for path in (data, undo, graves))
        for path in (self.data, self.undo, self.graves):
            path.mkdir(parents=True, exist_ok=True)
        self.control = self.undo.with_name(self.undo.name + ".control")
        self.control.write_bytes(bytes(_PAGE_BYTES))
        with self.control.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _PAGE_BYTES)
        self.boot = self.undo.with_name(self.undo.name + ".boot")
        self._boot()

    def environ(self) -> dict[str, str]:
        """What a process must be started with to be under the shim."""
        return {
            "LD_PRELOAD": str(self.library),
            "JEPSEN_LITE_DISK_DATA": str(self.data),
            "JEPSEN_LITE_DISK_UNDO": str(self.undo),
            "JEPSEN_LITE_DISK_GRAVES": str(self.graves),
            "JEPSEN_LITE_DISK_CONTROL": str(self.control),
            "JEPSEN_LITE_DISK_BOOT": str(self.boot),
        }

    def delay_syncs(self, ms: int) -> None:
        """Let each fsync, fdatasync and write through O_DSYNC take so much longer, at once."""
        self._put(_DELAY_MS, ms)

    def swallow_syncs(self, on: bool) -> None:
        """Have syncs answered with success and not done: a disk that lies."""
        self._put(_SWALLOW, int(on))

    @property
    def attached(self) -> int:
        """Processes that came under it since the last crash."""
        return self._get(_ATTACHED)

    @property
    def troubles(self) -> int:
        """What could not be kept, so that a crash would not be true; must be 0."""
        return self._get(_TROUBLES)

    @property
    def syncs(self) -> int:
        """Waits for the disk that were done."""
        return self._get_wide(_SYNCS)

    @property
    def swallowed(self) -> int:
        """Waits for the disk that were not."""
        return self._get_wide(_SWALLOWED)

    @property
    def kept(self) -> int:
        """Changes of contents whose pre-image was kept."""
        return self._get_wide(_KEPT)

    def begin_anew(self) -> None:
        """After a crash: nothing is unsynced, nobody holds the lock, and the machine has booted
        again, as its boot id shows. Delay and lie stay."""
        for folder in (self.undo, self.graves):
            for path in folder.iterdir():
                path.unlink()
        self._put(_STATE, 0)
        self._put(_TROUBLES, 0)
        self._put(_ATTACHED, 0)
        self._boot()

    def _boot(self) -> None:
        self.boot.write_text(f"{uuid.uuid4()}\n")

    def close(self) -> None:
        """Let go of the control page. Idempotent."""
        self._page.close()

    def _put(self, offset: int, value: int) -> None:
        struct.pack_into("=I", self._page, offset, value)

    def _get(self, offset: int) -> int:
        return int(struct.unpack_from("=I", self._page, offset)[0])

    def _get_wide(self, offset: int) -> int:
        return int(struct.unpack_from("=Q", self._page, offset)[0])
