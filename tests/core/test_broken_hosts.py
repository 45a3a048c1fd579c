"""No new work goes to what is known to be broken, however much of the fleet is out already."""

from __future__ import annotations

from random import Random

from coord_sim.core_world.world import World
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from coord.core.state import State
from coord.model.care import QuarantineState
from coord.model.care_decisions import QuarantineProposed
from coord.model.decisions import TasksPlaced
from coord.model.entities import TaskStatus
from coord.model.events import LogicVersionRaised
from tests.core.transcript import Transcript

HOSTS = 6


class Fleet:
    """Hosts of which one at most is taken out without a person; work that comes and goes."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._told = Transcript()
        self._jobs = 0
        self.tempted = 0
        """Placements while a broken host was in the fleet."""
        self._do("leader 1")
        self._do("configure logic=2 policy.quarantine.free_hosts=1 policy.quarantine.test_ms=4000")
        for at in range(HOSTS):
            self._do(f"host h{at} devices=2")

    @property
    def state(self) -> State:
        return self._told.driver.state

    def live(self, steps: int) -> None:
        deeds = (
            self._submit, self._submit, self._submit, self._report, self._report, self._report,
            self._unkillable, self._evidence, self._answer, self._answer, self._return, self._pass,
        )  # fmt: skip
        for _ in range(steps):
            self._rng.choice(deeds)()

    def _do(self, line: str) -> None:
        before = broken(self.state)
        known = len(self._told.driver.records)
        self._told.command(line)
        after = broken(self.state)
        for record in self._told.driver.records[known:]:
            for placed in record.decisions:
                if isinstance(placed, TasksPlaced):
                    self.tempted += any(
                        not self.state.hosts[name].quarantine for name in before if name in after
                    )
                    bad = [
                        (spot.task, spot.host, before[spot.host])
                        for spot in placed.placements
                        if spot.host in before and spot.host in after
                    ]
                    assert bad == [], line

    def _host(self) -> str:
        return f"h{self._rng.randrange(HOSTS)}"

    def _task(self) -> str:
        return self._rng.choice(sorted(self.state.tasks) or [""])

    def _submit(self) -> None:
        self._jobs += 1
        self._do(f"submit j{self._jobs}: t x{self._rng.randrange(1, 4)} devices=1 grace_ms=100")

    def _report(self) -> None:
        key = self._task()
        if not key:
            return
        if self.state.tasks[key].status == TaskStatus.UNKILLABLE and self._rng.random() < 0.7:
            return
        self._do(f"started {key}")
        if self._rng.random() < 0.6:
            self._do(f"exited {key} code={self._rng.choice((0, 0, 1))}")
            self._do(f"reaped {key}")

    def _unkillable(self) -> None:
        key = self._task()
        if key:
            self._do(f"cancel {self.state.tasks[key].job}")
            self._do(f"unkillable {key}")

    def _evidence(self) -> None:
        what = self._rng.choice(("fault {} kind=xid code=79", "health {} outcome=failed"))
        self._do(what.format(self._host()))

    def _answer(self) -> None:
        self._do(f"{self._rng.choice(('approve', 'decline'))} {self._host()}")

    def _return(self) -> None:
        verb = self._rng.choice(("undrain", "release", "drain", "host"))
        name = self._host()
        self._do(f"host {name} devices=2" if verb == "host" else f"{verb} {name}")

    def _pass(self) -> None:
        self._do(f"health {self._host()} outcome=passed occasion=on_request")
        self._do(f"run {self._rng.randrange(1, 2_000)}")


def broken(state: State) -> dict[str, str]:
    """Host -> why: a task there cannot be killed, or what proves it broken was put to a person.
    Worked out from rows alone, not from `Host.withheld`."""
    found = {}
    for name, row in state.quarantines.items():
        proven = [one.reason for one in row.evidence if one.proven]
        if row.state == QuarantineState.PROPOSED and proven:
            found[name] = proven[0]
    for key, task in state.tasks.items():
        if task.status == TaskStatus.UNKILLABLE:
            found[task.host] = key
    return found


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
@example(7)
def test_no_work_goes_to_a_broken_host(seed: int) -> None:
    """Whatever people answer, and whoever returns: all that is placed is placed elsewhere."""
    Fleet(seed).live(60)


def test_the_histories_tempt_the_core_to_use_broken_hosts() -> None:
    """They are no proof if nothing is placed while a broken host is in the fleet."""
    tempted = 0
    for seed in range(6):
        fleet = Fleet(seed)
        fleet.live(60)
        tempted += fleet.tempted
    assert tempted > 20


def test_a_history_in_which_the_share_was_used_up_when_a_task_could_not_be_killed() -> None:
    """Found by chance: the third such host was put to a person, and took work meanwhile."""
    world = World(7, twin=False)
    world.send(LogicVersionRaised(2))
    world.live_through(400)
    shown = [one for record in world.driver.records for one in record.decisions]
    assert [one.host for one in shown if isinstance(one, QuarantineProposed)]
