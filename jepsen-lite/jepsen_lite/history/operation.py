"""What a run is made of: operations of clients, and faults of nemeses."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Outcome(StrEnum):
    """What is known of an operation when its client stops waiting."""

    OK = "ok"
    """Done as answered."""
    FAIL = "fail"
    """Certainly not done, and nothing was learnt of the state."""
    INFO = "info"
    """May have happened, may still happen, may never happen."""


class Operation(msgspec.Struct, gc=False):
    """One question of one client. Times are nanoseconds of a monotonic clock since the run began.

    Without the collector's bookkeeping, for histories hold millions and never a cycle.
    """

    number: int
    """Unique in the run, in order of invocation, from 1."""
    client: str
    """Who asked, one operation at a time, as in "registers/3". After an INFO the client goes on
    under a new name ("registers/3.1"), for its old self may still be at it."""
    workload: str
    key: str
    """Operations on different keys are judged apart."""
    action: str
    """A word of the model: "write", "read", "cas", "submit"."""
    argument: Any
    """A JSON value."""
    invoked_ns: int
    completed_ns: int = 0
    """When the client stopped waiting; 0: never. An INFO is not over at this time."""
    outcome: Outcome = Outcome.INFO
    result: Any = None
    """The answer: what a read saw; for a write None, or the rejection word of a state that refused
    it, which is an OK outcome, for it tells about the state."""
    index: int = 0
    """Where in the log a write was decided, or whose state a read saw; 0: unknown."""
    token: str = ""
    """Unique text that a write carries into the log, by which the exported log is searched."""
    note: str = ""
    """What an error said."""


class Fault(msgspec.Struct):
    """A misfortune as it happened. Times as in `Operation`."""

    number: int
    nemesis: str
    what: str
    targets: tuple[str, ...]
    began_ns: int
    ended_ns: int = 0
    """0: not ended."""


class Modelled(msgspec.Struct, frozen=True):
    """By which model some of the operations are judged: those whose keys begin so, of one workload
    or, where that is empty, of all."""

    keys: str
    workload: str
    model: str
    """As `models.name_of` names it."""
    first: Any = None
    """What it begins with, where that can be chosen."""


class Mark(msgspec.Struct):
    """A moment of the run that has a name: "healing", "quiet"."""

    name: str
    at_ns: int
