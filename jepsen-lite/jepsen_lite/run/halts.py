"""Servers that stopped of themselves, because something was as the product says it never is."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

HALTED = "no server halts, unless its store was damaged"
_EVENT = "event=node_halted "
_LENGTH = 300


def server_logs(logs: Path) -> list[Path]:
    """Of all servers that wrote into this directory."""
    return sorted(logs.glob("s*.log"))


def halts(logs: Path, but: Collection[str] = ()) -> list[str]:
    """What servers whose logs are in this directory said when they halted, each different thing
    once; `but` are those that had to."""
    found: dict[str, None] = {}
    for log in server_logs(logs):
        if log.stem in but:
            continue
        for line in log.read_text(errors="replace").splitlines():
            _, event, said = line.partition(_EVENT)
            if event:
                found[f"{log.stem}: {said[:_LENGTH]}"] = None
    return list(found)
