"""Where a host stands: in the tree of failure and network domains, and on the rails across it."""

from __future__ import annotations

import msgspec

LEVELS = ("zone", "pod", "rack", "nvlink", "host")
"""From the widest to the narrowest. A level of a tree that has none of it is left empty."""


class Place(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Names of the domains that a host stands in, from the widest inwards; empty: not known, or
    none. `nvlink` is the domain within which devices of several hosts are one (an NVL72 rack)."""

    zone: str = ""
    pod: str = ""
    rack: str = ""
    nvlink: str = ""


NOWHERE = Place()
"""Nothing is known of where a host stands. The default everywhere, as this very object, so that it
is left out of what is digested."""


class Rail(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A port of a host on the network: which rail it is, and the leaf switch at its other end."""

    rail: str
    switch: str = ""


def domain(place: Place, host: str, level: str) -> str:
    """The host's domain at a level, as a path from the widest level on, so that `r1` of two pods is
    two racks; empty where the host has none at that level. Raises ValueError for no level."""
    if level == "host":
        return host
    at = LEVELS.index(level)
    names = (place.zone, place.pod, place.rack, place.nvlink)
    return "/".join(names[: at + 1]) if names[at] else ""
