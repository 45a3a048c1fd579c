"""Whether an execution is back where the log was at the same place, or where another one was."""

from __future__ import annotations

from typing import Any

from coord.core.state import TABLES

from .agents import Agent
from .fork import RowKey, differing, same_meta
from .marks import alarms, heard, mark_of, orders
from .stage import Stage


def same_stage(ours: Stage, theirs: Stage) -> bool:
    """Whether nothing tells the two stages apart."""
    if not _same_rows(ours, theirs) or not same_meta(ours.state, theirs.state):
        return False
    if len(ours.agents) != len(theirs.agents):
        return False
    return all(
        same_agent(agent, theirs.agents[name])
        and _untold(ours, agent) == _untold(theirs, theirs.agents[name])
        for name, agent in ours.agents.items()
    )


def _same_rows(ours: Stage, theirs: Stage) -> bool:
    one, other = ours.state, theirs.state
    if one.meta.now_ms == other.meta.now_ms:
        return ours.marks.rows(one) == theirs.marks.rows(other) and (
            ours.marks.requests(one) == theirs.marks.requests(other)
        )
    # What is counted from now may differ in rows that nobody wrote.
    if not same_meta(one, other):
        return False
    rows: dict[RowKey, None] = {}
    for name in TABLES:
        if len(one.table(name)) != len(other.table(name)):
            return False
        rows.update(dict.fromkeys((name, key) for key in one.table(name)))
    return not differing(one, other, rows)


def _untold(stage: Stage, agent: Agent) -> int:
    """By how much the agent's count of decided reports is ahead of the state's."""
    row = stage.state.hosts.get(agent.host)
    return agent.seq - (row.report_seq if row is not None else 0)


def fingerprint(stage: Stage, more: list[Any]) -> int:
    """Of everything that decides what follows, `more` among it, as far as `same_stage` tells
    stages of the same log time apart."""
    state = stage.state
    meta = state.meta
    since_ms = meta.now_ms - meta.settings.breaker_window_ms
    whole = (
        stage.marks.rows(state),
        stage.agent_marks.of(stage.agents, state),
        stage.memory_mark.of(stage.memory),
        stage.settings_mark.of(meta.settings),
        meta.cluster,
        meta.logic_version,
        meta.frozen,
        max(meta.evictions_allowed_until_ms, meta.now_ms),
        [at_ms for at_ms in meta.recent_losses_ms if at_ms > since_ms],
        heard(state),
        alarms(state),
        more,
    )
    return mark_of(whole)


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
        and orders(ours) == orders(theirs)
    )
