"""What is broken: a product with an edit in its source, or a machine that misbehaves."""

from __future__ import annotations

from typing import Any

import msgspec


class Edit(msgspec.Struct, frozen=True):
    """In the file `file` of the package `coord`, `old` becomes `new`. `old` must stand there once,
    neither more often nor not at all."""

    file: str
    old: str
    new: str


class Breakage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is broken, and the run that is to notice.

    Either the product is (`edits`, of a copy of it), or what it stands on (`environ`, which the
    suite's own disks and network obey).
    """

    name: str
    what: str
    """What is broken, in words."""
    workload: str
    nemesis: str
    edits: tuple[Edit, ...] = ()
    environ: dict[str, str] = {}
    options: dict[str, Any] = {}
    """Of RunOptions, where the defaults make it too rare."""
