"""Where gangs were placed, and whether they may run there and then."""

from __future__ import annotations

from coord.core.placement import rooms_of
from coord.core.state import State
from coord.model import decisions, events
from coord.model.entities import Gang, GangPhase, HostStatus, TaskStatus
from coord.model.entry import Recorded
from coord.model.ids import gang_key

from .machines import LACKED
from .restore_points import SENTENCE, RestorePoints
from .violation import CoreViolation

WORKLESS = "a drained host gets no work, and stays drained over a new registration"

UNWANTED = "who is not wanted stays away"


class Placements:
    """Which hosts take work and which gangs may start, told from the log alone."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.generations: dict[str, int] = {}
        self.restore_points = RestorePoints()
        self.boots: dict[str, str] = {}
        self.drained: dict[str, bool] = {}
        """Host -> whether an operator wanted it; a notice is over with the next boot."""
        self.quarantined: dict[str, None] = {}
        self.deadlines: dict[str, int] = {}
        self.stops: dict[str, int] = {}
        """Task -> by when it must have ended."""
        self.not_before_ms: dict[str, int] = {}
        self.fenced: dict[str, None] = {}
        """Tasks that have been on a lost host when its fence was over."""
        self.unwanted: dict[str, str] = {}
        """Gang or job -> why it must not start again."""

    def look_at(self, record: Recorded) -> None:
        if record.accepted and not record.duplicate_of:
            self._take_event(record)
        for decision in record.decisions:
            self._take_decision(decision, record)
        if isinstance(record.entry.event, events.HostRegistered):
            self._look_for_what_is_not_there(record.entry.event.host)
        joined = [one.host for one in record.decisions if isinstance(one, decisions.HostJoined)]
        placed = any(isinstance(one, decisions.TasksPlaced) for one in record.decisions)
        if joined and not placed:  # A start may leave places that it had kept.
            self._look_for_places_lost(joined[0], record.now_ms)
        self._look_at_deadlines()
        self._look_at_stops(record.now_ms)

    def _take_event(self, record: Recorded) -> None:
        event = record.entry.event
        if isinstance(event, events.DrainRequested):
            self.drained[event.host] = True
        elif isinstance(event, events.PreemptionNoticed):
            if event.incarnation != self.state.hosts[event.host].incarnation:
                raise CoreViolation("a notice counts in its incarnation alone", f"{event}")
            self.drained.setdefault(event.host, False)
        elif isinstance(event, events.HostRegistered):
            if self.boots.get(event.host) != event.boot and not self.drained.get(event.host, True):
                del self.drained[event.host]
            self.boots[event.host] = event.boot
        elif isinstance(event, events.JobCancelRequested):
            self.unwanted[event.job] = "it was cancelled"
        elif isinstance(event, events.JobSubmitted):
            self.restore_points = self.restore_points.without(event.spec.name)

    def _take_decision(self, decision: decisions.AnyDecision, record: Recorded) -> None:
        self.restore_points, wrong = self.restore_points.after(decision)
        if wrong:
            raise CoreViolation(SENTENCE, wrong)
        if isinstance(decision, decisions.TasksPlaced):
            self._look_at_placement(decision, record.now_ms)
        elif isinstance(decision, decisions.RestartScheduled):
            self.not_before_ms[decision.gang] = decision.not_before_ms
        elif isinstance(decision, decisions.IncidentOpened):
            if decision.detail.startswith("exit code 93"):
                self.unwanted[decision.gang] = "it asked not to be started again"
        elif isinstance(
            decision, decisions.JobCompleted | decisions.JobFailed | decisions.JobCancelled
        ):
            # Another job may have the name one day.
            gone = [key for key in self.unwanted if key.split("/")[0] == decision.job]
            for key in gone:
                del self.unwanted[key]
        elif isinstance(decision, decisions.GangStopped | decisions.GangSucceeded):
            self.unwanted.pop(decision.gang, None)
            gang = self.state.gangs.get(decision.gang)
            if gang is not None and gang.holds:
                raise CoreViolation("a gang that has ended keeps no places", f"{gang}")
        elif isinstance(decision, decisions.CauseRevised):
            self._look_at_revision(decision)
        elif isinstance(decision, decisions.JobResized):
            self._look_at_size(decision)
        else:
            self._take_verdict(decision)

    def _take_verdict(self, decision: decisions.AnyDecision) -> None:
        """What becomes of a host."""
        if isinstance(decision, decisions.HostReturned | decisions.HostRemoved):
            self.drained.pop(decision.host, None)
            self.quarantined.pop(decision.host, None)
        elif isinstance(decision, decisions.HostQuarantined | decisions.TaskAbandoned):
            self.quarantined[decision.host] = None
        elif isinstance(decision, decisions.HostFenced):
            self.fenced.update(dict.fromkeys(self.state.hosts[decision.host].tasks))

    def _look_at_placement(self, decision: decisions.TasksPlaced, now_ms: int) -> None:
        if decision.generation <= self.generations.get(decision.job, 0):
            raise CoreViolation("generations only grow", f"{decision}")
        self.generations[decision.job] = decision.generation
        gang = self.state.gangs[decision.gang]
        role = self.state.jobs[decision.job].spec.role(gang.role)
        smallest = role.smallest if role is not None and gang.index < 0 else 1
        if len(decision.placements) < min(smallest, gang.desired):
            raise CoreViolation("gangs are all or nothing", f"{decision}")
        if now_ms < self.not_before_ms.pop(decision.gang, 0):
            raise CoreViolation("a restart waits for its back-off", f"{decision} at {now_ms}")
        for key in (decision.job, decision.gang):
            if key in self.unwanted:
                raise CoreViolation(UNWANTED, self.unwanted[key])
        if role is not None and role.exclusive:
            self._look_for_another(decision)
        for placement in decision.placements:
            host = self.state.hosts[placement.host]
            if host.host in self.drained:
                raise CoreViolation(WORKLESS, f"{placement}")
            if host.host in self.quarantined:
                raise CoreViolation("a host with an unkillable task takes no work", f"{placement}")
            if host.status != HostStatus.UP:
                raise CoreViolation("only a host that is up takes work", f"{placement}")

    def _look_for_another(self, decision: decisions.TasksPlaced) -> None:
        """Nothing of an earlier generation may still run where nobody can see it."""
        new = [placement.task for placement in decision.placements]
        places = {self.state.tasks[key].index: key for key in new}
        for key, task in self.state.tasks.items():
            if (task.job, task.gang) != (decision.job, decision.gang) or key in new:
                continue
            out_of_reach = task.status in (TaskStatus.LOST, TaskStatus.UNKILLABLE)
            ended = task.succeeded or key in self.fenced
            if out_of_reach and not ended and task.index in places:
                raise CoreViolation(
                    "an exclusive task runs once",
                    f"{places[task.index]} beside {key} on {task.host}",
                )

    def _look_at_revision(self, decision: decisions.CauseRevised) -> None:
        """Whoever was to blame: what is to end ends."""
        gang = self.state.gangs[decision.gang]
        for key in (decision.job, decision.gang):
            if key in self.unwanted and not gang.stop_final:
                raise CoreViolation(UNWANTED, f"{self.unwanted[key]}: {decision}")

    def _look_at_deadlines(self) -> None:
        """Of several notices the earliest deadline wins."""
        for name, host in self.state.hosts.items():
            before_ms, now_ms = self.deadlines.get(name, 0), host.drain_deadline_ms
            if before_ms and now_ms > before_ms:
                raise CoreViolation(
                    "the earliest deadline wins", f"{name}: {before_ms} became {now_ms}"
                )
            self.deadlines[name] = now_ms

    def _look_at_stops(self, now_ms: int) -> None:
        stops: dict[str, int] = {}
        for key, task in self.state.tasks.items():
            before_ms = self.stops.get(key, 0)
            orphan = task.status == TaskStatus.ORPHANED
            if before_ms and not orphan and task.stop_deadline_ms > max(before_ms, now_ms):
                raise CoreViolation(
                    "a stop is never put off", f"{key}: {before_ms} became {task.stop_deadline_ms}"
                )
            stops[key] = task.stop_deadline_ms
        self.stops = stops

    def _look_at_size(self, decision: decisions.JobResized) -> None:
        """Each independent task up to the new number is there to stay."""
        role = self.state.jobs[decision.job].spec.role(decision.role)
        if role is None or role.gang:
            return
        for index in range(decision.replicas):
            gang = self.state.gangs.get(gang_key(decision.job, decision.role, index))
            if gang is None or gang.stop_final == "remove":
                raise CoreViolation("what is wanted again stays", f"{index} after {decision}")

    def _look_for_what_is_not_there(self, name: str) -> None:
        """A host that registered has every device that is promised there: what ran before is the
        agent's to tell of, what is yet to start is not."""
        host = self.state.hosts.get(name)
        if host is None:
            return
        tasks = [self.state.tasks[key] for key in host.tasks]
        promised = [(task.key, task.devices) for task in tasks if task.status == TaskStatus.PLACED]
        for gang in self.state.gangs.values():
            promised += [(gang.key, hold.devices) for hold in gang.holds if hold.host == name]
        for key, devices in promised:
            if max(devices, default=-1) >= host.devices:
                raise CoreViolation(LACKED, f"{key} on {name}, which has {host.devices}: {devices}")

    def _look_for_places_lost(self, name: str, now_ms: int) -> None:
        """Whoever was interrupted on a host that comes back finds its place kept."""
        host = self.state.hosts[name]
        rooms = rooms_of(self.state)
        if name not in rooms:
            return
        for gang in self.state.gangs.values():
            if name not in gang.hosts or not self._comes_back(gang, now_ms):
                continue
            role = self.state.jobs[gang.job].spec.role(gang.role)
            had = sum(1 for one in gang.hosts[: gang.desired] if one == name)
            has = sum(1 for hold in gang.holds if hold.host == name and not hold.spare)
            has += sum(1 for key in gang.live if self.state.tasks[key].host == name)
            if role is not None and has < had and rooms[name].fits(role.resources):
                raise CoreViolation(
                    "a started gang keeps its holes", f"{gang.key} has {has} of {had} on {host}"
                )

    def _comes_back(self, gang: Gang, now_ms: int) -> bool:
        if gang.phase == GangPhase.STOPPING:
            return not gang.stop_final
        return gang.phase == GangPhase.WAITING and now_ms < gang.holds_until_ms
