"""The model against the closed form: the published points, and what they assume.

The formula has one restart time u0 with detection in it, nothing that is not a failure of a node,
and always a node to go on with. So the points are run without failures of the job, flaps, lemons,
maintenance, whole switches and relapses, with spares enough; all causes keep their shares and show
as they do, and loading takes what detection, stopping and launching leave of u0. Only the product
of nodes and rate enters the formula, so fewer nodes at a rate raised to match are the same point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from coord_sim.fleet.causes import CAUSES, Showing
from coord_sim.fleet.closed_form import WORKED_POINTS, Point, expected_ettr, renewal_ettr
from coord_sim.fleet.model import FleetModel
from coord_sim.fleet.policy import CoreSettings, Failures, JobPolicy, Operations, Policy, Rates

TOLERANCE = 0.05
SPARES = 12
STEP_S = 10.0
STOP_S = 5.0
LAUNCH_S = 20.0


class Checked(msgspec.Struct, frozen=True):
    """One point: what the formula says, what the model came to for each seed."""

    point: Point
    hosts: int
    days: float
    expected: float
    renewal: float
    """Expected without taking failures to be rare."""
    found: tuple[float, ...]
    restarts: tuple[int, ...]

    @property
    def mean(self) -> float:
        return sum(self.found) / len(self.found)

    @property
    def deviation(self) -> float:
        """Of the mean from the formula, as a share of it."""
        return self.mean / self.expected - 1.0

    @property
    def agrees(self) -> bool:
        return abs(self.deviation) <= TOLERANCE


def policy_for(point: Point, hosts: int, gpus: int = 8) -> Policy:
    """The policy under which `hosts` hosts are that point."""
    write_s, interval_s = point.checkpoint_write_min * 60, point.checkpoint_interval_min * 60
    core = CoreSettings()
    hang_s = write_s + 3 * STEP_S
    failures = Failures(
        job_per_day=0.0,
        planned_share=0.0,
        lemon_share=0.0,
        flap_factor=0.0,
        switch_share=0.0,
        unkillable_share=0.0,
    )
    scale = point.failures_per_day / hosts / gpus * 1_000 / sum(_rates().values())
    detect_s = _mean_detection_s(core, failures, hang_s, write_s, interval_s)
    operations = Operations(health_catches=1.0, repair_median_s=3_600.0, repair_mean_s=3_600.0)
    restart_s = 2 * operations.plan_ms / 1_000 + STOP_S + LAUNCH_S
    job = JobPolicy(
        spares=SPARES,
        checkpoint_interval_s=interval_s,
        checkpoint_write_s=write_s,
        launch_s=LAUNCH_S,
        stop_s=STOP_S,
        start_s=point.restart_min * 60 - detect_s - restart_s,
        hang_s=hang_s,
        collective_timeout_s=max(600.0, hang_s + 60.0),
        step_s=STEP_S,
    )
    rates = Rates(**{name: rate * scale for name, rate in _rates().items()})
    return Policy(core=core, job=job, operations=operations, failures=failures, rates=rates)


def check_points(
    *,
    hosts_limit: int,
    days: float,
    seeds: range,
    points: tuple[Point, ...] = WORKED_POINTS,
    progress: Callable[[float, str], None] = lambda share, doing: None,
) -> Iterator[Checked]:
    """Run the points, each for all seeds. `progress` is told the share done, and of what."""
    done, whole = 0.0, len(points) * len(seeds) * days
    for number, point in enumerate(points, 1):
        hosts = min(point.nodes, hosts_limit)
        found, restarts = [], []
        for seed in seeds:
            policy = policy_for(point, hosts)
            model = FleetModel(policy, hosts=hosts + SPARES, gpus=8, days=days, seed=seed)
            for passed in model.days_passed():
                progress((done + passed) / whole, f"point {number}, seed {seed}")
            done += days
            result = model.result()
            found.append(result.ettr)
            restarts.append(result.restarts)
        expected, renewal = expected_ettr(point), renewal_ettr(point)
        yield Checked(point, hosts, days, expected, renewal, tuple(found), tuple(restarts))


def _rates() -> dict[str, float]:
    return {cause.name: cause.per_1000_gpu_days for cause in CAUSES}


def _mean_detection_s(
    core: CoreSettings, failures: Failures, hang_s: float, write_s: float, interval_s: float
) -> float:
    """By the lease, by the missing step, or at once, as the causes' shares go.

    A step is missed from the last one on, so on average half a step less than `hang_s` passes; and
    what strikes during a write has half of that behind it already.
    """
    rates = _rates()
    lease_s = (core.lease_ms - core.heartbeat_ms / 2) / 1_000
    writing = write_s / (interval_s + write_s)
    missed_s = hang_s - STEP_S / 2 - writing * write_s / 2
    total = 0.0
    for cause in CAUSES:
        if cause.showing == Showing.SILENT:
            total += rates[cause.name] * lease_s
        elif cause.showing == Showing.HANG:
            total += rates[cause.name] * missed_s
        else:
            total += rates[cause.name] * failures.silent_share * lease_s
    return total / sum(rates.values())
