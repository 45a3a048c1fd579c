"""What can be broken on this machine, and why the rest cannot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from jepsen_lite.cluster import leftovers
from jepsen_lite.disks import capped
from jepsen_lite.disks.port import DiskError
from jepsen_lite.disks.shim import build_shim
from jepsen_lite.nemeses.catalogue import chosen
from jepsen_lite.nemeses.port import NEEDS
from jepsen_lite.network import namespaces
from jepsen_lite.network.namespaces import Namespaces
from jepsen_lite.network.port import CAPABILITIES
from jepsen_lite.workloads.catalogue import workloads_named

JOIN = "join"
AGENTS = "agents"


class Abilities(msgspec.Struct, frozen=True):
    """Of the words that workloads and nemeses need, those that are lacking, each with the reason
    and what to do about it."""

    lacks: dict[str, str]
    workloads: dict[str, str] = {}
    """Those that cannot be had by their names, whatever they need, each with the reason."""
    nemeses: dict[str, str] = {}
    """Likewise."""

    def against(self, needs: Iterable[str]) -> list[str]:
        """Why something with these needs cannot be done here; empty when it can."""
        return [f"{need}: {self.lacks[need]}" for need in sorted(needs) if need in self.lacks]

    def against_run(self, workload: str, nemesis: str) -> list[str]:
        """Likewise, of names joined by +."""
        refused = [
            *((one.name, self.workloads.get(one.name)) for one in workloads_named(workload)),
            *((one.name, self.nemeses.get(one.name)) for one in chosen(nemesis)),
        ]
        return [
            *self.against(needs_of(workload, nemesis) if self.lacks else ()),
            *(f"{name}: {reason}" for name, reason in refused if reason),
        ]


def needs_of(workload: str, nemesis: str) -> frozenset[str]:
    """Of names joined by +, together."""
    return frozenset().union(
        *(one.needs for one in workloads_named(workload)), *(one.needs for one in chosen(nemesis))
    )


def abilities_here(network: str = "auto", hosts: int = 1) -> Abilities:
    """What a cluster of our own lacks on this machine, with this network and so many hosts."""
    lacks = {**_network_lacks(network), **_disk_lacks()}
    if not hosts:
        lacks[AGENTS] = "there are no hosts; give --hosts 1 or more"
    return Abilities({need: lacks[need] for need in (*NEEDS, JOIN) if need in lacks})


def network_here() -> str:
    """Which networks this machine gives, in a sentence."""
    problem = namespaces.obstacle()
    if problem:
        return f"the proxy, which can {', '.join(CAPABILITIES)}; no namespaces: {problem}"
    missing = Namespaces("").missing
    lacking = "".join(f"; they cannot {what}: {why}" for what, why in missing.items())
    return f"namespaces, and the proxy for what they cannot{lacking}"


def _network_lacks(network: str) -> dict[str, str]:
    """`auto` falls back on the proxy, which can do everything."""
    if network != "namespaces":
        return {}
    problem = namespaces.obstacle()
    missing = dict.fromkeys(CAPABILITIES, problem) if problem else Namespaces("").missing
    return {f"network.{what}": f"{why}; or give --network proxied" for what, why in missing.items()}


def _disk_lacks() -> dict[str, str]:
    """Found by trying: a mount, and the library that goes below a process's file system calls."""
    lacks = {}
    with tempfile.TemporaryDirectory(prefix="jepsen-lite-") as name:
        directory = Path(name).resolve()
        leftovers.sign(directory, leftovers.new_mark())
        try:
            capped.mount(directory / "disk", 1 << 20)
        except DiskError as error:
            lacks["disk.full"] = f"{error}; mounting a tmpfs needs root"
        finally:
            capped.unmount(directory / "disk")
        try:
            build_shim(directory)
        except DiskError as error:
            lacks["disk.slow_fsync"] = lacks["disk.lose_unsynced"] = str(error)
    return lacks
