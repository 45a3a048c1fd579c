"""The base of all events. `events.py` lists them; those of one concern may stand elsewhere."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, tag_field="type"):
    """Base of all events. The tag is the class name."""
