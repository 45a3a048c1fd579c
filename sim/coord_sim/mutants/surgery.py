"""Taking a guard out of running code, and putting it back.

A function keeps its identity and gets another code object, so whoever imported it before meets the
change as well: handlers in tables, callbacks, methods bound long ago.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import importlib
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from coord_sim.mutants.mutant import Edit, Mutant


class OutOfDate(Exception):
    """The product has changed under the catalogue; the message says what to look at."""


_operated: dict[str, None] = {}
"""Targets that are changed now, in this process."""


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The product without this guard, in this process, until the block ends. Rules of raft are
    switched off by whoever builds the servers (`Mutant.rules_off`). Raises OutOfDate."""
    changes = [(target, function_at(target), code) for target, code in operated(mutant)]
    for target, _, _ in changes:
        if target in _operated:
            raise RuntimeError(f"{target} is changed already; one mutant at a time")
    before = [function.__code__ for _, function, _ in changes]
    try:
        for target, function, code in changes:
            _operated[target] = None
            function.__code__ = code
        yield
    finally:
        for (target, function, _), code in zip(changes, before, strict=True):
            function.__code__ = code
            _operated.pop(target, None)


def operated(mutant: Mutant) -> Iterator[tuple[str, CodeType]]:
    """(target, its code without the guard), once for each function the mutant changes."""
    for target in dict.fromkeys(edit.target for edit in mutant.edits):
        edits = [edit for edit in mutant.edits if edit.target == target]
        try:
            yield target, _edited(function_at(target), edits)
        except OutOfDate as error:
            raise OutOfDate(f"mutant {mutant.name}: {target}: {error}") from None


def function_at(target: str) -> FunctionType:
    """The plain function that a target names: also inside a property or behind a decorator."""
    module_name, _, path = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise OutOfDate(f"{module_name} has no {path}")
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    found = inspect.unwrap(getattr(found, "__func__", found))
    if not isinstance(found, FunctionType):
        raise OutOfDate(f"{target} is no function")
    return found


def _edited(function: FunctionType, edits: Iterable[Edit]) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        count = source.count(edit.old)
        if count != 1:
            raise OutOfDate(f"{edit.old!r} stands there {count} times, not once")
        source = source.replace(edit.old, edit.new)
    return _compiled(function, source)


def _compiled(function: FunctionType, source: str) -> CodeType:
    """The code of a function from its source, at the place where it stands."""
    before = function.__code__
    tree = ast.parse(source)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        raise OutOfDate("its source does not begin with a function")
    ast.increment_lineno(tree, before.co_firstlineno - 1)
    definition.decorator_list = []
    flags = before.co_flags & __future__.annotations.compiler_flag
    module = compile(tree, before.co_filename, "exec", flags=flags, dont_inherit=True)
    codes = [one for one in module.co_consts if isinstance(one, CodeType)]
    code = next(one for one in codes if one.co_name == function.__name__)
    if code.co_freevars != before.co_freevars:
        raise OutOfDate(f"it refers to {before.co_freevars} outside of it; choose another place")
    if _signature(code) != _signature(before):
        raise OutOfDate("an edit must not change what the function takes")
    return code.replace(co_qualname=before.co_qualname, co_firstlineno=before.co_firstlineno)


def _signature(code: CodeType) -> tuple[object, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    return (code.co_argcount, code.co_posonlyargcount, code.co_varnames[:count])
