"""What a host is to run. Delivered whole, as often as need be: the agent reconciles to it."""

from __future__ import annotations

import enum

import msgspec

STANDBY = "COORD_STANDBY"
"""In the environment of a hot spare: it has no rank yet, and waits for the rest."""


class Action(enum.StrEnum):
    RUN = "run"
    STOP = "stop"


class TaskOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task of a plan. For `STOP`, SIGTERM now and SIGKILL after `grace_ms`.

    `env` holds the whole worker contract but COORD_SOCKET and TORCHELASTIC_ERROR_FILE, which only
    the agent knows. `ports` are those the task will listen on; the agent checks them first.
    """

    task: str
    job: str
    role: str
    index: int
    generation: int
    action: Action
    grace_ms: int = 0
    exclusive: bool = False
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    workdir: str = ""
    devices: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()


class HostPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tasks a host is to have. What it has beyond them is to be stopped and reaped.

    `test`, where it is not 0, asks the agent for a health check of the empty host, once for each
    number (the log index at which it was asked for). `version` grows with every change (it is the
    log index of the change). An agent obeys no plan whose (incarnation, version) is older than one
    it has seen.
    """

    host: str
    incarnation: int
    version: int
    tasks: tuple[TaskOrder, ...] = ()
    test: int = 0
