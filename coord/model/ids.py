"""Names for things, so that an index is never taken for a count, nor a slot for an id."""

from typing import NewType

LogIndex = NewType("LogIndex", int)
"""Position of an entry in coord's own log: 1, 2, 3, ... without gaps. Not the raft index."""

NodeId = NewType("NodeId", int)
"""A server of the coordinator's cluster, from 1."""

HostId = NewType("HostId", str)
"""A machine that runs tasks, as its agent names it. Never reused for another machine."""

HostSlot = NewType("HostSlot", int)
"""Dense number of a host, from 0, given at its first registration and kept for ever."""

Incarnation = NewType("Incarnation", int)
"""How many times a host has registered, from 1. Reports that carry an older one are refused."""

Generation = NewType("Generation", int)
"""How many times a gang was placed, from 1, counted per job. Grows, never repeats within a job."""

TaskKey = NewType("TaskKey", str)
"""One run of one task: `job/role/index#generation`."""

GangKey = NewType("GangKey", str)
"""What starts, stops and restarts together: `job/role` (gang) or `job/role/index` (independent)."""

Cause = NewType("Cause", str)
"""Why a decision was taken: `"17"` is the event at index 17, `"17.0"` the first decision there."""


def task_key(job: str, role: str, index: int, generation: int) -> TaskKey:
    """`digits/trainer/0#3`"""
    return TaskKey(f"{job}/{role}/{index}#{generation}")


def gang_key(job: str, role: str, index: int) -> GangKey:
    """`digits/trainer` for a whole role (index -1), `digits/sampler/4` for one independent task."""
    return GangKey(f"{job}/{role}" if index < 0 else f"{job}/{role}/{index}")


def event_cause(index: int) -> Cause:
    """The event at this log index, as a cause."""
    return Cause(str(index))


def decision_cause(index: int, ordinal: int) -> Cause:
    """The decision number `ordinal` (from 0) of the entry at this log index, as a cause."""
    return Cause(f"{index}.{ordinal}")


def role_of_gang(key: str) -> str:
    """`digits/trainer` of both `digits/trainer` and `digits/trainer/4`."""
    job, role, *_ = key.split("/", 2)
    return f"{job}/{role}"
