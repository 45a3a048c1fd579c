"""How one node behaves: its limits and its intervals. None of it enters the log."""

from __future__ import annotations

import msgspec

from coord.model.settings import Settings

MIB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True):
    """Every bound of the node. Beyond one, the sender is told which."""

    event_bytes: int = MIB
    job_bytes: int = MIB
    message_bytes: int = 4 * MIB
    """Of one WebSocket message, either way."""
    command_bytes: int = 4 * MIB
    """Of one raft command, with all events that go along."""
    command_events: int = 8_192
    command_apply_s: float = 0.1
    """A command holds no more events than this much time applies, so that raft's heartbeats are not
    held up by a long queue; 0 for no such bound."""
    pending_events: int = 32_768
    """Requests accepted here and not yet decided; one more is answered `busy`."""
    pending_bytes: int = 64 * MIB
    forward_bytes: int = MIB // 2
    """Of one frame of events on its way to the leader."""
    forward_events: int = 2_048
    frames: int = 64
    """Heartbeat frames waiting for a commit; older ones are dropped, never retried."""
    relay_frames: int = 8_192
    """Events of relays waiting for a commit; older ones are dropped, never retried."""
    relay_sessions: int = 65_536
    """Conversations behind one relay; one more is refused as `busy`."""
    session_results: int = 32_768
    """Answers that a slow reader may leave unread."""
    session_bytes: int = 8 * MIB
    """Task output that a slow reader may leave unread."""
    recent_records: int = 4_096
    """Newest entries kept in memory for those who follow the log."""
    recent_bytes: int = 8 * MIB


class Retention(msgspec.Struct, frozen=True):
    """How long entries stay readable after a snapshot covers them; 0 means for ever."""

    max_age_s: int = 0
    max_entries: int = 0
    max_bytes: int = 1024 * MIB
    """Of the entries as they are stored, estimated from a sample."""

    def problems(self) -> list[str]:
        """What is wrong with it, as sentences; empty when it may be used."""
        return [
            f"{name} is {getattr(self, name)}; it must be at least 0, which is for ever"
            for name in self.__struct_fields__
            if getattr(self, name) < 0
        ]


class Intervals(msgspec.Struct, frozen=True):
    """All in seconds of the loop's clock."""

    tick_s: float = 0.02
    """Deadlines, resending, and whatever waits for a connection."""
    frame_s: float = 0.1
    """Heartbeats heard here go to the leader this often."""
    idle_clock_s: float = 0.5
    """A leader with nothing to do still lets log time pass this often."""
    resend_s: float = 1.5
    """A forwarded request not decided after this long is sent again; its origin dedupes it."""
    state_s: float = 1.0
    """Changed rows are staged this often, so that a restart replays only what follows."""
    digest_s: float = 1.0
    invariants_s: float = 1.0
    propose_s: float = 5.0
    """A command not committed after this long has an unknown outcome."""
    read_retry_s: float = 0.5
    keep_s: float = 5.0
    """Snapshots and retention are considered this often."""


class NodeConfig(msgspec.Struct, frozen=True):
    """`cluster` and `settings` are what a first leader records; later the log's hold."""

    node: int
    cluster: str
    settings: Settings = Settings()
    name: str = ""
    api_address: str = ""
    dump_directory: str = ""
    """Where the last events go when an invariant is broken."""
    snapshot_entries: int = 100_000
    """A snapshot is due when the journal holds so many commands, or ..."""
    snapshot_bytes: int = 64 * MIB
    """... so many bytes were applied since the last one."""
    limits: Limits = Limits()
    retention: Retention = Retention()
    intervals: Intervals = Intervals()
    version: str = ""
