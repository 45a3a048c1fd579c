"""What this machine offers, and where this agent's socket is."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import msgspec
import psutil

SOCKET_PATH_LIMIT = 100
"""Linux takes 107 bytes; the rest is left to spare."""
PORT_COUNT = 32
PORT_RANGE = (20_000, 32_736)
"""Below the ports that Linux gives out by itself (from 32,768)."""


class Capacity(msgspec.Struct, frozen=True):
    """CPUs in thousandths, memory in mebibytes."""

    cpu_millis: int
    memory_mib: int


def capacity() -> Capacity:
    """All CPUs this process may run on, and all memory of the machine."""
    cpus = len(os.sched_getaffinity(0))
    return Capacity(cpus * 1_000, psutil.virtual_memory().total >> 20)


def socket_path(data_dir: Path) -> Path:
    """Where workers reach the agent: in its data directory, or where that path is too long, under
    XDG_RUNTIME_DIR or /tmp, by a name that follows from the data directory."""
    preferred = data_dir.resolve() / "worker.sock"
    if len(os.fsencode(preferred)) <= SOCKET_PATH_LIMIT:
        return preferred
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    name = f"coord-{os.geteuid()}-{digest}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and len(os.fsencode(runtime)) + len(name) + 20 <= SOCKET_PATH_LIMIT:
        return Path(runtime) / name / "worker.sock"
    return Path("/tmp") / name / "worker.sock"


class NoPorts(RuntimeError):
    """The port range has too few free ports."""


class PortBlock:
    """Some TCP ports that no other agent on this machine hands out.

    Ports come in blocks of PORT_COUNT; which one follows from the host id, so that a restarted
    agent gets its own again. A block is kept by a socket in Linux's abstract name space, which like
    ports is one per network namespace, and is free again when the agent ends, however it ends.
    """

    def __init__(self, host: str, port_range: tuple[int, int] = PORT_RANGE) -> None:
        first, last = port_range
        blocks = (last - first) // PORT_COUNT
        if blocks < 1:
            raise NoPorts(
                f"ports {first} to {last} do not hold {PORT_COUNT} ports; give a wider range with "
                "--ports"
            )
        start = int.from_bytes(hashlib.sha256(host.encode()).digest()[:8], "big") % blocks
        for step in range(blocks):
            base = first + (start + step) % blocks * PORT_COUNT
            keeper = _keep_block(base)
            if keeper is None:
                continue
            self.ports = tuple(port for port in range(base, base + PORT_COUNT) if is_free(port))
            if len(self.ports) >= PORT_COUNT // 2:
                self._keeper = keeper
                return
            keeper.close()
        raise NoPorts(
            f"no {PORT_COUNT // 2} free TCP ports in any block of {first} to {last}; give another "
            "range with --ports"
        )

    def close(self) -> None:
        self._keeper.close()


def _keep_block(base: int) -> socket.socket | None:
    keeper = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        keeper.bind(f"\0coord/ports/{base}")
    except OSError:
        keeper.close()
        return None
    return keeper


def is_free(port: int) -> bool:
    """Whether a server could listen on this TCP port now, on any address of this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do, so that connections of an earlier one that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
    return True
