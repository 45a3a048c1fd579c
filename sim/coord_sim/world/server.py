"""One simulated server: its clockwork, its machine, its addresses."""

from __future__ import annotations

import msgspec

from coord.node.config import Intervals, Limits, Retention
from coord.node.node import Node
from coord.raft.ports import Member, Role
from coord.raft.timings import RaftTimings
from coord_sim.kernel import SimProcess
from coord_sim.world.clock import SimClock
from coord_sim.world.disk import SimDisk
from coord_sim.world.peers import SimPeerNetwork
from coord_sim.world.raft_checks import CAN_WRITE, OFFERABLE
from coord_sim.world.watched import WatchedLog

CLUSTER = "sim"


class ClusterTimings(msgspec.Struct, frozen=True):
    """The clockwork of simulated servers, slower than in production so that a virtual second costs
    little, and with snapshots often."""

    raft: RaftTimings = RaftTimings(
        tick_ms=200,
        heartbeat_ms=400,
        notice_ms=20,
        election_min_ms=1_500,
        election_max_ms=3_000,
        orphan_min_ms=200,
        orphan_max_ms=700,
        keep_entries=20,
    )
    intervals: Intervals = Intervals(
        tick_s=0.2,
        frame_s=1.0,
        idle_clock_s=1.0,
        resend_s=3.0,
        state_s=2.0,
        digest_s=3.0,
        invariants_s=1e9,
        propose_s=5.0,
        read_retry_s=1.0,
        keep_s=3.0,
    )
    limits: Limits = Limits(command_apply_s=0)
    retention: Retention = Retention(max_entries=400)
    snapshot_entries: int = 60
    snapshot_bytes: int = 1 << 20

    @property
    def answers_s(self) -> float:
        """Within so long a node that leads no more says so to whoever waits at it."""
        return (2 * self.raft.heartbeat_ms + 3 * self.raft.tick_ms) / 1000

    @property
    def unable_s(self) -> float:
        """So long at most a node that cannot write may lead."""
        return (3 * self.raft.election_max_ms + 2 * self.raft.tick_ms) / 1000


class ServerEnded(Exception):
    """A node halted; `__cause__` says why."""


class SimServer:
    """One machine: its disk and its clock, and its process while it runs."""

    def __init__(self, number: int, disk: SimDisk, clock: SimClock, members: tuple[Member, ...]):
        self.number = number
        self.disk = disk
        self.clock = clock
        self.members = members
        """The first configuration; empty for one that joins later."""
        self.told: tuple[Member, ...] = ()
        """What a leader about to add it said who the members are; forgotten when it ends."""
        self.process: SimProcess | None = None
        self.network: SimPeerNetwork | None = None
        self.node: Node | None = None
        """Once it has started."""
        self.wanted = False
        """It should run, and is started again when it ends."""
        self.refused = ""
        """Why it does not start on its data; it waits to be replaced."""
        self.removed = False
        self.starts = 0
        self._unable_since_s = 0.0

    @property
    def member(self) -> Member:
        return member_of(self.number)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.alive

    def line(self) -> str:
        """Where it is."""
        if self.node is None or not self.running:
            why = "removed" if self.removed else self.refused or "down"
            return f"{self.number}: {why}"
        status = self.node.log.status()
        return (
            f"{self.number}: {status.role} term {status.term} leader {status.leader} log "
            f"{status.first_index}..{status.last_index} commit {status.commit_index} applied "
            f"{status.applied_index} of {[one.node for one in status.members]} to "
            f"{status.connected} {status.read_only}"
        )

    def complaints(self, now_s: float, unable_s: float) -> list[str]:
        """The properties that do not hold of it as it is now."""
        found = [CAN_WRITE] if self._unable_for_s(now_s) > unable_s else []
        log = self.node.log if self.node is not None and self.running else None
        if isinstance(log, WatchedLog) and not log.offerable:
            found.append(OFFERABLE)
        return found

    def _unable_for_s(self, now_s: float) -> float:
        """How long it has been seen to lead while it cannot write; asked again and again."""
        process, node = self.process, self.node
        status = node.log.status() if node is not None and self.running else None
        if status is None or status.role != Role.LEADER or not status.read_only:
            self._unable_since_s = 0.0
            return 0.0
        if not self._unable_since_s or (process is not None and process.blocked):
            self._unable_since_s = now_s
        return now_s - self._unable_since_s


def member_of(number: int) -> Member:
    """The addresses of a simulated server."""
    return Member(number, f"sim-{number}:7", f"sim-{number}")
