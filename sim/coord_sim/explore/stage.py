"""A state with the agents around it, as the log shows them: what an execution starts from.

While the log is followed, agents are taken at their word: what they report is true, and what they
have done is noted as done. `Baseline` follows the whole log once and keeps copies to start from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from coord.agent.reconcile import Fact, Reported
from coord.agent.records import ExitFacts, Phase, Process, TaskRecord
from coord.core.machine import apply, next_due_ms
from coord.core.plans import host_plan
from coord.core.state import State
from coord.model.entry import Recorded
from coord.model.events import (
    AnyEvent,
    HeartbeatsSeen,
    HostRegistered,
    LaunchFailed,
    TaskExited,
    TaskStarted,
    TaskUnkillable,
)
from coord.model.rejections import Rejection

from . import agents
from .agents import Agent, Doing
from .fork import RowKey, changed_rows, fork
from .judge import Broken, Sight, judge, memory_of
from .marks import AgentMarks, Kept, Marks
from .recording import Frame, Recording
from .watching import Watch

ENDS_INCARNATION = (Rejection.STALE_INCARNATION, Rejection.HOST_NOT_LIVE, Rejection.UNKNOWN_HOST)

SNAPSHOTS = 2_000
"""Copies kept of one incident's states, evenly spread."""


class Stage:
    """State, agents and what is remembered of both, after some part of the log."""

    def __init__(self, recording: Recording, state: State) -> None:
        self.recording = recording
        self.state = state
        self.agents: dict[str, Agent] = {}
        self.beats: dict[str, int] = {}
        """Host -> when the log last took a beat, or its registration."""
        self.memory = memory_of(state)
        self.watch = Watch(state)
        self.marks = Marks(state)
        self.agent_marks = AgentMarks()
        self.memory_mark = Kept()
        self.settings_mark = Kept()

    def fork(self) -> Stage:
        """A copy that goes its own way."""
        copy = Stage.__new__(Stage)
        copy.become(self)
        return copy

    def become(self, other: Stage) -> None:
        """Start where another one stands, which is not touched by what follows."""
        self.recording = other.recording
        self.state = fork(other.state)
        self.agents = other.agents.copy()
        self.beats = other.beats.copy()
        self.memory = other.memory
        self.watch = other.watch.fork()
        self.marks = other.marks.fork()
        self.agent_marks = other.agent_marks.fork()
        self.memory_mark = Kept()
        self.settings_mark = Kept()

    def follow(self, position: int) -> tuple[Recorded, list[RowKey], Broken | None]:
        """Apply the log's next entry as it is, and note what its agents did."""
        entry = self.recording.records[position].entry
        sight = self.sight(entry.origin.actor)
        record = apply(self.state, entry)
        changed = changed_rows(self.state)
        broken = self._judged(record, changed, sight)
        self.learn(position, record)
        for table, key in changed:
            if table == "hosts":
                self.hear_plan(key, record.now_ms)
        return record, changed, broken

    def sight(self, actor: str) -> Sight:
        """What is true before an entry of this actor."""
        host = self.state.hosts.get(actor[5:]) if actor.startswith("host:") else None
        return Sight(host, now_ms=self.state.meta.now_ms)

    def _judged(self, record: Recorded, changed: list[RowKey], sight: Sight) -> Broken | None:
        self.memory, broken = judge(self.memory, self.state, record, changed, sight)
        if not changed:
            return broken
        self.marks.note(changed)
        return broken or self.watch.look(self.state, changed, self.marks, self.recording.sound)

    # Agents, taken at their word

    def learn(self, position: int, record: Recorded) -> None:
        """What the entry tells of whoever sent it."""
        event = record.entry.event
        learn = _LEARN.get(type(event))
        if learn is not None:
            learn(self, position, record, event)
        elif position in self.recording.relayed:
            for slot in self.recording.relayed[position]:
                self.beats[self.state.slots[slot]] = record.now_ms
        elif record.entry.origin.actor.startswith("host:"):
            self._learn_report(position, record, event)

    def _learn_registration(self, position: int, record: Recorded, event: HostRegistered) -> None:
        if record.rejection or record.duplicate_of:
            self.recording.noise[position] = None
            return
        agent = self.agents.get(event.host) or Agent(event.host)
        known = agent.announced
        if agent.registered and known is not None and known.boot == event.boot:
            self.recording.restarts[position] = None
        if known is not None:
            self.recording.announced[position] = agents.announcement(agent).tasks
        seq = record.entry.origin.seq
        self.agents[event.host] = agents.registered(agent, event, seq, record.result)
        self.beats[event.host] = record.now_ms

    def _learn_frame(self, position: int, record: Recorded, event: HeartbeatsSeen) -> None:
        """Whose beats count, and whose were in vain."""
        state = self.state
        live = state.live_incarnations
        stale = []
        for slot, incarnation in zip(event.slots, event.incarnations, strict=False):
            if not 0 <= slot < len(live) or live[slot] != incarnation:
                stale.append((slot, incarnation))
                continue
            self.beats[state.slots[slot]] = record.now_ms
        for slot, incarnation in stale:
            if 0 <= slot < len(live):
                self.refused(state.slots[slot], incarnation)
        absent = tuple(
            agent.host
            for agent in self.agents.values()
            if not agent.registered and agent.announced is not None
        )
        self.recording.frames[position] = Frame(absent, tuple(stale))

    def refused(self, host: str, incarnation: int) -> None:
        """An agent learns that its incarnation is over."""
        agent = self.agents.get(host)
        if agent is not None and agent.registered and agent.incarnation == incarnation:
            self.agents[host] = replace(agent, registered=False)

    def _learn_report(self, position: int, record: Recorded, event: AnyEvent) -> None:
        recording = self.recording
        origin = record.entry.origin
        agent = self.agents.get(origin.actor[5:])
        honest = agent is not None and (agent.incarnation, agent.seq + 1) == (
            origin.incarnation,
            origin.seq,
        )
        if record.duplicate_of or record.rejection == Rejection.REPORT_GAP or not honest:
            recording.noise[position] = None
            return
        assert agent is not None
        if record.rejection in ENDS_INCARNATION:
            agent = replace(agent, registered=False)
        about = agents.fact_of(event)
        task: str = getattr(event, "task", "")
        if isinstance(event, TaskStarted | LaunchFailed):
            agent = agents.taken_up(agent, task)
        if about is not None and agents.owes(agent, *about):
            # True since before it registered: told again.
            if isinstance(event, TaskExited):
                agent = agents.end_known(agent, task, exit_facts(event))
                if _obeyed(agent, event):
                    recording.upon_request[position] = None
            agent = agents.settled(agent, *about)
        elif not _possible(agent, task, about[1] if about else None):
            recording.unexplained[position] = None
        elif about is not None:
            task, fact = about
            self._note_latency(position, agent, task, fact, record.now_ms)
            if isinstance(event, TaskExited) and _obeyed(agent, event):
                recording.upon_request[position] = None
            agent = agents.settled(come_true(agent, event), task, fact)
        self.agents[agent.host] = replace(agent, seq=max(agent.seq, origin.seq))

    def _note_latency(
        self, position: int, agent: Agent, task: str, fact: Fact, now_ms: int
    ) -> None:
        recording = self.recording
        known = agent.records.get(task)
        fact = Fact.STARTED if fact is Fact.LAUNCH_FAILED else fact
        if fact is Fact.REAPED and known is not None and agents.alive(known):
            recording.abrupt[position] = None
        asked_ms = recording.asked_ms.get((task, fact))
        if asked_ms is not None and (task, fact) not in recording.latency_ms:
            recording.latency_ms[task, fact] = now_ms - asked_ms
        if fact is Fact.EXITED:
            recording.asked_ms[task, Fact.REAPED] = now_ms

    def hear_plan(self, name: str, now_ms: int) -> None:
        """The agent hears of its plan, unless it is cut off, and has done what it was told."""
        agent = self.agents.get(name)
        if agent is None or not agent.registered or self.recording.silent(name, now_ms):
            return
        agent, doing = agents.look(agents.obey(agent, host_plan(self.state, name)))
        for order in doing.launch:
            self.recording.ask(name, order.task, Fact.STARTED, now_ms)
        for task, _ in doing.stop:
            self.recording.ask(name, task, Fact.EXITED, now_ms)
        for task in doing.bury:
            self.recording.ask(name, task, Fact.REAPED, now_ms)
        self.agents[name] = _withholding(agent, doing)


def _obeyed(agent: Agent, event: TaskExited) -> bool:
    """Whether the exit looks like what a stop leads to, and there was one."""
    known = agent.records.get(event.task)
    failed = bool(event.exit_code) or event.signal not in (0, 9, 15)
    return known is not None and known.stopping and (event.expected or not failed)


def _possible(agent: Agent, task: str, fact: Fact | None) -> bool:
    """Whether what is reported can have come true just now, or be said of what runs."""
    record = agent.records.get(task)
    if not task or (fact is Fact.REAPED and task in agent.burying):
        return True
    if record is None:
        return False
    if fact is Fact.STARTED:
        return record.process is None
    if fact is Fact.EXITED:
        return record.exit is None and record.phase is not Phase.GONE
    if fact is None:
        return agents.alive(record)
    return record.holds and not (fact is Fact.UNKILLABLE and record.unkillable_pid)


def _withholding(agent: Agent, doing: Doing) -> Agent:
    """What the log does not show to be told at once is told when all has healed."""
    if not doing.report:
        return agent
    kept = {(task, fact.value) for task, fact in doing.report}
    return replace(agent, withheld=agent.withheld | kept)


def come_true(agent: Agent, event: AnyEvent) -> Agent:
    """The agent's records once the fact that the event tells is one."""
    if isinstance(event, TaskStarted):
        return agents.launched(agent, event.task, event.pid)
    if isinstance(event, LaunchFailed):
        return agents.launch_failed(agent, event.task, event.error, event.user_error)
    if isinstance(event, TaskExited):
        return agents.exited(agent, event.task, exit_facts(event))
    if isinstance(event, TaskUnkillable):
        return agents.unkillable(agent, event.task, event.pid)
    task: str = getattr(event, "task", "")
    return agents.gone(agent, task)


def exit_facts(event: TaskExited) -> ExitFacts:
    return ExitFacts(
        event.exit_code,
        event.signal,
        event.observed,
        event.expected,
        event.oom,
        event.error,
        event.stderr_tail,
    )


_LEARN: dict[type, Callable[[Stage, int, Recorded, Any], None]] = {
    HostRegistered: Stage._learn_registration,
    HeartbeatsSeen: Stage._learn_frame,
}


class Baseline:
    """The log as it was recorded, with copies of the stage to start executions from."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.broken: tuple[int, Broken] | None = None
        """Position and property, where the log as it is breaks one."""
        self.stride = recording.size // SNAPSHOTS + 1
        self.changed: list[list[RowKey]] = []
        """Rows that each entry of the log changed."""
        self.records: list[Recorded] = []
        """The log as the core makes it now: as recorded, unless the core was changed since."""
        self._stages: list[Stage] = []
        """Before position 0, `stride`, ...; the last one is after the whole log."""
        stage = Stage(recording, recording.incident.start_state())
        _known_agents(stage)
        recording.settle(stage.state)
        for position in range(recording.size):
            self._note(position, stage)
            record, changed, broken = stage.follow(position)
            self.records.append(record)
            self.changed.append(changed)
            if broken is not None and self.broken is None:
                self.broken = (position, broken)
        self.end = stage
        recording.settle(stage.state)

    def _note(self, position: int, stage: Stage) -> None:
        recording = self.recording
        if recording.quiet_ms <= 1 or position < 3:
            recording.settle(stage.state)
        if position % self.stride == 0:
            self._stages.append(stage.fork())
        due_ms = next_due_ms(stage.state)
        if due_ms is not None:
            late_ms = recording.times_ms[position] - due_ms
            recording.late_ms = max(recording.late_ms, late_ms)

    def at(self, position: int) -> Stage | None:
        """The stage before that position, not to be changed; None where no copy is kept."""
        if position == self.recording.size:
            return self.end
        at, rest = divmod(position, self.stride)
        return None if rest else self._stages[at]

    def before(self, position: int) -> Stage:
        """A stage of one's own, as it was before that position."""
        known = self.at(position)
        if known is not None:
            return known.fork()
        kept = position - position % self.stride
        stage = self._stages[kept // self.stride].fork()
        for at in range(kept, position):
            stage.follow(at)
        return stage


def _known_agents(stage: Stage) -> None:
    """Agents of hosts that the start state knows already: they do what their plans say."""
    state = stage.state
    for name, host in sorted(state.hosts.items()):
        announced = HostRegistered(
            name, host.agent, host.boot, host.address, host.devices, host.cpu_millis,
            host.memory_mib, host.device_type, host.labels, host.ports, (), host.version,
        )  # fmt: skip
        agent = Agent(
            name,
            incarnation=host.incarnation,
            registered=bool(state.live_incarnations[host.slot]),
            seq=host.report_seq,
            announced=announced,
        )
        plan = host_plan(state, name)
        records = {}
        reported = {}
        for order in plan.tasks:
            record, told = _known_record(state, order.task)
            records[order.task] = record
            reported[order.task] = Reported(told, told)
        stage.agents[name] = replace(agent, records=records, reported=reported)
        stage.beats[name] = state.last_seen_ms[host.slot]
        stage.hear_plan(name, state.meta.now_ms)


def _known_record(state: State, key: str) -> tuple[TaskRecord, frozenset[Fact]]:
    """What an agent must know of a task that the state knows."""
    row = state.tasks[key]
    order = agents.order_of_key(key)
    order = replace(order, devices=row.devices)
    if row.status == "placed":
        return TaskRecord(order, Phase.LAUNCHING), frozenset()
    process = Process(row.pid, 0, "")
    told = frozenset([Fact.STARTED])
    if row.status == "exited":
        facts = ExitFacts(row.exit_code, row.exit_signal)
        return TaskRecord(order, Phase.EXITED, process, facts), told | {Fact.EXITED}
    return TaskRecord(order, Phase.RUNNING, process), told
