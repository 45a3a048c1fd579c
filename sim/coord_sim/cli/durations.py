"""Durations on the command line: `90`, `60s`, `5m`, `1h30m`, `500ms`."""

from __future__ import annotations

import re
from typing import Any

import click

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
LONGEST_S = 7 * 86_400.0

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Duration(click.ParamType[float]):
    """Seconds. A number without a unit is seconds; parts with units add up."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return float(value)
        seconds = duration_s(str(value))
        if seconds is None:
            self.fail(f"{value!r} is no duration; write 90, 60s, 5m or 1h30m", param, ctx)
        if seconds > LONGEST_S:
            self.fail(f"{value!r} is more than 7d, the longest there may be", param, ctx)
        return seconds


def duration_s(text: str) -> float | None:
    """Seconds of `1h30m`; None for what is no duration."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * UNITS_S[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """`60s`, `1.5s`; the way back of what `duration_s` reads."""
    return f"{seconds:g}s"
