"""What hunts say about mutants: found or not, by whom, at which cost."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import msgspec

from coord_sim.mutants.catalogue import GROUPS, MUTANTS
from coord_sim.mutants.hunting import Hunted
from coord_sim.mutants.mutant import Mutant, Reach

RAFT_GROUP = "raft guard"
_GROUP = {mutant.name: group for group, mutants in GROUPS.items() for mutant in mutants}
BASELINE = Reach.CORE
"""The random walk that the other ways of searching are compared with."""


class Score(msgspec.Struct, frozen=True):
    """One mutant and one finder. Medians are over all seeds: a seed that found nothing counts with
    all it spent."""

    finder: Reach
    seeds: int
    found: int
    schedules: float
    cpu_s: float
    broken: str = ""
    """The property that broke most often."""
    seed: int = 0
    """The one that found it soonest."""

    @property
    def reliable(self) -> bool:
        """More than half of the seeds found it."""
        return 2 * self.found > self.seeds


class Verdict(msgspec.Struct, frozen=True):
    """One mutant. `best` is the cheapest finder that finds it from most seeds, or from any."""

    mutant: str
    group: str
    guard: str
    where: str
    races: tuple[int, ...]
    found: bool
    scores: tuple[Score, ...]
    best: Score | None = None
    baseline: Score | None = None
    reason: str = ""
    """Why it survives, as far as known."""


class Total(msgspec.Struct, frozen=True):
    """What became of one group of mutants."""

    group: str
    hunted: int
    found: int
    reliable: int
    """Found by some finder from more than half of its seeds."""
    excused: int
    """Not found, and known not to make a difference that anybody could see."""


def totals(found: Iterable[Verdict]) -> list[Total]:
    """Group by group, then all of them, then all but the raft guard."""
    rows = list(found)
    outside = [one for one in rows if one.group != RAFT_GROUP]
    by_group = [(group, [one for one in rows if one.group == group]) for group in GROUPS]
    by_group += [("all", rows), (f"all but the {RAFT_GROUP}", outside)]
    return [_total(group, members) for group, members in by_group if members]


def _total(group: str, rows: list[Verdict]) -> Total:
    return Total(
        group=group,
        hunted=len(rows),
        found=sum(one.found for one in rows),
        reliable=sum(one.best is not None and one.best.reliable for one in rows),
        excused=sum(not one.found and bool(MUTANTS[one.mutant].survives) for one in rows),
    )


def verdicts(hunts: Iterable[Hunted]) -> list[Verdict]:
    """In the order of the catalogue; mutants that were not hunted are left out."""
    by_mutant: dict[str, dict[Reach, list[Hunted]]] = {}
    for hunted in hunts:
        finders = by_mutant.setdefault(hunted.assignment.mutant, {})
        finders.setdefault(hunted.assignment.finder, []).append(hunted)
    return [
        _verdict(mutant, by_mutant[name]) for name, mutant in MUTANTS.items() if name in by_mutant
    ]


def _verdict(mutant: Mutant, hunted: dict[Reach, list[Hunted]]) -> Verdict:
    scores = tuple(_score(finder, hunted[finder]) for finder in mutant.reach if finder in hunted)
    finding = [score for score in scores if score.found]
    best = min(
        finding, key=lambda score: (not score.reliable, score.cpu_s, score.finder), default=None
    )
    baseline = next((score for score in scores if score.finder == BASELINE), None)
    return Verdict(
        mutant=mutant.name,
        group=_GROUP[mutant.name],
        guard=mutant.guard,
        where=mutant.where,
        races=mutant.races,
        found=best is not None,
        scores=scores,
        best=best,
        baseline=baseline,
        reason="" if best else mutant.survives or "not found within the limit",
    )


def _score(finder: Reach, hunts: list[Hunted]) -> Score:
    hunts = sorted(hunts, key=lambda one: one.assignment.seed)
    finding = [one for one in hunts if one.broken]
    properties = [one.broken for one in finding]
    soonest = min(finding, key=lambda one: one.cpu_s, default=None)
    return Score(
        finder=finder,
        seeds=len(hunts),
        found=len(finding),
        schedules=median(one.schedules for one in hunts),
        cpu_s=round(median(one.cpu_s for one in hunts), 3),
        broken=max(dict.fromkeys(properties), key=properties.count, default=""),
        seed=soonest.assignment.seed if soonest else 0,
    )
