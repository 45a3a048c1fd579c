"""Values for every kind of struct, by its type hints, so that a new one is covered by itself."""

from __future__ import annotations

import enum
import itertools
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st

INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
SLOTS = st.lists(UINT32, max_size=20).map(tuple)
TEXT = st.text(max_size=12)


def full(kind: Any) -> Any:
    """A value in which every field differs from its default, all fields from each other."""
    return _full(kind, itertools.count(2))


def _full(kind: Any, numbers: Iterator[int]) -> Any:
    origin = typing.get_origin(kind)
    if isinstance(kind, types.UnionType):
        return _full(typing.get_args(kind)[0], numbers)
    if origin is tuple:
        return tuple(_full(typing.get_args(kind)[0], numbers) for _ in range(2))
    if origin is dict:
        held = typing.get_args(kind)[1]
        return {f"schlüssel-{next(numbers)}": _full(held, numbers) for _ in range(2)}
    if issubclass(kind, enum.StrEnum):
        return list(kind)[-1]
    if issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(
            **{
                field.name: not field.default
                if hints[field.name] is bool
                else _full(hints[field.name], numbers)
                for field in msgspec.structs.fields(kind)
            }
        )
    return {int: int, str: lambda n: f"text-{n}", bool: bool, bytes: lambda n: bytes([n])}[kind](
        next(numbers)
    )


def sparse(kind: type[msgspec.Struct]) -> Any:
    """A value with the required fields only, and those empty: what the wire leaves out."""
    hints = typing.get_type_hints(kind)
    return kind(
        **{
            field.name: _empty(hints[field.name])
            for field in msgspec.structs.fields(kind)
            if field.required
        }
    )


def _empty(kind: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin is not None:
        return origin()
    if isinstance(kind, types.UnionType):
        return sparse(typing.get_args(kind)[0])
    if issubclass(kind, enum.StrEnum):
        return next(iter(kind))
    return sparse(kind) if issubclass(kind, msgspec.Struct) else kind()


def values(kind: Any, integers: st.SearchStrategy[int] = INT64) -> st.SearchStrategy[Any]:
    """Any value of the kind that the wire can carry."""
    origin = typing.get_origin(kind)
    if isinstance(kind, types.UnionType):
        return st.one_of([values(member, integers) for member in typing.get_args(kind)])
    if origin is tuple:
        return st.lists(values(typing.get_args(kind)[0], integers), max_size=4).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXT, values(typing.get_args(kind)[1], integers), max_size=4)
    if issubclass(kind, enum.StrEnum):
        return st.sampled_from(list(kind))
    if issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        fields = {
            name: SLOTS
            if name == "slots" or name.endswith("_slots")
            else values(hints[name], integers)
            for name in kind.__struct_fields__
        }
        return st.builds(kind, **fields)
    return {int: integers, str: TEXT, bool: st.booleans(), bytes: st.binary(max_size=20)}[kind]
