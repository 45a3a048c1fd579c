"""What each failure does to the fleet, and what people and health checks do about it."""

from __future__ import annotations

from collections.abc import Callable

from coord.model import decisions, events
from coord.model.entities import DrainState
from coord_sim.fleet.agenda import BEATS, Agenda
from coord_sim.fleet.causes import FLAP, JOB, PLANNED
from coord_sim.fleet.driving import Driving
from coord_sim.fleet.hosts import Agents, Leave, SimHost
from coord_sim.fleet.job import Job
from coord_sim.fleet.leader import Leader
from coord_sim.fleet.policy import Policy
from coord_sim.fleet.schedule import Fault, Strike, log_normal_ms


class Strikes:
    """Failures strike, hosts go and come back."""

    def __init__(
        self,
        agenda: Agenda,
        leader: Leader,
        agents: Agents,
        driving: Driving,
        job: Job,
        policy: Policy,
    ) -> None:
        self._agenda = agenda
        self._leader = leader
        self._agents = agents
        self._driving = driving
        self._job = job
        self._policy = policy
        self._by_number = list(agents.hosts.values())
        self._step_ms = max(int(policy.job.step_s * 1_000), 1)
        hang_s, timeout_s = policy.job.hang_s, policy.job.collective_timeout_s
        self._broken_link_ms = int(1_000 * min(hang_s or timeout_s, timeout_s))
        """A link that is down for so long has broken what went over it."""
        self._muting_ms = policy.core.suspect_ms - policy.core.heartbeat_ms
        """A beat that is late by less is not missed."""
        self._strikes: dict[Strike, Callable[[SimHost, Fault], None]] = {
            Strike.EXIT: self._exit,
            Strike.SILENT: self._silent,
            Strike.HANG: self._hang,
            Strike.CUT: self._cut,
            Strike.FLAP: self._flap,
            Strike.PLANNED: self._planned,
        }

    # Foreseen, so that the last beat and the last step are reported at their time

    def foresee(self, fault: Fault) -> None:
        """It will strike; what is heard last before it is known by then."""
        tick_ms = self._driving.tick_at_or_before(fault.at_ms)
        for host in self._muted_by(fault):
            self._agenda.at(tick_ms, self._last_beat, host, order=BEATS)
        self._send_scout(fault)
        self._agenda.at(fault.at_ms, self._strike, fault)

    def _send_scout(self, fault: Fault) -> None:
        self._agenda.at(fault.at_ms - self._step_ms + 1, self._scout, fault, order=BEATS)

    def _scout(self, fault: Fault) -> None:
        """Within the last step's time before it: when is the last step reported?"""
        generation = self._job.generation
        if generation is not None and generation.runs:
            tick_ms = generation.tick_at_or_before(fault.at_ms)
            if tick_ms >= self._agenda.now_ms:
                self._agenda.at(tick_ms, self._job.report_progress, order=BEATS)

    def _last_beat(self, host: SimHost) -> None:
        if host.reachable(self._agenda.now_ms):
            self._driving.cease(host)

    def _muted_by(self, fault: Fault) -> list[SimHost]:
        if fault.strike == Strike.SILENT:
            return [self._by_number[fault.host]]
        if fault.strike == Strike.CUT:
            return self._on_switch(fault.host)
        muted = fault.strike == Strike.FLAP and self._mutes(fault)
        return [self._by_number[fault.host]] if muted else []

    def _mutes(self, fault: Fault) -> bool:
        often = fault.luck[0] < self._policy.failures.flap_mutes_share
        return often and fault.lasts_ms >= self._muting_ms

    def _on_switch(self, number: int) -> list[SimHost]:
        size = self._policy.failures.switch_hosts
        first = number - number % size
        return self._by_number[first : first + size]

    def _strike(self, fault: Fault) -> None:
        if fault.host < 0:
            self._job_fails(fault)
            return
        host = self._by_number[fault.host]
        if host.powered and not host.away:
            self._strikes[fault.strike](host, fault)

    def _count(self, fault: Fault) -> None:
        self._job.tally.count("faults", fault.cause)

    # The kinds

    def _exit(self, host: SimHost, fault: Fault) -> None:
        process = self._job.process_on(host)
        self._count(fault)
        if process is not None:
            self._job.sync()
            if not process.stopping:
                self._job.disturb(fault.cause)
            self._agents.end(host, process, 1, 0)
        if fault.bad_host:
            host.bad = fault
            self._look_after(host)

    def _job_fails(self, fault: Fault) -> None:
        generation = self._job.generation
        if generation is None or not generation.runs:
            return
        name = generation.hosts[int(fault.luck[0] * len(generation.hosts))]
        self._exit(self._agents.hosts[name], fault)

    def _silent(self, host: SimHost, fault: Fault) -> None:
        self._count(fault)
        self._job.sync()
        if self._job.member(host):
            self._job.disturb(fault.cause)
        host.bad = fault
        self._go(host, fault.cause)
        self._agenda.after(self._repair_ms(fault), self._come_back, host, host.stay, True)

    def _hang(self, host: SimHost, fault: Fault) -> None:
        process = self._job.process_on(host)
        self._count(fault)
        if fault.bad_host:
            host.bad = fault
        if process is None or process.stopping:
            self._look_after(host)
            return
        self._job.sync()
        process.stuck = fault.luck[1] < self._policy.failures.unkillable_share
        self._job.disturb(fault.cause)
        self._job.suspects.append(host)

    def _cut(self, host: SimHost, fault: Fault) -> None:
        self._count(fault)
        self._job.sync()
        lasts_ms = self._repair_ms(fault)
        for cut in self._on_switch(host.number):
            if cut.powered and not cut.away:
                if self._job.member(cut):
                    self._job.disturb(fault.cause)
                cut.away = fault.cause
                self._unlink(cut, lasts_ms)

    def _flap(self, host: SimHost, fault: Fault) -> None:
        generation = self._job.generation
        if generation is not None and generation.runs and host.name in generation.members:
            self._count(fault)
            if fault.lasts_ms >= self._broken_link_ms:
                self._job.sync()
                self._job.disturb(FLAP)
            else:
                if self._mutes(fault):
                    self._job.sync()
                self._job.stall(fault.lasts_ms)
        if self._mutes(fault):
            self._unlink(host, fault.lasts_ms)

    def _planned(self, host: SimHost, fault: Fault) -> None:
        self._count(fault)
        lasts_ms = int(self._policy.operations.maintenance_s * 1_000)
        self._empty(host, Leave(PLANNED, lasts_ms, repair=False))

    # Links

    def _unlink(self, host: SimHost, lasts_ms: int) -> None:
        until_ms = self._agenda.now_ms + lasts_ms
        host.unlinked_until_ms = max(host.unlinked_until_ms, until_ms)
        self._agenda.at(until_ms, self._relink, host, host.stay)

    def _relink(self, host: SimHost, stay: int) -> None:
        """It can be reached again, and is heard at its next beat."""
        if host.stay == stay and host.linked(self._agenda.now_ms):
            self._agenda.at(self._driving.next_tick(), self._heard_again, host, stay, order=BEATS)

    def _heard_again(self, host: SimHost, stay: int) -> None:
        if host.stay != stay or not host.reachable(self._agenda.now_ms):
            return
        host.away = ""
        if self._driving.heard_again(host):
            self._agents.flush(host)
            self._agents.fetch_plan(host)
        else:
            self._join(host)
        self._driving.watch_gang()

    # Bad hosts

    def _look_after(self, host: SimHost) -> None:
        """A health check finds that it is bad, or does not."""
        if host.bad is not None and host.bad.luck[0] < self._policy.operations.health_catches:
            delay_ms = int(self._policy.operations.health_delay_s * 1_000)
            self._agenda.after(delay_ms, self._found_bad, host, host.stay)

    def _found_bad(self, host: SimHost, stay: int) -> None:
        if host.stay == stay and host.bad is not None:
            self._empty(host, Leave(host.bad.cause, self._repair_ms(host.bad), repair=True))

    def generation_stopped(self) -> None:
        """What hung has been stopped: whose fault was it?"""
        for host in self._job.suspects:
            self._look_after(host)
        self._job.suspects = []

    def launched(self, host: SimHost) -> None:
        """A rank runs there. If the host is bad, and nobody found out, not for long."""
        bad = host.bad
        if bad is None or host.leaving is not None:
            return
        delay_ms = int(1_000 * self._policy.operations.relapse_s * host.rng.random())
        luck = (host.rng.random(), host.rng.random())
        again = Fault(
            self._agenda.now_ms + delay_ms,
            bad.cause,
            bad.strike,
            host.number,
            True,
            0,
            host.rng.gauss(0.0, 1.0),
            luck,
        )
        self._send_scout(again)
        self._agenda.at(again.at_ms, self._relapse, host, host.stay, again)

    def _relapse(self, host: SimHost, stay: int, fault: Fault) -> None:
        if host.stay == stay and host.leaving is None and self._job.process_on(host) is not None:
            self._job.tally.relapses += 1
            self._strike(fault)

    # Going and coming back

    def _empty(self, host: SimHost, leave: Leave) -> None:
        """An operator wants it empty, to take it away."""
        row = self._leader.state.hosts[host.name]
        if host.leaving is not None or not host.powered or row.drain_requested:
            return
        self._job.sync()
        host.leaving = leave
        self._job.stop_asked_for = leave.cause
        self._leader.ask(events.DrainRequested(host.name, "operator", leave.cause))
        self._job.stop_asked_for = ""

    def emptied(self, name: str) -> None:
        """Nothing runs there any more: it may be taken away."""
        host = self._agents.hosts[name]
        if host.leaving is not None and host.powered:
            self._take_away(host, host.leaving)

    def quarantined(self, decision: decisions.HostQuarantined) -> None:
        """The core takes it for broken: somebody looks, and reboots it."""
        host = self._agents.hosts[decision.host]
        rightly = any(process.stuck for process in host.processes.values())
        if rightly:
            self._job.tally.quarantined_rightly += 1
        else:
            self._job.tally.quarantined_wrongly += 1
        cause = host.bad.cause if host.bad else JOB
        lasts_ms = self._repair_ms(host.bad) if host.bad else 60_000
        if host.leaving is None:
            host.leaving = Leave(cause, lasts_ms, repair=True)
        self._take_away(host, host.leaving)

    def _take_away(self, host: SimHost, leave: Leave) -> None:
        off_ms = self._agenda.now_ms + self._policy.core.heartbeat_ms + 1
        tick_ms = self._driving.tick_at_or_before(off_ms)
        self._agenda.at(tick_ms, self._last_beat, host, order=BEATS)
        self._agenda.at(off_ms, self._switch_off, host, host.stay, leave)

    def _switch_off(self, host: SimHost, stay: int, leave: Leave) -> None:
        if host.stay == stay and host.powered:
            if self._job.member(host):
                self._job.sync()
                self._job.disturb(leave.cause)
            self._go(host, leave.cause)
            self._agenda.after(leave.lasts_ms, self._come_back, host, host.stay, leave.repair)

    def _go(self, host: SimHost, cause: str) -> None:
        """Off: everything on it is gone."""
        host.powered = False
        host.stay += 1
        host.away = cause
        host.leaving = None
        host.unlinked_until_ms = 0
        host.processes = {}
        host.outbox = []

    def _come_back(self, host: SimHost, stay: int, repaired: bool) -> None:
        if host.stay != stay:
            return
        tally = self._job.tally
        if repaired:
            host.repairs += 1
            tally.repairs += 1
        retire_after = self._policy.operations.retire_after
        if repaired and retire_after and host.repairs >= retire_after:
            tally.retired_rightly += host.lemon
            tally.retired_wrongly += not host.lemon
            return
        host.stay += 1
        host.boot += 1
        host.powered = True
        host.away = ""
        host.bad = None
        self._join(host)

    def _join(self, host: SimHost) -> None:
        self._agents.register(host)
        self._driving.begin(host)
        row = self._leader.state.hosts[host.name]
        if host.leaving is None and (row.quarantine or row.drain != DrainState.NONE):
            self._leader.ask(events.UndrainRequested(host.name, "operator"))

    def _repair_ms(self, fault: Fault) -> int:
        operations = self._policy.operations
        return log_normal_ms(operations.repair_median_s, operations.repair_mean_s, fault.repair)

    # What the core decided about hosts

    def lost(self, decision: decisions.HostLost) -> None:
        """Falsely, if the host works and only its link was down for a moment."""
        host = self._agents.hosts[decision.host]
        self._job.tally.hosts_lost += 1
        self._job.tally.hosts_lost_falsely += not host.away

    def frozen(self) -> None:
        """Verdicts are held back: an operator will look."""
        self._job.tally.frozen += 1
        delay_ms = int(self._policy.operations.allow_evictions_s * 1_000)
        self._agenda.after(delay_ms, self._allow)

    def _allow(self) -> None:
        if self._leader.state.meta.frozen:
            self._leader.ask(events.EvictionsAllowed("operator", "looked"))
            self._driving.look_at(self._agenda.now_ms)
