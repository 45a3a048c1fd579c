"""What the tree must not contain, as rules over one parsed file. `test_tidy.py` applies them."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """A file: its path from the root of the tree, with forward slashes, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """Parsed once: rules compare nodes by identity."""
        return parsed(self)

    @property
    def layer(self) -> str:
        """`core` for coord/core/machine.py, `codec` for coord/codec.py, empty outside coord."""
        parts = Path(self.path).with_suffix("").parts
        return parts[1] if parts[0] == "coord" and len(parts) > 1 else ""


@functools.cache
def parsed(source: Source) -> ast.Module:
    return ast.parse(source.text, source.path)


Rule = Callable[[Source], Iterator[tuple[int, str]]]
"""Yields (line, what is wrong and what to write instead)."""

PURE_LAYERS = ("model", "core")

BANNED_MODULES = {
    "time": "time arrives in entries; use state.meta.now_ms",
    "datetime": "time arrives in entries; use state.meta.now_ms",
    "random": "random numbers arrive as fields of events",
    "secrets": "random numbers arrive as fields of events",
    "uuid": "ids arrive as fields of events",
    "os": "the core knows no operating system; let an event carry the fact",
    "socket": "the core does no I/O; yield a decision",
    "subprocess": "the core does no I/O; yield a decision",
    "asyncio": "the core is a function; the node has the loop",
    "threading": "the core is a function; the node has the threads",
    "concurrent": "the core is a function; the node has the threads",
}

BANNED_CALLS = {
    "float": "an integer in a smaller unit",
    "set": "a dict with None values, which keeps its order, or a sorted tuple",
    "frozenset": "a dict with None values, which keeps its order, or a sorted tuple",
    "hash": "coord.core's running digest; hash() differs between processes",
    "id": "the entity's key; id() differs between processes",
    "open": "an event that carries the content",
    "print": "a decision",
}

LAYERS: dict[str, tuple[str, ...]] = {
    "model": (),
    "core": ("model",),
    "codec": ("model", "pb"),
    "sites": (),
    "store": ("model", "codec", "core", "sites"),
    "raft": ("model", "codec", "store", "sites"),
    "node": ("model", "core", "codec", "store", "raft", "sites"),
    "listening": ("model", "codec"),
    "api": ("model", "core", "codec", "store", "raft", "node", "listening", "sites"),
    "client": ("model", "codec", "sites"),
    "topology": ("model",),
    "agent": ("model", "client", "sites"),
    "relay": ("model", "codec", "client", "listening"),
    "worker": ("worker_link",),
    "worker_link": (),
    "cli": (
        "model",
        "core",
        "codec",
        "store",
        "raft",
        "node",
        "api",
        "client",
        "agent",
        "relay",
        "topology",
    ),
}
"""Which layers each may import, beside itself and the version in coord/__init__.py. One exception:
`node/server.py`, the entry point that puts a server together, also imports `api`."""

ENTRY_POINTS = {"coord/node/server.py": ("api",)}

FORBIDDEN_NAMES = ("manager", "managers", "helper", "helpers", "util", "utils")

SKIPS = ("pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail")

MACHINE_PATH = re.compile(r"(?<![\w.{}$~])/(?:work|root|home|Users)/[\w.-]+")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")

LINE_LIMIT = 100
FILE_LIMIT = 500
FUNCTION_LIMIT = 70


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import; `from a import b` yields a.b, for b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{node.module or ''}.{alias.name}"


def pure_core(source: Source) -> Iterator[tuple[int, str]]:
    """model/ and core/ are functions of the log and of nothing else."""
    if source.layer not in PURE_LAYERS:
        return
    for line, name in imports(source.tree):
        module = name.split(".")[0]
        if module in BANNED_MODULES:
            yield line, f"imports {module}; {BANNED_MODULES[module]}"
    memberships = [
        operand
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Compare)
        for operator, operand in zip(node.ops, node.comparators, strict=True)
        if isinstance(operator, ast.In | ast.NotIn)
    ]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield node.lineno, f"the float {node.value}; use an integer in a smaller unit"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.lineno, "/ yields a float; use //"
        elif isinstance(node, ast.Set | ast.SetComp) and node not in memberships:
            yield node.lineno, f"a set has no order; use {BANNED_CALLS['set']}"
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in BANNED_CALLS
            and node not in memberships
        ):
            yield node.lineno, f"calls {node.func.id}(); use {BANNED_CALLS[node.func.id]}"


def layers_point_one_way(source: Source) -> Iterator[tuple[int, str]]:
    """Imports within coord follow the table of design.md."""
    if not source.layer or source.layer == "__init__":
        return
    if source.layer not in LAYERS:
        yield 1, f"{source.layer} is no layer; add it to LAYERS in tests/tidy_rules.py or move it"
        return
    allowed = (source.layer, "__version__", *LAYERS[source.layer])
    allowed += ENTRY_POINTS.get(source.path, ())
    for line, name in imports(source.tree):
        parts = name.split(".")
        if parts[0] == "coord" and len(parts) > 1 and parts[1] not in allowed:
            yield line, f"{source.layer} imports {parts[1]}; it may import {', '.join(allowed)}"


def libraries_stay_in_their_layer(source: Source) -> Iterator[tuple[int, str]]:
    """pysyncobj behind the guard, protobuf behind the codec, nothing at all in the worker."""
    for line, name in imports(source.tree):
        top = name.split(".")[0]
        if top == "pysyncobj" and not source.path.startswith(("coord/raft/", "tests/raft/")):
            yield line, "imports pysyncobj; only coord/raft may"
        of_protobuf = name.startswith(("coord.pb", "google.protobuf"))
        if of_protobuf and source.path.startswith("coord/") and source.path != "coord/codec.py":
            yield line, "imports protobuf; only coord/codec.py may"
        foreign = top not in sys.stdlib_module_names and not name.startswith("coord.worker_link")
        if source.path in ("coord/worker.py", "coord/worker_link.py") and foreign:
            yield line, f"imports {top}; the worker library has the standard library alone"


def short_enough(source: Source) -> Iterator[tuple[int, str]]:
    """Lines fit a window, functions a screen, files a head."""
    lines = source.text.splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LIMIT:
            yield number, f"{len(line)} characters; the limit is {LINE_LIMIT}"
    if len(lines) > FILE_LIMIT:
        yield FILE_LIMIT, f"{len(lines)} lines; past {FILE_LIMIT} lift a part out"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LIMIT:
                yield node.lineno, f"{node.name} has {length} lines; the limit is {FUNCTION_LIMIT}"


def nothing_swallowed(source: Source) -> Iterator[tuple[int, str]]:
    """No bare except, and none whose whole body is `pass`. Groups are let off: contextlib.suppress
    takes them from Python 3.12 on only."""
    of_groups = [
        handler
        for node in ast.walk(source.tree)
        if isinstance(node, ast.TryStar)
        for handler in node.handlers
    ]
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler) or node in of_groups:
            continue
        if node.type is None:
            yield node.lineno, "a bare except; name what is expected"
        elif len(node.body) == 1 and isinstance(node.body[0], ast.Pass):
            yield node.lineno, "except: pass; use contextlib.suppress with a comment that says why"


def telling_names(source: Source) -> Iterator[tuple[int, str]]:
    """Names say what a thing is."""
    found = [(1, Path(part).stem) for part in Path(source.path).parts]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append((node.lineno, node.name))
    for line, name in found:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
        for word in words:
            if word in FORBIDDEN_NAMES:
                yield line, f"{name}: {word!r} says nothing; name what it does"


def owned_tasks(source: Source) -> Iterator[tuple[int, str]]:
    """Every asyncio task has an owner, and nothing iterates a set of them."""
    if not source.path.startswith("coord/"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if (
                isinstance(called, ast.Attribute)
                and called.attr in ("create_task", "ensure_future")
                and isinstance(called.value, ast.Name)
                and called.value.id in ("asyncio", "loop")
            ):
                yield node.lineno, f"{called.attr} without an owner; use a TaskGroup or keep it"
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "asyncio"
            and node.attr in ("wait", "as_completed")
        ):
            yield node.lineno, f"asyncio.{node.attr} iterates a set; use gather or a TaskGroup"


def loud_skips(source: Source) -> Iterator[tuple[int, str]]:
    """A test that is left out says why."""
    if not source.path.startswith("tests/"):
        return
    calls = {call.func: call for call in ast.walk(source.tree) if isinstance(call, ast.Call)}
    for node in ast.walk(source.tree):
        name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if name not in SKIPS:
            continue
        call = calls.get(node)
        given = [keyword.arg for keyword in call.keywords] if call else []
        positional = bool(call and call.args and "mark" not in name)
        if "reason" not in given and not positional:
            yield node.lineno, f"{name} without a reason"


def no_sleep_for_luck(source: Source) -> Iterator[tuple[int, str]]:
    """Tests wait for a condition: a sleep stands in a loop that looks for something.

    Where time is virtual a sleep is exact; such a file imports `virtual`, `simulated` or
    `coord_sim`."""
    if not Path(source.path).name.startswith("test_"):
        return
    virtual = {"virtual", "simulated", "coord_sim"}
    if any(virtual & {*name.split(".")} for _, name in imports(source.tree)):
        return
    polled = [
        inner
        for node in ast.walk(source.tree)
        if isinstance(node, ast.While | ast.For | ast.AsyncFor)
        for inner in ast.walk(node)
    ]
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if ast.unparse(node.func) not in ("time.sleep", "asyncio.sleep") or node in polled:
            continue
        if [ast.unparse(argument) for argument in node.args] == ["0"]:
            continue
        # A sleep that is meant to be interrupted, as in asyncio.sleep(3600), waits for nobody.
        if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value >= 60:
            continue
        yield node.lineno, f"{ast.unparse(node)} waits for luck; wait for the condition"


def finished(source: Source) -> Iterator[tuple[int, str]]:
    """Nothing is left for later in a comment, and no path of one machine is left in the text."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield number, f"unfinished: {line.strip()}"
        if match := MACHINE_PATH.search(line):
            yield number, f"{match.group()} exists on one machine only"


PYTHON_RULES: tuple[Rule, ...] = (
    pure_core,
    layers_point_one_way,
    libraries_stay_in_their_layer,
    short_enough,
    nothing_swallowed,
    telling_names,
    owned_tasks,
    loud_skips,
    no_sleep_for_luck,
    finished,
)
TEXT_RULES: tuple[Rule, ...] = (finished,)
