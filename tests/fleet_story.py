"""A fleet's life as entries, the same on every run: agents that obey plans, and what befalls them.

Run as a program it prints the final digest of one such life, for the comparison of hash seeds.
"""

from __future__ import annotations

from coord.core.machine import apply, next_due_ms
from coord.core.plans import host_plan
from coord.core.state import State, new_state, state_digest
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import (
    AnyEvent,
    CheckpointBegun,
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    HostRegistered,
    JobSubmitted,
    LeaderElected,
    NoteAdded,
    ProgressReported,
    ShardSaved,
    TaskExited,
    TaskReaped,
    TaskStarted,
)
from coord.model.plans import Action
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RoleSpec

BEGINNING_MS = 1_700_000_000_000


class Story:
    """A state, the records that led to it, and one simple agent a host."""

    def __init__(self, hosts: int = 0, devices: int = 1, settings: Settings | None = None) -> None:
        self.state: State = new_state()
        self.records: list[Recorded] = []
        self.wall_ms = BEGINNING_MS
        self.running: dict[str, str] = {}
        """Task to host."""
        self.silent: list[str] = []
        self._seqs: dict[str, int] = {}
        self._pid = 1_000
        self.by_node(ClusterConfigured("story", settings or Settings()))
        self.by_node(LeaderElected(1, 1))
        for number in range(hosts):
            self.register(f"host-{number:04}", devices)

    def add(self, origin: Origin, event: AnyEvent) -> Recorded:
        """The event as the next entry."""
        index = self.state.meta.applied_index + 1
        record = apply(self.state, Entry(index, 1, self.wall_ms, origin, event))
        self.records.append(record)
        return record

    def by_node(self, event: AnyEvent) -> Recorded:
        return self.add(Origin("node:1", 1, self._next("node:1")), event)

    def by_client(self, event: AnyEvent, client: str = "alice") -> Recorded:
        return self.add(Origin(f"client:{client}", 0, self._next(client)), event)

    def by_host(self, host: str, event: AnyEvent) -> Recorded:
        row = self.state.hosts[host]
        origin = Origin(f"host:{host}", row.incarnation, row.report_seq + 1)
        record = self.add(origin, event)
        assert record.accepted or record.duplicate_of, record
        return record

    def register(self, host: str, devices: int = 1) -> None:
        number = len(self.state.hosts)
        event = HostRegistered(
            host, f"agent-of-{host}", "boot-1", "127.0.0.1", devices=devices, cpu_millis=8_000,
            memory_mib=8_192, ports=(20_000 + number, 40_000 + number),
        )  # fmt: skip
        assert self.by_client(event, f"agent-of-{host}").accepted

    def submit(self, name: str, replicas: int, **role: object) -> None:
        trainer = RoleSpec(
            "trainer", ("train",), replicas=replicas, resources=Resources(devices=1), **role
        )  # type: ignore[arg-type]
        record = self.by_client(JobSubmitted(JobSpec(name, (trainer,), checkpoint_dir="/ck")))
        assert record.accepted, record

    def beat(self) -> None:
        """One frame with everybody who is not silent."""
        heard = [row for row in self.state.hosts.values() if row.host not in self.silent]
        heard.sort(key=lambda row: row.slot)
        slots = tuple(row.slot for row in heard)
        incarnations = tuple(row.incarnation for row in heard)
        self.by_node(HeartbeatsSeen("node:1", slots, incarnations))

    def wait(self, duration_ms: int, every_ms: int = 500) -> None:
        """Time passes: beats, then the clock, then the agents do as they are told."""
        end_ms = self.wall_ms + duration_ms
        while self.wall_ms < end_ms:
            self.wall_ms += every_ms
            self.beat()
            due_ms = next_due_ms(self.state)
            if due_ms is not None:
                self.by_node(ClockAdvanced())
            self.obey()

    def obey(self) -> None:
        """Every agent that is not silent makes its host like its plan."""
        for host in sorted(self.state.hosts):
            if host not in self.silent:
                self._obey(host)

    def _obey(self, host: str) -> None:
        incarnation = self.state.hosts[host].incarnation
        for order in host_plan(self.state, host).tasks:
            if order.action is Action.RUN and order.task not in self.running:
                self._pid += 1
                self.running[order.task] = host
                self.by_host(host, TaskStarted(host, incarnation, order.task, self._pid))
            elif order.action is Action.STOP:
                if self.running.pop(order.task, ""):
                    self.by_host(
                        host,
                        TaskExited(host, incarnation, order.task, signal=15, expected=True),
                    )
                self.by_host(host, TaskReaped(host, incarnation, order.task))

    def all_step(self, job: str, step: int) -> None:
        """Every running task of the job reports the step."""
        for task, host in sorted(self.running.items()):
            if task.startswith(f"{job}/") and host not in self.silent:
                incarnation = self.state.hosts[host].incarnation
                self.by_host(host, ProgressReported(host, incarnation, task, step))

    def checkpoint(self, job: str, step: int) -> None:
        """Every running task of the job saves the step."""
        tasks = [one for one in sorted(self.running.items()) if one[0].startswith(f"{job}/")]
        for rank, (task, host) in enumerate(tasks):
            incarnation = self.state.hosts[host].incarnation
            path = f"/ck/step-{step:010}-gen-{task.rpartition('#')[2]}"
            shard = f"rank-{rank:05}.bin"
            if rank == 0:  # it is enough that one of them begins
                self.by_host(host, CheckpointBegun(host, incarnation, task, step, path))
            self.by_host(
                host, ShardSaved(host, incarnation, task, step, path, shard, f"{rank:064}", 100)
            )

    def exit(self, task: str, exit_code: int = 0, signal: int = 0) -> None:
        """The task ends by itself and is reaped."""
        host = self.running.pop(task)
        incarnation = self.state.hosts[host].incarnation
        self.by_host(host, TaskExited(host, incarnation, task, exit_code, signal))
        self.by_host(host, TaskReaped(host, incarnation, task))

    def lose(self, host: str) -> None:
        """The machine dies: nothing of it is heard any more."""
        self.silent.append(host)
        for task in [task for task, where in self.running.items() if where == host]:
            del self.running[task]

    def _next(self, actor: str) -> int:
        self._seqs[actor] = self._seqs.get(actor, 0) + 1
        return self._seqs[actor]


def eventful_life() -> Story:
    """Two jobs, checkpoints, a dead rank, a dead machine, a change of leader, an end."""
    story = Story(hosts=6, devices=2)
    story.submit("digits", 4, spares=1)
    story.submit("words", 3)
    story.obey()
    for step in range(1, 4):
        story.wait(500)
        story.all_step("digits", step)
        story.all_step("words", step)
    story.checkpoint("digits", 3)
    story.exit(next(task for task in sorted(story.running) if task.startswith("digits/")), 0, 9)
    story.wait(3_000)
    story.all_step("digits", 4)
    story.lose(next(story.running[task] for task in sorted(story.running) if "words" in task))
    story.wait(12_000)
    story.all_step("digits", 5)
    story.all_step("words", 4)
    story.by_client(NoteAdded("alice", "digits", "looks well again"), "alice")
    for task in sorted(story.running):
        story.exit(task)
    story.wait(2_000)
    return story


if __name__ == "__main__":
    life = eventful_life()
    print(life.state.meta.digest, state_digest(life.state))
