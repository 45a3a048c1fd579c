"""On its way."""

from __future__ import annotations

from coord.core.step import Step, on
from coord.model import events
from coord.model.rejections import Rejection


@on(events.HostQuarantineRequested)
def _q(step: Step, event: events.HostQuarantineRequested) -> Rejection | None:
    return Rejection.UNKNOWN_EVENT


@on(events.QuarantineAnswered)
def _a(step: Step, event: events.QuarantineAnswered) -> Rejection | None:
    return Rejection.UNKNOWN_EVENT


@on(events.HostReleaseRequested)
def _r(step: Step, event: events.HostReleaseRequested) -> Rejection | None:
    return Rejection.UNKNOWN_EVENT


@on(events.MaintenanceRequested)
def _m(step: Step, event: events.MaintenanceRequested) -> Rejection | None:
    return Rejection.UNKNOWN_EVENT


@on(events.MaintenanceCancelled)
def _c(step: Step, event: events.MaintenanceCancelled) -> Rejection | None:
    return Rejection.UNKNOWN_EVENT
