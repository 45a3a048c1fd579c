"""What queues and owners use, and how much more they may.

Counted in thousandths of devices. A queue is charged with the claims of its gangs: what a gang runs
on until it ends, what is kept for its restart, what others are being stopped for, and its spares.
Beyond its quota a queue borrows what is free, as far as its borrowing limit goes and without what
other queues do not lend.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from coord.core.placement import Rooms
from coord.core.queueing.claims import DEVICE, charge_of, each_of, owner_of
from coord.core.state import State
from coord.model.entities import Gang
from coord.model.queue import QueueSpec
from coord.model.spec import RoleSpec

NO_LIMIT = 1 << 60
NO_QUEUE = QueueSpec("")
"""Where jobs wait that name no queue: entitled to nothing, it borrows whatever is free."""


class Grant(msgspec.Struct, frozen=True):
    """How much a gang may have now."""

    replicas: int
    """0 when it must wait for its queue."""
    spares: int = 0
    closed: tuple[str, ...] = ()
    """Device types of which its queue may not use so much more."""
    detail: str = ""
    """Why it must wait."""
    left: int = NO_LIMIT
    """Thousandths of devices that its queue may use besides what it uses."""


class Shares:
    """Who uses how much at a moment. `charge` keeps it right while gangs start."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.use = dict(state.claims.queues)
        """By queue."""
        self.owners = dict(state.claims.owners)
        """By queue and owner."""
        self.typed: dict[tuple[str, str], int] = {}
        """By queue and device type, for queues that have quotas of types."""
        typed = {name: None for name, queue in state.queues.items() if queue.spec.quotas}
        for key, claim in state.claims.of.items() if typed else ():
            if claim.queue in typed:
                self._charge_types(state.gangs[key], claim.queue, 1)

    def spec(self, queue: str) -> QueueSpec:
        known = self._state.queues.get(queue)
        return known.spec if known is not None else NO_QUEUE

    def charge(self, gang: Gang, sign: int) -> None:
        """Add what a gang is charged with, or take it off with -1."""
        state = self._state
        job = state.jobs[gang.job]
        queue = job.spec.queue
        amount = sign * charge_of(gang, job)
        if not amount:
            return
        self.use[queue] = self.use.get(queue, 0) + amount
        owner = (queue, owner_of(job))
        self.owners[owner] = self.owners.get(owner, 0) + amount
        if self.spec(queue).quotas:
            self._charge_types(gang, queue, sign)

    def _charge_types(self, gang: Gang, queue: str, sign: int) -> None:
        each = sign * each_of(self._role(gang).resources)
        for name in hosts_claimed(self._state, gang):
            at = (queue, _type_of(self._state, name))
            self.typed[at] = self.typed.get(at, 0) + each

    def _role(self, gang: Gang) -> RoleSpec:
        role = self._state.jobs[gang.job].spec.role(gang.role)
        assert role is not None, f"gang {gang.key} of a role its job does not have"
        return role

    def borrowed(self, queue: str) -> int:
        """What the queue uses beyond its quota."""
        return max(self.use.get(queue, 0) - self.spec(queue).quota * DEVICE, 0)

    def kept_back(self, queue: str) -> int:
        """What other queues do not use of their quotas and do not lend."""
        kept = 0
        for other in self._state.queues.values():
            spec = other.spec
            if other.name != queue and spec.lendable_permille < 1_000:
                unused = max(spec.quota * DEVICE - self.use.get(other.name, 0), 0)
                kept += unused * (1_000 - spec.lendable_permille) // 1_000
        return kept

    def is_entitled(self, gang: Gang, replicas: int, freed: int = 0) -> bool:
        """So many replicas are within its queue's quota, and within that of a type that they may
        have, once `freed` of it has been given back."""
        job = self._state.jobs[gang.job]
        queue = job.spec.queue
        each = each_of(self._role(gang).resources)
        used = self.use.get(queue, 0) - charge_of(gang, job) - freed
        if used + replicas * each > self.spec(queue).quota * DEVICE:
            return False
        return self.has_type_left(gang, replicas, freed)

    def has_type_left(self, gang: Gang, replicas: int, freed: int = 0) -> bool:
        """Of some type that the gang may have, its queue's quota has room for so many replicas. Of
        a gang that names no types that is not asked."""
        spec = self.spec(self._state.jobs[gang.job].spec.queue)
        need = self._role(gang).resources
        each = each_of(need)
        if not spec.quotas or not each or not need.device_types:
            return True
        closed, _ = self._closed(spec, gang, replicas, each, freed, claiming=True)
        return any(name not in closed for name in need.device_types)

    def grant(
        self, gang: Gang, smallest: int, free: int, freed: int = 0, *, claiming: bool = False
    ) -> Grant:
        """How many of the gang's replicas its queue may have, at most `gang.desired`.

        `free` is what of the fleet nobody has. `freed` is what the queue will have given back by
        then. `claiming`: others are stopped for it, so that no type may be borrowed.
        """
        job = self._state.jobs[gang.job]
        role = self._role(gang)
        each = each_of(role.resources)
        spec = self.spec(job.spec.queue)
        if not each:
            return Grant(gang.desired, role.spares)
        own = charge_of(gang, job)
        used = self.use.get(spec.name, 0) - own - freed
        left = self._left(spec, used, free + own, smallest * each)
        replicas = min(gang.desired, max(left // each, gang.claim))
        if replicas < smallest:
            detail = self._why_not(spec, used + freed, smallest * each, left)
            return Grant(0, detail=detail, left=max(left, 0))
        closed: tuple[str, ...] = ()
        if spec.quotas:
            closed, most = self._closed(spec, gang, smallest, each, freed, claiming=claiming)
            replicas = min(replicas, most)
        spares = min(role.spares, max(left // each - replicas, 0))
        return Grant(replicas, spares, closed, left=left)

    def _left(self, spec: QueueSpec, used: int, free: int, need: int) -> int:
        """How much the queue may use besides what it uses."""
        entitled = spec.quota * DEVICE - used
        left = NO_LIMIT
        if spec.borrowing_limit >= 0:
            left = entitled + spec.borrowing_limit * DEVICE
        kept = self.kept_back(spec.name)
        if kept and free >= need:  # If less is free, it is room that is short.
            left = min(left, max(free - kept, 0))
        return max(entitled, left)

    def _closed(
        self, spec: QueueSpec, gang: Gang, smallest: int, each: int, freed: int, *, claiming: bool
    ) -> tuple[tuple[str, ...], int]:
        """(types the gang must stay away from, replicas for which every other one has room). A
        queue that may borrow any number may borrow any number of each type; by stopping others
        it claims no more of a type than its quota of that."""
        closed: tuple[str, ...] = ()
        most = gang.desired
        if spec.borrowing_limit < 0 and not claiming:
            return closed, most
        beyond = 0 if claiming else spec.borrowing_limit
        mine: dict[str, int] = {}
        for name in hosts_claimed(self._state, gang):
            found = _type_of(self._state, name)
            mine[found] = mine.get(found, 0) + each
        for name, quota in sorted(spec.quotas.items()):
            used = self.typed.get((spec.name, name), 0) - mine.get(name, 0) - freed
            left = ((quota + beyond) * DEVICE - used) // each
            if left < smallest:
                closed = (*closed, name)
            else:
                most = min(most, left)
        return closed, most

    def _why_not(self, spec: QueueSpec, used: int, need: int, left: int) -> str:
        if not spec.name:
            return (
                f"needs {devices_text(need)}, {devices_text(max(left, 0))} are not kept by queues"
            )
        may = "" if spec.borrowing_limit < 0 else f", may borrow {spec.borrowing_limit}"
        return (
            f"needs {devices_text(need)}, may have {devices_text(max(left, 0))} more: queue "
            f"{spec.name} uses {devices_text(used)} of {spec.quota}{may}"
        )


def hosts_claimed(state: State, gang: Gang) -> Iterator[str]:
    """The host of every replica and spare that the gang's queue is charged with."""
    yield from gang.hosts[: gang.claim]
    for hold in gang.holds:
        if hold.spare:
            yield hold.host
    for key in gang.standbys:
        yield state.tasks[key].host


def narrowed(role: RoleSpec, rooms: Rooms, grant: Grant) -> RoleSpec | None:
    """The role with what it was granted: its spares, and the types it may use. None: no type."""
    role = replace(role, spares=grant.spares)
    if not grant.closed:
        return role
    types = role.resources.device_types or tuple(
        sorted({kind.device_type: None for kind in rooms.kinds})
    )
    left = tuple(name for name in types if name not in grant.closed)
    return replace(role, resources=replace(role.resources, device_types=left)) if left else None


def free_in(rooms: Rooms) -> int:
    """Devices free in these rooms, in thousandths."""
    return sum(kind.free_millis * len(orders) for kind, orders in rooms.kinds.items())


def devices_text(millis: int) -> str:
    """`4`, `0.5`: thousandths as devices."""
    whole, part = divmod(millis, DEVICE)
    return f"{whole}.{part:03d}".rstrip("0") if part else str(whole)


def _type_of(state: State, name: str) -> str:
    host = state.hosts.get(name)
    return host.device_type if host is not None else ""
