"""The blocking client: the same promises, from threads without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from coord.client import errors
from coord.client.client import Client
from coord.client.errors import ClientClosed, CoordError, OutcomeUnknown, Rejected
from coord.client.sync import SyncClient
from coord.model.events import NoteAdded

from .fake import FakeCluster
from .http_fake import HttpServer, http_cluster
from .virtual import eventually

Answer = TypeVar("Answer")


class Served:
    """A cluster on a loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.cluster: FakeCluster
        self.servers: list[HttpServer]

    def call(self, function: Callable[[], Answer]) -> Answer:
        """Run on the servers' thread, which owns all they hold."""

        async def calling() -> Answer:
            return function()

        return asyncio.run_coroutine_threadsafe(calling(), self._loop).result(10)

    def eventually(self, holds: Callable[[], bool]) -> bool:
        """Wait for up to ten seconds until `holds()` on the servers' thread."""

        async def waiting() -> bool:
            await eventually(holds, 10)
            return True

        return asyncio.run_coroutine_threadsafe(waiting(), self._loop).result(20)


@contextmanager
def served(nodes: int = 1) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = Served(loop)
    context = http_cluster(nodes)
    try:
        entering = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop)
        made.cluster, made.servers = entering.result(10)
        yield made
        leaving = asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop)
        leaving.result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_blocking_calls_write_read_and_refuse() -> None:
    with served() as there, SyncClient(there.cluster.urls, actor="bob") as client:
        decided = client.note("s", "one")
        page = client.events(decided.index, 1)
        event = page.events[0].entry.event
        assert event == NoteAdded("bob", "s", "one")
        with pytest.raises(Rejected, match="unknown_host"):
            client.drain("absent")


def test_several_threads_share_one_client() -> None:
    with served() as there, SyncClient(there.cluster.urls) as client:

        def write(name: int) -> None:
            for number in range(20):
                client.note("s", f"{name}-{number}")

        threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        accepted = there.call(lambda: there.cluster.accepted(NoteAdded))
        assert len(accepted) == 160
        assert there.call(lambda: len(there.servers[0].server.sessions)) == 1


def test_a_watch_is_an_iterator() -> None:
    with served() as there, SyncClient(there.cluster.urls) as client:
        for number in range(3):
            client.note("s", str(number))
        seen = []
        for recorded in client.watch(2):
            seen.append(recorded.entry.index)
            if len(seen) == 3:
                break
        assert seen == [2, 3, 4]


def test_closing_ends_what_other_threads_wait_for() -> None:
    with served() as there:
        client = SyncClient(there.cluster.urls)
        outcomes: list[CoordError] = []
        waiting = threading.Barrier(3)

        def wait(call: Callable[[], object]) -> None:
            waiting.wait()
            try:
                call()
            except CoordError as error:
                outcomes.append(error)

        with client:
            client.note("s", "first")
            there.call(lambda: setattr(there.cluster, "always", "lost"))
            threads = [
                threading.Thread(target=wait, args=(lambda: client.note("s", "lost"),)),
                threading.Thread(target=wait, args=(lambda: next(client.watch()),)),
            ]
            for thread in threads:
                thread.start()
            waiting.wait()
            assert there.eventually(lambda: len(there.servers[0].server.sessions[0].received) == 2)
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert {type(one) for one in outcomes} <= {OutcomeUnknown, ClientClosed}
        assert OutcomeUnknown in {type(one) for one in outcomes}


def test_a_client_that_is_not_open_says_so() -> None:
    client = SyncClient(["127.0.0.1:1"])
    with pytest.raises(ClientClosed, match="with SyncClient"):
        client.jobs()
    with client:
        pass
    with pytest.raises(ClientClosed):
        client.note("s", "t")
    with pytest.raises(ClientClosed, match="opened before"), client:
        pass
    client.close()


def public(kind: type) -> dict[str, list[tuple[str, object, object]]]:
    """Names of public methods with the names, kinds and defaults of their parameters."""
    return {
        name: [
            (one.name, one.kind, one.default)
            for one in inspect.signature(member).parameters.values()
        ]
        for name, member in vars(kind).items()
        if not name.startswith("_") and callable(member)
    }


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    assert public(Client) == public(SyncClient)


def test_every_error_is_in_the_tree_with_whether_it_may_have_happened() -> None:
    """The docstring shows all classes; only two say that something may have happened."""
    classes = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, CoordError)
    ]
    assert errors.__doc__ is not None
    tree = errors.__doc__.splitlines()
    for one in classes:
        (line,) = [line for line in tree if one.__name__ in line.split()]
        assert one.__doc__, line
    happened = {one.__name__ for one in classes if one.may_have_happened}
    assert happened == {"OutcomeUnknown", "DoneButUnread"}
