"""When the cluster acknowledged writes, and when it did not."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec

from jepsen_lite.history.journal import History
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.report.lanes import BIN_PX
from jepsen_lite.report.scale import Scale
from jepsen_lite.run.figures import READS

SILENCE_NS = 1_000_000_000
"""A shorter pause between acknowledgements is what a leader's change is allowed to take."""
HEIGHT = 64


class Silence(msgspec.Struct, frozen=True):
    """Nobody's write was acknowledged in between, though clients asked."""

    began_ns: int
    ended_ns: int

    @property
    def lasted_ns(self) -> int:
        return self.ended_ns - self.began_ns


def silences(history: History) -> list[Silence]:
    """Under load: between the first acknowledgement and healing. The longest first."""
    healing = [mark.at_ns for mark in history.marks if mark.name == "healing"]
    at = sorted(each.completed_ns for each in _acknowledged(history.operations))
    if healing:
        at = [one for one in at if one <= healing[0]] + [healing[0]]
    pauses = [Silence(one, other) for one, other in itertools.pairwise(at)]
    found = [pause for pause in pauses if pause.lasted_ns >= SILENCE_NS]
    return sorted(found, key=lambda pause: -pause.lasted_ns)


def draw_availability(history: History, scale: Scale, y: int) -> list[str]:
    """Acknowledged writes over time, and red where there were none for long."""
    parts = []
    if scale.unit_ns > 1:
        for pause in silences(history):
            x, end = scale.x(pause.began_ns), scale.x(pause.ended_ns)
            told = (
                f"no write acknowledged for {pause.lasted_ns / 1e9:.2f} s, from "
                f"{scale.moment(pause.began_ns)} on"
            )
            parts.append(
                f'<rect class="silence" x="{x}" y="{y}" width="{max(end - x, 2):.1f}"'
                f' height="{HEIGHT}"><title>{told}</title></rect>'
            )
    counts = Counter(
        int(scale.x(each.completed_ns) / BIN_PX) for each in _acknowledged(history.operations)
    )
    most = max(counts.values(), default=1)
    floor = y + HEIGHT
    steps = [
        f"M{at * BIN_PX} {floor}v{-count / most * (HEIGHT - 6):.1f}h{BIN_PX}V{floor}z"
        for at, count in sorted(counts.items())
    ]
    if steps:
        parts.append(f'<path class="ok" d="{"".join(steps)}"/>')
    return parts


def most_a_second(history: History, scale: Scale) -> float:
    """What the tallest bar stands for."""
    counts = Counter(
        int(scale.x(each.completed_ns) / BIN_PX) for each in _acknowledged(history.operations)
    )
    return max(counts.values(), default=0) / scale.at(BIN_PX)


def _acknowledged(operations: Sequence[Operation]) -> list[Operation]:
    return [
        each
        for each in operations
        if each.outcome is Outcome.OK and each.action not in READS and each.completed_ns
    ]
