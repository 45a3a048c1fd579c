"""Equal values have equal bytes, and keep them when a later release adds a field.

Structs that enter the log leave out fields at their defaults when encoded, so that a field added
later changes no digest of an old log. msgspec takes a field to be at its default only when it *is*
the default object. That is certain for 0, "", (), False and enums; `canonical` makes it so for any
other default.

msgpack tells a map's size in one byte up to 15 keys and in three above, and msgspec chooses by how
many fields a struct has, not by how many it writes: a struct with up to 15 of them (its tag is one)
must never have more. What it is to say beyond that goes into a struct of its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec


def canonical(struct: msgspec.Struct) -> None:
    """As `__post_init__` of a struct: every field equal to its default becomes that very object."""
    for name, default in _defaults(type(struct)):
        value = getattr(struct, name)
        if value is not default and value == default:
            msgspec.structs.force_setattr(struct, name, default)


@cache
def _defaults(struct_type: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (field.name, field.default)
        for field in msgspec.structs.fields(struct_type)
        if field.default is not msgspec.NODEFAULT
    )
