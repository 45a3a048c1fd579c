"""Equal values have equal bytes, however they came about."""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import pytest

from coord.core.state import Meta
from coord.model import decisions, entities, entry, events, plans, settings, spec

ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def structs() -> list[type[msgspec.Struct]]:
    """Everything that is digested or kept. What only travels (`channel`) is neither."""
    modules = (decisions, entities, entry, events, plans, settings, spec)
    found = {Meta}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                found.add(value)
    return sorted(found, key=lambda struct: struct.__qualname__)


def always_the_same_object(default: Any) -> bool:
    """Whether any equal value is this very object, as far as CPython promises or always did."""
    if isinstance(default, int):
        return -5 <= default <= 256
    return default in ("", b"", (), None) or isinstance(default, enum.Enum)


@pytest.mark.parametrize(
    "struct",
    [found for found in structs() if found.__struct_config__.omit_defaults],
    ids=lambda found: found.__name__,
)
def test_defaults_left_out_are_told_by_identity_alone(struct: type[msgspec.Struct]) -> None:
    """msgspec leaves out a field that *is* its default. Where an equal value may be another object,
    digests would depend on how it came about; such a struct needs `canonical`."""
    wrong = [
        field.name
        for field in msgspec.structs.fields(struct)
        if field.default is not msgspec.NODEFAULT
        and not always_the_same_object(field.default)
        and not hasattr(struct, "__post_init__")
    ]
    assert wrong == []


def test_values_equal_to_defaults_are_left_out() -> None:
    """So that a field added later, at its default, changes no digest of an old log."""
    policy = spec.RestartPolicy(backoff_ms=int("1000"), user_limit=3)
    role = spec.RoleSpec("r", ("x",), grace_ms=int("10000"), resources=spec.Resources())
    encoded = ENCODER.encode(spec.JobSpec("j", (role,), restart=policy))
    assert msgspec.msgpack.decode(encoded) == {
        "name": "j",
        "roles": [{"name": "r", "command": ["x"]}],
    }


def test_a_job_has_the_same_bytes_built_and_decoded() -> None:
    """The case that matters most: a job with nothing but defaults."""
    built = events.JobSubmitted(spec.JobSpec("j", (spec.RoleSpec("r", ("x",)),)))
    through_json = msgspec.json.decode(msgspec.json.encode(built), type=events.AnyEvent)
    assert ENCODER.encode(built) == ENCODER.encode(through_json)
