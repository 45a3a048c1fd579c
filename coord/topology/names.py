"""Names of hosts and switches, and lists of them as Slurm writes them: `node[01-04,7],login`."""

from __future__ import annotations

import re
from itertools import product

from coord.model.place import NAME_LIMIT, is_name

NAMES_LIMIT = 200_000
"""That one file may name. A fleet has fewer; a slip of the pen such as `n[1-99999999]` more."""

_PART = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


class BadNames(ValueError):
    """The message says what is wrong with the list, and of which part."""


def expanded(text: str) -> list[str]:
    """Every name in the list, in its order, as often as it stands there. Raises BadNames."""
    names: list[str] = []
    for item in _split(text):
        parts = [_numbers(part) if at % 2 else [part] for at, part in enumerate(_PART.split(item))]
        count = 1
        for part in parts:
            count *= len(part)
        if count + len(names) > NAMES_LIMIT:
            raise BadNames(f"`{short(item)}` stands for more than {NAMES_LIMIT:,} names")
        for chosen in product(*parts):
            name = "".join(chosen)
            if "[" in name or "]" in name:
                raise BadNames(f"`{short(item)}` has a bracket without its other half")
            names.append(host_name(name))
    if not names:
        raise BadNames("the list is empty")
    return names


def host_name(text: str) -> str:
    """The name itself. Raises BadNames when no host or domain can be called so."""
    if "/" in text or not is_name(text):
        raise BadNames(
            f"`{short(text)}` is no name: 1 to {NAME_LIMIT} characters, no slash, "
            "no control characters, no space at either end"
        )
    return text


def switch_name(text: str) -> str:
    """The name itself, which for a switch may have slashes. Raises BadNames."""
    if not is_name(text):
        raise BadNames(f"`{short(text)}` is no name: 1 to {NAME_LIMIT} characters")
    return text


def domain_name(switch: str) -> str:
    """What a domain is called that a switch makes; domains have no slashes."""
    return switch.replace("/", ".")


def short(text: str, limit: int = 60) -> str:
    """For messages: printable, and not longer than a message bears."""
    shown = text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    items, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise BadNames(f"`{short(text)}` has a bracket without its other half")
        if character == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    if depth:
        raise BadNames(f"`{short(text)}` has a bracket without its other half")
    items.append(text[start:])
    if any(not item for item in items):
        raise BadNames(f"`{short(text)}` has an empty name between commas")
    return items


def _numbers(inside: str) -> list[str]:
    numbers: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None or not piece.isascii():
            raise BadNames(f"`[{short(inside)}]` is no list of numbers and ranges such as 01-04,7")
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise BadNames(f"the range `{piece}` runs backwards")
        if int(last) - int(first) >= NAMES_LIMIT:
            raise BadNames(f"`{piece}` stands for more than {NAMES_LIMIT:,} names")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
