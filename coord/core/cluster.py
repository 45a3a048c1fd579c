"""The cluster's own events: settings, leaders, the clock, notes."""

from __future__ import annotations

from coord.core import fleet, gangs, hosts, rosters, tasks
from coord.core.care import breaker, maintenance, moves, quarantine, quarantine_course
from coord.core.queueing import queues
from coord.core.step import Step, on
from coord.model.events import (
    ClockAdvanced,
    ClusterConfigured,
    EvictionsAllowed,
    LeaderElected,
    LogicVersionRaised,
    NoteAdded,
)
from coord.model.rejections import Rejection

NEWEST_LOGIC_VERSION = 2
"""1: as in 0.1.0. 2: placement keeps room for the jobs typically seen."""


LOOKS = {
    "maintenance": maintenance.look_at,
    "moves": moves.look_at,
    "quarantine": quarantine_course.look_at,
    "roster": rosters.look_at,
}
"""What looks at a row when its alarm goes off. `silence` has none: its alarm only wakes `judge`."""


@on(ClusterConfigured)
def _configured(step: Step, event: ClusterConfigured) -> Rejection | None:
    meta = step.state.meta
    if meta.cluster:
        return Rejection.ALREADY_CONFIGURED
    if not event.cluster or event.settings.problems():
        return Rejection.INVALID
    if not 1 <= event.logic_version <= NEWEST_LOGIC_VERSION:
        return Rejection.OUT_OF_RANGE
    meta.cluster = event.cluster
    meta.settings = event.settings
    meta.logic_version = event.logic_version
    return None


@on(LeaderElected)
def _elected(step: Step, event: LeaderElected) -> Rejection | None:
    """Nobody could renew while there was no leader: every lease gets its full term again."""
    meta = step.state.meta
    if event.term <= meta.term:
        return Rejection.STALE_TERM
    meta.term = event.term
    meta.leader = event.node
    hosts.renew_leases(step)
    return None


@on(ClockAdvanced)
def _clock(step: Step, event: ClockAdvanced) -> Rejection | None:
    """Look at everything that is due. Of hosts, all that expired are judged together, last."""
    state = step.state
    if step.entry.term != state.meta.term:
        return Rejection.STALE_TERM
    for kind, key in state.timers.take_due(step.now_ms):
        if kind == "host":
            hosts.look_at(step, key)
        elif kind == "gang":
            gangs.look_at(step, key)
        elif kind in LOOKS:
            LOOKS[kind](step, key)
        elif kind == "task":
            tasks.look_at(step, key)
    breaker.judge(step)
    return None


@on(EvictionsAllowed)
def _allowed(step: Step, event: EvictionsAllowed) -> Rejection | None:
    if not step.state.meta.frozen and not step.state.silences:
        return Rejection.NOTHING_TO_DO
    breaker.allow(step)
    return None


@on(LogicVersionRaised)
def _raised(step: Step, event: LogicVersionRaised) -> Rejection | None:
    meta = step.state.meta
    if event.version <= meta.logic_version:
        return Rejection.NOTHING_TO_DO
    if event.version > NEWEST_LOGIC_VERSION:
        return Rejection.OUT_OF_RANGE
    if meta.logic_version < queues.QUEUES_SINCE <= event.version:
        queues.charge_running(step.state)
        step.scheduling = True
    meta.logic_version = event.version
    for name in step.state.slots:
        quarantine.withhold(step, name)
        if step.state.hosts[name].withheld:
            fleet.drop_holds(step, name)
    return None


@on(NoteAdded)
def _noted(step: Step, event: NoteAdded) -> Rejection | None:
    return None if event.text else Rejection.INVALID
