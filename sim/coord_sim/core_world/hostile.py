"""Events that no honest sender would send: any value that the types allow."""

from __future__ import annotations

import enum
import typing
from random import Random
from typing import Any

import msgspec

from coord.model.entry import Origin
from coord.model.events import EVENT_TYPES, AnyEvent

from .driver import Driver

NUMBERS = (0, 1, -1, 2, 3, 7, 500, 4_095, 65_537, 2**31, 2**53, 2**63 - 1, -(2**63))
WORDS = ("", "x", "a/b#1", "é" * 100, "host:h0", "\0", "h0", "j1", "trainer")


def hostile_event(rng: Random, driver: Driver) -> tuple[AnyEvent, Origin | None, int]:
    """(event, origin or None for an honest one, the leader's clock)."""
    event_type = rng.choice(EVENT_TYPES)
    event = _struct(event_type, rng, driver)
    origin = None
    if rng.random() < 0.5:
        actor = rng.choice(("client:x", "client:me", "node:9", "", "h0", *_hosts(driver, "host:")))
        origin = Origin(actor, rng.choice(NUMBERS), rng.choice(NUMBERS))
    wall_ms = driver.wall_ms + rng.choice((0, 10, 400, 400, 400, 400))
    if rng.random() < 0.05:
        wall_ms = rng.choice((0, 1, -(2**62), 2**62, wall_ms + 3_600_000))
    return event, origin, wall_ms


def _hosts(driver: Driver, prefix: str = "") -> list[str]:
    return [prefix + name for name in driver.state.hosts]


def _struct(kind: type[Any], rng: Random, driver: Driver) -> Any:
    hints = typing.get_type_hints(kind)
    given = {}
    for field in msgspec.structs.fields(kind):
        if not field.required and rng.random() < 0.6:
            continue
        given[field.name] = _value(field.name, hints[field.name], rng, driver)
    return kind(**given)


def _value(name: str, hint: Any, rng: Random, driver: Driver) -> Any:
    origin = typing.get_origin(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint, rng, driver)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return rng.choice(list(hint))
    if hint is bool:
        return rng.random() < 0.5
    if hint is int:
        return _number(name, rng, driver)
    if hint is str:
        return _word(name, rng, driver)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_value(name, inner, rng, driver) for _ in range(rng.randrange(4)))
    if origin is dict:
        held = typing.get_args(hint)[1]
        return {rng.choice(WORDS): _value("", held, rng, driver) for _ in range(rng.randrange(3))}
    raise TypeError(f"{name} of a kind not thought of: {hint}")


def _number(name: str, rng: Random, driver: Driver) -> int:
    hosts = list(driver.state.hosts.values())
    if name in ("incarnation", "incarnations") and hosts and rng.random() < 0.8:
        return rng.choice(hosts).incarnation
    if name in ("replicas", "min_replicas", "max_replicas", "spares"):
        return rng.choice((0, 1, 2, 3, -1, 65_537, 2**63 - 1))
    if name == "term" and rng.random() < 0.9:
        return driver.state.meta.term + rng.randrange(-1, 2)
    return rng.choice(NUMBERS)


def _word(name: str, rng: Random, driver: Driver) -> str:
    state = driver.state
    if rng.random() < 0.2:
        return rng.choice(WORDS)
    choices: list[str] = []
    if name == "host":
        choices = list(state.hosts)
    elif name == "agent":
        choices = [host.agent for host in state.hosts.values()]
    elif name == "boot":
        choices = [host.boot for host in state.hosts.values()]
    elif name == "task":
        choices = list(state.tasks)
    elif name == "job":
        choices = list(state.jobs)
    elif name == "role":
        choices = [role.name for job in state.jobs.values() for role in job.spec.roles]
    elif name == "path":
        choices = [checkpoint.path for checkpoint in state.checkpoints.values()]
    return rng.choice(choices or list(WORDS))
