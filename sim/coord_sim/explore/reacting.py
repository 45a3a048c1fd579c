"""What agents do in an execution, and when: the part of it that is not the log's."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from coord.agent.reconcile import Fact
from coord.agent.records import Phase, TaskRecord
from coord.core.plans import host_plan
from coord.model.entry import Origin, Recorded
from coord.model.events import AnyEvent, HostRegistered, TaskExited, TaskReaped, TaskStarted
from coord.model.rejections import Rejection

from . import agents, working
from .agents import Agent, Doing
from .judge import DEVICE_OWNER, EXCLUSIVE_ONCE, Broken
from .marks import number_of
from .recording import REGISTRATION_MS, RETRY_MS
from .stage import ENDS_INCARNATION, Stage, come_true

SOON_MS = 2_000
"""What the log tells within this time is waited for; what comes later had other reasons."""
EARLY_MS = 250
"""An order that comes so much earlier than recorded does not wait for the recorded reaction."""
OWN_NUMBERS = 1_000_000
"""Requests and frames that the log does not have are numbered from here on."""

Pending = tuple[int, int, str, str, Any]
"""When, a tie-breaker, what, whose, and about what."""


class Reacting(Stage):
    """A stage on which agents act by themselves. Abstract: `execute.Execution` lets time pass."""

    now_ms: int
    apply: Callable[..., Recorded]
    ahead: Callable[[int], bool]
    breaks: Callable[[Broken], None]

    def begin_reacting(self) -> None:
        self.pending: list[Pending] = []
        self.stirred: dict[str, None] = {}
        """Hosts whose row or whose tasks changed: their agents look at what there is to do."""
        self.calm: dict[str, Agent] = {}
        """Agents as they were when there was nothing to do for them."""
        self.down: dict[str, int] = {}
        """Agents that stand still or are being restarted, and until when; their processes run."""
        self.dead: dict[str, None] = {}
        """Hosts without power."""
        self.mute: dict[str, None] = {}
        """Hosts whose first report in the outbox was lost under way, until it is sent again."""
        self.losing: dict[str, None] = {}
        """Hosts whose next report is to be lost."""
        self.forgetful: dict[str, None] = {}
        """Agents that will not know how a process ended while they were down."""
        self.renewed: dict[str, int] = {}
        """Host -> the election from which its lease counts, where that is later than its beat."""
        self.unheard: dict[str, None] = {
            name: None for name, host in self.state.hosts.items() if host.extensions
        }
        """Hosts of which no beat was taken since the last election."""
        self.healed = False
        self.ties = 0
        self.numbers = OWN_NUMBERS

    def react_as(self, other: Reacting) -> None:
        """Begin where another one is, between two events, which is not touched by what follows."""
        self.pending = other.pending.copy()
        self.stirred = other.stirred.copy()
        self.calm = other.calm.copy()
        self.down = other.down.copy()
        self.dead = other.dead.copy()
        self.mute = other.mute.copy()
        self.losing = other.losing.copy()
        self.forgetful = other.forgetful.copy()
        self.renewed = other.renewed.copy()
        self.unheard = other.unheard.copy()
        self.healed = other.healed
        self.ties = other.ties
        self.numbers = other.numbers

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def later(self, after_ms: int, kind: str, host: str, about: Any = None) -> None:
        """Let it happen after this time."""
        self.ties += 1
        heapq.heappush(self.pending, (self.now_ms + after_ms, self.ties, kind, host, about))

    def disturbed(self) -> bool:
        """Whether a fault is still at work."""
        return bool(self.down or self.dead or self.mute)

    def active(self, host: str) -> bool:
        """Whether its agent acts and can be reached."""
        if host in self.down or host in self.dead:
            return False
        return self.healed or not self.recording.silent(host, self.now_ms)

    # Plans

    def settle(self) -> None:
        """Let every agent that has reason to look at what there is to do, until none has."""
        stirred = self.stirred
        while stirred:
            host = next(iter(stirred))
            del stirred[host]
            self._look(host)

    def _look(self, host: str) -> None:
        agent = self.agents.get(host)
        if agent is None or not agent.registered or not self.active(host):
            return
        row = self.state.hosts[host]
        if agent.seen != (row.incarnation, row.plan_version) or agent.plan is None:
            agent = agents.obey(agent, host_plan(self.state, host))
        fenced = self.lease_over(host)
        if fenced or self.calm.get(host) is not agent:
            agent, doing = agents.look(agent, fenced=fenced)
            self.agents[host] = agent
            if doing.nothing and not fenced:
                self.calm[host] = agent
            self._do(host, doing)
        self.flush(host)

    def _do(self, host: str, doing: Doing) -> None:
        for order in doing.launch:
            if not self._awaited(host, order.task, Fact.STARTED):
                latency_ms = self.recording.latency(order.task, Fact.STARTED)
                self.later(latency_ms, "launched", host, order.task)
        for task, grace_ms in doing.stop:
            self._stop(host, task, grace_ms)
        for task in doing.bury:
            if not self._awaited(host, task, Fact.REAPED):
                self.later(self.recording.latency(task, Fact.REAPED), "gone", host, task)
        for task, fact in doing.report:
            if task in self.agents[host].records and not self._soon(task, fact):
                self.tell(host, task, fact)

    def _stop(self, host: str, task: str, grace_ms: int) -> None:
        if not agents.alive(self.agents[host].records[task]):
            return  # What is left of it is ending already.
        if self._awaited(host, task, Fact.EXITED, self.recording.upon_request):
            return
        if self._awaited(host, task, Fact.REAPED, self.recording.abrupt):
            return
        latency_ms = self.recording.latency(task, Fact.EXITED)
        self.later(min(latency_ms, max(grace_ms, 1)), "exited", host, task)

    def _awaited(
        self, host: str, task: str, fact: Fact, among: dict[int, None] | None = None
    ) -> bool:
        """Whether the log still has that host's reaction, and this order does not come much too
        early for it."""
        if self.healed:
            return False
        recording = self.recording
        asked_ms = recording.asked_ms.get((task, fact))
        if asked_ms is not None and self.now_ms < asked_ms - EARLY_MS:
            return False
        actor = f"host:{host}"
        told = recording.told.get((task, fact), ())
        if not told and recording.asked_of.get((task, fact)) == host:
            return not recording.cut_short(host, task, fact)
        return any(
            self.ahead(position)
            and recording.records[position].entry.origin.actor == actor
            and (among is None or position in among)
            for position in told
        )

    def _soon(self, task: str, fact: Fact) -> bool:
        """Whether the log tells this fact before long."""
        fact = Fact.STARTED if fact is Fact.LAUNCH_FAILED else fact
        times_ms = self.recording.times_ms
        return not self.healed and any(
            self.ahead(position) and times_ms[position] - self.now_ms <= SOON_MS
            for position in self.recording.told.get((task, fact), ())
        )

    # What becomes true

    def comes_true(
        self, host: str, task: str, event: AnyEvent, position: int | None = None
    ) -> None:
        """A fact of a task, as an event would tell it; its agent knows of it at once."""
        agent = self.agents[host]
        self.agents[host] = agent = come_true(agent, event)
        about = agents.fact_of(event)
        assert about is not None, f"{event} tells no fact"
        fact = about[1]
        if fact is Fact.STARTED:
            self._look_at_owners(host, agent.records[task])
            working.begin(self, host, task)
        if fact in (Fact.EXITED, Fact.LAUNCH_FAILED):
            self._then_gone(host, task)
        self.stirred[host] = None
        self.tell(host, task, fact, position)

    def _then_gone(self, host: str, task: str) -> None:
        if not self._soon(task, Fact.REAPED):
            self.later(self.recording.latency(task, Fact.REAPED), "gone", host, task)

    def _look_at_owners(self, host: str, started: TaskRecord) -> None:
        """No device has two live owners, no exclusive task two live runs."""
        order = started.order
        for record in self.agents[host].records.values():
            if record is started or not agents.alive(record):
                continue
            shared = [device for device in order.devices if device in record.order.devices]
            if shared:
                detail = f"device {shared[0]} of {host}: {record.order.task}, {order.task}"
                self.breaks((DEVICE_OWNER, detail))
        if not order.exclusive:
            return
        for agent in self.agents.values():
            for record in agent.records.values():
                if record is started or not self._runs(agent, record):
                    continue
                other = record.order
                if (other.job, other.role, other.index) == (order.job, order.role, order.index):
                    where = f"{other.task} on {agent.host}, {order.task} on {host}"
                    self.breaks((EXCLUSIVE_ONCE, where))

    def _runs(self, agent: Agent, record: TaskRecord) -> bool:
        """Whether a process is there, unless its host has ended it to keep within its lease."""
        if agent.host in self.dead or not agents.alive(record):
            return False
        return not (record.order.exclusive and self.lease_over(agent.host))

    def lease_over(self, host: str) -> bool:
        heard_ms = self.beats.get(host)
        if heard_ms is None or not self.recording.has_frames:
            return False
        return self.now_ms - heard_ms >= self.state.meta.settings.lease_ms

    def gives_launch_up(self, host: str, record: TaskRecord) -> bool:
        """A fenced agent launches no exclusive task; it decides anew when it is heard again."""
        if not (record.order.exclusive and self.lease_over(host)):
            return False
        self.agents[host] = agents.not_launched(self.agents[host], record.order.task)
        return True

    def fence(self, host: str) -> None:
        """An agent that is back finds its exclusive tasks ended if its lease had run out."""
        if not self.lease_over(host):
            return
        agent = self.agents.get(host)
        if agent is None:
            return
        for task, record in sorted(agent.records.items()):
            if record.order.exclusive and agents.alive(record):
                self.agents[host] = agents.exited(self.agents[host], task, agents.KILLED)
                self._then_gone(host, task)
                self.stirred[host] = None

    def renew(self) -> None:
        """A leader was elected: whoever was heard under the one before has a full lease from here.
        Whoever was not has what is left, and a moment."""
        for host in self.agents:
            if host not in self.unheard:
                self.renewed[host] = self.now_ms
                self.unheard[host] = None

    # Reports

    def tell(self, host: str, task: str, fact: Fact, position: int | None = None) -> None:
        """Put the report of a fact into the outbox."""
        agent = self.agents[host]
        if agent.registered:
            event = agents.report_of(agent, task, fact)
            self.agents[host] = agents.sent(agent, task, fact)
            self.say(host, event, position)

    def say(self, host: str, event: AnyEvent, position: int | None = None) -> None:
        """Send a report after all that wait. `position` is where the log has it."""
        agent = self.agents[host]
        self.agents[host] = agent = replace(agent, outbox=(*agent.outbox, event))
        if host in self.losing:
            del self.losing[host]
            self.mute[host] = None
            self.later(RETRY_MS, "sent again", host)
        elif host in self.mute:
            # The one before it was lost: it arrives too early, and is sent again after that one.
            seq = agent.seq + len(agent.outbox)
            self.apply(event, self._origin(agent, seq, position), position)
        else:
            self.flush(host, position)

    def flush(self, host: str, position: int | None = None) -> None:
        """Deliver what waits, in order."""
        while True:
            agent = self.agents[host]
            if not agent.outbox or not agent.registered or host in self.mute:
                return
            if not self.active(host):
                self._deliver_when_heard(host)
                return
            event = agent.outbox[0]
            last = position if len(agent.outbox) == 1 else None
            record = self.apply(event, self._origin(agent, agent.seq + 1, last), last)
            if not self._answered(host, event, record):
                return

    def _deliver_when_heard(self, host: str) -> None:
        until_ms = self.recording.silent_until_ms(host, self.now_ms)
        if host not in self.down and host not in self.dead and until_ms > self.now_ms:
            self.later(until_ms - self.now_ms, "heard", host)

    def _origin(self, agent: Agent, seq: int, position: int | None) -> Origin:
        actor = f"host:{agent.host}"
        if position is not None:
            recorded = self.recording.records[position].entry.origin
            if (recorded.actor, recorded.incarnation, recorded.seq) == (
                actor,
                agent.incarnation,
                seq,
            ):
                return recorded
        return Origin(actor, agent.incarnation, seq, self.state.meta.applied_index, agent.seen[1])

    def _answered(self, host: str, event: AnyEvent, record: Recorded) -> bool:
        """The agent hears what became of its oldest report; whether it goes on reporting."""
        agent = self.agents[host]
        if record.rejection in ENDS_INCARNATION or record.rejection == Rejection.REPORT_GAP:
            self.lose_touch(host)
            return False
        agent = replace(agent, outbox=agent.outbox[1:], seq=agent.seq + 1)
        about = agents.fact_of(event)
        if about is not None:
            agent = agents.settled(agent, *about)
        self.agents[host] = agent
        self.stirred[host] = None
        return True

    # Registration

    def lose_touch(self, host: str) -> None:
        """The agent hears that its incarnation is over, and registers again."""
        agent = self.agents[host]
        self.agents[host] = replace(agent, registered=False)
        times_ms = self.recording.times_ms
        positions = self.recording.registrations.get(host, ())
        if not self.healed and any(
            self.ahead(position) and times_ms[position] - self.now_ms <= SOON_MS
            for position in positions
        ):
            return
        self.later(REGISTRATION_MS, "register", host)

    def register(
        self, host: str, event: HostRegistered, origin: Origin, position: int | None = None
    ) -> None:
        record = self.apply(event, origin, position)
        if record.rejection:
            refused = self.agents.get(host) or Agent(host)
            if refused.announced is None:
                self.agents[host] = replace(refused, announced=event)
            self.later(RETRY_MS, "register", host)
            return
        agent = self.agents.get(host) or Agent(host)
        self.agents[host] = agents.registered(agent, event, origin.seq, record.result)
        self.beats[host] = self.now_ms
        self.unheard.pop(host, None)
        for task, known in sorted(self.agents[host].records.items()):
            if known.phase is Phase.EXITED:
                self._then_gone(host, task)
        self.stirred[host] = None


# What was put off comes to pass


def _launched(execution: Reacting, host: str, task: str) -> None:
    record = _record(execution, host, task)
    if record is None or record.phase is not Phase.LAUNCHING or record.launch_error:
        return
    if execution.gives_launch_up(host, record):
        return
    told = execution.recording.told.get((task, Fact.STARTED), ())
    event: Any = execution.recording.records[told[0]].entry.event if told else None
    if event is None:
        event = TaskStarted(host, 0, task, number_of(task) % 30_000 + 2)
    execution.comes_true(host, task, event)


def _exited(execution: Reacting, host: str, task: str) -> None:
    record = _record(execution, host, task)
    if record is not None and agents.alive(record):
        execution.comes_true(host, task, TaskExited(host, 0, task, signal=15, expected=True))


def _gone(execution: Reacting, host: str, task: str) -> None:
    agent = execution.agents[host]
    record = _record(execution, host, task)
    buried = record is None and task in agent.burying
    ended = record is not None and (record.phase is Phase.EXITED or bool(record.launch_error))
    if buried or (ended and record is not None and record.phase is not Phase.GONE):
        execution.comes_true(host, task, TaskReaped(host, 0, task))


def _record(execution: Reacting, host: str, task: str) -> TaskRecord | None:
    return None if host in execution.dead else execution.agents[host].records.get(task)


def _register(execution: Reacting, host: str, about: str | None) -> None:
    """Register again, `about` a boot where there was one."""
    agent = execution.agents[host]
    if agent.registered or agent.announced is None or host in execution.dead:
        return
    if not execution.active(host):
        until_ms = execution.recording.silent_until_ms(host, execution.now_ms)
        if until_ms > execution.now_ms:
            execution.later(until_ms - execution.now_ms, "register", host)
        return
    execution.fence(host)
    event = agents.announcement(execution.agents[host], about or "")
    origin = Origin(f"client:{event.agent}", 0, execution.number())
    execution.register(host, event, origin)


def _heard(execution: Reacting, host: str, about: None) -> None:
    execution.stirred[host] = None


def _sent_again(execution: Reacting, host: str, about: None) -> None:
    execution.mute.pop(host, None)
    execution.flush(host)


def _asked_again(execution: Reacting, host: str, about: tuple[AnyEvent, Origin]) -> None:
    event, origin = about
    execution.apply(event, origin)


def _resumed(execution: Reacting, host: str, about: None) -> None:
    """The agent goes on where it stood still."""
    execution.down.pop(host, None)
    execution.fence(host)
    execution.stirred[host] = None


def _restarted(execution: Reacting, host: str, about: None) -> None:
    """The agent is up again: its notes tell what it had launched, its host what is left of it."""
    execution.down.pop(host, None)
    _register(execution, host, None)


FIRES: dict[str, Callable[[Any, str, Any], None]] = {
    "launched": _launched,
    "exited": _exited,
    "gone": _gone,
    "register": _register,
    "heard": _heard,
    "resume": _resumed,
    "restart": _restarted,
    "sent again": _sent_again,
    "works": working.work,
    "saved": working.saved,
    "finished": working.finished,
    "asked again": _asked_again,
}
