"""Slow and lossy links between namespaces: a class for each source on the router's interface to a
target, with a rate (`htb`) and, where the kernel has it, delay and loss (`netem`)."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Sequence

from jepsen_lite.network import commands
from jepsen_lite.network.port import Shape

FULL_BYTES_S = 1_250_000_000
"""What is not throttled goes at 10 Gbit/s."""
BURST_BYTES = 16 * 1024
QUEUED_PACKETS = 2_000
"""Of one class; what finds no room is lost and sent again."""


@functools.cache
def missing() -> dict[str, str]:
    """Which of delay, throttle and lossy this kernel cannot do, and why."""
    found = {}
    if shutil.which("tc") is None:
        why = "there is no `tc` (install iproute2)"
        return {"throttle": why, "delay": why, "lossy": why}
    if problem := _refused("htb"):
        found["throttle"] = f"the kernel has no queue of kind htb (CONFIG_NET_SCH_HTB): {problem}"
    if problem := _refused("netem delay 1ms") or found.get("throttle", ""):
        why = f"the kernel has no queue of kind netem (CONFIG_NET_SCH_NETEM): {problem}"
        found["delay"] = found["lossy"] = why
    return found


def prepare(prefix: Sequence[str], interface: str) -> None:
    """Let `apply` work on an interface. What no class takes goes at full speed."""
    if "throttle" not in missing():
        commands.batch(prefix, [f"qdisc add dev {interface} root handle 1: htb"], "tc")


def apply(
    prefix: Sequence[str], interface: str, number: int, address: str, before: Shape, after: Shape
) -> None:
    """Have what comes from `address` leave `interface` as `after` says. `number` is the source's,
    unlike that of any other."""
    if not (_slow(before) or _slow(after)):
        return
    lines = []
    if _slow(before):
        lines.append(f"filter del dev {interface} parent 1: prio {number} u32")
        lines.append(f"class del dev {interface} classid 1:{number:x}")
    if _slow(after):
        rate = 8 * (after.bytes_s or FULL_BYTES_S)
        lines += [
            f"class add dev {interface} parent 1: classid 1:{number:x} htb rate {rate}bit "
            f"burst {BURST_BYTES} cburst {BURST_BYTES}",
            f"qdisc add dev {interface} parent 1:{number:x} {_queue(after)}",
            f"filter add dev {interface} parent 1: protocol ip prio {number} u32 "
            f"match ip src {address}/32 flowid 1:{number:x}",
        ]
    commands.batch(prefix, lines, "tc")


def _queue(shape: Shape) -> str:
    if not (shape.delay_ms or shape.jitter_ms or shape.share):
        return f"pfifo limit {QUEUED_PACKETS}"
    return (
        f"netem limit {QUEUED_PACKETS} delay {shape.delay_ms}ms {shape.jitter_ms}ms "
        f"loss {100 * shape.share}%"
    )


def _slow(shape: Shape) -> bool:
    return bool(shape.bytes_s or shape.delay_ms or shape.jitter_ms or shape.share)


def _refused(kind: str) -> str:
    """What `tc` says against a queue of this kind; empty when it takes it."""
    tried = subprocess.run(
        ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", *kind.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if tried.returncode == 0 else tried.stderr.strip() or "refused"
