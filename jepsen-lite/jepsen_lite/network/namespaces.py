"""`Namespaces`: every party on a stack of the kernel's own, behind a router that drops packets.

A namespace for each party and one for the router, a veth pair from each party to the router, and
the party `clients` on this machine's own stack. A rule `from A to B blackhole` of the router is a
cut: nothing answers, nothing is told. Addresses are of loopback (`addresses.Subnet`), which the
kernel routes between namespaces where `route_localnet` says so. No namespace has a name: each lives
as long as the process that holds it, which carries the run's mark, so nothing is left when
processes end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from coord.cli.processes import MARK
from jepsen_lite.cluster.parties import CLIENTS, party_number
from jepsen_lite.network import commands, queues
from jepsen_lite.network.addresses import Subnet, random_subnet
from jepsen_lite.network.commands import run
from jepsen_lite.network.port import CAPABILITIES, NetworkFailed, Place, Shape, Shapes, require

TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
CUT_PREFERENCE = 100
HOLD_S = 5.0


def obstacle() -> str:
    """Why namespaces cannot be used here, and what to do; empty when they can."""
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return (
                f"there is no `{tool}`: install {package} (with your system's package tool), or "
                "use the proxy (--network proxied)"
            )
    tried = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "tried0", "type", "veth"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        return ""
    why = tried.stderr.strip() or f"exit code {tried.returncode}"
    if os.geteuid() != 0:
        return (
            f"network namespaces need root, and this is user {os.geteuid()} ({why}): run as root, "
            "or use the proxy (--network proxied)"
        )
    return (
        f"this machine gives no namespace with a veth pair ({why}): allow CAP_NET_ADMIN and "
        "CAP_SYS_ADMIN (of a container: --privileged), or use the proxy (--network proxied)"
    )


class Namespaces:
    """Namespaces held by processes that carry `mark`."""

    name = "namespaces"

    def __init__(self, mark: str, *, subnet: Subnet | None = None) -> None:
        self.subnet = subnet or random_subnet()
        self.missing = {**queues.missing(), **commands.missing_reset()}
        self.can = frozenset(CAPABILITIES) - self.missing.keys()
        self._mark = mark
        self._shapes = Shapes()
        self._places: dict[str, Place] = {}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._router: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        if problem := obstacle():
            raise NetworkFailed(problem)
        self._router = self._hold()
        run([*self._in_router, "sysctl", "-qw", "net.ipv4.ip_forward=1", *_LOOSE])

    def close(self) -> None:
        holders = [*self._holders.values(), *([self._router] if self._router else [])]
        self._holders.clear()
        self._places.clear()
        self._router = None
        for holder in holders:
            holder.kill()
            holder.wait()

    def add(self, party: str, ports: tuple[int, ...] = ()) -> Place:
        if party in self._places:
            raise ValueError(f"{party} has a place already; add each party once")
        prefix: tuple[str, ...] = ()
        holder = None
        if party != CLIENTS:
            holder = self._holders[party] = self._hold()
            prefix = _inside(holder.pid)
        self._connect(party, holder)
        address = self.subnet.address(party)
        self._places[party] = Place(party, address, address, prefix)
        return self._places[party]

    def cut(self, source: str, target: str) -> None:
        self._shape(source, target, "cut", cut=True)

    def delay(self, source: str, target: str, ms: float, jitter_ms: float = 0.0) -> None:
        self._shape(source, target, "delay", delay_ms=ms, jitter_ms=jitter_ms)

    def throttle(self, source: str, target: str, bytes_s: int) -> None:
        self._shape(source, target, "throttle", bytes_s=bytes_s)

    def lossy(self, source: str, target: str, share: float) -> None:
        self._shape(source, target, "lossy", share=share)

    def reset(self, source: str, target: str) -> None:
        """Both kernels forget their connections: what the source had under way is lost, and so may
        be the news of it, as it stands behind all that a slow link has queued."""
        require(self, "reset")
        self._check(source, target)
        for one, other in ((source, target), (target, source)):
            prefix, address = self._places[one].prefix, self._places[other].address
            run([*prefix, "ss", "-K", "dst", address])

    def mend(self, source: str, target: str) -> None:
        self._check(source, target)
        shape = self._shapes.table.pop((source, target), None)
        if shape is not None:
            self._apply(source, target, shape, Shape())

    def heal(self) -> None:
        for source, target in list(self._shapes.table):
            self.mend(source, target)

    # Inside

    @property
    def _in_router(self) -> tuple[str, ...]:
        if self._router is None:
            raise NetworkFailed("the network is not open; open it before use")
        return _inside(self._router.pid)

    def _hold(self) -> subprocess.Popen[bytes]:
        """A namespace, as a process that does nothing in it."""
        holder = subprocess.Popen(
            ["unshare", "--net", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            env={**os.environ, MARK: self._mark},
            start_new_session=True,
        )
        deadline = time.monotonic() + HOLD_S
        while _namespace(holder.pid) in ("", _namespace(os.getpid())):
            if holder.poll() is not None or time.monotonic() > deadline:
                raise NetworkFailed(
                    "a process with a network namespace of its own did not start; try "
                    "`unshare --net true` by hand"
                )
            time.sleep(0.005)
        return holder

    def _connect(self, party: str, holder: subprocess.Popen[bytes] | None) -> None:
        """A veth pair from the party to the router. Routes stand in the table `local`, where they
        come before the kernel's own of all 127.0.0.0/8, and go away with the pair."""
        assert self._router is not None
        address, router = self.subnet.address(party), self.subnet.router
        # Interface names have 15 characters at most, and this machine's are shared with others.
        ours, theirs = f"{interface_prefix(self._mark)}{party_number(party)}", _router_end(party)
        inside = _inside(holder.pid) if holder else ()
        to_party = ("netns", str(holder.pid)) if holder else ()
        to_router = ("netns", str(self._router.pid))
        run(["ip", "link", "add", ours, *to_party, "type", "veth", "peer", theirs, *to_router])
        local = f"net.ipv4.conf.{ours}"
        run([*inside, "sysctl", "-qw", f"{local}.route_localnet=1", f"{local}.rp_filter=0"])
        commands.batch(
            inside,
            [
                *(["link set lo up"] if holder else []),
                f"link set {ours} up",
                f"addr add {address}/32 dev {ours}",
                f"route add table local {router}/32 dev {ours} scope link src {address}",
                f"route add table local {self.subnet} via {router} dev {ours} src {address}",
            ],
        )
        commands.batch(
            self._in_router,
            [
                f"link set {theirs} up",
                f"addr add {router}/32 dev {theirs}",
                f"route add {address}/32 dev {theirs}",
            ],
        )
        queues.prepare(self._in_router, theirs)

    def _shape(self, source: str, target: str, capability: str, **changes: float) -> None:
        require(self, capability)
        self._check(source, target)
        before = self._shapes.table.get((source, target), Shape())
        self._apply(source, target, before, self._shapes.change(source, target, **changes))

    def _apply(self, source: str, target: str, before: Shape, after: Shape) -> None:
        one, other = self.subnet.address(source), self.subnet.address(target)
        if before.cut != after.cut:
            verb = "add" if after.cut else "del"
            rule = f"rule {verb} pref {CUT_PREFERENCE} from {one} to {other} blackhole"
            commands.batch(self._in_router, [rule])
        queues.apply(self._in_router, _router_end(target), party_number(source), one, before, after)

    def _check(self, *parties: str) -> None:
        for party in parties:
            if party not in self._places:
                raise ValueError(
                    f"{party!r} is no party of this network; there are {', '.join(self._places)}"
                )


_LOOSE = tuple(
    f"net.ipv4.conf.{which}.{name}"
    for which in ("all", "default")
    for name in ("route_localnet=1", "rp_filter=0")
)


def interface_prefix(mark: str) -> str:
    """How the names of a run's interfaces begin."""
    return f"jl{mark.rpartition('.')[2][-8:]}-"


def _inside(pid: int) -> tuple[str, ...]:
    """Goes before a command that is to run in the namespace of this process."""
    return ("nsenter", f"--net=/proc/{pid}/ns/net", "--")


def _router_end(party: str) -> str:
    return f"to-{party}"


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    return ""
