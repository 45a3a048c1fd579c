"""Programs of the system that set the network up, run with their errors told."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Sequence

from jepsen_lite.network.port import NetworkFailed

TIMEOUT_S = 20.0


def run(command: Sequence[str], given: str = "") -> str:
    """Its output. Raises NetworkFailed, which names the command and what it said."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkFailed(f"`{' '.join(command)}` could not be run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise NetworkFailed(f"`{' '.join(command)}` failed: {said}{_about(given)}")
    return done.stdout


def batch(prefix: Sequence[str], lines: Sequence[str], tool: str = "ip") -> None:
    """Several commands of `ip` or `tc` in one process; the first that fails ends it."""
    run([*prefix, tool, "-batch", "-"], "\n".join(lines) + "\n")


@functools.cache
def missing_reset() -> dict[str, str]:
    """{"reset": why} where the kernel cannot be told to break connections."""
    if shutil.which("ss") is None:
        return {"reset": "there is no `ss` (install iproute2)"}
    with open("/proc/sys/kernel/osrelease") as file:
        release = file.read().strip()
    if not _destroys_sockets():
        return {"reset": f"kernel {release} has no INET_DIAG_DESTROY, which `ss -K` needs"}
    return {}


def _destroys_sockets() -> bool:
    """Break a connection of our own and see whether it is broken."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as ours:
            accepted, _ = server.accept()
            with accepted:
                subprocess.run(
                    ["ss", "-K", "dst", "127.0.0.1", "dport", "=", str(port)],
                    capture_output=True,
                    check=False,
                )
                ours.settimeout(1.0)
                try:
                    return ours.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True


def _about(given: str) -> str:
    return f"; it was given: {given.strip()!r}" if given else ""
