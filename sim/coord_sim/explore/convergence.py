"""Whether an execution is back where the log was at the same place."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from coord.core.state import TABLES

from .agents import Agent
from .fork import RowKey, differing, essence, meta_essence, same_meta
from .stage import Stage

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def same_stage(ours: Stage, theirs: Stage, dirty: dict[RowKey, None]) -> bool:
    """Whether nothing tells the two stages apart. `dirty` holds the rows that may differ, and
    keeps those that do."""
    if ours.state.meta.now_ms != theirs.state.meta.now_ms:
        # What is counted from now may differ in rows that nobody wrote.
        for name in TABLES:
            dirty.update(dict.fromkeys((name, key) for key in ours.state.table(name)))
            dirty.update(dict.fromkeys((name, key) for key in theirs.state.table(name)))
    left = differing(ours.state, theirs.state, dirty)
    if len(left) != len(dirty):
        dirty.clear()
        dirty.update(dict.fromkeys(left))
    if dirty or not same_meta(ours.state, theirs.state):
        return False
    if len(ours.agents) != len(theirs.agents):
        return False
    return all(
        same_agent(agent, theirs.agents[name])
        and _untold(ours, agent) == _untold(theirs, theirs.agents[name])
        for name, agent in ours.agents.items()
    )


def _untold(stage: Stage, agent: Agent) -> int:
    """By how much the agent's count of decided reports is ahead of the state's."""
    row = stage.state.hosts.get(agent.host)
    return agent.seq - (row.report_seq if row is not None else 0)


def fingerprint(stage: Stage, pending: list[Any]) -> bytes:
    """Of everything that decides what follows, as far as `same_stage` tells stages apart."""
    state = stage.state
    rows = [
        (name, key, essence(state, (name, key)))
        for name in TABLES
        if name != "requests"
        for key in sorted(state.table(name))
    ]
    known = [
        (
            name,
            agent.registered,
            agent.incarnation,
            agent.outbox,
            _untold(stage, agent),
            sorted(agent.records.items()),
            sorted((task, sorted(said.sent)) for task, said in agent.reported.items()),
            sorted(agent.burying),
        )
        for name, agent in sorted(stage.agents.items())
    ]
    whole = (rows, meta_essence(state), known, stage.memory, pending)
    return hashlib.blake2b(_ENCODER.encode(whole), digest_size=16).digest()


def same_agent(ours: Agent, theirs: Agent) -> bool:
    """The same, whatever number its plan has."""
    if ours is theirs:
        return True
    return (
        ours.registered == theirs.registered
        and ours.incarnation == theirs.incarnation
        and ours.outbox == theirs.outbox
        and ours.records == theirs.records
        and ours.reported == theirs.reported
        and ours.withheld == theirs.withheld
        and ours.burying == theirs.burying
        and _orders(ours) == _orders(theirs)
    )


def _orders(agent: Agent) -> list[tuple[str, str]]:
    """What the plan orders. Details of an order are in the rows that it was made of."""
    if agent.plan is None:
        return []
    return [(order.task, order.action) for order in agent.plan.tasks]
