"""Operations on lanes: one lane for each client, or for each that are under way side by side."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import msgspec

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import brief
from jepsen_lite.report.scale import Scale

BARS = 4_000
"""More operations than this are drawn as density: a page of them all could not be looked at."""
MOST_LANES = 60
BAR_LANE_PX, DENSE_LANE_PX = 17, 26
BIN_PX = 3
LEAST_PX = 2.5
"""Whatever is not an acknowledged answer is seen, however rare."""
ORDER = (Outcome.OK, Outcome.FAIL, Outcome.INFO)


class Lane(msgspec.Struct):
    """Operations that do not overlap, but for those in doubt."""

    name: str
    operations: list[Operation]


def lanes_of(operations: Sequence[Operation], end_ns: int) -> list[Lane]:
    """By client, whichever name it went on under; where there are too many, as few lanes as hold
    all that were under way at a time."""
    named: dict[str, Lane] = {}
    for each in operations:
        name = each.client.partition(".")[0]
        named.setdefault(name, Lane(name, [])).operations.append(each)
    if len(named) <= MOST_LANES:
        return sorted(named.values(), key=lambda lane: _natural(lane.name))
    return _packed(operations, end_ns)


def is_dense(operations: Sequence[Operation]) -> bool:
    return len(operations) > BARS


def lane_px(dense: bool) -> int:
    return DENSE_LANE_PX if dense else BAR_LANE_PX


def draw_bars(lane: Lane, scale: Scale, y: int, accused: set[int]) -> Iterator[str]:
    """A bar for each operation; pointing at it tells what it was."""
    for each in lane.operations:
        x = scale.x(each.invoked_ns)
        width = max(scale.x(end_of(each, scale.end_ns)) - x, 2)
        kind = f"{each.outcome}{' accused' if each.number in accused else ''}"
        yield (
            f'<rect class="{kind}" x="{x}" y="{y + 2}" width="{width:.1f}"'
            f' height="{BAR_LANE_PX - 5}"><title>{escape(told(each, scale))}</title></rect>'
        )


def draw_density(lane: Lane, scale: Scale, y: int, most: int, accused: set[int]) -> Iterator[str]:
    """One path for each outcome, whose height is how many began there; `most` fills the lane. What
    is accused stands out by itself."""
    counts = binned(lane.operations, scale)
    height = DENSE_LANE_PX - 4
    floor: dict[int, float] = {}
    totals = Counter(each.outcome for each in lane.operations)
    for outcome in ORDER:
        steps = []
        for at, count in sorted(counts[outcome].items()):
            tall = max(count / most * height, 0.5 if outcome is Outcome.OK else LEAST_PX)
            bottom = y + DENSE_LANE_PX - 2 - min(floor.get(at, 0.0), height - tall)
            floor[at] = floor.get(at, 0.0) + tall
            steps.append(f"M{at * BIN_PX} {bottom:.1f}v{-tall:.1f}h{BIN_PX}v{tall:.1f}z")
        if steps:
            title = f"<title>{escape(lane.name)}: {totals[outcome]:,} {outcome}</title>"
            yield f'<path class="{outcome}" d="{"".join(steps)}">{title}</path>'
    for each in lane.operations:
        if each.number in accused:
            yield (
                f'<rect class="{each.outcome} accused" x="{scale.x(each.invoked_ns)}" y="{y + 3}"'
                f' width="{BIN_PX}" height="{height}"><title>{escape(told(each, scale))}</title>'
                "</rect>"
            )


def most_in_a_bin(lanes: Iterable[Lane], scale: Scale) -> int:
    """Of any lane, all outcomes together."""
    most = 1
    for lane in lanes:
        together: Counter[int] = Counter()
        for counts in binned(lane.operations, scale).values():
            together.update(counts)
        most = max([most, *together.values()])
    return most


def binned(operations: Iterable[Operation], scale: Scale) -> dict[Outcome, Counter[int]]:
    """How many began in each bin of BIN_PX, by outcome."""
    counts: dict[Outcome, Counter[int]] = {outcome: Counter() for outcome in ORDER}
    for each in operations:
        counts[each.outcome][int(scale.x(each.invoked_ns) / BIN_PX)] += 1
    return counts


def end_of(operation: Operation, end_ns: int) -> int:
    return operation.completed_ns or end_ns


def told(operation: Operation, scale: Scale) -> str:
    """All there is to say about it, in a line."""
    argument = "" if operation.argument is None else f" {brief(operation.argument)}"
    key = f" {operation.key}" if operation.key else ""
    answer = f" = {brief(operation.result)}" if operation.result is not None else ""
    index = f", index {operation.index}" if operation.index else ""
    note = f", {operation.note}" if operation.note else ""
    until = scale.moment(operation.completed_ns) if operation.completed_ns else "never"
    return (
        f"#{operation.number} {operation.client}: {operation.action}{key}{argument}"
        f" -> {operation.outcome}{answer}{index}{note};"
        f" {scale.moment(operation.invoked_ns)} to {until}"
    )


def _packed(operations: Sequence[Operation], end_ns: int) -> list[Lane]:
    lanes: list[Lane] = []
    free: list[tuple[int, int]] = []
    """(from when on, which lane)"""
    for each in sorted(operations, key=lambda each: (each.invoked_ns, each.number)):
        if free and (free[0][0] <= each.invoked_ns or len(lanes) >= MOST_LANES):
            at = heapq.heappop(free)[1]
        else:
            at = len(lanes)
            lanes.append(Lane(f"side by side {at + 1}", []))
        lanes[at].operations.append(each)
        heapq.heappush(free, (end_of(each, end_ns), at))
    return lanes


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
