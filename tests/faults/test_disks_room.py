"""Disks of a run: what this machine allows, room that ends, and that nothing is left behind."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from jepsen_lite.disks import capped
from jepsen_lite.disks.machine import BROKEN_DISK, SWALLOW_FSYNC, Disks
from jepsen_lite.disks.port import DAMAGE, FULL, LOSE_UNSYNCED, SLOW_FSYNC, Disk, DiskError
from structlog.testing import capture_logs

from tests.faults.disk_cases import Writer

MEBIBYTE = 1 << 20


def test_a_full_disk_is_a_real_one(tmp_path: Path) -> None:
    """What is written fails with "no space left", and goes through once there is room again."""
    disks = Disks(tmp_path, size_bytes=4 * MEBIBYTE, environ={})
    try:
        disk: Disk = disks.open("s1")
        if FULL not in disk.can:
            pytest.skip(disks.missing[FULL])
        file = disk.directory / "file"
        file.write_bytes(b"x" * MEBIBYTE)
        for _ in range(2):
            disk.fill()
            with pytest.raises(OSError, match="No space left") as failure, file.open("ab") as more:
                more.write(b"x" * 8192)
            assert failure.value.errno == errno.ENOSPC
        disk.heal()
        disk.free()
        file.write_bytes(b"y" * 2 * MEBIBYTE)
        assert os.statvfs(disk.directory).f_bavail * os.statvfs(disk.directory).f_frsize > MEBIBYTE
        disk.fill()
        file.write_bytes(b"")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            file.write_bytes(b"y" * MEBIBYTE)
    finally:
        disks.close()


def test_each_disk_has_room_of_its_own_and_takes_it_away(tmp_path: Path) -> None:
    disks = Disks(tmp_path, size_bytes=MEBIBYTE, environ={})
    first, second = disks.open("s1"), disks.open("a b")
    if FULL not in first.can:
        disks.close()
        pytest.skip(disks.missing[FULL])
    ours = {first.directory.parent, second.directory.parent}
    assert ours <= set(capped.mounted())
    first.fill()
    (second.directory / "file").write_bytes(b"x" * 8192)
    disks.close()
    disks.close()
    assert not ours & set(capped.mounted())


def test_without_rights_the_disk_cannot_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a plain directory, and that is said aloud, once."""
    programs = tmp_path / "programs"
    programs.mkdir()
    refusing = programs / "mount"
    refusing.write_text("#!/bin/sh\necho 'mount: must be superuser' >&2\nexit 32\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with capture_logs() as logs:
        disks = Disks(tmp_path / "disks", environ={})
        disk, other = disks.open("s1"), disks.open("s2")
    said = [line for line in logs if line["fault"] == FULL]
    assert len(said) == 1
    assert "must be superuser" in said[0]["why"]
    assert FULL not in disk.can | other.can
    assert DAMAGE in disk.can
    (disk.directory / "file").write_text("x")
    with pytest.raises(DiskError, match="has no room of its own to fill"):
        disk.fill()
    disk.heal()
    disks.close()


def test_without_a_compiler_syncs_cannot_be_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with capture_logs() as logs:
        disks = Disks(tmp_path / "disks", environ={})
        disk = disks.open("s1")
    assert [line["fault"] for line in logs] == [SLOW_FSYNC, LOSE_UNSYNCED, FULL]
    assert "install one" in disks.missing[SLOW_FSYNC]
    assert disk.can == {DAMAGE}
    assert disk.environ() == {}
    for fault in (lambda: disk.slow_fsync(5), lambda: disk.crash(random.Random(1))):
        with pytest.raises(DiskError, match="install a C compiler"):
            fault()
    disks.close()
    with pytest.raises(DiskError, match="there is no C compiler"):
        Disks(tmp_path / "others", environ={BROKEN_DISK: "swallow_fsync"})


def test_a_broken_disk_is_asked_for_by_name(tmp_path: Path) -> None:
    """And what it is asked for must exist."""
    with pytest.raises(DiskError, match="is 'swallow'; it may be 'swallow_fsync', or not set"):
        Disks(tmp_path, environ={BROKEN_DISK: "swallow"})


def test_a_broken_disk_loses_what_was_synced(tmp_path: Path) -> None:
    """From its first write on, and only where it is asked for."""
    kept = {}
    for broken in ("", SWALLOW_FSYNC):
        disks = Disks(tmp_path / (broken or "sound"), environ={BROKEN_DISK: broken})
        try:
            disk = disks.open("s1")
            if LOSE_UNSYNCED not in disk.can:
                pytest.skip(disks.missing[LOSE_UNSYNCED])
            (disk.directory / "file").write_bytes(b"old")
            with Writer(disk) as writer:
                writer.do("file = os.open('file', os.O_WRONLY)")
                writer.do("os.fsync(file); os.write(file, b'new'); os.fsync(file)")
                writer.kill()
            told = disk.crash(random.Random(0))
            kept[broken] = (disk.directory / "file").read_bytes(), told
        finally:
            disks.close()
    assert kept[""] == (b"new", "nothing was lost (0 unsynced writes had reached the disk)")
    assert "syncs that were swallowed lost" in kept[SWALLOW_FSYNC][1]


def test_a_directory_that_cannot_be_preloaded_is_told(tmp_path: Path) -> None:
    """LD_PRELOAD takes blanks and colons for the end of a name."""
    with capture_logs():
        disks = Disks(tmp_path / "a b", environ={})
    assert "has a blank or a colon" in disks.missing[LOSE_UNSYNCED]
    disks.close()


def test_another_preloaded_library_stays(tmp_path: Path) -> None:
    disks = Disks(tmp_path, environ={"LD_PRELOAD": "/lib/other.so"})
    disk = disks.open("s1")
    if LOSE_UNSYNCED not in disk.can:
        disks.close()
        pytest.skip(disks.missing[LOSE_UNSYNCED])
    ours, other = disk.environ()["LD_PRELOAD"].split(":")
    assert Path(ours).is_relative_to(tmp_path)
    assert other == "/lib/other.so"
    disks.close()
