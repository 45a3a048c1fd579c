"""Kinds of options that several commands take."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import click


class Page(click.Path):
    """A file to be written when all is over: that it can be is known before anything has begun."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = os.fsdecode(super().convert(value, param, ctx))
        directory = Path(path).parent
        if not directory.is_dir():
            self.fail(f"{path!r} cannot be written: {directory} is no directory", param, ctx)
        return path


class FiniteRange(click.FloatRange):
    """A number between two: `nan` compares with neither and is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number to count with", param, ctx)
        return number
