"""What an operator says of a queue: to how much it is entitled, and how it borrows and takes."""

from __future__ import annotations

import msgspec

from coord.model.canonical import canonical
from coord.model.settings import LONGEST_MS
from coord.model.spec import NAME_LENGTH_LIMIT, Problem

DEVICES_LIMIT = 1_000_000_000
"""No quota is larger, so that thousandths of it never leave 64 bits."""
RANK_LIMIT = 1_000_000
"""Priorities lie between this and its negative, weights between 1 and this."""


class QueueSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A queue. Its jobs are entitled to `quota` devices, and may use more while others use less.

    `quotas` says of how many devices of one type that may be at most, by type; a type without an
    entry is not told apart. Beyond the quota the queue borrows what is free, up to
    `borrowing_limit` devices (-1: as many as there are), for the whole and for each type with a
    quota. With -1 it therefore uses as many of each type as are free; what it has of a type beyond
    its quota of that is borrowed all the same: it takes no precedence for it and stops nobody for
    it. Only what a queue uses beyond its quota for the whole is taken back from it. Others may
    borrow `lendable_permille` of what it does not use of its own. What is lent
    goes to the queues in the proportion of their weights.
    """

    name: str
    quota: int = 0
    quotas: dict[str, int] = {}
    borrowing_limit: int = -1
    lendable_permille: int = 1_000
    priority: int = 0
    """Of two queues with the same right to start, the one of higher priority goes first."""
    weight: int = 1
    may_preempt: bool = False
    """Whether its jobs may stop others: borrowers, where it claims its quota, and jobs of its own
    with a lower priority."""
    notice_ms: int = 30_000
    """How long a job that it stops has to save its work."""

    def __post_init__(self) -> None:
        canonical(self)


def queue_problems(spec: QueueSpec) -> list[Problem]:
    """Everything wrong with a queue that types cannot say; empty when it may be configured."""
    found = _name_problems(spec.name)
    found += _range_problems("quota", spec.quota, 0, DEVICES_LIMIT)
    for name, quota in sorted(spec.quotas.items()):
        path = f"quotas.{name}"
        if not name:
            found.append(Problem("quotas", "names a device type that is empty"))
        found += _range_problems(path, quota, 0, DEVICES_LIMIT)
        if quota > spec.quota >= 0:
            found.append(Problem(path, f"is {quota}, above the quota of all types, {spec.quota}"))
    found += _range_problems("borrowing_limit", spec.borrowing_limit, -1, DEVICES_LIMIT)
    found += _range_problems("lendable_permille", spec.lendable_permille, 0, 1_000)
    found += _range_problems("priority", spec.priority, -RANK_LIMIT, RANK_LIMIT)
    found += _range_problems("weight", spec.weight, 1, RANK_LIMIT)
    found += _range_problems("notice_ms", spec.notice_ms, 0, LONGEST_MS)
    return found


def _range_problems(path: str, value: int, least: int, most: int) -> list[Problem]:
    if least <= value <= most:
        return []
    return [Problem(path, f"is {value}; it must be {least} to {most}")]


def _name_problems(name: str) -> list[Problem]:
    if not name:
        return [Problem("name", "is empty; the queue without a name needs no configuration")]
    if len(name) > NAME_LENGTH_LIMIT:
        text = f"has {len(name)} characters; the limit is {NAME_LENGTH_LIMIT}"
        return [Problem("name", text)]
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    if not (plain.isascii() and plain.isalnum()) or not name[0].isalnum():
        text = f"is {name!r}; use ASCII letters, digits, '-', '_' and '.', letter or digit first"
        return [Problem("name", text)]
    return []
