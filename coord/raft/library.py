"""Everything that PySyncObj is given in place of its own: clock, randomness, journal, pickle, node.

These are module-level names of `pysyncobj.syncobj` (see README.md). Importing this module puts
replacements there, which ask the instance that is active; only one thread may use the library.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.syncobj
from pysyncobj.node import Node

from coord.raft import unpickle
from coord.raft.ports import Member

REGULAR, NO_OP, MEMBERSHIP, VERSION = b"\x00", b"\x01", b"\x02", b"\x03"
"""First byte of an entry: what the library takes it for."""


class PeerNode(Node):  # type: ignore[misc]  # the library is untyped
    """A member as the library knows it: equal when the number is equal. Goes into the log."""

    peer_address: str
    api_address: str

    def __init__(self, node: int, peer_address: str = "", api_address: str = "") -> None:
        super().__init__(node)
        self.peer_address = peer_address
        self.api_address = api_address

    def __str__(self) -> str:
        return f"node {self.id}"

    def __reduce__(self) -> tuple[Any, ...]:
        return PeerNode, (self.id, self.peer_address, self.api_address)

    @property
    def member(self) -> Member:
        return Member(self.id, self.peer_address, self.api_address)


unpickle.admit(PeerNode, PeerNode.__module__, PeerNode.__qualname__)


def peer_node(member: Member) -> PeerNode:
    return PeerNode(member.node, member.peer_address, member.api_address)


def regular_command(payload: bytes) -> bytes:
    """The command of an entry that carries a payload: a call of the one replicated method."""
    return REGULAR + unpickle.dumps((0, (payload,)))


def payload_of(command: bytes) -> bytes | None:
    """The payload of an entry, None for one that carries none."""
    if command[:1] != REGULAR:
        return None
    payload = unpickle.restricted_loads(command[1:])[1][0]
    assert isinstance(payload, bytes)
    return payload


class _Active:
    """Whose journal and random numbers the library gets."""

    rng: random.Random | None = None
    journal: Any = None
    readings: int = 0
    clock: Callable[[], float] | None = None
    """Of the loop that runs; looked up at the first reading."""


_active = _Active()


class active:
    """Within, the library draws from `rng`, and a new SyncObj gets `journal`. Nests.

    In lower case, since it is called like a function; no generator, since every tick and every
    message needs one.
    """

    __slots__ = ("_before", "_journal", "_rng")

    def __init__(self, rng: random.Random, journal: Any) -> None:
        self._rng = rng
        self._journal = journal

    def __enter__(self) -> None:
        self._before = (_active.rng, _active.journal)
        _active.rng, _active.journal = self._rng, self._journal
        _active.readings, _active.clock = 0, None

    def __exit__(self, *_: object) -> None:
        _active.rng, _active.journal = self._before
        _active.clock = None


class _NoPoller:
    """The event loop polls; the library's own poller has nothing to do."""

    def poll(self, timeout: float) -> None:
        """Return at once."""


class _ActiveRandom:
    """Stands in for the module `random`."""

    @staticmethod
    def random() -> float:
        if _active.rng is None:
            raise RuntimeError("the raft library drew a random number outside of active()")
        return _active.rng.random()


READINGS_LIMIT = 100_000


def _loop_time() -> float:
    """The loop's clock. The library's sending loop ends by the clock alone where everything else
    has gone wrong; where time is virtual, that would be never."""
    _active.readings += 1
    if _active.readings > READINGS_LIMIT:
        raise RuntimeError("one call of the raft library read the clock 100,000 times")
    clock = _active.clock
    if clock is None:
        clock = _active.clock = asyncio.get_running_loop().time
    return clock()


def _active_journal(_journal_file: str | None) -> Any:
    if _active.journal is None:
        raise RuntimeError("the raft library asked for a journal outside of active()")
    return _active.journal


def _install() -> None:
    library = pysyncobj.syncobj
    library.createPoller = lambda _kind: _NoPoller()
    library.PIPE_NOTIFIER_ENABLED = False
    library.createJournal = _active_journal
    library.monotonicTime = _loop_time
    library.random = _ActiveRandom()
    for module in (pysyncobj.pickle, pysyncobj.journal):
        module.loads = unpickle.restricted_loads
        module.dumps = unpickle.dumps
    pysyncobj.pickle.load = unpickle.restricted_load
    pysyncobj.pickle.dump = unpickle.dump


_install()
