"""Ports for what a test starts."""

from __future__ import annotations

from coord.cli.ports import KeptPorts

_kept = KeptPorts()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1, all different, which nobody else is given while this process lives."""
    return _kept.choose(count)


def free_address() -> str:
    """127.0.0.1 with such a port."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"
