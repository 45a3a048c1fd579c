"""Room on a disk: a tmpfs with a cap, so that a full disk is a real one."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

from jepsen_lite.disks.port import DiskError

SOURCE = "jepsen-lite"
"""By which our mounts are known in /proc/mounts."""
DEFAULT_SIZE_BYTES = 64 * 1024 * 1024
_TIMEOUT_S = 20.0
_BALLAST = "ballast"
_STEP_BYTES = 1 << 20


def mount(directory: Path, size_bytes: int = DEFAULT_SIZE_BYTES) -> None:
    """Put an empty tmpfs of this size there. Raises DiskError where this machine will not."""
    directory.mkdir(parents=True, exist_ok=True)
    if shutil.which("mount") is None:
        raise DiskError("there is no `mount` command; install it (Debian's package mount)")
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=755", SOURCE, str(directory))


def unmount(directory: Path) -> None:
    """Take it away, at once for everybody who comes now, whoever still uses it. Idempotent."""
    if directory.resolve() in mounted():
        _run("umount", "--lazy", str(directory))


def mounted() -> list[Path]:
    """Every place where a tmpfs of ours is, of whichever run."""
    found = []
    for line in Path("/proc/mounts").read_text().splitlines():
        source, target, kind, *_ = line.split(" ")
        if (source, kind) == (SOURCE, "tmpfs"):
            found.append(Path(target.encode().decode("unicode_escape")))
    return found


def fill(directory: Path) -> None:
    """Take all room that is left on the file system of this directory."""
    with (directory / _BALLAST).open("ab") as file:
        step = _STEP_BYTES
        while step >= 1:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise DiskError(f"{directory} cannot be filled: {error}") from error
                step //= 2


def free(directory: Path) -> None:
    """Give back what `fill` took. Idempotent."""
    (directory / _BALLAST).unlink(missing_ok=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise DiskError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
