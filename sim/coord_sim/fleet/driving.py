"""How the core is driven through weeks: beats, the clock, and what need not be said.

A real leader records a frame of heartbeats every tenth of a second and the clock whenever something
may be due. Over 54 days that is 50 million entries, and almost none decides anything. The
economical driving leaves out what provably changes no decision:

- Beats matter only when silence is judged, which `ClockAdvanced` alone does. So a frame with every
  host that beats goes right before each `ClockAdvanced`, and a host that is about to fall silent
  sends its last beat at the very moment it would have: failures are drawn beforehand.
- `ClockAdvanced` matters only when something is due: a silent host's next verdict, a back-off, a
  held place, a launch, a stop or a hang that takes too long. Those moments are known from the rows.
- Progress matters when a hang is judged and when a generation fails: the last step before either is
  reported at its time, and so are the last ones before training stands still, at its next report
  after that; the others are not.
- A checkpoint that a later one replaces before anything fails is never restored from: only the
  newest whole one is reported, right before what may end the generation.
- The exit of a rank that the plan told to end decides nothing before it is reaped.

`every_beat` drives the core with all of it, the clock at exactly the moments that the core's timers
ask for. Both ways must decide the same at the same moments; tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable

from coord.core.state import LIVE_HOST
from coord.model.entities import GangPhase, HostStatus, TaskStatus
from coord.model.events import ClockAdvanced, HeartbeatsSeen
from coord_sim.fleet.agenda import BEATS, VERDICTS, Agenda
from coord_sim.fleet.hosts import Agents, SimHost
from coord_sim.fleet.leader import NODE, Leader
from coord_sim.fleet.policy import Policy

GANG = "train/ranks"


class Driving:
    """Beats and the clock. `report_progress` is called before the clock, `sync` where a verdict may
    end a generation that trains."""

    def __init__(
        self,
        agenda: Agenda,
        leader: Leader,
        agents: Agents,
        policy: Policy,
        report_progress: Callable[[], None],
        sync: Callable[[], None],
        *,
        every_beat: bool,
    ) -> None:
        self._agenda = agenda
        self._leader = leader
        self._agents = agents
        self._core = policy.core
        self._report_progress = report_progress
        self._sync = sync
        self.every_beat = every_beat
        self._beating: dict[int, int] = {}
        self._frame: HeartbeatsSeen | None = None
        """The frame of everybody who beats, while that is the same."""
        self._looks: dict[int, None] = {}
        """Moments at which the clock is asked for already."""
        self._hang_ms = int(policy.job.hang_s * 1_000)
        self.hung = False
        """In truth no rank will finish another step: a verdict is to be expected."""
        self._slow = False
        """The next step may come so late that it is taken for a hang."""

    def start(self) -> None:
        if self.every_beat:
            self._agenda.at(self._tick_after(), self._tick, order=BEATS)

    # Beats

    def begin(self, host: SimHost) -> None:
        """It has registered, or was heard again: it beats from now on."""
        self._beating[self._slot(host)] = host.incarnation
        self._frame = None

    def cease(self, host: SimHost) -> None:
        """Its last beat, now; the clock will be asked for when its silence is judged."""
        slot = self._slot(host)
        if slot not in self._beating:
            return
        self._leader.own(HeartbeatsSeen(NODE, (slot,), (self._beating.pop(slot),)))
        self._frame = None
        self.expect(host)

    def expect(self, host: SimHost) -> None:
        """Its silence, should it last, is judged at those moments."""
        seen_ms = self._leader.state.last_seen_ms[self._slot(host)]
        for limit_ms in (self._core.suspect_ms, self._core.lease_ms):
            self._agenda.at(seen_ms + limit_ms, self._judge_silence, host, seen_ms, order=VERDICTS)

    def heard_again(self, host: SimHost) -> bool:
        """One beat after a silence; False when its incarnation is over and it must register."""
        row = self._leader.state.hosts[host.name]
        if row.status not in LIVE_HOST or row.incarnation != host.incarnation:
            return False
        self.begin(host)
        self._leader.own(HeartbeatsSeen(NODE, (row.slot,), (host.incarnation,)))
        return True

    def tick_at_or_before(self, at_ms: int) -> int:
        return at_ms - at_ms % self._core.heartbeat_ms

    def _tick_after(self) -> int:
        now_ms = self._agenda.now_ms
        return now_ms - now_ms % self._core.heartbeat_ms + self._core.heartbeat_ms

    def next_tick(self) -> int:
        """The next moment at which agents beat, this one included."""
        return -(-self._agenda.now_ms // self._core.heartbeat_ms) * self._core.heartbeat_ms

    def _slot(self, host: SimHost) -> int:
        return self._leader.state.hosts[host.name].slot

    def _tick(self) -> None:
        self._send_frame()
        if self._leader.state.meta.frozen:
            self._agenda.at(self._agenda.now_ms, self.verdicts, order=VERDICTS)
        self._agenda.at(self._tick_after(), self._tick, order=BEATS)

    def _send_frame(self) -> None:
        if self._frame is None:
            slots = tuple(sorted(self._beating))
            incarnations = tuple(self._beating[slot] for slot in slots)
            self._frame = HeartbeatsSeen(NODE, slots, incarnations)
        if self._frame.slots:
            self._leader.own(self._frame)

    # The clock

    def look_at(self, due_ms: int) -> None:
        """Something will be due then."""
        due_ms = max(due_ms, self._agenda.now_ms)
        if not self.every_beat and due_ms not in self._looks:
            self._looks[due_ms] = None
            self._agenda.at(due_ms, self._look, order=VERDICTS)

    def watch_gang(self) -> None:
        """The gang's launch, stop or hang may last too long: be there when it does."""
        due_ms = self._gang_due_ms()
        if due_ms is not None and not self.every_beat:
            self._agenda.at(due_ms, self._look_at_gang, order=VERDICTS)

    def watch_slow_step(self, next_step_ms: int) -> None:
        """All wait, and the next step may not come before that moment: will it be in time?"""
        progress_ms = self._leader.state.gangs[GANG].progress_ms
        if self._hang_ms and progress_ms and next_step_ms - progress_ms >= self._hang_ms:
            self._slow = True
            self.watch_gang()

    def verdicts(self) -> None:
        """Let the core judge now."""
        if not self.every_beat:
            self._send_frame()
            self._report_progress()
        self._leader.own(ClockAdvanced())
        if self._leader.state.meta.frozen:
            # While it is frozen, every beat may end that.
            self.look_at(self._tick_after())

    def _judge_silence(self, host: SimHost, seen_ms: int) -> None:
        """Unless it was heard since."""
        state = self._leader.state
        slot = self._slot(host)
        if self.every_beat or slot in self._beating or state.last_seen_ms[slot] != seen_ms:
            return
        if state.hosts[host.name].status in LIVE_HOST:
            self.verdicts()
            row = state.hosts[host.name]
            if row.status == HostStatus.LOST:
                self.look_at(row.lost_at_ms + self._core.fence_ms)

    def _look(self) -> None:
        self._looks.pop(self._agenda.now_ms, None)
        self.verdicts()

    def _look_at_gang(self) -> None:
        if self._slow:
            self._sync()
        due_ms = self._gang_due_ms()
        self._slow = False
        if due_ms is not None and due_ms <= self._agenda.now_ms:
            self.verdicts()
            due_ms = self._gang_due_ms()
        if due_ms is not None and due_ms > self._agenda.now_ms:
            self._agenda.at(due_ms, self._look_at_gang, order=VERDICTS)

    def _gang_due_ms(self) -> int | None:
        """The gang's next deadline, from its rows; None when it has none."""
        state, core = self._leader.state, self._core
        gang = state.gangs[GANG]
        if gang.phase == GangPhase.RUNNING:
            known = (self.hung or self._slow) and self._hang_ms and gang.progress_ms
            return gang.progress_ms + self._hang_ms if known else None
        tasks = [state.tasks[key] for key in gang.live]
        if gang.phase == GangPhase.STARTING:
            placed = [task.placed_ms for task in tasks if task.status == TaskStatus.PLACED]
            return min(placed) + core.launch_timeout_ms if placed else None
        if gang.phase == GangPhase.STOPPING:
            ends = [task.stop_deadline_ms for task in tasks if task.stop_deadline_ms]
            return min(ends) + core.unkillable_ms if ends else None
        return None
