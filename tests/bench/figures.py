"""What a figure is: values of several runs, a target, and a fixed piece of work beside each."""

from __future__ import annotations

import hashlib
import statistics
import time

import msgspec


class Figure(msgspec.Struct):
    """One measured figure. `at_most`: reached when the median is not above the target. A target of
    None is no promise: what is measured is told."""

    name: str
    unit: str
    target: float | None
    at_most: bool
    values: list[float]
    references: list[float]
    """Seconds that the fixed work took before each value: what else the machine was doing."""
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def reached(self) -> bool:
        if self.target is None:
            return True
        return self.median <= self.target if self.at_most else self.median >= self.target


class Row(msgspec.Struct):
    """A figure as it is printed."""

    figure: str
    unit: str
    median: float
    least: float
    most: float
    runs: int
    target: str
    reached: bool
    reference_s: float
    note: str = ""


def row(figure: Figure) -> Row:
    """What the table and the JSON output say of a figure."""
    sign = "<=" if figure.at_most else ">="
    return Row(
        figure.name,
        figure.unit,
        figure.median,
        min(figure.values),
        max(figure.values),
        len(figure.values),
        "" if figure.target is None else f"{sign} {figure.target:,.4g}",
        figure.reached,
        statistics.median(figure.references),
        figure.note,
    )


def reference_s() -> float:
    """Seconds for a fixed amount of hashing and counting on one core.

    Figures from times when this took longer are not comparable with others.
    """
    began = time.perf_counter()
    digest = hashlib.sha256()
    block = bytes(65_536)
    for _ in range(400):
        digest.update(block)
    counts: dict[int, int] = {}
    for number in range(200_000):
        counts[number % 1_000] = counts.get(number % 1_000, 0) + number
    return time.perf_counter() - began
