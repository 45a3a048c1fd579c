"""What truly happened to processes, held against what the coordinator believes.

Each property is named by its sentence and rests on one of the code: `coord/agent/README.md` ("no
other task may have its devices before it is gone", "one record is one run"), the contract of
`exclusive` tasks, and the headers of `coord/core`. What they leave open is not judged: a task that
is not exclusive may run on a host that is cut off while its successor runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from coord.core.state import State
from coord.model import decisions, events
from coord.model.entities import TaskStatus
from coord.model.entry import Recorded
from coord_sim.core_world.restore_points import SENTENCE, RestorePoints
from coord_sim.world.hosts import SimHosts
from coord_sim.world.ranks import SimRank

ONE_OWNER = "a device of a host has one live owner"
ONE_LAUNCH = "a task is launched once in a boot of its host"
ONE_RUN = "a run of a task lives once"
EXCLUSIVE = "an exclusive task lives once"
BURIED = "a task that was reaped never lives again"
REAPED = "a task is reaped only when no process of it is left"
STARTED = "a start that counts has happened"
EXITED = "an exit that counts has happened, and as it is told"
SUCCEEDED = "a gang succeeds only if each of its processes exited with 0, unasked"
CURRENT = "a checkpoint is committed by the generation that was placed last"
SAVED = "a shard that counts was written, as it is told"
WHOLE = "a committed checkpoint holds what every rank of its generation saved"
RESTORED = "a restart begins from a committed checkpoint"
FORWARD = SENTENCE
AGREED = "when all is quiet, what lives is what the state says runs"

PROPERTIES = (
    ONE_OWNER, ONE_LAUNCH, ONE_RUN, EXCLUSIVE, BURIED, REAPED, STARTED, EXITED, SUCCEEDED, CURRENT,
    SAVED, WHOLE, RESTORED, FORWARD, AGREED,
)  # fmt: skip

_TRUE_END = "ended by its agent ("
"""How the error of an exit begins, if the agent reports another end than the process chose."""


class Placed(msgspec.Struct):
    """A generation of a gang, as it was placed."""

    generation: int
    tasks: tuple[str, ...]
    stopping: bool = False


class GroundTruth:
    """Watches the ranks of a fleet (`SimHosts.watchers`) and what the log makes of them.

    The simulation ends with a Violation as soon as a property is broken.
    """

    def __init__(self, hosts: SimHosts) -> None:
        self._hosts = hosts
        self._runs: dict[str, list[SimRank]] = {}
        """Every process there ever was, by task key, oldest first."""
        self._reaped: dict[str, int] = {}
        """Task key to the index that says so."""
        self._saved: dict[tuple[str, str], str] = {}
        """(task key, path) to the digest that was written."""
        self._placed: dict[str, Placed] = {}
        self._committed: dict[str, dict[str, int]] = {}
        """Gang to (path to step) of what was committed."""
        self._restore_points = RestorePoints()
        self._applied = 0
        hosts.watchers.append(self)

    @property
    def launches(self) -> int:
        """How many processes were started so far."""
        return sum(len(runs) for runs in self._runs.values())

    # What happens to ranks

    def started(self, rank: SimRank) -> None:
        runs = self._runs.setdefault(rank.task, [])
        for earlier in runs:
            if earlier.host is rank.host and earlier.process.boot == rank.process.boot:
                self._violated(ONE_LAUNCH, f"{_name(rank)} after {_name(earlier)}")
            if not earlier.gone:
                self._violated(ONE_RUN, f"{_name(rank)} and {_name(earlier)}")
        runs.append(rank)
        if rank.task in self._reaped:
            self._violated(BURIED, f"{_name(rank)}, reaped at index {self._reaped[rank.task]}")
        for other in rank.host.runs:
            shared = [device for device in rank.devices if device in other.devices]
            if other is not rank and not other.gone and shared:
                self._violated(ONE_OWNER, f"device {shared[0]}: {_name(rank)} and {_name(other)}")
        if self._hosts.is_exclusive(rank):
            self._look_at_exclusive(rank)
        self._look_at_restore(rank)

    def ended(self, rank: SimRank) -> None:
        """Nothing is broken by an end."""

    def gone(self, rank: SimRank) -> None:
        """Nor by the last of it."""

    def saved(self, rank: SimRank, step: int, path: str, digest: str) -> None:
        self._saved[rank.task, path] = digest

    def _look_at_exclusive(self, rank: SimRank) -> None:
        key = _seat(rank)
        for host in self._hosts.hosts.values():
            for other in host.runs:
                # The contract holds where something can end a task: agent, keeper, or power.
                if other is not rank and _seat(other) == key and not other.unkillable:
                    self._violated(EXCLUSIVE, f"{_name(rank)} and {_name(other)}")

    def _look_at_restore(self, rank: SimRank) -> None:
        path = rank.env.get("COORD_RESTORE", "")
        gang = self._gang_of(rank.task)
        if path and path not in self._committed.get(gang, {}):
            self._violated(RESTORED, f"{_name(rank)} starts from {path}")

    def _gang_of(self, task: str) -> str:
        """As in `core`: of a whole role, or of one task where those stand alone."""
        alone = task.rpartition("#")[0]
        return alone if alone in self._placed else alone.rpartition("/")[0]

    # What the log says

    def on_applied(self, node: int, records: Iterable[Recorded], state: State) -> None:
        """Entries took effect on some node; those that did before elsewhere are passed over."""
        for record in records:
            if record.entry.index <= self._applied:
                continue
            self._applied = record.entry.index
            if record.accepted and not record.duplicate_of:
                look = _LOOKS.get(type(record.entry.event))
                if look is not None:
                    look(self, record)
            for decision in record.decisions:
                self._restore_points, wrong = self._restore_points.after(decision)
                if wrong:
                    self._violated(FORWARD, wrong, record)
                react = _REACTIONS.get(type(decision))
                if react is not None:
                    react(self, record.entry.index, decision)

    def _submitted(self, record: Recorded) -> None:
        """A new job, perhaps under the name of a forgotten one."""
        event = record.entry.event
        assert isinstance(event, events.JobSubmitted)
        start = f"{event.spec.name}/"
        for known in (self._reaped, self._placed, self._committed):
            for key in [key for key in known if key.startswith(start)]:
                del known[key]
        self._restore_points = self._restore_points.without(event.spec.name)
        for task in [task for task in self._runs if task.startswith(start)]:
            # Of the forgotten one a process may live that could not be killed.
            self._runs[task] = [rank for rank in self._runs[task] if not rank.gone]
        for role in event.spec.roles:
            self._hosts.exclusive_roles.pop((event.spec.name, role.name), None)
            if role.exclusive:
                self._hosts.exclusive_roles[event.spec.name, role.name] = None

    def _task_started(self, record: Recorded) -> None:
        event = record.entry.event
        assert isinstance(event, events.TaskStarted)
        if not any(rank.process.pid == event.pid for rank in self._of(event)):
            self._violated(STARTED, f"{event.task} on {event.host} with pid {event.pid}", record)

    def _task_exited(self, record: Recorded) -> None:
        event = record.entry.event
        assert isinstance(event, events.TaskExited)
        ended = [rank for rank in self._of(event) if rank.status is not None]
        if not any(_tells(event, rank) for rank in ended):
            truth = "; ".join(f"pid {rank.process.pid}: {rank.status}" for rank in ended)
            told = f"code {event.exit_code}, signal {event.signal}, {event.error!r}"
            detail = f"{event.task} on {event.host} with {told}; in truth {truth or 'none'}"
            self._violated(EXITED, detail, record)

    def _task_reaped(self, record: Recorded) -> None:
        event = record.entry.event
        assert isinstance(event, events.TaskReaped)
        self._reaped[event.task] = record.entry.index
        for rank in self._of(event):
            if not rank.gone:
                self._violated(REAPED, f"{_name(rank)} has {rank.pids}", record)

    def _shard_saved(self, record: Recorded) -> None:
        event = record.entry.event
        assert isinstance(event, events.ShardSaved)
        written = self._saved.get((event.task, event.path))
        if written != event.digest:
            detail = f"{event.task} {event.path}: {event.digest}; in truth {written}"
            self._violated(SAVED, detail, record)

    def _tasks_placed(self, index: int, decision: decisions.TasksPlaced) -> None:
        self._placed[decision.gang] = Placed(
            decision.generation, tuple(placement.task for placement in decision.placements)
        )

    def _tasks_stopping(self, index: int, decision: decisions.TasksStopping) -> None:
        placed = self._placed.get(decision.gang)
        if placed is not None and placed.generation == decision.generation:
            placed.stopping = True

    def _gang_succeeded(self, index: int, decision: decisions.GangSucceeded) -> None:
        placed = self._placed.get(decision.gang)
        if placed is None or placed.generation != decision.generation or placed.stopping:
            return  # It was wanted no more, and asked to end.
        for task in placed.tasks:
            runs = self._runs.get(task, [])
            if not any(_succeeded(rank) for rank in runs):
                truth = ", ".join(f"{_name(rank)}: {rank.status}" for rank in runs)
                self._violated(SUCCEEDED, f"{task} at index {index}; in truth {truth or 'none'}")

    def _checkpoint_committed(self, index: int, decision: decisions.CheckpointCommitted) -> None:
        placed = self._placed.get(decision.gang)
        name = f"{decision.gang}#{decision.generation}@{decision.step} at index {index}"
        if placed is None or placed.generation != decision.generation:
            newest = placed.generation if placed is not None else 0
            self._violated(CURRENT, f"{name}; generation {newest} was placed last")
            return
        for task in placed.tasks:
            if (task, decision.path) not in self._saved:
                self._violated(WHOLE, f"{name}: {task} saved nothing at {decision.path}")
        self._committed.setdefault(decision.gang, {})[decision.path] = decision.step

    def _of(
        self, event: events.TaskStarted | events.TaskExited | events.TaskReaped
    ) -> list[SimRank]:
        return [rank for rank in self._runs.get(event.task, []) if rank.host.name == event.host]

    # When all is quiet

    def disagreements(self, state: State) -> list[str]:
        """Where the fleet and the state differ, as sentences. While things happen they may."""
        found = []
        running = {
            key: task for key, task in state.tasks.items() if task.status is TaskStatus.RUNNING
        }
        live = {rank.task: rank for rank in self._hosts.live_ranks()}
        for key in sorted(running):
            rank = live.get(key)
            if rank is None or rank.host.name != running[key].host:
                found.append(f"{key} runs on {running[key].host} by the state, not in truth")
        for key in sorted(live):
            task = state.tasks.get(key)
            if key not in running and (task is None or task.status != TaskStatus.UNKILLABLE):
                status = task.status if task is not None else "unknown"
                found.append(f"{_name(live[key])} lives, by the state it is {status}")
        return found

    def check_agreement(self, state: State) -> None:
        """To be called when nothing has happened for long enough."""
        found = self.disagreements(state)
        if found:
            self._violated(AGREED, "; ".join(found))

    def _violated(self, sentence: str, detail: str, record: Recorded | None = None) -> None:
        where = f" (index {record.entry.index})" if record is not None else ""
        self._hosts.violated(sentence, detail + where)


def _tells(event: events.TaskExited, rank: SimRank) -> bool:
    """Whether this is a true account of the rank's end."""
    status = rank.status
    assert status is not None
    if not event.observed:
        return True
    if (event.exit_code, event.signal) == (status.exit_code, status.signal):
        return True
    # What an agent ended unasked is no success and no failure of the task's own.
    told = f"exited with code {status.exit_code}, {_TRUE_END}"
    return not status.signal and event.error.startswith(told)


def _succeeded(rank: SimRank) -> bool:
    """Whoever left because it was told to has not finished its work."""
    status = rank.status
    ended_well = status is not None and not status.exit_code and not status.signal
    return ended_well and (rank.completed or not rank.asked)


def _seat(rank: SimRank) -> str:
    """The task in all its generations."""
    return rank.task.rpartition("#")[0]


def _name(rank: SimRank) -> str:
    return f"{rank.task} (pid {rank.process.pid} of {rank.process.boot})"


_LOOKS: dict[type, Callable[[GroundTruth, Recorded], None]] = {
    events.JobSubmitted: GroundTruth._submitted,
    events.TaskStarted: GroundTruth._task_started,
    events.TaskExited: GroundTruth._task_exited,
    events.TaskReaped: GroundTruth._task_reaped,
    events.ShardSaved: GroundTruth._shard_saved,
}
_REACTIONS: dict[type, Callable[..., None]] = {
    decisions.TasksPlaced: GroundTruth._tasks_placed,
    decisions.TasksStopping: GroundTruth._tasks_stopping,
    decisions.GangSucceeded: GroundTruth._gang_succeeded,
    decisions.CheckpointCommitted: GroundTruth._checkpoint_committed,
}
