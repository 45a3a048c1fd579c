"""Faults of devices, from what the kernel and its drivers log.

Lines of `/dev/kmsg`, `dmesg`, `journalctl -k` and syslog files are read alike: only what the driver
itself wrote counts, wherever it stands in the line. One fault of one device is told at most once a
minute, because a device in trouble may say so a thousand times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from coord.model.events import DeviceFaultSeen

AGAIN_S = 60.0
"""Before this, the same fault of the same device is not told again."""
POLL_S = 0.5
PAST_S = 600.0
"""How old a fault in the kernel's ring may be when the agent starts."""
TEXT_LIMIT = 400
LINE_LIMIT = 8_192
KMSG = "/dev/kmsg"
JOURNAL = "journal"
NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
OF_DEVICES = ("xid", "off_bus")
"""Kinds of faults whose device is an accelerator. A fault of a switch (SXid) may concern any."""

log = structlog.get_logger()

_PCI = r"\(?(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)\)?"
_XID = re.compile(rf"NVRM: Xid {_PCI}: (\d{{1,9}})\b(?:,\s*(.*))?")
_SXID = re.compile(rf"nvidia-nvswitch\d*: SXid {_PCI}: (\d{{1,9}})\b(?:,\s*(.*))?")
_OFF_BUS = re.compile(
    r"NVRM:.*?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}).*fallen off the bus"
)
_MEMORY = re.compile(r"EDAC (\S+): \d+ UE ")
_LINK = re.compile(
    r"mlx5_core \S+ (\S+?):? Port: \d+ Link DOWN|systemd-networkd\S* (ib\d+): [Ll]ost carrier"
)


class KernelFault(msgspec.Struct, frozen=True):
    """A fault in one line. `kind` and `code` as in DeviceFaultSeen; `text` is what follows."""

    kind: str
    code: int
    device: str
    text: str


def fault_in(line: str) -> KernelFault | None:
    """The fault that a line tells of, if it does."""
    for kind, pattern in (("xid", _XID), ("sxid", _SXID)):
        found = pattern.search(line)
        if found is not None:
            device, code, text = found.groups()
            return KernelFault(kind, int(code), device.lower(), (text or "").strip()[:TEXT_LIMIT])
    for kind, pattern in (("off_bus", _OFF_BUS), ("memory", _MEMORY), ("link_down", _LINK)):
        found = pattern.search(line)
        if found is not None:
            device = next(group for group in found.groups() if group)
            return KernelFault(kind, 0, device.lower(), line.strip()[-TEXT_LIMIT:])
    return None


class KernelLine(msgspec.Struct, frozen=True):
    """`at_ms` is wall time in milliseconds, 0 where it is not known."""

    text: str
    at_ms: int = 0


class KernelLog(Protocol):
    """Where the kernel's lines come from, as they are written."""

    def lines(self) -> AsyncIterator[KernelLine]:
        """Every new line, for as long as somebody reads."""


class FollowedFile:
    """See `KernelLog`. A text file that grows, from where it ends now; also after a rotation."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def lines(self) -> AsyncIterator[KernelLine]:
        inode, offset, rest = 0, -1, b""
        while True:
            with contextlib.suppress(OSError), self._path.open("rb") as file:
                now = os.fstat(file.fileno())
                if offset < 0:
                    offset = now.st_size
                elif now.st_ino != inode or now.st_size < offset:
                    offset, rest = 0, b""
                inode = now.st_ino
                file.seek(offset)
                while chunk := file.read(65_536):
                    offset += len(chunk)
                    *whole, rest = (rest + chunk).split(b"\n")
                    rest = rest[-LINE_LIMIT:]
                    for line in whole:
                        yield KernelLine(line[:LINE_LIMIT].decode(errors="replace"))
            offset = max(offset, 0)  # It is not there yet: all of it will be new.
            await asyncio.sleep(POLL_S)


class KernelRing:
    """See `KernelLog`. `/dev/kmsg`: one record a read, `level,seq,microseconds,flags;text`."""

    async def lines(self) -> AsyncIterator[KernelLine]:
        descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while True:
                try:
                    record = os.read(descriptor, LINE_LIMIT)
                except BlockingIOError:
                    await asyncio.sleep(POLL_S)
                    continue
                except BrokenPipeError:
                    continue  # Records were overwritten before we read them: go on with the oldest.
                line = ring_line(record, time.time(), time.monotonic())
                if line is not None:
                    yield line
        finally:
            os.close(descriptor)


def ring_line(record: bytes, wall_s: float, monotonic_s: float) -> KernelLine | None:
    """A record of the ring; None for one that is too old or none at all."""
    head, separator, text = record.decode(errors="replace").partition(";")
    fields = head.split(",")
    if not separator or len(fields) < 3 or not fields[2].isdigit():
        return None
    age_s = monotonic_s - int(fields[2]) / 1_000_000
    if age_s > PAST_S:
        return None
    return KernelLine(text.split("\n", 1)[0], int((wall_s - max(age_s, 0.0)) * 1_000))


class Journal:
    """See `KernelLog`. `journalctl --dmesg --follow`, for as long as it runs; then begun again."""

    async def lines(self) -> AsyncIterator[KernelLine]:
        while True:
            process = await asyncio.create_subprocess_exec(
                "journalctl", "--dmesg", "--follow", "--lines=0", "--output=cat",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LINE_LIMIT,
            )  # fmt: skip
            try:
                assert process.stdout is not None
                while chunk := await process.stdout.readline():
                    yield KernelLine(chunk.decode(errors="replace").rstrip("\n"))
            finally:
                if process.returncode is None:
                    process.kill()
            await asyncio.sleep(POLL_S)


def kernel_log(where: str) -> KernelLog | None:
    """`kmsg`, `journal`, `auto` (the ring, if it may be read), a file, or nothing."""
    if where == "auto":
        return KernelRing() if os.access(KMSG, os.R_OK) else None
    if where in ("kmsg", KMSG):
        return KernelRing()
    if where == JOURNAL:
        return Journal()
    return FollowedFile(Path(where)) if where else None


async def watch(
    source: KernelLog,
    host: str,
    tell: Callable[[Callable[[int], DeviceFaultSeen]], None],
    numbers: Mapping[str, int] | None = None,
) -> None:
    """Report every fault. Where the log cannot be read, say so once and go without. `numbers`: of
    devices by PCI address; None: as the driver has them."""
    known = device_numbers() if numbers is None else numbers
    told: dict[tuple[str, int, str], float] = {}
    loop = asyncio.get_running_loop()
    try:
        async for line in source.lines():
            fault = fault_in(line.text)
            if fault is None:
                continue
            key = (fault.kind, fault.code, fault.device)
            if loop.time() - told.get(key, -AGAIN_S) < AGAIN_S:
                continue
            told[key] = loop.time()
            log.warning("device fault", kind=fault.kind, code=fault.code, device=fault.device)
            number = known.get(_address(fault.device), -1) if fault.kind in OF_DEVICES else -1
            tell(_seen(host, fault, line.at_ms, (number,) if number >= 0 else ()))
    except OSError as error:
        log.warning("kernel log cannot be read; faults of devices go unseen", error=str(error))


def _seen(
    host: str, fault: KernelFault, at_ms: int, numbers: tuple[int, ...]
) -> Callable[[int], DeviceFaultSeen]:
    return lambda incarnation: DeviceFaultSeen(
        host, incarnation, fault.kind, fault.code, fault.device, fault.text, at_ms, numbers
    )


def device_numbers(folder: Path = NVIDIA_DEVICES) -> dict[str, int]:
    """PCI address -> number of each device that the driver has, in the order of their addresses, as
    `nvidia-smi` numbers them. Empty where there is no such driver."""
    try:
        names = sorted(_address(path.name) for path in folder.iterdir())
    except OSError:
        return {}
    return {name: number for number, name in enumerate(names)}


def _address(device: str) -> str:
    """`0000:3B:00.0` and `00000000:3b:00` are one device."""
    domain, _, rest = device.lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest.partition('.')[0]}"
