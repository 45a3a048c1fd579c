"""When what fails, for a whole run, drawn before it begins.

Drawn from the seed, the size of the fleet and its rates alone, never from what the coordinator
does: two policies meet the same failures at the same moments (common random numbers), and the
difference between their results is theirs. A failure of a host that is down already, or of a link
that nobody uses, finds nothing to break and passes.
"""

from __future__ import annotations

import bisect
import enum
import math
from itertools import accumulate
from random import Random

import msgspec

from coord_sim.fleet.causes import CAUSES, FLAP, JOB, LINK_CAUSES, PLANNED, SWITCH, Showing
from coord_sim.fleet.policy import Policy

MS_PER_DAY = 86_400_000


class Strike(enum.StrEnum):
    """What a failure does."""

    EXIT = "exit"
    SILENT = "silent"
    HANG = "hang"
    CUT = "cut"
    """The hosts of one switch are there, and nobody can reach them."""
    FLAP = "flap"
    PLANNED = "planned"


class Fault(msgspec.Struct, frozen=True):
    """One failure. `host` -1: of the job, at the rank that `luck` picks.

    `repair` is a standard normal deviate, of which the policy makes a time; `luck` is uniform and
    decides what the policy gives shares for; `lasts_ms` is how long a flap or an outage lasts.
    """

    at_ms: int
    cause: str
    strike: Strike
    host: int
    bad_host: bool = False
    lasts_ms: int = 0
    repair: float = 0.0
    luck: tuple[float, ...] = (0.0, 0.0)


class Schedule(msgspec.Struct, frozen=True):
    """All that fails in a run, by time. `lemons`: hosts that fail more often, by number."""

    faults: tuple[Fault, ...]
    lemons: dict[int, None]


def draw(policy: Policy, *, hosts: int, gpus: int, days: float, seed: int) -> Schedule:
    """Everything that will go wrong in a fleet of that size."""
    until_ms = int(days * MS_PER_DAY)
    factors = _lemon_factors(policy, hosts, seed)
    drawn: list[Fault] = []
    for host in range(hosts):
        rng = Random(f"{seed}/host/{host}")
        drawn += _of_host(policy, rng, host, gpus, factors.get(host, 1.0), until_ms)
        drawn += _flaps(policy, rng, host, gpus, until_ms)
    rng = Random(f"{seed}/job")
    for at_ms in _moments(rng, policy.failures.job_per_day, until_ms):
        luck = (rng.random(), rng.random())
        drawn.append(Fault(at_ms, JOB, Strike.EXIT, -1, luck=luck))
    drawn.sort(key=lambda fault: (fault.at_ms, fault.host, fault.strike))
    return Schedule(tuple(drawn), dict.fromkeys(factors))


def log_normal_ms(median_s: float, mean_s: float, deviate: float) -> int:
    """A time of the log-normal distribution with that median and mean."""
    sigma = math.sqrt(2.0 * math.log(max(mean_s / median_s, 1.0)))
    return int(1_000 * median_s * math.exp(sigma * deviate))


def _lemon_factors(policy: Policy, hosts: int, seed: int) -> dict[int, float]:
    """Lemons, and how much more often than other hosts they fail."""
    failures = policy.failures
    rng = Random(f"{seed}/lemons")
    factors = {}
    for host in range(hosts):
        luck, factor = rng.random(), rng.uniform(failures.lemon_least, failures.lemon_most)
        if luck < failures.lemon_share:
            factors[host] = factor
    return factors


def _healthy_share(policy: Policy) -> float:
    """Of the mean hazard, what a host has that is no lemon: rates are those of the whole fleet."""
    failures = policy.failures
    mean_factor = (failures.lemon_least + failures.lemon_most) / 2
    return 1.0 / (1.0 + failures.lemon_share * (mean_factor - 1.0))


def _moments(rng: Random, per_day: float, until_ms: int) -> list[int]:
    """A Poisson process."""
    moments = []
    at_ms = 0.0
    while per_day > 0:
        at_ms += rng.expovariate(per_day) * MS_PER_DAY
        if at_ms >= until_ms:
            break
        moments.append(int(at_ms))
    return moments


def _of_host(
    policy: Policy, rng: Random, host: int, gpus: int, factor: float, until_ms: int
) -> list[Fault]:
    rates = [policy.rate_of(cause.name) for cause in CAUSES]
    total = sum(rates)
    bounds = list(accumulate([*rates, total * policy.failures.planned_share]))
    per_day = bounds[-1] * gpus / 1_000 * factor * _healthy_share(policy)
    found = []
    for at_ms in _moments(rng, per_day, until_ms):
        which = bisect.bisect_right(bounds, rng.random() * bounds[-1])
        luck, repair = (rng.random(), rng.random()), rng.gauss(0.0, 1.0)
        if which >= len(CAUSES):
            found.append(Fault(at_ms, PLANNED, Strike.PLANNED, host, luck=luck))
            continue
        cause = CAUSES[which]
        name, strike, kind = cause.name, Strike(cause.showing.value), rng.random()
        if name == "switch_or_cable" and kind < policy.failures.switch_share:
            name, strike = SWITCH, Strike.CUT
        elif cause.showing == Showing.EXIT and kind < policy.failures.silent_share:
            strike = Strike.SILENT
        bad_host = cause.repair or strike == Strike.SILENT
        found.append(Fault(at_ms, name, strike, host, bad_host, 0, repair, luck))
    return found


def _flaps(policy: Policy, rng: Random, host: int, gpus: int, until_ms: int) -> list[Fault]:
    failures = policy.failures
    per_day = sum(policy.rate_of(name) for name in LINK_CAUSES) * failures.flap_factor
    found = []
    for at_ms in _moments(rng, per_day * gpus / 1_000, until_ms):
        median_s, mean_s = failures.flap_median_s, failures.flap_mean_s
        lasts_ms = max(log_normal_ms(median_s, mean_s, rng.gauss(0.0, 1.0)), 1)
        luck = (rng.random(), rng.random())
        found.append(Fault(at_ms, FLAP, Strike.FLAP, host, False, lasts_ms, 0.0, luck))
    return found
