"""Ports for what a test starts."""

from __future__ import annotations

from coord.cli.ports import FREE_PORTS, KeptPorts

_kept = KeptPorts()
_blocks: list[KeptPorts] = []


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1, all different, which nobody else is given while this process lives."""
    return _kept.choose(count)


def free_block(*offsets: int) -> int:
    """A port such that nobody else is given any of those so far above it while this process
    lives."""
    for port in range(FREE_PORTS.start, FREE_PORTS.stop - max(offsets), 7):
        kept = KeptPorts()
        if all(kept.keep(port + at, shared=False) for at in offsets):
            _blocks.append(kept)
            return port
        kept.close()
    raise AssertionError("no free ports")


def free_address() -> str:
    """127.0.0.1 with such a port."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"
