"""Both event stores behind one face, so that one suite runs on both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from coord.store.environment import Environment, Identity
from coord.store.events import LmdbEventStore
from coord.store.memory import MemoryEventStore
from coord.store.ports import EventStore

CLUSTER = "test-cluster"


class Kind(Protocol):
    """One implementation, and what only a test does to it."""

    def another(self) -> EventStore:
        """An empty store of the same cluster."""

    def crashed(self, store: EventStore) -> EventStore:
        """The store that a process finds after the one that used `store` was killed."""

    def fill_up(self, store: EventStore) -> None:
        """Have nothing more fit."""

    def make_room(self, store: EventStore) -> None:
        """Undo that."""


class LmdbKind:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._opened: list[tuple[EventStore, Environment]] = []

    def another(self) -> LmdbEventStore:
        self._count += 1
        return self._open(self._folder / f"node-{self._count}")

    def crashed(self, store: EventStore) -> LmdbEventStore:
        environment = self._environment(store)
        self._count += 1
        left_behind = self._folder / f"node-{self._count}"
        shutil.copytree(environment.path, left_behind)
        return self._open(left_behind)

    def fill_up(self, store: EventStore) -> None:
        environment = self._environment(store)
        environment.limit_map(environment.map_size_bytes)
        environment.stage("raft_log", b"ballast", b"x" * environment.map_size_bytes)

    def make_room(self, store: EventStore) -> None:
        environment = self._environment(store)
        environment.stage("raft_log", b"ballast", None)
        environment.limit_map(0)

    def _open(self, path: Path) -> LmdbEventStore:
        environment = Environment.open(str(path), 1 << 20, Identity(CLUSTER, 1))
        store = LmdbEventStore(environment)
        self._opened.append((store, environment))
        return store

    def _environment(self, store: EventStore) -> Environment:
        return next(environment for one, environment in self._opened if one is store)

    def close(self) -> None:
        for _, environment in self._opened:
            environment.close()


class MemoryKind:
    def another(self) -> MemoryEventStore:
        return MemoryEventStore(CLUSTER)

    def crashed(self, store: MemoryEventStore) -> MemoryEventStore:
        return store.reopened()

    def fill_up(self, store: MemoryEventStore) -> None:
        store.full = True

    def make_room(self, store: MemoryEventStore) -> None:
        store.full = False


@pytest.fixture(params=["lmdb", "memory"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    if request.param == "memory":
        yield MemoryKind()
        return
    lmdb_kind = LmdbKind(tmp_path)
    yield lmdb_kind
    lmdb_kind.close()


@pytest.fixture
def store(kind: Kind) -> EventStore:
    return kind.another()
