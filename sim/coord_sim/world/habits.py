"""How a program behaves: how long its steps take, when it saves, what it does on SIGTERM."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

SERVE = "serve"
"""A command that begins with this runs until it is stopped."""
ON_SIGTERM = ("leave", "leave", "die", "die", "ignore")


class JobHabits(msgspec.Struct, frozen=True):
    """What all ranks of a role have in common. A role's environment may fix any of them:
    `SIM_LAST_STEP=30`, `SIM_STEP_S=0.5`."""

    step_s: float
    last_step: int
    """After which it exits with 0; 0 for one that runs until it is stopped."""
    checkpoint_every: int
    """Steps from one checkpoint to the next; 0 for none."""
    collective_s: float
    """How long a rank waits for its peers before it gives up."""


class RankHabits(msgspec.Struct, frozen=True):
    """What is each rank's own."""

    start_s: float
    """From the launch to the first step."""
    save_s: float
    on_sigterm: str
    """`leave` after the step, with 0, also when the agent says so; `die` of it; `ignore` it."""
    term_s: float
    """From SIGTERM to the death of it."""
    child: bool
    """It has a child that outlives it."""


def draw_job_habits(rng: random.Random, command: tuple[str, ...]) -> JobHabits:
    """Of a role, from its own stream."""
    forever = bool(command) and command[0] == SERVE
    last_step = rng.randint(4, 20)
    return JobHabits(
        step_s=rng.choice((0.5, 1.0, 2.0, 4.0)) * rng.uniform(0.8, 1.2),
        last_step=0 if forever else last_step,
        checkpoint_every=rng.choice((2, 3, 5, 10, 0)),
        collective_s=rng.uniform(4.0, 12.0),
    )


def fixed_by(env: Mapping[str, str], drawn: JobHabits) -> JobHabits:
    """With what the environment says."""
    step_s = float(env.get("SIM_STEP_S") or drawn.step_s)
    last_step = int(env.get("SIM_LAST_STEP") or drawn.last_step)
    every = int(env.get("SIM_CHECKPOINT_EVERY") or drawn.checkpoint_every)
    return JobHabits(
        step_s, last_step, every, float(env.get("SIM_COLLECTIVE_S") or drawn.collective_s)
    )


def draw_rank_habits(rng: random.Random, env: Mapping[str, str]) -> RankHabits:
    """Of one run of a rank, from its own stream."""
    return RankHabits(
        start_s=rng.uniform(0.1, 1.5),
        save_s=rng.uniform(0.01, 0.3),
        on_sigterm=env.get("SIM_ON_SIGTERM") or rng.choice(ON_SIGTERM),
        term_s=rng.uniform(0.0, 0.4),
        child=rng.random() < 0.1,
    )
