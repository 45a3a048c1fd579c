"""How a fleet is run, and how it fails: every key of a policy file, with its default and meaning.

Each section is a struct, each key a field; `Meta` holds its limits and what it means, in the words
that `coordctl sim fleet --keys` prints. Times that the core counts are in milliseconds, as in its
own settings; everything else says its unit in its name.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from coord.model.settings import LONGEST_MS, Settings
from coord.model.spec import RestartPolicy
from coord_sim.fleet.causes import CAUSES

Ms = Annotated[int, Meta(ge=1, le=LONGEST_MS)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=1_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Rate = Annotated[float, Meta(ge=0, le=1_000)]


class CoreSettings(msgspec.Struct, frozen=True):
    """What the core is configured with; it decides by these."""

    lease_ms: Annotated[Ms, Meta(description="silence after which a host is lost")] = 30_000
    heartbeat_ms: Annotated[Ms, Meta(description="between two beats of an agent")] = 5_000
    suspect_ms: Annotated[Ms, Meta(description="silence after which it gets no new work")] = 15_000
    fence_ms: Annotated[Ms, Meta(description="from loss to the certain end of its tasks")] = 2_000
    launch_timeout_ms: Annotated[Ms, Meta(description="from placement to a process")] = 300_000
    unkillable_ms: Annotated[
        Ms, Meta(description="from the end of a task's grace to its being given up")
    ] = 30_000
    hold_ms: Annotated[Ms, Meta(description="how long a started gang keeps its place")] = 600_000
    breaker_share_permille: Annotated[
        Ms, Meta(description="silent share of the fleet above which no host is lost")
    ] = 500
    breaker_min_hosts: Annotated[Ms, Meta(description="and at least so many")] = 3
    breaker_window_ms: Annotated[Ms, Meta(description="within this time")] = 30_000

    def settings(self) -> Settings:
        """As the core takes them. Log time may pass freely: the model's leader never pauses."""
        return Settings(**msgspec.structs.asdict(self), max_step_ms=LONGEST_MS)


class JobPolicy(msgspec.Struct, frozen=True):
    """The one job: a gang over all hosts but the spares, one task to a host."""

    spares: Annotated[Count, Meta(description="hosts left free beside the gang")] = 16
    min_replicas: Annotated[
        Count, Meta(description="fewest hosts it starts with; 0: all it wants")
    ] = 0
    checkpoint_interval_s: Annotated[
        float, Meta(ge=1, le=1_000_000, description="training between two checkpoints")
    ] = 1_800.0
    checkpoint_write_s: Annotated[
        Seconds, Meta(description="training stands still for so long while one is written")
    ] = 30.0
    checkpoint_on_notice: Annotated[
        bool, Meta(description="a rank told to stop for a drain saves first, if grace_s allows")
    ] = True
    launch_s: Annotated[Seconds, Meta(description="from the plan to a process, at most")] = 20.0
    start_s: Annotated[
        Seconds, Meta(description="from the last process to training: import, connect, load")
    ] = 180.0
    stop_s: Annotated[Seconds, Meta(description="from SIGTERM to the end, at most")] = 5.0
    grace_s: Annotated[Seconds, Meta(description="between SIGTERM and SIGKILL")] = 60.0
    hang_s: Annotated[
        Seconds, Meta(description="without a step for so long, the core says it hangs; 0: never")
    ] = 180.0
    collective_timeout_s: Annotated[
        float,
        Meta(
            ge=1, le=1_000_000, description="ranks whose peer is gone give up by themselves after"
        ),
    ] = 600.0
    step_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="between two reports of progress")
    ] = 10.0


class Budgets(msgspec.Struct, frozen=True):
    """Restarts before the job fails, for each cause, and how fast they follow."""

    user_limit: Annotated[Count, Meta(description="restarts after the program's own end")] = 10_000
    infrastructure_limit: Annotated[Count, Meta(description="after a host's")] = 10_000
    unknown_limit: Annotated[Count, Meta(description="when nobody knows")] = 10_000
    no_progress_limit: Annotated[
        Count, Meta(description="failed generations in a row without a new step; 0: any")
    ] = 0
    backoff_ms: Annotated[Count, Meta(description="before the second restart in a row")] = 1_000
    backoff_max_ms: Annotated[Ms, Meta(description="it doubles up to this")] = 60_000

    def policy(self) -> RestartPolicy:
        return RestartPolicy(**msgspec.structs.asdict(self))


class Operations(msgspec.Struct, frozen=True):
    """What people and their health checks do beside the core."""

    plan_ms: Annotated[Count, Meta(description="from a decision to the agent that obeys it")] = 200
    health_catches: Annotated[
        Share, Meta(description="share of bad hosts that a health check finds at once")
    ] = 0.9
    health_delay_s: Annotated[
        Seconds, Meta(description="from the evidence to the drain of the host found bad")
    ] = 1.0
    relapse_s: Annotated[
        Seconds, Meta(description="a bad host that was not found fails again within")
    ] = 300.0
    repair_median_s: Annotated[
        float, Meta(ge=1, le=10_000_000, description="of repairs, which are log-normal")
    ] = 3_600.0
    repair_mean_s: Annotated[float, Meta(ge=1, le=10_000_000, description="of repairs")] = 21_300.0
    maintenance_s: Annotated[Seconds, Meta(description="planned maintenance of one host")] = 3_600.0
    retire_after: Annotated[
        Count, Meta(description="a host repaired so often is not taken back; 0: always")
    ] = 0
    allow_evictions_s: Annotated[
        Seconds, Meta(description="an operator looks at a frozen fleet after")
    ] = 300.0


class Failures(msgspec.Struct, frozen=True):
    """How the fleet fails, beside the rates. Two policies are compared on the same failures."""

    job_per_day: Annotated[
        Rate, Meta(description="failures of the job that no host is to blame for")
    ] = 2.2
    planned_share: Annotated[
        Rate, Meta(description="planned maintenance, as a share of all failures")
    ] = 0.1
    lemon_share: Annotated[Share, Meta(description="hosts that fail far more often")] = 0.015
    lemon_least: Annotated[float, Meta(ge=1, le=1_000, description="at least so much more")] = 5.0
    lemon_most: Annotated[float, Meta(ge=1, le=1_000, description="and at most")] = 10.0
    flap_factor: Annotated[
        float, Meta(ge=0, le=100_000, description="link flaps for each link failure")
    ] = 1_000.0
    flap_median_s: Annotated[
        float, Meta(ge=0.001, le=86_400, description="of a flap; log-normal")
    ] = 2.0
    flap_mean_s: Annotated[float, Meta(ge=0.001, le=86_400, description="of a flap")] = 2.8
    flap_mutes_share: Annotated[
        Share, Meta(description="flaps that hold up the agent's beats as well")
    ] = 0.1
    switch_share: Annotated[
        Share, Meta(description="of switch and cable failures, those of a whole leaf switch")
    ] = 0.1
    switch_hosts: Annotated[int, Meta(ge=1, le=65_536, description="hosts on one leaf switch")] = 16
    unkillable_share: Annotated[
        Share, Meta(description="of hangs, those whose process cannot be killed")
    ] = 0.05
    silent_share: Annotated[
        Share, Meta(description="of exits, those that take the whole host with them")
    ] = 0.1


Rates = msgspec.defstruct(
    "Rates",
    [
        (
            cause.name,
            Annotated[Rate, Meta(description=f"{cause.title}, per 1,000 GPU-days")],
            cause.per_1000_gpu_days,
        )
        for cause in CAUSES
    ],
    frozen=True,
)
"""Interruptions per 1,000 GPU-days by cause: one field for each line of `causes.CAUSES`."""


class Policy(msgspec.Struct, frozen=True):
    """A whole policy. Every section may be left out, and every key of it."""

    core: CoreSettings = CoreSettings()
    job: JobPolicy = JobPolicy()
    budgets: Budgets = Budgets()
    operations: Operations = Operations()
    failures: Failures = Failures()
    rates: msgspec.Struct = Rates()

    def rate_of(self, cause: str) -> float:
        rate: float = getattr(self.rates, cause)
        return rate


def policy_problems(policy: Policy) -> list[tuple[str, str, str]]:
    """What no single key can show: (section, key, what is wrong with it)."""
    found = [("core", _key_in(text), text) for text in policy.core.settings().problems()]
    job, operations, failures = policy.job, policy.operations, policy.failures
    if job.step_s > job.checkpoint_interval_s:
        text = f"step_s {job.step_s:g} must be at most checkpoint_interval_s"
        found.append(("job", "step_s", f"{text} {job.checkpoint_interval_s:g}"))
    longest_s = job.checkpoint_write_s + 2 * job.step_s
    if 0 < job.hang_s <= longest_s:
        text = f"hang_s is {job.hang_s:g}, but a checkpoint and two steps take {longest_s:g} s"
        found.append(("job", "hang_s", f"{text}: every checkpoint would be called a hang"))
    if job.collective_timeout_s <= longest_s:
        text = f"collective_timeout_s is {job.collective_timeout_s:g}"
        found.append(("job", "collective_timeout_s", f"{text}; it must exceed {longest_s:g}"))
    for section, low, high in (
        (operations, "repair_median_s", "repair_mean_s"),
        (failures, "flap_median_s", "flap_mean_s"),
        (failures, "lemon_least", "lemon_most"),
    ):
        least, most = getattr(section, low), getattr(section, high)
        if least > most:
            where = "operations" if section is operations else "failures"
            found.append((where, low, f"{low} is {least:g}, above {high} {most:g}"))
    return found


def _key_in(sentence: str) -> str:
    words = sentence.split()
    return next((word for word in words if word in CoreSettings.__struct_fields__), "")
