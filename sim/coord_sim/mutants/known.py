"""Who is known to find which mutant, from which seed.

Written down from campaigns; a finder that changes draws other schedules from the same seed, so this
says where to look first, and what should be found again.
"""

from __future__ import annotations

from typing import NamedTuple

from coord_sim.mutants.mutant import Reach


class Known(NamedTuple):
    """`schedules` is how many it took then."""

    finder: Reach
    seed: int
    schedules: int


KNOWN: dict[str, Known] = {
    "clock-step-bound": Known(Reach.CORE, 1, 2),
    "clock-forward-only": Known(Reach.CORE, 1, 9),
    "verdicts-in-term": Known(Reach.CORE, 1, 4),
    "terms-grow": Known(Reach.CORE, 1, 4),
    "lease-grace-after-election": Known(Reach.CORE, 1, 13),
    "one-full-grace": Known(Reach.CORE, 1, 1),
    "bounded-grace": Known(Reach.CORE, 1, 4),
    "breaker": Known(Reach.CORE, 1, 5),
    "breaker-counts-suspects": Known(Reach.CORE, 1, 28),
    "breaker-counts-losses": Known(Reach.CORE, 1, 5),
    "whole-lease": Known(Reach.CORE, 1, 2),
    "beats-clear-suspicion": Known(Reach.CORE, 1, 2),
    "beats-of-this-incarnation": Known(Reach.CORE, 1, 28),
    "time-again-after-silence": Known(Reach.CORE, 1, 4),
    "no-hang-out-of-sight": Known(Reach.CORE, 1, 26),
    "no-timeout-out-of-sight": Known(Reach.CORE, 1, 28),
    "incarnations-grow": Known(Reach.CORE, 1, 1),
    "host-id-in-use": Known(Reach.CORE, 1, 2),
    "vanished-tasks": Known(Reach.CORE, 1, 32),
    "smaller-host-orders": Known(Reach.CORE, 1, 35),
    "smaller-host-holds": Known(Reach.CORE, 1, 35),
    "lost-host-holds": Known(Reach.CORE, 1, 8),
    "kept-holes": Known(Reach.CORE, 1, 12),
    "fence-after-loss": Known(Reach.CORE, 1, 14),
    "fence-awaited-by-lost": Known(Reach.CORE, 1, 8),
    "fence-awaited-by-unkillable": Known(Reach.CORE, 1, 41),
    "fence-before-restart": Known(Reach.CORE, 1, 1),
    "drain-takes-no-work": Known(Reach.CORE, 1, 11),
    "drain-outlives-registration": Known(Reach.CORE, 1, 17),
    "quarantine-takes-no-work": Known(Reach.CORE, 1, 1),
    "suspects-take-no-work": Known(Reach.CORE, 1, 5),
    "earliest-deadline": Known(Reach.CORE, 1, 13),
    "notice-of-this-incarnation": Known(Reach.CORE, 1, 21),
    "removal-of-the-empty": Known(Reach.CORE, 1, 2),
    "request-once": Known(Reach.CORE, 1, 1),
    "request-floor": Known(Reach.CORE, 1, 5),
    "request-window": Known(Reach.CORE, 1, 5),
    "report-order": Known(Reach.CORE, 1, 1),
    "report-of-this-incarnation": Known(Reach.CORE, 1, 4),
    "report-of-live-host": Known(Reach.CORE, 1, 4),
    "generation-of-reports": Known(Reach.EXPLORE, 1, 1),
    "started-after-stop": Known(Reach.CORE, 1, 32),
    "exit-once": Known(Reach.CORE, 1, 64),
    "exit-that-was-asked-for": Known(Reach.CORE, 1, 38),
    "progress-of-the-living": Known(Reach.CORE, 1, 4),
    "unkillable-frees-nothing": Known(Reach.CORE, 1, 1),
    "unkillable-quarantines": Known(Reach.CORE, 1, 1),
    "unkillable-blocks-nobody": Known(Reach.CORE, 1, 1),
    "lost-member": Known(Reach.CORE, 1, 1),
    "plan-version": Known(Reach.CORE, 1, 1),
    "stop-orders": Known(Reach.CORE, 1, 1),
    "stop-deadline": Known(Reach.CORE, 1, 2),
    "stop-of-a-launch": Known(Reach.CORE, 1, 1),
    "timers-never-late": Known(Reach.CORE, 1, 28),
    "timers-in-order": Known(Reach.CORE, 1, 41),
    "one-failure-one-restart": Known(Reach.CORE, 1, 21),
    "restart-after-all": Known(Reach.CORE, 1, 1),
    "budget": Known(Reach.CORE, 1, 7),
    "planned-is-free": Known(Reach.CORE, 1, 5),
    "planned-is-not-barren": Known(Reach.CORE, 1, 5),
    "do-not-restart": Known(Reach.CORE, 1, 22),
    "back-off": Known(Reach.CORE, 1, 1),
    "revision-of-the-unwanted": Known(Reach.CORE, 1, 151),
    "revision-charges-once": Known(Reach.CORE, 1, 28),
    "all-or-nothing": Known(Reach.CORE, 1, 2),
    "holds-are-taken": Known(Reach.CORE, 1, 2),
    "stopping-is-not-free": Known(Reach.CORE, 1, 4),
    "spare-once": Known(Reach.CORE, 1, 1),
    "ended-gangs-keep-nothing": Known(Reach.CORE, 1, 3),
    "generation-of-the-job": Known(Reach.CORE, 1, 1),
    "steps-never-back": Known(Reach.CORE, 1, 1),
    "newest-is-furthest": Known(Reach.CORE, 1, 28),
    "restore-the-committed": Known(Reach.CORE, 1, 4),
    "checkpoint-of-one-generation": Known(Reach.CORE, 1, 5),
    "fenced-saves-nothing": Known(Reach.CORE, 1, 4),
    "commit-when-whole": Known(Reach.CORE, 1, 1),
    "commit-leaves-later-saves": Known(Reach.CORE, 1, 1),
    "finished-stays": Known(Reach.CORE, 1, 4),
    "agent-newest-plan": Known(Reach.CLUSTER, 1, 14),
    "agent-record-before-launch": Known(Reach.CLUSTER, 1, 19),
    "agent-one-run": Known(Reach.CLUSTER, 1, 2),
    "agent-stops-the-unknown": Known(Reach.CLUSTER, 1, 14),
    "agent-adopts": Known(Reach.CLUSTER, 1, 6),
    "agent-leaves-nobody": Known(Reach.CLUSTER, 1, 2),
    "report-numbers": Known(Reach.CLUSTER, 1, 19),
    "reports-not-taken": Known(Reach.CLUSTER, 1, 20),
    "rule-g1": Known(Reach.RAFT, 1, 2),
    "rule-g2": Known(Reach.RAFT, 1, 5),
    "rule-g4": Known(Reach.RAFT, 1, 6),
    "rule-g5.log": Known(Reach.RAFT, 1, 1),
    "rule-g5.vote": Known(Reach.RAFT, 1, 1),
}
