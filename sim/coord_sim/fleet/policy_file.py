"""Reading a policy file: what is wrong is told with its line, its key and the keys there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import yaml

from coord_sim.fleet.policy import Policy, policy_problems


class PolicyError(Exception):
    """A policy that cannot be used. The message names the file, the line and the key."""


class Key(msgspec.Struct, frozen=True):
    """One key of a policy file."""

    section: str
    name: str
    default: Any
    meaning: str
    type: Any


def policy_keys() -> Iterator[Key]:
    """Every key there is, section by section."""
    for section in msgspec.structs.fields(Policy):
        default = section.default
        types = get_type_hints(type(default), include_extras=True)
        for field in msgspec.structs.fields(type(default)):
            annotated = types[field.name]
            meanings = [
                meta.description
                for meta in annotated.__metadata__
                if isinstance(meta, msgspec.Meta) and meta.description
            ]
            value = getattr(default, field.name)
            yield Key(section.name, field.name, value, meanings[-1] if meanings else "", annotated)


def load_policy(path: str | Path) -> Policy:
    """The policy in that file. Raises PolicyError, or OSError when the file cannot be read."""
    return parse_policy(Path(path).read_bytes(), str(path))


def parse_policy(text: bytes | str, name: str) -> Policy:
    """The policy in that YAML; `name` is what errors call the file."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PolicyError(f"{name}:{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PolicyError(f"{name}: not YAML: {error}") from error
    if root is None:
        return Policy()
    sections: dict[str, dict[str, Key]] = {}
    for key in policy_keys():
        sections.setdefault(key.section, {})[key.name] = key
    chosen: dict[str, dict[str, Any]] = {}
    lines: dict[tuple[str, str], int] = {}
    for title, line, node in _entries(root, name, "a policy", list(sections)):
        if _is_empty(node):
            chosen[title] = {}
            continue
        known = sections[title]
        values: dict[str, Any] = {}
        for key_name, key_line, value in _entries(node, name, title, list(known), line):
            values[key_name] = _value(known[key_name], value, f"{name}:{key_line}")
            lines[title, key_name] = key_line
        chosen[title] = values
    return _checked(chosen, lines, name)


def _checked(
    chosen: dict[str, dict[str, Any]], lines: dict[tuple[str, str], int], name: str
) -> Policy:
    parts = {
        section.name: type(section.default)(**chosen.get(section.name, {}))
        for section in msgspec.structs.fields(Policy)
    }
    policy = Policy(**parts)
    for section, key, problem in policy_problems(policy):
        # A contradiction is told at the first of its keys that the file itself gives.
        named = [key, *problem.replace(",", "").split()]
        given = [lines[section, word] for word in named if (section, word) in lines]
        where = f"{name}:{given[0]}" if given else name
        raise PolicyError(f"{where}: {section}: {problem}")
    return policy


def _entries(
    node: yaml.Node, name: str, what: str, known: list[str], line: int = 0
) -> Iterator[tuple[str, int, yaml.Node]]:
    """(key, line, value) of a mapping whose keys are all known and given once."""
    line = line or node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise PolicyError(f"{name}:{line}: {what} is a mapping; its keys are {', '.join(known)}")
    seen: dict[str, int] = {}
    for key_node, value in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key not in known:
            raise PolicyError(f"{name}:{line}: {_unknown(key, what, known)}")
        if key in seen:
            raise PolicyError(f"{name}:{line}: {key} is given twice, first in line {seen[key]}")
        seen[key] = line
        yield key, line, value


def _unknown(key: str, what: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    other = next((one for one in policy_keys() if one.name == key), None)
    if not hint and other is not None:
        hint = f" It belongs into the section {other.section}."
    elif not hint:
        everywhere = {one.name: one.section for one in policy_keys()}
        far = difflib.get_close_matches(key, list(everywhere), n=1)
        hint = f" Did you mean {far[0]}, in the section {everywhere[far[0]]}?" if far else ""
    return f"unknown key {key!r} in {what}.{hint} The keys are: {', '.join(known)}"


def _value(key: Key, node: yaml.Node, where: str) -> Any:
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_object(node, deep=True)
        return msgspec.convert(value, type=key.type)
    except (msgspec.ValidationError, yaml.YAMLError, ValueError) as error:
        given = getattr(node, "value", "")
        shown = given if isinstance(given, str) else "a list or mapping"
        text = str(error).removeprefix("Expected ").removesuffix(".")
        raise PolicyError(
            f"{where}: {key.section}.{key.name} is {shown!r}; expected {text} "
            f"({key.meaning}; the default is {key.default})"
        ) from error
    finally:
        loader.dispose()


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
