"""Faults of devices in what the kernel logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from coord.agent.kernel_log import (
    PAST_S,
    FollowedFile,
    KernelFault,
    KernelLine,
    device_numbers,
    fault_in,
    kernel_log,
    ring_line,
    watch,
)
from coord.model.events import DeviceFaultSeen

TELEMETRY = Path(__file__).parents[3] / "shared" / "data" / "telemetry"


@pytest.mark.parametrize(
    ("line", "kind", "code", "device"),
    [
        ("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=7, name=x, Timeout after",
         "xid", 119, "0000:9b:00"),
        ("6,3973,227996637,-;NVRM: Xid (PCI:0000:9B:00.0): 79, GPU has fallen off the bus.",
         "xid", 79, "0000:9b:00.0"),
        ("Feb 14 05:03:41 n1 kernel: nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Li",
         "sxid", 20034, "0000:05:00.0"),
        ("NVRM: Xid (0000:03:00): 13", "xid", 13, "0000:03:00"),
        ("[ 1843.3] NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: (PCI ID: 10de:26b5) installed in this "
         "system has NVRM: fallen off the bus and is not responding to commands.",
         "off_bus", 0, "0000:b3:00"),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#0", "memory", 0, "mc1"),
        ("kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", "link_down", 0, "mlx5_5"),
        ("vm-0 systemd-networkd[5398]: ib6: Lost carrier", "link_down", 0, "ib6"),
    ],
)  # fmt: skip
def test_a_fault_is_read_from_any_kind_of_line(
    line: str, kind: str, code: int, device: str
) -> None:
    found = fault_in(line)
    assert found is not None
    assert (found.kind, found.code, found.device) == (kind, code, device)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad",
        "NVRM: Xid (PCI:0000:9b:00): lots",
        "user says: Xid (PCI:0000:9b:00): 79",
        "kernel: mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
        "EDAC MC0: 1 CE memory read error",
        "NVRM: Xid (PCI:0000:9b:00): 99999999999999999999, x",
    ],
)
def test_other_lines_tell_of_none(line: str) -> None:
    assert fault_in(line) is None


def test_recorded_kernel_logs_are_read() -> None:
    """Every XID line of recorded logs, and of labelled lines just those with such a label."""
    if not TELEMETRY.exists():
        pytest.skip(f"{TELEMETRY} is not there: recorded logs are not part of this repository")
    lines = (TELEMETRY / "gpud" / "dmesg-with-xid-119.log").read_text().splitlines()
    found = [fault for line in lines if (fault := fault_in(line)) is not None]
    assert [(fault.kind, fault.code, fault.device) for fault in found] == [
        ("xid", 119, "0000:9b:00")
    ] * 5
    labelled = [
        json.loads(line)
        for line in (TELEMETRY / "labelled" / "log_lines.jsonl").read_text().splitlines()
    ]
    for one in labelled:
        fault = fault_in(one["line"])
        if one["label"].startswith("gpu_xid_"):
            assert fault is not None
            assert fault.code == int(one["label"].removeprefix("gpu_xid_"))
        elif one["label"] == "gpu_fallen_off_bus_no_xid":
            assert fault is not None
            assert fault.kind == "off_bus"
        elif not one["label"].startswith(("infiniband", "ib_", "mlx5", "gpu")):
            assert fault is None, one


class Recited:
    """A kernel log that says these lines and ends."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    async def lines(self) -> AsyncIterator[KernelLine]:
        for line in self._lines:
            yield KernelLine(line, 5)


class Unreadable:
    async def lines(self) -> AsyncIterator[KernelLine]:
        raise PermissionError(1, "not permitted")
        yield KernelLine("")  # Makes it a generator.


def test_a_device_in_trouble_is_told_once_a_minute() -> None:
    """A thousand lines a second would drown everything else in the log."""
    told: list[DeviceFaultSeen] = []

    def tell(event: Callable[[int], DeviceFaultSeen]) -> None:
        told.append(event(3))

    lines = ["NVRM: Xid (PCI:0000:9b:00): 31, MMU Fault"] * 1_000
    lines += ["noise", "NVRM: Xid (PCI:0000:9c:00): 31, MMU Fault"]
    asyncio.run(watch(Recited(lines), "h1", tell))
    assert told == [
        DeviceFaultSeen("h1", 3, "xid", 31, device, "MMU Fault", 5)
        for device in ("0000:9b:00", "0000:9c:00")
    ]


def test_an_unreadable_log_does_not_end_the_agent() -> None:
    asyncio.run(watch(Unreadable(), "h1", lambda event: None))


def test_the_ring_dates_its_records_and_leaves_out_old_ones() -> None:
    record = b"4,1234,2000000,-;NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen\n SUBSYSTEM=pci\n"
    line = ring_line(record, wall_s=100.0, monotonic_s=5.0)
    assert line == KernelLine("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen", 97_000)
    assert ring_line(record, wall_s=100.0, monotonic_s=3.0 + PAST_S) is None
    assert ring_line(b"garbage", 1.0, 1.0) is None


def test_a_file_is_followed_from_its_end_and_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("old line\n")

    async def follow() -> list[str]:
        found: list[str] = []
        lines = FollowedFile(path).lines()
        first = asyncio.ensure_future(anext(lines))
        await asyncio.to_thread(lambda: None)
        with path.open("a") as file:
            file.write("half ")
            file.flush()
            file.write("line\n")
        found.append((await asyncio.wait_for(first, 10)).text)
        path.rename(tmp_path / "kern.log.1")
        path.write_text("after rotation\nagain\n")
        found.append((await asyncio.wait_for(anext(lines), 10)).text)
        found.append((await asyncio.wait_for(anext(lines), 10)).text)
        await lines.aclose()  # type: ignore[attr-defined]
        return found

    assert asyncio.run(follow()) == ["half line", "after rotation", "again"]


def test_where_to_look_is_a_word_or_a_file(tmp_path: Path) -> None:
    assert kernel_log("") is None
    assert isinstance(kernel_log(str(tmp_path / "x")), FollowedFile)
    assert type(kernel_log("journal")).__name__ == "Journal"
    assert type(kernel_log("kmsg")).__name__ == "KernelRing"
    assert isinstance(fault_in("NVRM: Xid (PCI:0000:9b:00): 1"), KernelFault)


def test_a_fault_is_told_with_the_number_of_its_device(tmp_path: Path) -> None:
    """The driver lists them by PCI address; the kernel writes it with and without its function. A
    device that is not listed, and a switch, have no number."""
    for name in ("0000:3b:00.0", "0000:0a:00.0", "0000:AF:00.0"):
        (tmp_path / name).mkdir()
    numbers = device_numbers(tmp_path)
    lines = [
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:00000000:af:00.0): 48, pid=1, DBE",
        "NVRM: Xid (PCI:0000:0b:00): 79, GPU has fallen off the bus.",
        "nvidia-nvswitch0: SXid (PCI:0000:0a:00.0): 20034, Fatal, Link 30",
    ]
    told: list[DeviceFaultSeen] = []
    asyncio.run(watch(Recited(lines), "h1", lambda event: told.append(event(1)), numbers))
    assert [one.numbers for one in told] == [(1,), (2,), (), ()]
    assert device_numbers(tmp_path / "none") == {}
