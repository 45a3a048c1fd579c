"""What is free on one host, and what is left when something is taken or given back.

A room is replaced and never edited, so that copies of all rooms share them and cost little.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from coord.model.entities import Gang, Hold, Host, Task
from coord.model.ids import role_of_gang
from coord.model.place import LEVELS, NOWHERE, domain
from coord.model.spec import Placing, Resources

WHOLE = 1_000
"""Thousandths of a device."""

TREE = LEVELS[:-1]
_NOWHERE = ("",) * len(TREE)

Order = tuple[str, ...]
"""A host's domains from the widest inwards, then its name: the order along the topology."""


class Kind(NamedTuple):
    """All that counts of what is free on a host, but for who is there."""

    device_type: str
    rails: int
    whole: int
    """Devices that are free altogether."""
    parts: tuple[int, ...]
    """Free thousandths of those that are taken in part, ascending."""
    cpu_millis: int
    memory_mib: int
    tasks: int = 1 << 30
    """Tasks that may still come: few on a host on probation."""

    @property
    def free_millis(self) -> int:
        return self.whole * WHOLE + sum(self.parts)

    def replicas(self, need: Resources) -> int:
        """How many fit. What is not needed is not asked for; UNBOUNDED if nothing is."""
        if need.device_types and self.device_type not in need.device_types:
            return 0
        if self.rails < need.rails:
            return 0
        count = UNBOUNDED
        if need.devices:
            count = self.whole // need.devices
        elif need.device_millis:
            part = need.device_millis
            count = self.whole * (WHOLE // part) + sum(free // part for free in self.parts)
        if need.cpu_millis:
            count = min(count, self.cpu_millis // need.cpu_millis)
        if need.memory_mib:
            count = min(count, self.memory_mib // need.memory_mib)
        return max(min(count, self.tasks), 0)

    def after(self, need: Resources) -> Kind:
        """With one replica less. Of parts, the tightest is used."""
        whole, parts = self.whole - need.devices, self.parts
        if need.device_millis:
            at = bisect_left(parts, need.device_millis)
            if at < len(parts):
                left = parts[at] - need.device_millis
                parts = (*parts[:at], *parts[at + 1 :])
            else:
                whole, left = whole - 1, WHOLE - need.device_millis
            parts = tuple(sorted((*parts, left))) if left else parts
        return Kind(
            self.device_type,
            self.rails,
            whole,
            parts,
            self.cpu_millis - need.cpu_millis,
            self.memory_mib - need.memory_mib,
            self.tasks if self.tasks == UNBOUNDED else self.tasks - 1,
        )


UNBOUNDED = 1 << 30


class Taker(NamedTuple):
    """Who is on a host: how many tasks and kept places of one gang, and whom it keeps away."""

    tasks: int
    apart_from: tuple[str, ...] = ()
    whole_hosts: bool = False


class Room:
    """What is free on a host: device numbers ascending, thousandths of CPUs, mebibytes."""

    __slots__ = ("_kind", "cpu_millis", "devices", "host", "memory_mib", "order", "parts", "takers")

    host: Host
    devices: tuple[int, ...]
    """Those that nobody has anything of."""
    parts: tuple[tuple[int, int], ...]
    """Devices taken in part, and how many thousandths of each are free."""
    takers: dict[str, Taker]
    """By gang. Never edited."""
    _kind: Kind | None

    def __init__(self, host: Host) -> None:
        self.host = host
        self.order = order_of(host)
        self.devices = tuple(range(host.devices))
        self.parts = ()
        self.cpu_millis = host.cpu_millis
        self.memory_mib = host.memory_mib
        self.takers = {}
        self._kind = None

    @property
    def kind(self) -> Kind:
        if self._kind is None:
            self._kind = Kind(
                self.host.device_type,
                len(self.host.rails),
                len(self.devices),
                tuple(sorted(free for _, free in self.parts)) if self.parts else (),
                self.cpu_millis,
                self.memory_mib,
                self._tasks_left(),
            )
        return self._kind

    def _tasks_left(self) -> int:
        if not self.host.probation:
            return UNBOUNDED
        return self.host.probation - sum(taker.tasks for taker in self.takers.values())

    def pick(self, need: Resources) -> tuple[int, ...]:
        """The devices that one replica would get: the lowest numbers; of parts, the tightest."""
        if not need.device_millis:
            return self.devices[: need.devices]
        fitting = [(free, device) for device, free in self.parts if free >= need.device_millis]
        return (min(fitting)[1],) if fitting else self.devices[:1]

    def take(self, taker: Hold | Task, gang: str, placing: Placing) -> Room:
        room = self._changed(-taker.cpu_millis, -taker.memory_mib)
        if taker.device_millis:
            room._change_part(taker.devices, -taker.device_millis)
        elif taker.devices:
            room.devices = _without(self.devices, taker.devices)
        before = self.takers.get(gang)
        count = before.tasks + 1 if before else 1
        entry = Taker(count, placing.apart_from, placing.whole_hosts)
        room.takers = {**self.takers, gang: entry}
        return room

    def fits(self, need: Resources) -> bool:
        """By what is free; whoever keeps others away is not asked."""
        return self.kind.replicas(need) > 0

    def hold(self, need: Resources, *, spare: bool) -> Hold:
        """What one replica would get, as a place to be kept."""
        return Hold(
            self.host.host,
            spare,
            self.pick(need),
            need.cpu_millis,
            need.memory_mib,
            need.device_millis,
        )

    def give_back(self, taker: Hold | Task, gang: str) -> Room:
        room = self._changed(taker.cpu_millis, taker.memory_mib)
        if taker.device_millis:
            room._change_part(taker.devices, taker.device_millis)
        elif taker.devices:
            room.devices = tuple(sorted((*self.devices, *taker.devices)))
        before = self.takers.get(gang)
        room.takers = {key: one for key, one in self.takers.items() if key != gang}
        if before is not None and before.tasks > 1:
            room.takers[gang] = before._replace(tasks=before.tasks - 1)
        return room

    def _changed(self, cpu_millis: int, memory_mib: int) -> Room:
        room = Room.__new__(Room)
        room.host, room.order, room.devices = self.host, self.order, self.devices
        room.parts, room.takers = self.parts, self.takers
        room.cpu_millis = self.cpu_millis + cpu_millis
        room.memory_mib = self.memory_mib + memory_mib
        room._kind = None
        return room

    def _change_part(self, devices: tuple[int, ...], millis: int) -> None:
        """Of a room that nobody has seen yet."""
        free = dict(self.parts)
        for device in devices:
            if device in self.devices:
                free[device] = WHOLE
            elif device >= self.host.devices:
                continue  # The host came back without it.
            free[device] = free.get(device, 0) + millis
        self.devices = tuple(
            sorted(
                (
                    *(device for device in self.devices if device not in devices),
                    *(device for device in devices if free.get(device, 0) >= WHOLE),
                )
            )
        )
        self.parts = tuple(
            (device, left) for device, left in sorted(free.items()) if 0 < left < WHOLE
        )

    def keeps_away(self, job: str, role: str, gang: str) -> bool:
        """Somebody there wants no company, or not this one's."""
        ours = (role_name(job, role), f"job/{job}")
        for key, taker in self.takers.items():
            if key == gang:
                continue
            if taker.whole_hosts:
                return True
            if taker.apart_from and any(
                _names(name, key.split("/", 1)[0]) in ours for name in taker.apart_from
            ):
                return True
        return False

    def objection(self, gang: Gang, placing: Placing) -> str:
        """Why the gang must not come although there may be room: `whole_hosts` (it wants no
        company), `kept_away` (others there want none), `apart_from`; empty when it may."""
        if not self.takers:
            return ""
        if placing.whole_hosts and any(key != gang.key for key in self.takers):
            return "whole_hosts"
        if self.keeps_away(gang.job, gang.role, gang.key):
            return "kept_away"
        if placing.apart_from and self.has_any_of(placing.apart_from, gang.job):
            return "apart_from"
        return ""

    def has_any_of(self, names: Iterable[str], job: str) -> bool:
        """A role of the job, or a `job/NAME`, is there."""
        wanted = dict.fromkeys(_names(name, job) for name in names)
        for key in self.takers:
            if f"job/{key.split('/', 1)[0]}" in wanted or role_of_gang(key) in wanted:
                return True
        return False

    def count_of(self, job: str, role: str, but: str) -> int:
        """Tasks and kept places of the role there, without those of the gang `but`."""
        ours = role_name(job, role)
        return sum(
            taker.tasks
            for key, taker in self.takers.items()
            if key != but and role_of_gang(key) == ours
        )


def order_of(host: Host) -> Order:
    if host.place is NOWHERE:
        return (*_NOWHERE, host.host)
    return (*(domain(host.place, host.host, level) for level in TREE), host.host)


def role_name(job: str, role: str) -> str:
    return f"{job}/{role}"


def _names(name: str, job: str) -> str:
    return name if name.startswith("job/") else role_name(job, name)


def _without(devices: tuple[int, ...], taken: tuple[int, ...]) -> tuple[int, ...]:
    count = len(taken)
    if devices[:count] == taken:
        return devices[count:]
    gone = dict.fromkeys(taken)
    return tuple(device for device in devices if device not in gone)
