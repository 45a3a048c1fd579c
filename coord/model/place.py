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


class Uplink(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Links of one switch to one above it. `links` counts the cables that are up."""

    switch: str
    links: int = 1


class Switch(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A switch, and those above it: one in a tree, several in a fat tree, none at the top."""

    switch: str
    uplinks: tuple[Uplink, ...] = ()


class Island(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Devices of one host, by number, that reach each other without passing through it (NVLink)."""

    devices: tuple[int, ...]


class Located(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an import says of one host. An empty level, no rails, no islands: it says nothing of
    them. `switch` is the leaf switch of a host whose rails are not known."""

    host: str
    place: Place = NOWHERE
    rails: tuple[Rail, ...] = ()
    switch: str = ""
    islands: tuple[Island, ...] = ()

    def __post_init__(self) -> None:
        if self.place is not NOWHERE and self.place == NOWHERE:
            msgspec.structs.force_setattr(self, "place", NOWHERE)


NAME_LIMIT = 255
"""Characters of the name of a domain, switch or rail."""


def is_name(name: str) -> bool:
    """Whether a domain, switch or rail may be called so; names of domains and hosts have no slash
    beside, because a domain is named by its path."""
    return 0 < len(name) <= NAME_LIMIT and name == name.strip() and min(name) >= " "


def domain(place: Place, host: str, level: str) -> str:
    """The host's domain at a level, as a path from the widest level on, so that `r1` of two pods is
    two racks; empty where the host has none at that level. Raises ValueError for no level."""
    if level == "host":
        return host
    at = LEVELS.index(level)
    names = (place.zone, place.pod, place.rack, place.nvlink)
    return "/".join(names[: at + 1]) if names[at] else ""
