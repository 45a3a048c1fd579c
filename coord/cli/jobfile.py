"""A job file, YAML or JSON, as a JobSpec; or all that is wrong with it, each with its line.

The file is read against the fields of JobSpec, so that a new field needs nothing here. A bare
number is taken as it is written in `command` and `env`: `[train.py, --steps, 300]` means "300".
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from coord.cli.exits import BadInput
from coord.model.spec import JobSpec, Problem, spec_problems

SIZE_LIMIT_BYTES = 1 << 20
NODE_LIMIT = 100_000
INT_LIMIT = 1 << 63

_STR, _INT, _FLOAT, _BOOL, _NULL = (
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")
)
_CALLED = {
    _INT: "the number",
    _FLOAT: "the number",
    _BOOL: "the yes/no value",
    "tag:yaml.org,2002:timestamp": "the date",
}
_MERGE = "tag:yaml.org,2002:merge"
_NOTHING = object()


class LinedProblem(msgspec.Struct, frozen=True):
    """`path` is like `roles[0].replicas`, empty for the file as a whole; `line` counts from 1."""

    path: str
    message: str
    line: int


class JobFileError(BadInput):
    """The file is no job. `problems` holds all that was found, by line."""

    def __init__(self, name: str, problems: list[LinedProblem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.line)
        told = [_told(name, problem) for problem in self.problems]
        if len(told) == 1:
            super().__init__(f"{told[0]}; nothing was submitted")
        else:
            listed = "\n".join(f"  {line}" for line in told)
            super().__init__(f"{name} has {len(told)} problems; nothing was submitted:\n{listed}")


def _told(name: str, problem: LinedProblem) -> str:
    separator = "" if problem.message.startswith(("is ", "has ", "are ", "names ")) else ":"
    subject = f"{problem.path}{separator} " if problem.path else ""
    return f"{subject}{problem.message} ({name}:{problem.line})"


def read_job(content: bytes, name: str) -> JobSpec:
    """The job in the file's bytes. `name` is what errors call the file. Raises JobFileError."""
    root = _composed(content, name)
    reader = _Reader()
    tree = reader.mapping(root, JobSpec, "")
    spec = _converted(tree)
    problems = reader.problems
    if isinstance(spec, JobSpec):
        known = [problem.path for problem in problems]
        for problem in spec_problems(spec):
            within = (problem.path, f"{problem.path}.", f"{problem.path}[")
            if not any(path == within[0] or path.startswith(within[1:]) for path in known):
                problems.append(reader.lined(problem))
    elif not problems:
        problems.append(reader.lined(spec))
    if problems or not isinstance(spec, JobSpec):
        raise JobFileError(name, problems)
    return spec


def _converted(tree: Any) -> JobSpec | Problem:
    try:
        return msgspec.convert(tree, JobSpec)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        return Problem(where.removeprefix(".").removesuffix("`"), message)


def _composed(content: bytes, name: str) -> yaml.MappingNode:
    def wrong(message: str, line: int = 1) -> JobFileError:
        return JobFileError(name, [LinedProblem("", message, line)])

    if len(content) > SIZE_LIMIT_BYTES:
        raise wrong(f"the file has {len(content)} bytes; a job has at most {SIZE_LIMIT_BYTES}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise wrong(f"byte {error.start} is not UTF-8; save the file as UTF-8", line) from error
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML may not
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise wrong(
            f"the file is neither YAML nor JSON: {error.problem or error.context}",
            mark.line + 1 if mark else 1,
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise wrong(
            f"the file holds the character {error.character!r}: {error.reason}", line
        ) from error
    except RecursionError as error:
        raise wrong("the file is nested too deeply for a job") from error
    if root is None:
        raise wrong("the file is empty; a job needs name and roles")
    if not isinstance(root, yaml.MappingNode):
        raise wrong(f"the file holds {_shape(root)}; a job is a mapping with name and roles")
    return root


class _Reader:
    """Turns nodes into what msgspec.convert takes, by the types of the fields they stand for.

    What cannot be is left out and noted in `problems`.
    """

    def __init__(self) -> None:
        self.problems: list[LinedProblem] = []
        self._lines: dict[str, int] = {}
        self._seen = 0

    def lined(self, problem: Problem) -> LinedProblem:
        """The problem with the line of its path, or of the nearest path above it in the file."""
        path = problem.path
        while path and path not in self._lines:
            path = re.sub(r"(\.[^.\[]*|\[[^\]]*\]|^[^.\[]*)$", "", path)
        return LinedProblem(problem.path, problem.message, self._lines.get(path, 1))

    def mapping(self, node: yaml.Node, struct: type[msgspec.Struct], path: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, f"expected a mapping, found {_shape(node)}")
        self._lines.setdefault(path, _line(node))
        fields = {field.name: field for field in msgspec.structs.fields(struct)}
        found: dict[str, Any] = {}
        given: set[str] = set()
        for key, value, value_path in self._pairs(node, path):
            if key not in fields:
                near = difflib.get_close_matches(key, fields, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(fields)}"
                self._note(self._lines[value_path], value_path, f"unknown field, {hint}")
                continue
            read = self._value(value, fields[key].type, value_path, key in ("command", "env"))
            if read is not _NOTHING:
                found[key] = read
            given.add(key)
        for name, field in fields.items():
            if field.required and name not in given:
                self._note(_line(node), f"{path}.{name}".lstrip("."), "is missing")
            if field.required and name not in found:
                # Something of the right type, so that the rest can still be looked at.
                found[name] = f"x{len(self.problems)}" if field.type is str else []
        return found

    def _pairs(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str, yaml.Node, str]]:
        lines: dict[str, int] = {}
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                merged += self._merged(value, path)
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(key, path, f"a name is expected before ':', found {_shape(key)}")
                continue
            inner = f"{path}.{key.value}".lstrip(".")
            if key.value in lines:
                first = lines[key.value]
                self._note(_line(key), inner, f"is given twice, first in line {first}")
                continue
            lines[key.value] = _line(key)
            self._lines[inner] = _line(key)
            yield key.value, value, inner
        for key, value in merged:
            if isinstance(key, yaml.ScalarNode) and key.value not in lines:
                inner = f"{path}.{key.value}".lstrip(".")
                lines[key.value] = self._lines[inner] = _line(key)
                yield key.value, value, inner

    def _merged(self, value: yaml.Node, path: str) -> list[tuple[yaml.Node, yaml.Node]]:
        """The pairs behind `<<`: of one mapping, or of a list of them, the first one first."""
        nodes = value.value if isinstance(value, yaml.SequenceNode) else [value]
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        for node in nodes:
            if isinstance(node, yaml.MappingNode):
                pairs += node.value
            else:
                self._wrong(node, path, f"<< takes a mapping, found {_shape(node)}")
        return pairs

    def _value(self, node: yaml.Node, expected: Any, path: str, as_written: bool) -> Any:
        self._seen += 1
        if self._seen > NODE_LIMIT:
            # Aliases of aliases unfold to more than anybody wrote.
            if self._seen == NODE_LIMIT + 1:
                self._wrong(node, path, f"unfolds to more than {NODE_LIMIT} values")
            return _NOTHING
        origin = typing.get_origin(expected)
        if origin is tuple:
            return self._sequence(node, typing.get_args(expected)[0], path, as_written)
        if origin is dict:
            return self._texts(node, path, as_written)
        if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
            return self.mapping(node, expected, path)
        if not isinstance(node, yaml.ScalarNode):
            return self._wrong(node, path, f"expected {_expected(expected)}, found {_shape(node)}")
        return self._scalar(node, expected, path, as_written)

    def _sequence(self, node: yaml.Node, item: Any, path: str, as_written: bool) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            hint = ' such as ["python", "train.py"]' if as_written else ""
            return self._wrong(node, path, f"expected a list{hint}, found {_shape(node)}")
        found = []
        for at, value in enumerate(node.value):
            inner = f"{path}[{at}]"
            self._lines[inner] = _line(value)
            read = self._value(value, item, inner, as_written)
            if read is not _NOTHING:
                found.append(read)
        return found if len(found) == len(node.value) else _NOTHING

    def _texts(self, node: yaml.Node, path: str, as_written: bool) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, path, f"expected a mapping of texts, found {_shape(node)}")
        found = {}
        for key, value, inner in self._pairs(node, path):
            read = self._value(value, str, inner, as_written)
            if read is not _NOTHING:
                found[key] = read
        return found

    def _scalar(self, node: yaml.ScalarNode, expected: Any, path: str, as_written: bool) -> Any:
        if expected is str:
            if node.tag == _STR or (as_written and node.tag in (_INT, _FLOAT)):
                return self._text(node, path)
            hint = "" if node.tag == _NULL else f'; write "{node.value}" if text is meant'
            return self._wrong(node, path, f"expected text, found {_shape(node)}{hint}")
        if expected is bool and node.tag == _BOOL:
            return yaml.SafeLoader.bool_values[node.value.lower()]
        if expected is int and node.tag == _INT and ":" not in node.value:
            number: int = yaml.constructor.SafeConstructor().construct_yaml_int(node)
            if -INT_LIMIT <= number < INT_LIMIT:
                return number
            return self._wrong(node, path, f"is {number}; it does not fit into 64 bits")
        return self._wrong(node, path, f"expected {_expected(expected)}, found {_shape(node)}")

    def _text(self, node: yaml.ScalarNode, path: str) -> Any:
        try:
            # JSON writes characters beyond 16 bits as two escapes, which YAML leaves as they are.
            return node.value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            return self._wrong(node, path, "holds half of a character (an unpaired \\u escape)")

    def _wrong(self, node: yaml.Node, path: str, message: str) -> Any:
        self._note(_line(node), path, message)
        return _NOTHING

    def _note(self, line: int, path: str, message: str) -> None:
        self.problems.append(LinedProblem(path, message, line))


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _expected(expected: Any) -> str:
    if isinstance(expected, types.UnionType):
        return " or ".join(_expected(one) for one in typing.get_args(expected))
    named = {int: "a whole number", str: "text", bool: "true or false"}
    return named.get(expected, str(expected))


def _shape(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if node.tag == _NULL:
        return "nothing"
    called = _CALLED.get(node.tag, "the text")
    value = node.value if len(node.value) <= 40 else node.value[:39] + "…"
    return f"{called} {value!r}" if called == "the text" else f"{called} {value}"
