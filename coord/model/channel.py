"""Messages between an agent or a client and a server. See `proto/coord/v1/channel.proto`."""

from __future__ import annotations

import msgspec

from coord.model.entry import Submission
from coord.model.plans import HostPlan
from coord.model.settings import Settings

PROTOCOL = 1


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first message. An empty `cluster` means any."""

    actor: str
    cluster: str = ""
    protocol: int = PROTOCOL
    version: str = ""


class Welcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to Hello, and again whenever the leader changes (`LeaderChanged`)."""

    cluster: str
    node: int
    leader: int = 0
    leader_api: str = ""
    applied_index: int = 0
    settings: Settings = Settings()


class LeaderChanged(Welcome, frozen=True):
    """A Welcome sent later; on the wire the field `leader_changed`."""


class Submit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Events for the log, pipelined. Each is answered by one Result within `timeout_ms`."""

    submissions: tuple[Submission, ...]
    timeout_ms: int = 5_000


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one submission. `outcome` is `committed`, `not_committed` or `unknown`;
    for the last two `reason` says why. A committed one may still carry a `rejection`."""

    seq: int
    outcome: str
    incarnation: int = 0
    reason: str = ""
    index: int = 0
    rejection: str = ""
    result: int = 0
    last_report_seq: int = 0
    slot: int = 0
    retry_after_ms: int = 0


class Results(msgspec.Struct, frozen=True, omit_defaults=True):
    results: tuple[Result, ...]
    applied_index: int = 0


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The host is alive."""

    slot: int
    incarnation: int
    seen_plan: int = 0
    sequence: int = 0


class BeatSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The frame with that beat is committed."""

    sequence: int
    applied_index: int = 0


class LogRead(msgspec.Struct, frozen=True, omit_defaults=True):
    """Read a task's output. `offset` counts bytes since the task's start, over rotated files."""

    request: int
    task: str
    stream: str
    offset: int = 0
    limit: int = 65_536


class LogChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    request: int
    data: bytes = b""
    offset: int = 0
    exists: bool = True
    ended: bool = False


class Refused(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server ends the conversation and says why."""

    code: str
    message: str = ""


ToServer = Hello | Submit | Beat | LogChunk
ToClient = Welcome | LeaderChanged | Results | BeatSeen | HostPlan | LogRead | Refused
