"""Runs over several seeds and policies, and what they come to beside each other."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from coord_sim.fleet.ledger import Loss
from coord_sim.fleet.model import FleetModel
from coord_sim.fleet.policy import Policy
from coord_sim.fleet.results import FleetResult
from coord_sim.fleet.schedule import draw

Progress = Callable[[float, float, str], None]
"""(days done, days in all, what is run now)"""


class Named(msgspec.Struct, frozen=True):
    """A policy and what it is called: its file."""

    name: str
    policy: Policy


class Runs(msgspec.Struct):
    """One policy's results, a result for each seed in order. The last may be of fewer days."""

    policy: str
    results: list[FleetResult] = []


class Fleet(msgspec.Struct, frozen=True):
    """What is run."""

    hosts: int
    gpus: int
    days: float
    seeds: tuple[int, ...]


class Comparison(msgspec.Struct):
    """`interrupted`: somebody stopped it; what is there is what was found so far."""

    fleet: Fleet
    runs: list[Runs]
    interrupted: bool = False


class UnlikeFailures(ValueError):
    """Two policies cannot be compared that say differently how the fleet fails."""


def check_comparable(first: Named, second: Named) -> None:
    """Both must meet the same failures. Raises UnlikeFailures."""
    for section in ("failures", "rates"):
        ours, theirs = getattr(first.policy, section), getattr(second.policy, section)
        for name in ours.__struct_fields__:
            one, other = getattr(ours, name), getattr(theirs, name)
            if one != other:
                raise UnlikeFailures(
                    f"{section}.{name} is {one:g} in {first.name} and {other:g} in {second.name}; "
                    "policies are compared on the same failures, so these must be equal"
                )


def run_fleet(fleet: Fleet, policies: list[Named], progress: Progress) -> Comparison:
    """Run every policy on every seed's failures. Ctrl-C ends it with what there is so far."""
    comparison = Comparison(fleet, [Runs(named.name) for named in policies])
    whole = fleet.days * len(fleet.seeds) * len(policies)
    done = 0.0
    for seed in fleet.seeds:
        schedule = draw(
            policies[0].policy, hosts=fleet.hosts, gpus=fleet.gpus, days=fleet.days, seed=seed
        )
        for named, runs in zip(policies, comparison.runs, strict=True):
            model = FleetModel(
                named.policy,
                hosts=fleet.hosts,
                gpus=fleet.gpus,
                days=fleet.days,
                seed=seed,
                schedule=schedule,
            )
            try:
                for passed in model.days_passed():
                    progress(done + passed, whole, f"{named.name}, seed {seed}")
            except KeyboardInterrupt:
                comparison.interrupted = True
            done += fleet.days
            runs.results.append(model.result())
            if comparison.interrupted:
                return comparison
    return comparison


class Measure(msgspec.Struct, frozen=True):
    """One line of a comparison. `values`: for each policy, one for each seed."""

    name: str
    title: str
    values: tuple[tuple[float, ...], ...]
    share: bool = False
    """Told as a share of 1, not as a count."""

    def means(self) -> list[float]:
        return [sum(of_policy) / len(of_policy) for of_policy in self.values if of_policy]

    def difference(self) -> tuple[float, float] | None:
        """(second less first, its standard error), seed by seed; None for a single policy."""
        if len(self.values) != 2 or not all(self.values):
            return None
        pairs = [second - first for first, second in zip(*self.values, strict=False)]
        mean = sum(pairs) / len(pairs)
        if len(pairs) < 2:
            return mean, 0.0
        variance = sum((pair - mean) ** 2 for pair in pairs) / (len(pairs) - 1)
        return mean, math.sqrt(variance / len(pairs))


_LOSS_TITLES = {
    Loss.DETECT: "lost: until the decision to stop",
    Loss.RESTART: "lost: stop, launch, load",
    Loss.WAITING: "lost: waiting for hosts",
    Loss.REDONE: "lost: redone steps",
    Loss.STALLED: "lost: link flaps",
    Loss.WRITING: "lost: writing checkpoints",
    Loss.SMALLER: "lost: fewer ranks than wanted",
    Loss.ENDED: "lost: after the job had failed",
}

_COUNTS = (
    ("spares_used", "spares used"),
    ("hosts_lost", "hosts declared lost"),
    ("hosts_lost_falsely", "hosts declared lost, falsely"),
    ("hangs", "hangs found"),
    ("hangs_falsely", "hangs found, falsely"),
    ("launches_given_up", "launches given up"),
    ("launches_given_up_falsely", "launches given up, falsely"),
    ("quarantined_rightly", "hosts quarantined, rightly"),
    ("quarantined_wrongly", "hosts quarantined, wrongly"),
    ("retired_rightly", "hosts retired, rightly"),
    ("retired_wrongly", "hosts retired, wrongly"),
    ("relapses", "failures of bad hosts not found"),
    ("cascades", "cascades of time-outs"),
    ("frozen", "verdicts held back"),
)


def measures(comparison: Comparison) -> list[Measure]:
    """Everything that is told of a fleet, in the order it is told."""

    def of(name: str, title: str, value: Callable[[FleetResult], float], share: bool) -> Measure:
        values = tuple(tuple(value(one) for one in runs.results) for runs in comparison.runs)
        return Measure(name, title, values, share)

    found = [
        of("ettr", "effective training time", lambda one: one.ettr, True),
        of("goodput", "goodput of the whole fleet", lambda one: one.goodput, True),
    ]
    for loss, title in _LOSS_TITLES.items():
        found.append(of(f"lost_{loss}", title, _lost(loss), True))
    found.append(of("restarts", "restarts", lambda one: one.restarts, False))
    found.append(of("false_verdicts", "false verdicts", lambda one: one.false_verdicts, False))
    for name, title in _COUNTS:
        found.append(of(name, title, _count(name), False))
    return found


def _lost(loss: Loss) -> Callable[[FleetResult], float]:
    return lambda result: result.lost[loss.value]


def _count(name: str) -> Callable[[FleetResult], float]:
    def value(result: FleetResult) -> float:
        counted: int = getattr(result.tally, name)
        return counted

    return value
