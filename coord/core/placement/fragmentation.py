"""How much of what is free is of no use to the jobs typically seen.

Fragmentation gradient descent (Weng et al., Beware of Fragmentation, USENIX ATC 2023): of a host's
free devices, a typical shape can use none when it does not fit there at all, else all but those
taken by too much already. Weighted by how often each shape is seen, that is what is wasted there;
and of several places the best is the one where taking it makes the least waste. In integers.

Which shapes are typical is learned from the jobs submitted: a bounded table of weights, halved when
it grows heavy so that old habits fade. While nothing was seen, shapes of 1, 2, 4, 8 devices count.
"""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.placement.room import UNBOUNDED, WHOLE, Kind
from coord.core.state import State
from coord.model.entities import TYPICAL
from coord.model.spec import JobSpec, Resources
from coord.model.typical import Shape, Typical

SEEN_LIMIT = 256
DRAWN_LIMIT = 64
WEIGHT_LIMIT = 64
"""That one role may add: a large gang is seen once."""
HEAVY = 1 << 16
"""All weights together; above, they are halved."""

DRAW_AFTER = 16
DRAW_SHARE = 8
"""The drawn shapes are renewed after so many roles, or that share of all weight if it is more:
whatever was reckoned with them stays right in between."""

NEEDS_LIMIT = 1_024
KINDS_LIMIT = 16_384
"""Of what is remembered: bounds, not promises."""

UNSEEN = tuple(Shape(Resources(devices=1 << power), 1) for power in range(4))


def remember_shapes(state: State, spec: JobSpec) -> None:
    """A job was submitted: its roles that want devices count among the shapes seen."""
    row = state.typical.get(TYPICAL, Typical())
    weights = {shape.need: shape.weight for shape in row.seen}
    before = row
    for role in spec.roles:
        need = role.resources
        if need.devices or need.device_millis:
            weights[need] = weights.get(need, 0) + min(role.replicas, WEIGHT_LIMIT)
            row = replace(row, since=row.since + 1)
    if row is before:
        return
    total = sum(weights.values())
    if total > HEAVY:
        weights = {need: weight // 2 for need, weight in weights.items() if weight > 1}
    seen = tuple(sorted((Shape(*item) for item in weights.items()), key=_weight)[:SEEN_LIMIT])
    row = replace(row, seen=seen)
    if not row.drawn or row.since >= max(DRAW_AFTER, total // DRAW_SHARE):
        row = replace(row, drawn=seen[:DRAWN_LIMIT], since=0)
    state.typical.put(TYPICAL, row)


def _weight(shape: Shape) -> tuple[int, int, int, int, int, int, tuple[str, ...]]:
    need = shape.need
    return (
        -shape.weight,
        need.devices,
        need.device_millis,
        need.cpu_millis,
        need.memory_mib,
        need.rails,
        need.device_types,
    )


def typical_shapes(state: State) -> tuple[Shape, ...]:
    row = state.typical.get(TYPICAL)
    return row.drawn if row is not None else UNSEEN


def wasted(kind: Kind, shapes: tuple[Shape, ...]) -> int:
    """Thousandths of devices that are free and of no use, times the weights of those they fail."""
    free = kind.free_millis
    if not free:
        return 0
    total = 0
    whole, parts, cpu_millis, memory_mib = kind.whole, kind.parts, kind.cpu_millis, kind.memory_mib
    largest = parts[-1] if parts else 0
    in_parts = free - whole * WHOLE
    for shape in shapes:
        need = shape.need
        part = need.device_millis
        if (
            whole < need.devices
            or (part and not whole and largest < part)
            or cpu_millis < need.cpu_millis
            or memory_mib < need.memory_mib
            or kind.rails < need.rails
            or (need.device_types and kind.device_type not in need.device_types)
        ):
            total += free * shape.weight
        elif not part:
            total += in_parts * shape.weight
        elif parts and parts[0] < part:
            total += sum(left for left in parts if left < part) * shape.weight
    return total


class Waste:
    """`wasted` by the same shapes, remembered."""

    def __init__(self, shapes: tuple[Shape, ...]) -> None:
        self.shapes = shapes
        self._known: dict[Kind, int] = {}

    def of(self, kind: Kind) -> int:
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= KINDS_LIMIT:
                self._known.clear()
            known = self._known[kind] = wasted(kind, self.shapes)
        return known


class Weighing:
    """How well each kind of room suits one need: remembered, for many hosts are alike."""

    def __init__(self, need: Resources, waste: Waste) -> None:
        self.need = need
        self._waste = waste
        self._known: dict[Kind, tuple[int, int]] = {}

    def of(self, kind: Kind) -> tuple[int, int]:
        """(replicas that fit there, what the first of them makes more of waste)."""
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= KINDS_LIMIT:
                self._known.clear()
            fit = kind.replicas(self.need)
            more = 0
            if fit and (fit < UNBOUNDED or kind.free_millis):
                more = self._waste.of(kind.after(self.need)) - self._waste.of(kind)
            known = self._known[kind] = (fit, more)
        return known


class Memory:
    """Of what was weighed for recent needs, as long as the same shapes are typical."""

    def __init__(self) -> None:
        self._waste = Waste(())
        self._known: dict[Resources, Weighing] = {}

    def of(self, need: Resources, shapes: tuple[Shape, ...]) -> Weighing:
        if shapes is not self._waste.shapes and shapes != self._waste.shapes:
            self._waste = Waste(shapes)
            self._known = {}
        if need not in self._known:
            if len(self._known) >= NEEDS_LIMIT:
                self._known.clear()
            self._known[need] = Weighing(need, self._waste)
        return self._known[need]
