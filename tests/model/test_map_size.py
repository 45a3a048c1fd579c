"""Digests of old logs outlive new fields only while no map of theirs changes the size of its head
(`coord.model.canonical`)."""

from __future__ import annotations

import typing

import msgspec

from coord.model.decisions import DECISION_TYPES
from coord.model.entry import Entry
from coord.model.events import EVENT_TYPES

KEYS_IN_ONE_BYTE = 15


def structs_within(kind: object) -> dict[type[msgspec.Struct], None]:
    """Every struct type that a value of this type may hold, itself included."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        found: dict[type[msgspec.Struct], None] = {kind: None}
        for field in msgspec.structs.fields(kind):
            found |= structs_within(field.type)
        return found
    found = {}
    for part in typing.get_args(kind):
        found |= structs_within(part)
    return found


def keys(struct: type[msgspec.Struct]) -> int:
    tagged = struct.__struct_config__.tag is not None
    return len(struct.__struct_fields__) + tagged


def test_no_struct_that_is_digested_has_more_keys_than_one_byte_counts() -> None:
    """A field too many belongs into a struct of its own."""
    found = structs_within(Entry)
    for kind in (*EVENT_TYPES, *DECISION_TYPES):
        found |= structs_within(kind)
    assert {one.__name__: keys(one) for one in found if keys(one) > KEYS_IN_ONE_BYTE} == {}
