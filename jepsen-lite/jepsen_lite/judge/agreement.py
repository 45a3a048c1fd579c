"""Whether all servers made the same of the same log, and every term had one leader.

Each server says how far it is and the running digest there (`/v1/cluster`). The digest takes in
every entry from the first on, and the exported log holds it for each index, so a server agrees with
the log at its own index; two servers need not be asked at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from coord.model.events import LeaderElected
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.findings import Finding, judged
from jepsen_lite.judge.verdict import Judgement

SAME_STATE = "servers have the same digest at the same index"
CAUGHT_UP = "every server gets to the end of the log once nothing is broken"
ONE_LEADER = "a term has one leader, and terms only grow"


class Sighting(msgspec.Struct, frozen=True):
    """What one server said about itself at one moment."""

    node: int
    index: int
    """How far it has applied the log."""
    digest: str
    term: int = 0
    """Of its raft."""
    role: str = ""
    at_ns: int = 0
    """CLOCK_MONOTONIC."""


def judge_agreement(
    sightings: Iterable[Sighting], log: ExportedLog, *, nodes: Iterable[int], quiet_index: int
) -> list[Judgement]:
    """`nodes` are those that have to have come to `quiet_index`, an index that was in the log when
    all was healed."""
    seen = list(sightings)
    sightings_of = f"sightings of {len({each.node for each in seen})} servers"
    leading = sum(each.role == "leader" for each in seen)
    members = list(nodes)
    differing = chain(_unlike_log(seen, log), _unlike_each_other(seen))
    elections = [
        (record.entry.index, record.entry.event)
        for record in log.records
        if isinstance(record.entry.event, LeaderElected) and record.accepted
    ]
    return [
        judged(SAME_STATE, differing, seen=len(seen), of=sightings_of),
        judged(
            CAUGHT_UP,
            _behind(seen, members, quiet_index),
            seen=len(members),
            of=f"servers, to index {quiet_index}",
        ),
        judged(
            ONE_LEADER,
            chain(_leaders_in_log(elections), _leaders_seen(seen, elections)),
            seen=len(elections) + leading,
            of=f"words of who leads: {len(elections)} elections, {leading} sightings of leaders",
        ),
    ]


def _unlike_log(seen: list[Sighting], log: ExportedLog) -> Iterator[Finding]:
    for each in seen:
        record = log.at(each.index) if each.index >= log.start_index else None
        if record is not None and record.digest != each.digest:
            yield Finding(
                f"at index {each.index} the digest of node {each.node} is {each.digest}, that of "
                f"the exported log {record.digest}"
            )


def _unlike_each_other(seen: list[Sighting]) -> Iterator[Finding]:
    """Also beyond what was exported, and among entries that are no longer kept."""
    first: dict[int, Sighting] = {}
    for each in seen:
        other = first.setdefault(each.index, each)
        if other.digest != each.digest:
            yield Finding(
                f"at index {each.index} the digest of node {each.node} is {each.digest}, that of "
                f"node {other.node} {other.digest}"
            )


def _behind(seen: list[Sighting], members: list[int], quiet_index: int) -> Iterator[Finding]:
    if not members:
        yield Finding("nobody said after healing who is a member", undecided=True)
    for node in members:
        reached = max((each.index for each in seen if each.node == node), default=-1)
        if reached < 0:
            yield Finding(f"node {node} was not heard after healing", undecided=True)
        elif reached < quiet_index:
            yield Finding(
                f"node {node} was last seen at index {reached}, {quiet_index} being in the log "
                "when all was healed",
                undecided=True,
            )


def _leaders_in_log(elections: list[tuple[int, LeaderElected]]) -> Iterator[Finding]:
    term = 0
    for index, event in elections:
        if event.term <= term:
            yield Finding(
                f"index {index} elects node {event.node} in term {event.term} after term {term}"
            )
        term = max(term, event.term)


def _leaders_seen(
    seen: list[Sighting], elections: list[tuple[int, LeaderElected]]
) -> Iterator[Finding]:
    leaders = {event.term: event.node for _, event in elections}
    for each in seen:
        if each.role != "leader":
            continue
        leader = leaders.setdefault(each.term, each.node)
        if leader != each.node:
            yield Finding(f"term {each.term} is led by node {leader} and by node {each.node}")
