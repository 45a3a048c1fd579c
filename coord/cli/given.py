"""Values that flags carry as text: `key=value`, addresses, members, ranges."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from coord.cli.exits import BadInput
from coord.model.settings import numbers_of, with_numbers
from coord.raft.ports import Member

Struct = TypeVar("Struct", bound=msgspec.Struct)


def pairs(flag: str, given: Iterable[str]) -> dict[str, str]:
    """`a=b` given several times, or with commas, as a mapping."""
    found: dict[str, str] = {}
    for part in (part for text in given for part in text.split(",") if part.strip()):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"{flag} is {part!r}; write name=value")
        found[name.strip()] = value.strip()
    return found


def numbers(flag: str, given: Iterable[str], struct: type[Struct]) -> Struct:
    """`name=number` pairs as a struct of whole numbers; what is not named keeps its default. What
    is in a struct within has a path, such as `policy.silence.grace_ms`."""
    known = {name for name, _ in numbers_of(struct())}
    found: dict[str, int] = {}
    for name, value in pairs(flag, given).items():
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise BadInput(f"{flag} names {name}: unknown, {hint}")
        try:
            found[name] = int(value.replace("_", ""))
        except ValueError as error:
            raise BadInput(f"{flag} {name} is {value!r}; it must be a whole number") from error
    made: Struct = with_numbers(struct(), found)
    return made


def address(flag: str, given: str) -> str:
    """`host:port`, checked."""
    host, colon, port = given.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 <= int(port) <= 65_535:
        raise BadInput(f"{flag} is {given!r}; write host:port, such as 127.0.0.1:7101")
    return given


def members(flag: str, given: str) -> tuple[Member, ...]:
    """`1=PEER/API,2=PEER/API,...`, each address host:port."""
    found: dict[int, Member] = {}
    for node, addresses in pairs(flag, [given]).items():
        if not node.isdigit() or int(node) < 1:
            raise BadInput(f"{flag} names node {node!r}; nodes are numbers from 1")
        peer, slash, api = addresses.partition("/")
        if not slash:
            raise BadInput(
                f"{flag} gives node {node} {addresses!r}; write PEER/API, such as "
                f"{node}=127.0.0.1:7001/127.0.0.1:7101"
            )
        member = Member(int(node), address(flag, peer), address(flag, api))
        if found.setdefault(member.node, member) != member:
            raise BadInput(f"{flag} names node {node} twice")
    return tuple(found[node] for node in sorted(found))


def port_range(flag: str, given: str) -> tuple[int, int]:
    """`20000-20100`, both included."""
    first, dash, last = given.partition("-")
    if not dash or not first.isdigit() or not last.isdigit():
        raise BadInput(f"{flag} is {given!r}; write FIRST-LAST, such as 20000-20100")
    if not 1 <= int(first) <= int(last) <= 65_535:
        raise BadInput(f"{flag} is {given!r}; ports grow from 1 to 65535")
    return int(first), int(last)
