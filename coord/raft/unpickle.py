"""Pickles that cannot run code (rule G9).

The library pickles what it keeps in the log (the wrapper of a command, membership changes). What
is read back here may hold None, bools, numbers, strings, bytes, lists, tuples, dicts, and member
nodes; any other name in a pickle is refused before anything is imported.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import IO, Any

PROTOCOL = 5
"""The first protocol that carries bytes without a detour through text is 3; 5 is fastest."""


class ForbiddenPickle(pickle.UnpicklingError):
    """The pickle names something that is not admitted. Nothing of it was built."""


class _Restricted(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        admitted = _ADMITTED.get((module_name, global_name))
        if admitted is None:
            raise ForbiddenPickle(
                f"a pickle names {module_name}.{global_name}; the raft log admits only plain "
                f"values and {', '.join('.'.join(name) for name in sorted(_ADMITTED))}"
            )
        return admitted

    def persistent_load(self, pid: Any, /) -> Any:
        raise ForbiddenPickle(f"a pickle refers to something outside of itself: {pid!r}")


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {}


def admit(kind: Callable[..., Any], module_name: str, global_name: str) -> None:
    """Let pickles build `kind`, under the name that stands in logs for ever."""
    _ADMITTED[(module_name, global_name)] = kind


def restricted_loads(encoded: bytes) -> Any:
    """Raises pickle.UnpicklingError (ForbiddenPickle, or garbage)."""
    return restricted_load(io.BytesIO(encoded))


def restricted_load(file: IO[bytes]) -> Any:
    """As `restricted_loads`, from a file."""
    try:
        return _Restricted(file).load()
    except (EOFError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise pickle.UnpicklingError(f"malformed pickle: {error}") from error


def dumps(value: Any, protocol: int | None = None) -> bytes:
    """`value` pickled with PROTOCOL, whatever protocol was asked for."""
    return pickle.dumps(value, PROTOCOL)


def dump(value: Any, file: IO[bytes], protocol: int | None = None) -> None:
    """As `dumps`, to a file."""
    file.write(dumps(value))
