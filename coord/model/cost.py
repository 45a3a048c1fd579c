"""What an incident costs, in device-milliseconds: devices of its gang times how long they made no
progress."""

from __future__ import annotations

import msgspec

from coord.model.canonical import canonical

PHASES = ("work", "detection", "decision", "stop", "placement", "launch", "progress")
"""In the order in which they pass, but that the work that is done again was done before."""


class DeviceTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """Device-milliseconds lost, by phase. `idle_ms` are a part of the others, not one more."""

    work_ms: int = 0
    """Work since the restored checkpoint, which is done again. Nothing where no steps are reported:
    how much is then lost is not known."""
    detection_ms: int = 0
    """From the last sign of life to the first evidence."""
    decision_ms: int = 0
    """From the first evidence to the verdict: a silent host is suspected before it is lost."""
    stop_ms: int = 0
    placement_ms: int = 0
    launch_ms: int = 0
    progress_ms: int = 0
    """From the last process that exists to the first step."""
    idle_ms: int = 0
    """Of those, devices kept for the gang while it waited for its other places."""

    @property
    def total_ms(self) -> int:
        return sum(getattr(self, f"{phase}_ms") for phase in PHASES)


NO_TIME = DeviceTime()


class IncidentCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one incident. A phase that was under way when the incident ended counts up to its end."""

    device_millis: int = 0
    """Thousandths of devices of the generation that ended, and of gangs that stopped with it."""
    decision_ms: int = 0
    """Of the time to the verdict, what passed after the first evidence."""
    lost: DeviceTime = NO_TIME

    def __post_init__(self) -> None:
        canonical(self)


NO_COST = IncidentCost()


class IncidentTotal(msgspec.Struct, frozen=True, omit_defaults=True):
    """All closed incidents that one cause pays for, forgotten ones too."""

    cause: str
    incidents: int = 0
    resolved: int = 0
    lost_steps: int = 0
    lasted_ms: int = 0
    """From the last sign of life to the first progress, added up."""
    lost: DeviceTime = NO_TIME


def added(one: DeviceTime, other: DeviceTime) -> DeviceTime:
    names = DeviceTime.__struct_fields__
    return DeviceTime(**{name: getattr(one, name) + getattr(other, name) for name in names})
