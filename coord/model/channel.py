"""Messages between an agent, a client or a relay and a server, or an agent and a relay.

See `proto/coord/v1/channel.proto`.
"""

from __future__ import annotations

import msgspec

from coord.model.entry import Submission
from coord.model.plans import HostPlan
from coord.model.roster import RosterChanged, RosterHeard
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


class RelayAttach(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent's conversation began at a relay. `session` is the relay's number for it, never used
    again in the same connection; `actor` what the agent's Hello said, `host:<id>`."""

    session: int
    actor: str


class Relayed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of one conversation behind a relay, encoded: a ToServer upwards (Submit, LogChunk,
    or a Beat, which through a relay only shows the host's incarnation: what counts as heard stands
    in RelayBeats); a ToClient downwards. `ends`: the last one of that conversation."""

    session: int
    frame: bytes
    ends: bool = False


class RelayBeats(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one relay vouches for, in one frame, `changes` first. Never sent twice: a later one says
    more. An upper relay passes it on as it is.

    `incarnation` is when the relay's process started, in ms since 1970. `sequence` is that of its
    first event; each event takes the next one.
    """

    relay: str
    incarnation: int
    sequence: int
    changes: tuple[RosterChanged, ...] = ()
    heard: tuple[RosterHeard, ...] = ()


class RelayBeatsSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """That frame is decided, and applied on this server.

    Without a `rejection` the beats it vouched for count, but for those of dropped slots: hosts that
    are in the roster no more, or never came into it. One is named with every frame that may have
    been sent before the relay knew, until a frame that joins it anew. A relay that goes on
    with one of them lets it show its incarnation (Beat) and join again. Upon any rejection
    none count; after `stale_roster` the relay sends its roster anew. A
    roster without hosts is forgotten: the next one replaces it.
    """

    relay: str
    incarnation: int
    sequence: int
    applied_index: int = 0
    rejection: str = ""
    dropped_slots: tuple[int, ...] = ()


class RelayUp(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that waits at a relay for its server, of its own agents and of relays below: taken in the
    order of the fields, so that a host can attach, show its incarnation and join in one."""

    attached: tuple[RelayAttach, ...] = ()
    frames: tuple[Relayed, ...] = ()
    beats: tuple[RelayBeats, ...] = ()
    detached: tuple[int, ...] = ()


class RelayDown(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that waits at a server for one relay, to be taken in the order of the fields.

    What concerns everybody (LeaderChanged, Refused of the relay itself) comes to the relay once, as
    to any session, and is for it to pass on.
    """

    frames: tuple[Relayed, ...] = ()
    seen: tuple[RelayBeatsSeen, ...] = ()


ToServer = Hello | Submit | Beat | LogChunk | RelayUp
ToClient = Welcome | LeaderChanged | Results | BeatSeen | HostPlan | LogRead | Refused | RelayDown
