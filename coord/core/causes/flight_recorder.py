"""Which ranks did not join: from the flight recorders that PyTorch's NCCL ranks dump on a time-out.

Each rank's dump lists its operations that are not complete, by process group and sequence number. A
rank waits for those members of the group that never came to that number. These may themselves wait
for others, in other groups; whoever is waited for and waits for nobody is where it began. A rank
without a dump joined nothing that others were waiting in. Pure: files are read elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec


class DumpError(ValueError):
    """It is no dump of a flight recorder; the message says what is wrong."""


class Operation(msgspec.Struct, frozen=True):
    """One that a rank has begun and not completed. `created_ns` is the rank's own clock."""

    group: str
    seq: int
    op: str
    created_ns: int
    timeout_ms: int = 0


class Dump(msgspec.Struct, frozen=True):
    """What one rank wrote. `reached` is the highest sequence number by group, `groups` the members
    of each group that it knows, `kinds` what each group is called, `ids` the group behind each of
    its own numbers, `enqueued` the highest number by these."""

    rank: int
    pending: tuple[Operation, ...]
    reached: dict[str, int]
    groups: dict[str, tuple[int, ...]]
    kinds: dict[str, str]
    ids: dict[str, str]
    enqueued: dict[str, int]


class Wait(msgspec.Struct, frozen=True):
    """A rank waits in an operation for those that did not join it."""

    rank: int
    operation: Operation
    missing: tuple[int, ...]


class Diagnosis(msgspec.Struct, frozen=True):
    """`missing` are the ranks where it began, ascending; empty when everybody joined everything, or
    when each waits for another (`circle`). The operation is the one most ranks wait in for them."""

    missing: tuple[int, ...]
    circle: tuple[int, ...] = ()
    op: str = ""
    seq: int = 0
    group: str = ""
    timeout_ms: int = 0
    waiting: tuple[int, ...] = ()
    """Ranks that wait for them, there or through others."""
    without_dump: tuple[int, ...] = ()
    waits: tuple[Wait, ...] = ()


def read_dump(rank: int, content: Any) -> Dump:
    """A decoded dump. Raises DumpError."""
    if not isinstance(content, dict) or "entries" not in content:
        raise DumpError("has no `entries`; give files that PyTorch's flight recorder wrote")
    pending: list[Operation] = []
    reached: dict[str, int] = {}
    kinds: dict[str, str] = {}
    ids: dict[str, str] = {}
    groups, named = _groups(content.get("pg_config") or {})
    kinds.update(named)
    for number, entry in enumerate(_list(content["entries"], "entries")):
        where = f"entries[{number}]"
        try:
            group, kind = (str(part) for part in entry["process_group"])
            seq = int(entry.get("collective_seq_id", entry.get("seq_id", 0)))
            state = entry["state"]
            created_ns = int(entry["time_created_ns"])
            op = str(entry.get("profiling_name", "")).removeprefix("nccl:")
            timeout_ms = int(entry.get("timeout_ms") or 0)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DumpError(f"{where} lacks or garbles {error}") from error
        kinds.setdefault(group, kind)
        ids.setdefault(str(entry.get("pg_id", group)), group)
        reached[group] = max(seq, reached.get(group, 0))
        if state != "completed":
            pending.append(Operation(group, seq, op, created_ns, timeout_ms))
    pending.sort(key=lambda one: one.created_ns)
    enqueued = _enqueued(content.get("pg_status") or {})
    return Dump(rank, tuple(pending), reached, groups, kinds, ids, enqueued)


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise DumpError(f"{where} is no list")
    return value


def _groups(config: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """(members, what it is called) by name."""
    members: dict[str, tuple[int, ...]] = {}
    kinds: dict[str, str] = {}
    try:
        for key, group in config.items():
            ranks = group["ranks"]
            listed = json.loads(ranks) if isinstance(ranks, str) else ranks
            name = str(group.get("name", key))
            members[name] = tuple(sorted(int(rank) for rank in listed))
            kinds[name] = str(group.get("desc", ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DumpError(f"pg_config cannot be read: {error}") from error
    return members, kinds


def _enqueued(status: Any) -> dict[str, int]:
    try:
        return {str(key): int(one["last_enqueued_collective"]) for key, one in status.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DumpError(f"pg_status cannot be read: {error}") from error


def diagnose(dumps: Iterable[Dump]) -> Diagnosis:
    """Which ranks the others wait for. Each rank at most once."""
    by_rank: dict[int, Dump] = {}
    for dump in dumps:
        if dump.rank in by_rank:
            raise DumpError(f"two dumps are of rank {dump.rank}")
        by_rank[dump.rank] = dump
    groups: dict[str, tuple[int, ...]] = {}
    for rank in sorted(by_rank):
        for name, members in by_rank[rank].groups.items():
            groups.setdefault(name, members)
    reached = {rank: _reached(by_rank[rank], by_rank, groups) for rank in sorted(by_rank)}
    waits = [wait for rank in sorted(by_rank) if (wait := _wait(by_rank[rank], groups, reached))]
    everybody = sorted(dict.fromkeys(rank for members in groups.values() for rank in members))
    without = tuple(rank for rank in everybody if rank not in by_rank)
    return _conclude(waits, by_rank, without)


def _reached(
    dump: Dump, by_rank: dict[int, Dump], groups: dict[str, tuple[int, ...]]
) -> dict[str, int]:
    """The highest number by group, also for groups of which it lists no operation any more."""
    found = dict(dump.reached)
    called: dict[str, str] = {}
    for rank in sorted(by_rank):
        other = by_rank[rank]
        for own, group in other.ids.items():
            called.setdefault(own, other.kinds.get(group, ""))
    for own, seq in dump.enqueued.items():
        name = dump.ids.get(own) or _named(dump, called.get(own, ""), groups)
        if name:
            found[name] = max(seq, found.get(name, 0))
    return found


def _named(dump: Dump, kind: str, groups: dict[str, tuple[int, ...]]) -> str:
    """The one group of this kind that the rank is in; empty where there is not just one."""
    fits = [
        name
        for name, called in dump.kinds.items()
        if kind and called == kind and dump.rank in groups.get(name, ())
    ]
    return fits[0] if len(fits) == 1 else ""


def _wait(
    dump: Dump, groups: dict[str, tuple[int, ...]], reached: dict[int, dict[str, int]]
) -> Wait | None:
    """The first of its operations that somebody did not join."""
    for operation in dump.pending:
        missing = tuple(
            rank
            for rank in groups.get(operation.group, ())
            if reached.get(rank, {}).get(operation.group, 0) < operation.seq
        )
        if missing:
            return Wait(dump.rank, operation, missing)
    return None


def _conclude(waits: list[Wait], by_rank: dict[int, Dump], without: tuple[int, ...]) -> Diagnosis:
    waiting = {wait.rank: wait for wait in waits}
    awaited = sorted(dict.fromkeys(rank for wait in waits for rank in wait.missing))
    roots = tuple(rank for rank in awaited if rank not in waiting)
    if not roots:
        return Diagnosis((), circle=tuple(awaited), without_dump=without, waits=tuple(waits))
    there = [wait for wait in waits if any(rank in roots for rank in wait.missing)]
    votes: dict[tuple[str, int, str], int] = {}
    for wait in there:
        operation = wait.operation
        key = (operation.group, operation.seq, operation.op)
        votes[key] = votes.get(key, 0) + 1
    chosen = min(votes, key=lambda key: (-votes[key], key))
    operation = next(
        wait.operation
        for wait in there
        if (wait.operation.group, wait.operation.seq, wait.operation.op) == chosen
    )
    kinds = next(
        dump.kinds[operation.group] for dump in by_rank.values() if operation.group in dump.kinds
    )
    return Diagnosis(
        roots,
        (),
        operation.op,
        operation.seq,
        f"{operation.group} {kinds}".strip(),
        operation.timeout_ms,
        tuple(sorted(waiting)),
        without,
        tuple(waits),
    )
