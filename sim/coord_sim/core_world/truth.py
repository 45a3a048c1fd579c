"""What must hold in a random history, judged by what truly happened.

The invariants of `coord/core/invariants.py` are checked by the driver, entry by entry; here stands
what only the ground truth can tell: processes that live, beats that were heard, work that was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coord.core.state import State
from coord.model import decisions
from coord.model.entities import ENDED_GANG, GangPhase, HostStatus
from coord.model.entry import Recorded
from coord.model.settings import Settings

from .machines import Machine
from .violation import CoreViolation


class Truth:
    """Remembers what was decided, and compares it with what the machines know."""

    def __init__(self, state: State, machines: dict[str, Machine], settings: Settings) -> None:
        self.state = state
        self.machines = machines
        self.settings = settings
        self.jumps: list[int] = []
        """True times at which the leader's clock jumped ahead."""
        self.ended: dict[str, str] = {}
        """Job -> the decision that ended it."""
        self.generations: Counter[str] = Counter()
        self.restored: dict[str, int] = {}
        self.incarnations: Counter[str] = Counter()

    def look_at(self, record: Recorded, true_ms: int) -> None:
        """Compare what an entry decided with what is true at that moment."""
        for decision in record.decisions:
            if isinstance(decision, decisions.HostLost):
                self._look_at_loss(decision.host, true_ms)
            elif isinstance(decision, decisions.HostJoined):
                if decision.incarnation <= self.incarnations[decision.host]:
                    raise CoreViolation("incarnations only grow", f"{decision}")
                self.incarnations[decision.host] = decision.incarnation
            elif isinstance(decision, decisions.TasksPlaced):
                self._look_at_placement(decision)
            elif isinstance(decision, decisions.CheckpointCommitted):
                self._look_at_checkpoint(decision)
            elif isinstance(
                decision, decisions.JobCompleted | decisions.JobFailed | decisions.JobCancelled
            ):
                if decision.job in self.ended:
                    raise CoreViolation("a finished job stays finished", f"{decision}")
                self.ended[decision.job] = type(decision).__name__

    def _look_at_loss(self, name: str, true_ms: int) -> None:
        machine = self.machines[name]
        jumps = sum(1 for at_ms in self.jumps if at_ms >= machine.last_beat_ms)
        silent_ms = true_ms - machine.last_beat_ms
        if silent_ms < self.settings.lease_ms - jumps * self.settings.max_step_ms - 500:
            raise CoreViolation(
                "only true silence kills, whatever the leader's clock did",
                f"{name} was lost, heard {silent_ms} ms before",
            )

    def _look_at_placement(self, decision: decisions.TasksPlaced) -> None:
        if decision.generation <= self.generations[decision.job]:
            raise CoreViolation("generations only grow", f"{decision}")
        self.generations[decision.job] = decision.generation
        if decision.restore_step < self.restored.get(decision.gang, -1):
            raise CoreViolation("restore points never go back", f"{decision}")
        self.restored[decision.gang] = decision.restore_step

    def _look_at_checkpoint(self, decision: decisions.CheckpointCommitted) -> None:
        gang = self.state.gangs[decision.gang]
        if gang.generation != decision.generation:
            raise CoreViolation("an old generation commits nothing", f"{decision}")
        saved = self.state.newest_checkpoint(decision.gang)
        if saved is None or saved.step != decision.step:
            raise CoreViolation("the newest commit is where a restart begins", f"{decision}")
        for shard in saved.shards:
            if not shard.startswith(f"{decision.generation}/{decision.step}/"):
                raise CoreViolation("one checkpoint, one generation", f"{shard} in {decision}")

    def look_at_machines(self) -> None:
        """No two processes own a device, and nothing exclusive runs twice."""
        for machine in self.machines.values():
            owners: Counter[int] = Counter()
            for process in machine.processes.values():
                if process.alive:
                    owners.update(process.devices)
            twice = [device for device, count in owners.items() if count > 1]
            if twice:
                raise CoreViolation(
                    "a device has at most one live owner", f"{machine.name} {twice}"
                )
        exclusive = Counter(
            f"{process.job}/{process.role}/{process.index}"
            for machine in self.machines.values()
            for process in machine.processes.values()
            if process.alive and process.exclusive
        )
        for name, count in exclusive.items():
            if count > 1:
                raise CoreViolation("an exclusive task runs once", f"{name} runs {count} times")


def unmet(state: State) -> Iterable[str]:
    """Gangs that are not done although all is calm and the fleet has room for them."""
    room = [
        host
        for host in state.hosts.values()
        if host.status == HostStatus.UP and not host.drain and not host.quarantine
    ]
    for gang in state.gangs.values():
        role = state.jobs[gang.job].spec.role(gang.role)
        if role is None or gang.phase in ENDED_GANG:
            continue
        if role.service and gang.phase == GangPhase.RUNNING:
            continue
        need, wanted = role.resources, min(role.smallest, gang.desired) if role.gang else 1
        fits = sum(
            min(
                host.devices // need.devices if need.devices else wanted,
                host.cpu_millis // need.cpu_millis if need.cpu_millis else wanted,
                host.memory_mib // need.memory_mib,
            )
            for host in room
        )
        if gang.phase != GangPhase.WAITING or fits >= wanted:
            yield f"{gang.key} is {gang.phase} {gang.queue_reason}: {gang.queue_detail}"
