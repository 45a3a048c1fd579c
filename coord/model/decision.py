"""The base of all decisions."""

from __future__ import annotations

import msgspec


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="type"):
    """Base of all decisions. The tag is the class name."""

    causes: tuple[str, ...]
