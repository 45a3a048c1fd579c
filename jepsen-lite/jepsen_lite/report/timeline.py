"""The timeline: faults above, then what was acknowledged, then every client's operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from math import inf

import msgspec

from jepsen_lite.history.journal import History
from jepsen_lite.history.operation import Fault
from jepsen_lite.report import availability
from jepsen_lite.report.lanes import (
    draw_bars,
    draw_density,
    is_dense,
    lane_px,
    lanes_of,
    most_in_a_bin,
)
from jepsen_lite.report.scale import Scale

FAULT_PX = 20
AXIS_PX = 22
GAP_PX = 10
MARK_PX = 60
"""Room for the name of a mark."""
LABELS_PX = 170


class Timeline(msgspec.Struct, frozen=True):
    """Two SVG elements of one height: the names, which stay, and the lanes, which are scrolled."""

    names: str
    lanes: str
    dense: bool


def scale_of(history: History) -> Scale:
    """From the beginning to the last thing that happened. Histories of others have no run's facts,
    and their times are lines of a file."""
    moments = [each.completed_ns or each.invoked_ns for each in history.operations]
    moments += [mark.at_ns for mark in history.marks]
    moments += [fault.ended_ns or fault.began_ns for fault in history.faults]
    end_ns = max(moments, default=1)
    return Scale(end_ns) if history.facts else Scale(end_ns, 1, "line")


def draw_timeline(history: History, accused: Iterable[int] = ()) -> Timeline:
    """`accused` are numbers of operations that a verdict is about."""
    drawing = _Drawing(history, scale_of(history))
    drawing.axis()
    drawing.faults()
    drawing.availability()
    drawing.operations(set(accused))
    return drawing.timeline()


class _Drawing:
    """Fills both elements from top to bottom."""

    def __init__(self, history: History, scale: Scale) -> None:
        self.history = history
        self.scale = scale
        self.y = 0
        self.names: list[str] = []
        self.parts: list[str] = []
        self.dense = is_dense(history.operations)

    def axis(self) -> None:
        self.y = AXIS_PX

    def faults(self) -> None:
        by_nemesis: dict[str, list[Fault]] = {}
        for fault in self.history.faults:
            by_nemesis.setdefault(fault.nemesis, []).append(fault)
        for nemesis, faults in by_nemesis.items():
            self._name(nemesis, FAULT_PX, "strong")
            self.parts.extend(self._fault(fault) for fault in faults)
            self.y += FAULT_PX
        if by_nemesis:
            self.y += GAP_PX

    def availability(self) -> None:
        most = availability.most_a_second(self.history, self.scale)
        self._name("writes acknowledged", availability.HEIGHT, "strong")
        if self.scale.unit_ns > 1:
            self._name(f"at most {most:,.0f} a second", availability.HEIGHT + 34)
        self.parts += availability.draw_availability(self.history, self.scale, self.y)
        self.y += availability.HEIGHT + GAP_PX

    def operations(self, accused: set[int]) -> None:
        lanes = lanes_of(self.history.operations, self.scale.end_ns)
        most = most_in_a_bin(lanes, self.scale) if self.dense else 1
        tall = lane_px(self.dense)
        for number, lane in enumerate(lanes):
            self._name(lane.name, tall)
            if number % 2 == 0:
                self.parts.append(
                    f'<rect class="lane" x="0" y="{self.y}" width="{self.scale.width}"'
                    f' height="{tall}"/>'
                )
            if self.dense:
                self.parts += draw_density(lane, self.scale, self.y, most, accused)
            else:
                self.parts += draw_bars(lane, self.scale, self.y, accused)
            self.y += tall

    def timeline(self) -> Timeline:
        height = self.y + AXIS_PX
        behind = [*self._grid(height), *self._shadows(height)]
        marks = list(self._marks(height))
        names = "".join(self.names)
        return Timeline(
            f'<svg class="timeline" width="{LABELS_PX}" height="{height}">{names}</svg>',
            f'<svg class="timeline" width="{self.scale.width + MARK_PX}" height="{height}">'
            f"{''.join([*behind, *self.parts, *marks])}</svg>",
            self.dense,
        )

    def _name(self, text: str, tall: int, kind: str = "") -> None:
        shown = text if len(text) <= 24 else text[:23] + "\u2026"
        self.names.append(
            f'<text class="{kind}" x="{LABELS_PX - 8}" y="{self.y + tall / 2 + 4:.0f}"'
            f' text-anchor="end">{escape(shown)}<title>{escape(text)}</title></text>'
        )

    def _fault(self, fault: Fault) -> str:
        x, width = self._span(fault)
        until = self.scale.moment(fault.ended_ns) if fault.ended_ns else "the end"
        told = f"{fault.what}; {self.scale.moment(fault.began_ns)} to {until}"
        return (
            f'<rect class="fault" x="{x}" y="{self.y + 3}" width="{width:.1f}"'
            f' height="{FAULT_PX - 6}"><title>{escape(told)}</title></rect>'
        )

    def _shadows(self, height: int) -> Iterator[str]:
        """Faults reach down over everything that happened meanwhile."""
        for fault in self.history.faults:
            x, width = self._span(fault)
            yield (
                f'<rect class="shadow" x="{x}" y="{AXIS_PX}" width="{width:.1f}"'
                f' height="{height - AXIS_PX}"/>'
            )

    def _span(self, fault: Fault) -> tuple[float, float]:
        x = self.scale.x(fault.began_ns)
        return x, max(self.scale.x(fault.ended_ns or self.scale.end_ns) - x, 3)

    def _grid(self, height: int) -> Iterator[str]:
        for x, label in self.scale.ticks():
            yield f'<line class="grid" x1="{x}" y1="{AXIS_PX - 4}" x2="{x}" y2="{height}"/>'
            if x < self.scale.width - 40:
                yield f'<text class="faint" x="{x + 3}" y="{AXIS_PX - 8}">{label}</text>'

    def _marks(self, height: int) -> Iterator[str]:
        """Each name on the side of its line where there is room."""
        ends = [self.scale.x(mark.at_ns) for mark in self.history.marks]
        for mark, x, after in zip(self.history.marks, ends, [*ends, inf][1:], strict=True):
            left = after - x < MARK_PX <= x
            at, anchor = (x - 3, "end") if left else (x + 3, "start")
            yield f'<line class="mark" x1="{x}" y1="{AXIS_PX}" x2="{x}" y2="{height}"/>'
            yield (
                f'<text class="mark" x="{at:.1f}" y="{height - 6}" text-anchor="{anchor}">'
                f"{escape(mark.name)}</text>"
            )
