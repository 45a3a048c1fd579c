"""Durations as people write them: `30m`, `1h30m`, `90s`, `500ms`."""

from __future__ import annotations

import re

import click

from coord.model.settings import LONGEST_MS

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+)(ms|s|m|h|d)")


class Duration(click.ParamType[int]):
    """Milliseconds, given with units; the longest is that of the log (11 days)."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            self.fail(f"{text!r} is no duration; write 30m, 1h30m, 90s or 500ms", param, ctx)
        duration_ms = sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
        if not 0 < duration_ms <= LONGEST_MS:
            longest = f"{LONGEST_MS // _UNITS_MS['d']} days"
            self.fail(f"{text!r} is not between 1ms and {longest}", param, ctx)
        return duration_ms


DURATION = Duration()
