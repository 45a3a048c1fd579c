"""Who is declared lost, late or hung, and what was truly known of them."""

from __future__ import annotations

from collections import Counter

from coord.core.state import LIVE_HOST, State
from coord.model import decisions, events
from coord.model.entities import HostStatus, TaskStatus
from coord.model.entry import Recorded
from coord.model.settings import Settings

from .machines import Machine
from .violation import CoreViolation

SLACK_MS = 500
"""Beats come at most so far apart."""


class Verdicts:
    """Log times and true times at which each host was heard, by what was recorded."""

    def __init__(self, state: State, machines: dict[str, Machine], settings: Settings) -> None:
        self.state = state
        self.machines = machines
        self.settings = settings
        self.jumps: list[int] = []
        """True times at which the leader's clock jumped ahead."""
        self.incarnations: Counter[str] = Counter()
        self.term = 0
        self.now_ms = 0
        self.frozen_ms = 0
        """Log time at which verdicts last waited for an operator."""
        self.heard_ms: dict[str, int] = {}
        """Log time of the newest beat or registration."""
        self.in_sight_ms: dict[str, int] = {}
        """Log time at which it was last seen to be back."""
        self.elections: Counter[str] = Counter()
        """Elections since it was heard."""
        self.losses: list[tuple[int, int]] = []
        """(log time, how many were lost then)"""
        self.allowed_until_ms = -1
        self.suspects: dict[str, None] = {}
        self.seen_ms: list[int] = []

    def look_at(self, record: Recorded, true_ms: int) -> None:
        self._look_at_time(record)
        event = record.entry.event
        if isinstance(event, events.HeartbeatsSeen) and record.accepted:
            self._look_at_beats(event, record.now_ms)
        elif isinstance(event, events.EvictionsAllowed) and record.accepted:
            self.allowed_until_ms = record.now_ms + self.settings.breaker_window_ms
        elif isinstance(event, events.ClockAdvanced) and record.accepted:
            self._look_for_the_immortal()
        for decision in record.decisions:
            if isinstance(decision, decisions.HostJoined):
                self._look_at_joining(decision, record.now_ms)
            elif isinstance(decision, decisions.HostSuspected):
                self.suspects[decision.host] = None
            elif isinstance(decision, decisions.HostCleared):
                self.suspects.pop(decision.host, None)
                self.in_sight_ms[decision.host] = record.now_ms
            elif isinstance(decision, decisions.HostLost):
                self._look_at_loss(decision, true_ms)
            else:
                self._look_at_silence(decision, record)
        self._look_at_breaker(record)
        self.seen_ms = list(self.state.last_seen_ms)

    # Time and terms

    def _look_at_time(self, record: Recorded) -> None:
        step_ms = record.now_ms - self.now_ms
        self.now_ms = record.now_ms
        if not 0 <= step_ms <= self.settings.max_step_ms:
            raise CoreViolation(
                "log time goes forward, and never far in one step", f"{step_ms} ms: {record.entry}"
            )
        event, term = record.entry.event, self.state.meta.term
        if term < self.term:
            raise CoreViolation("terms only grow", f"{term} after {self.term}")
        if isinstance(event, events.LeaderElected) and record.accepted:
            self.elections.update(self.heard_ms.keys())
        self.term = term
        judges = isinstance(event, events.ClockAdvanced)
        if judges and record.accepted and record.entry.term != term:
            raise CoreViolation(
                "only the leader of the current term takes verdicts", f"{record.entry} in {term}"
            )

    # Beats

    def _look_at_beats(self, event: events.HeartbeatsSeen, now_ms: int) -> None:
        state = self.state
        beaten: dict[int, None] = {}
        for slot, incarnation in zip(event.slots, event.incarnations, strict=True):
            host = state.hosts[state.slots[slot]]
            if host.status not in LIVE_HOST or host.incarnation != incarnation:
                continue
            self.heard_ms[host.host] = now_ms
            self.elections[host.host] = 0
            if host.status != HostStatus.UP:
                raise CoreViolation("who is heard is not suspected", f"{host.host} is suspect")
            beaten[slot] = None
        for slot, seen_ms in enumerate(state.last_seen_ms):
            if slot not in beaten and seen_ms != self.seen_ms[slot]:
                raise CoreViolation(
                    "a beat renews the lease of its own incarnation", state.slots[slot]
                )

    def _look_at_joining(self, decision: decisions.HostJoined, now_ms: int) -> None:
        if decision.incarnation <= self.incarnations[decision.host]:
            raise CoreViolation("incarnations only grow", f"{decision}")
        self.incarnations[decision.host] = decision.incarnation
        self.suspects.pop(decision.host, None)
        self.heard_ms[decision.host] = self.in_sight_ms[decision.host] = now_ms
        self.elections[decision.host] = 0

    # Losses

    def _look_at_loss(self, decision: decisions.HostLost, true_ms: int) -> None:
        name = decision.host
        machine = self.machines[name]
        jumps = sum(1 for at_ms in self.jumps if at_ms >= machine.last_beat_ms)
        silent_ms = true_ms - machine.last_beat_ms
        if silent_ms < self.settings.lease_ms - jumps * self.settings.max_step_ms - SLACK_MS:
            raise CoreViolation(
                "only true silence kills, whatever the leader's clock did",
                f"{name} was lost, heard {silent_ms} ms before",
            )
        beating_ms = true_ms - machine.out_ms
        calls = machine.reachable and machine.incarnation == decision.incarnation
        if calls and beating_ms > 2 * self.settings.lease_ms and self.elections[name] <= 1:
            raise CoreViolation(
                "an election costs nobody who beats all along its lease",
                f"{name} was lost, beating for {beating_ms} ms",
            )

    def _look_for_the_immortal(self) -> None:
        """Elections in a row stretch a lease, but not for ever."""
        if self.state.meta.frozen:
            self.frozen_ms = self.now_ms
            return
        limit_ms = 6 * self.settings.lease_ms
        for name, heard_ms in self.heard_ms.items():
            silent_ms = self.now_ms - max(heard_ms, self.frozen_ms)
            if self.state.hosts[name].status in LIVE_HOST and silent_ms > limit_ms:
                raise CoreViolation(
                    "a dead host is lost in the end", f"{name} was silent for {silent_ms} ms"
                )

    def _look_at_breaker(self, record: Recorded) -> None:
        lost = [one for one in record.decisions if isinstance(one, decisions.HostLost)]
        if not lost:
            return
        state, settings, now_ms = self.state, self.settings, record.now_ms
        recent = sum(
            count for at_ms, count in self.losses if at_ms > now_ms - settings.breaker_window_ms
        )
        self.losses.append((now_ms, len(lost)))
        live = [host for host in state.hosts.values() if host.status in LIVE_HOST]
        silent = [
            host for host in live if now_ms - state.last_seen_ms[host.slot] >= settings.suspect_ms
        ]
        gone, whole = len(silent) + len(lost) + recent, len(live) + len(lost) + recent
        if gone < settings.breaker_min_hosts or now_ms <= self.allowed_until_ms:
            return
        if gone * 1000 > settings.breaker_share_permille * whole:
            raise CoreViolation(
                "correlated silence trips the breaker", f"{gone} of {whole} are gone: {lost}"
            )

    # What follows from silence about a task

    def _look_at_silence(self, decision: decisions.AnyDecision, record: Recorded) -> None:
        judged = isinstance(record.entry.event, events.ClockAdvanced)
        if not judged:
            return
        settings = self.settings
        if isinstance(decision, decisions.HangDetected):
            role = self.state.jobs[decision.job].spec.role(self.state.gangs[decision.gang].role)
            gang = self.state.gangs[decision.gang]
            tasks = [self.state.tasks[key] for key in gang.live]
            hosts = [task.host for task in tasks if task.status == TaskStatus.STOPPING]
            self._must_be_in_sight(hosts, role.hang_ms if role else 0, decision)
        elif isinstance(decision, decisions.IncidentOpened):
            if decision.detail.startswith("not started within"):
                hosts = [self.state.tasks[decision.subject].host]
                self._must_be_in_sight(hosts, settings.launch_timeout_ms, decision)
        elif isinstance(decision, decisions.TaskAbandoned):
            self._must_be_in_sight([decision.host], settings.unkillable_ms, decision)

    def _must_be_in_sight(
        self, hosts: list[str], limit_ms: int, decision: decisions.AnyDecision
    ) -> None:
        """Losing sight is not death: who just came back gets the full time again."""
        for name in hosts:
            seen_ms = self.now_ms - self.in_sight_ms[name]
            if name in self.suspects:
                raise CoreViolation(
                    "silence about a task is judged only while its host is heard",
                    f"{name} is suspect: {decision}",
                )
            if seen_ms < limit_ms:
                raise CoreViolation(
                    "what was due while a host was out of sight gets its full time again",
                    f"{name} is back for {seen_ms} ms: {decision}",
                )
