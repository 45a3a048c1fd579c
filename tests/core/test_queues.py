"""What queues promise, whatever comes in whatever order: nobody behind keeps who is first from the
hosts chosen for it, nobody starves, nobody uses more than it may, and a recorded day goes by
without anything broken."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coord.model.entry import Recorded
from coord.model.events import AnyEvent
from coord.model.queue import QueueSpec, queue_problems
from coord.model.spec import JobSpec, Resources, RoleSpec
from tests.bench import queues as recorded
from tests.bench.arrivals import Arrival, Replay

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
"""Without shrinking: a case is a seed already."""
MANY = settings(FEW, max_examples=60)
HOSTS = 4
DEVICES = 4
MINUTE_MS = 60_000


def arrival(
    name: str,
    at_ms: int,
    runs_ms: int,
    replicas: int,
    devices: int,
    cpu_millis: int = 0,
    **spec: object,
) -> Arrival:
    need = Resources(devices=devices, cpu_millis=cpu_millis)
    role = RoleSpec("t", ("x",), replicas=replicas, resources=need)
    job = JobSpec(name, (role,), **spec)  # type: ignore[arg-type]
    return Arrival(at_ms, job, runs_ms, replicas * devices)


def before(rng: Random) -> list[Arrival]:
    """What runs when the gang comes: all of it has started by then."""
    sizes = [rng.randrange(2, DEVICES + 1) for _ in range(rng.randrange(1, HOSTS + 1))]
    left = HOSTS * DEVICES - sum(sizes)
    sizes += [1] * rng.randrange(left + 1)
    return [
        arrival(f"b{at:02}", at, rng.randrange(5, 60) * MINUTE_MS + at * 7, 1, size)
        for at, size in enumerate(sizes)
    ]


def behind(rng: Random, count: int) -> list[Arrival]:
    """What comes after the gang, of all sizes."""
    return [
        arrival(
            f"s{number}",
            rng.randrange(2, 90) * MINUTE_MS + number * 3,
            rng.randrange(1, 200) * MINUTE_MS + number,
            rng.randrange(1, 3),
            rng.randrange(0, 3),
            cpu_millis=rng.choice((0, 1_000, 40_000)),
        )
        for number in range(count)
    ]


class Promised(Replay):
    """Notes, when room is kept for `gang`, by when all that run on its hosts will have ended, and
    holds every later choice of hosts against the one before."""

    def __init__(self) -> None:
        self.promised_ms = 0
        self._chosen: tuple[str, ...] = ()
        super().__init__(HOSTS, DEVICES, (), 2, check_one_in=7)

    def _apply(self, event: AnyEvent) -> Recorded:
        record = super()._apply(event)
        gang = self.state.gangs.get("gang/t")
        if gang is None or not gang.reserving:
            return record
        if not self._chosen:
            self.promised_ms = max(self._ends_ms(name) for name in gang.reserved)
        else:
            new = [name for name in gang.reserved if name not in self._chosen]
            assert all(self._has_room(name, gang.reserved.count(name)) for name in new)
        self._chosen = gang.reserved
        return record

    def _ends_ms(self, name: str) -> int:
        jobs = [self.state.tasks[key].job for key in self.state.hosts[name].tasks]
        ends = [self._began_ms[job] + self._left_ms[job] for job in jobs]
        return max([self._wall_ms, *ends])

    def _has_room(self, name: str, replicas: int) -> bool:
        host = self.state.hosts[name]
        tasks = [self.state.tasks[key] for key in host.tasks]
        used = sum(len(task.devices) for task in tasks)
        each = self.state.jobs["gang"].spec.roles[0].resources.devices
        return host.devices - used >= replicas * each


def in_order(arrivals: list[Arrival]) -> list[Arrival]:
    return sorted(arrivals, key=lambda one: (one.at_ms, one.spec.name))


def start_of(name: str, at_ms: int, arrivals: list[Arrival]) -> int:
    replay = Replay(HOSTS, DEVICES, (), 2, check_one_in=7)
    lived = replay.live(in_order(arrivals))
    assert lived.broken == []
    return at_ms + lived.waits_ms[name]


@MANY
@given(SEEDS)
def test_a_reserved_gang_starts_when_its_hosts_are_free_at_the_latest(seed: int) -> None:
    """Whoever comes behind it, however long they run: who ran there when the hosts were chosen must
    end, and nobody else. Two milliseconds are for the entries that say so."""
    rng = Random(seed)
    first = before(rng)
    need = rng.randrange(1, DEVICES + 1)
    gang = arrival("gang", MINUTE_MS, 30 * MINUTE_MS, rng.randrange(2, HOSTS + 1), need)
    replay = Promised()
    lived = replay.live(in_order([*first, gang, *behind(rng, 25)]))
    assert lived.broken == []
    if replay.promised_ms:
        assert MINUTE_MS + lived.waits_ms["gang"] <= replay.promised_ms + 2
    else:
        assert lived.waits_ms["gang"] == 0


@FEW
@given(SEEDS)
def test_a_gang_that_needs_the_whole_fleet_starts_while_small_ones_keep_coming(seed: int) -> None:
    """It waits for the one that was first when it came, then for what runs, each at most 40
    minutes; of whomever they are."""
    rng = Random(seed)
    small = [
        arrival(
            f"s{number}",
            number * MINUTE_MS,
            rng.randrange(5, 40) * MINUTE_MS,
            1,
            rng.randrange(1, DEVICES + 1),
            owner=f"o{number % 5}",
        )
        for number in range(120)
    ]
    at_ms = 30 * MINUTE_MS + 1
    gang = arrival("gang", at_ms, MINUTE_MS, HOSTS, DEVICES, owner="patient")
    started_ms = start_of("gang", at_ms, [*small, gang])
    assert started_ms <= at_ms + 2 * 40 * MINUTE_MS


@FEW
@given(SEEDS)
def test_queues_keep_their_limits_and_every_job_ends(seed: int) -> None:
    """Quotas, borrowing and preemption at random: invariants at every entry, and all work done."""
    rng = Random(seed)
    queues = [
        QueueSpec(
            f"q{number}",
            quota=rng.randrange(0, 9),
            borrowing_limit=rng.choice((-1, -1, 8, 16)),
            lendable_permille=rng.choice((1_000, 1_000, 500)),
            priority=rng.randrange(-1, 2),
            weight=rng.randrange(1, 4),
            may_preempt=rng.random() < 0.6,
            notice_ms=rng.choice((0, 5_000, 120_000)),
        )
        for number in range(3)
    ]
    jobs = []
    for number in range(40):
        queue = rng.choice(queues)
        replicas, devices = rng.randrange(1, 4), rng.randrange(0, DEVICES + 1)
        most = queue.quota + queue.borrowing_limit if queue.borrowing_limit >= 0 else 8
        if replicas * devices > min(most, 8):
            replicas, devices = 1, min(devices, most)
        jobs.append(
            arrival(
                f"j{number}",
                rng.randrange(0, 240) * MINUTE_MS + number,
                rng.randrange(1, 60) * MINUTE_MS,
                replicas,
                devices,
                queue=queue.name,
                priority=rng.randrange(3),
                owner=rng.choice("abc"),
                preemptible=rng.random() < 0.8,
            )
        )
    replay = Replay(HOSTS, DEVICES, queues, 2, check_one_in=1)
    lived = replay.live(sorted(jobs, key=lambda one: one.at_ms))
    assert lived.broken == []
    assert lived.finished == len(jobs)


def test_a_recorded_morning_breaks_nothing() -> None:
    """The first Philly arrivals on a cluster a tenth as large, so that most of them wait."""
    if not recorded.RECORDED.exists():
        pytest.skip(f"{recorded.RECORDED} is absent: the recorded arrivals are not checked")
    queues, arrivals = recorded.philly(1)
    tenth = [
        QueueSpec(one.name, max(one.quota // 10, 1), may_preempt=True, notice_ms=60_000)
        for one in queues
    ]
    few = [one for one in arrivals[:400] if one.devices <= 64]
    replay = Replay(recorded.PHILLY_HOSTS // 10, recorded.EACH, tenth, 2, check_one_in=50)
    lived = replay.live(few)
    assert lived.broken == []
    assert lived.finished == len(few)
    assert lived.most_waiting > 50
    assert lived.preempted > 0


def test_recorded_gangs_of_language_models_break_nothing() -> None:
    """Those of Kalos that came first, on a cluster an eighth as large: wide ones wait for hosts
    that are kept for them, others are stopped, and all of them end."""
    if not recorded.RECORDED.exists():
        pytest.skip(f"{recorded.RECORDED} is absent: the recorded gangs are not checked")
    queues, arrivals, changes = recorded.kalos(6)
    eighth = [replace(one, quota=max(one.quota // 8, 1)) for one in queues]
    later = [(at_ms, replace(one, quota=max(one.quota // 8, 1))) for at_ms, one in changes]
    few = [one for one in arrivals if one.devices <= 256][:100]
    replay = Replay(recorded.KALOS_HOSTS // 8, recorded.EACH, eighth, 2, check_one_in=50)
    lived = replay.live(few, later)
    assert lived.broken == []
    assert lived.finished == len(few)
    assert lived.most_waiting > 10
    assert lived.preempted > 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a/b"),
        ("name", "x" * 64),
        ("quota", -1),
        ("quotas", {"h100": -1}),
        ("quotas", {"h100": 5}),
        ("quotas", {"": 1}),
        ("borrowing_limit", -2),
        ("lendable_permille", -1),
        ("lendable_permille", 1_001),
        ("priority", 1_000_001),
        ("weight", 0),
        ("notice_ms", -1),
    ],
)
def test_a_queue_that_cannot_be_is_refused_with_the_name_of_the_field(
    field: str, value: object
) -> None:
    given = {"name": "q", "quota": 4, field: value}
    problems = queue_problems(QueueSpec(**given))  # type: ignore[arg-type]
    assert [problem.path.partition(".")[0] for problem in problems] == [field]
