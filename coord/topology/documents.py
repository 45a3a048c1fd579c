"""YAML and JSON, read so that everything in them knows its line or path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from coord.topology.names import short
from coord.topology.topology import TopologyError

DEPTH_LIMIT = 200

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Value:
    """A part of a document. `where` is what an error names: a line, or a path of fields."""

    __slots__ = ("name", "raw", "where")

    def __init__(self, raw: Any, name: str, path: str = "") -> None:
        self.raw = raw
        self.name = name
        """What errors call the file."""
        self.where: int | str = (
            raw.start_mark.line + 1 if isinstance(raw, yaml.Node) else path or "the outermost value"
        )

    def error(self, what: str, remedy: str) -> TopologyError:
        return TopologyError(self.name, self.where, what, remedy)

    def fields(self) -> dict[str, Value]:
        """Of a mapping, by key. Raises TopologyError for another kind, or a key given twice."""
        raw = self.raw
        if isinstance(raw, dict):
            base = f"{self.where}." if self.where != "the outermost value" else ""
            return {key: Value(raw[key], self.name, f"{base}{key}") for key in raw}
        if not isinstance(raw, yaml.MappingNode):
            raise self.error(f"is {self.kind()}, not fields with names", "correct it")
        found: dict[str, Value] = {}
        for key_node, value_node in raw.value:
            key = Value(key_node, self.name)
            if key.text() in found:
                raise key.error(f"`{short(key.text())}` stands there twice", "keep one")
            found[key.text()] = Value(value_node, self.name)
        return found

    def entries(self) -> list[Value]:
        """Of a list. Raises TopologyError for another kind."""
        raw = self.raw
        if isinstance(raw, list):
            base = self.where if self.where != "the outermost value" else ""
            return [Value(one, self.name, f"{base}[{at}]") for at, one in enumerate(raw)]
        if not isinstance(raw, yaml.SequenceNode):
            raise self.error(f"is {self.kind()}, not a list", "correct it")
        return [Value(one, self.name) for one in raw.value]

    def text(self) -> str:
        """Of a string, or of a number as it is written. Raises TopologyError for another kind."""
        raw = self.raw
        if isinstance(raw, str):
            return raw
        if isinstance(raw, int) and not isinstance(raw, bool):
            return str(raw)
        if isinstance(raw, yaml.ScalarNode):
            return str(raw.value)
        raise self.error(f"is {self.kind()}, not a name", "correct it")

    def is_nothing(self) -> bool:
        if isinstance(self.raw, yaml.ScalarNode):
            return str(self.raw.tag) == "tag:yaml.org,2002:null"
        return self.raw is None

    def is_fields(self) -> bool:
        return isinstance(self.raw, dict | yaml.MappingNode)

    def is_list(self) -> bool:
        return isinstance(self.raw, list | yaml.SequenceNode)

    def kind(self) -> str:
        if self.is_fields():
            return "a mapping"
        if self.is_list():
            return "a list"
        return (
            "nothing"
            if self.is_nothing()
            else f"`{short(str(getattr(self.raw, 'value', self.raw)))}`"
        )


def documents(text: str, name: str) -> list[Value]:
    """Every document in the text, at least one: JSON has one. Raises TopologyError."""
    found = list(_json(text, name) if text.lstrip()[:1] in ("{", "[") else _yaml(text, name))
    if not found:
        raise TopologyError(name, 0, "there is nothing in it", "give the whole file")
    return found


def _json(text: str, name: str) -> Iterator[Value]:
    try:
        yield Value(json.loads(text, object_pairs_hook=_once), name)
    except json.JSONDecodeError as error:
        what = f"no JSON: {error.msg} at column {error.colno}"
        raise TopologyError(name, error.lineno, what, "give the whole file") from error
    except RecursionError as error:
        raise TopologyError(
            name, 0, "nested too deep", "give the file as it was written"
        ) from error
    except ValueError as error:
        raise TopologyError(name, 0, f"no JSON: {error}", "correct it") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"`{short(twice)}` stands there twice")
    return found


def _yaml(text: str, name: str) -> Iterator[Value]:
    try:
        if _may_be_deep(text):
            _not_too_deep(text, name)
        for node in yaml.compose_all(text, Loader=_LOADER):
            if node is not None and str(node.tag) != "tag:yaml.org,2002:null":
                yield Value(node, name)
    except RecursionError as error:
        raise TopologyError(
            name, 0, "nested too deep", "give the file as it was written"
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"no YAML: {error.problem or error.context}"
        raise TopologyError(
            name, mark.line + 1 if mark is not None else 0, what, "correct it"
        ) from error
    except yaml.YAMLError as error:
        what = f"no YAML: {short(str(error).splitlines()[0])}"
        raise TopologyError(name, 0, what, "correct it") from error


def _may_be_deep(text: str) -> bool:
    """Whether blocks could be nested beyond the limit: each level takes a column of indentation or
    a mark of its own. Brackets need no look, because libyaml limits them itself."""
    return any(
        len(line) - len(line.lstrip(" ")) + line.count("- ") + line.count("? ") + line.count(": ")
        >= DEPTH_LIMIT
        for line in text.split("\n")
    )


def _not_too_deep(text: str, name: str) -> None:
    """Composing is recursive, in C: depth is counted before it is trusted to it."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_LIMIT:
            line = event.start_mark.line + 1 if event.start_mark is not None else 0
            raise TopologyError(name, line, "nested too deep", "give the file as it was written")
