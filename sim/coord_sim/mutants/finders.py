"""Who looks for mutants: one interface, and what the project has to search with.

A hunt starts from a seed and is the same whenever it is repeated, but for how far it comes within
its time. `schedules` counts whole executions, the one that broke something included.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from coord.raft.rules import all_but
from coord_sim.core_world import run as live_through
from coord_sim.core_world.run import TOTAL
from coord_sim.explore.search import Progress, search
from coord_sim.mutants.incidents import INCIDENTS, recorded, rewritten
from coord_sim.mutants.mutant import Mutant, Reach
from coord_sim.mutants.shared_fleet import run as share_through
from coord_sim.mutants.surgery import applied
from coord_sim.world.focuses import FOCUSES
from coord_sim.world.options import WorldOptions
from coord_sim.world.raft_run import raft_run
from coord_sim.world.raft_swarm import Look, rounds
from coord_sim.world.run import run_seed

CORE_STEPS = (80, 150, 300)
SHARED_STEPS = (60, 90, 130)
TWIN_SHARE = 0.15
"""So many random histories also run a machine that is reloaded from its rows at every entry."""
CLUSTER_SECONDS = (15, 25, 40)
CLUSTER_HOSTS = (2, 3, 4)
CLUSTER_JOBS = (1, 2, 3)
"""Small and short: what two hosts can show is shown by more runs of two hosts."""
CLUSTER_FAULTS = (
    ("all",),
    ("none", "agent", "rank", "site.crash"),
    ("none", "agent", "host", "site.crash"),
    ("none", "agent", "rank", "channel", "site.crash"),
    ("none", "host", "rank", "server", "log", "site"),
    ("none", "host.cut", "host.power", "net", "site.island"),
    ("none", "net", "log", "server", "client", "channel"),
    ("none", "net", "disk", "server", "log", "members"),
)
"""Where a run looks. Of what its look allows, its seed draws a part once more."""
FOCUS_HOSTS, FOCUS_SECONDS = 2, (25, 40)
EXECUTION_LIMIT_S = 30.0
"""No execution takes so much longer than it may; one that does never ends."""
ENDS = "a run ends"


class Hunt(NamedTuple):
    """What came of one hunt. `broken` is the property that does not hold, empty when none broke."""

    broken: str
    detail: str
    schedules: int
    cpu_s: float

    @property
    def found(self) -> bool:
        return bool(self.broken)


class Finder(Protocol):
    """A way of searching. Everything follows from the seed; the limit is CPU time of this
    process, looked at between executions."""

    name: Reach

    def hunt(self, mutant: Mutant, seed: int, limit_s: float) -> Hunt: ...


Outcome = tuple[str, str]
"""Of one execution: (property, detail), both empty when all held."""


class CoreWalk:
    """Random histories of the pure core: a random walk, the baseline for everything else."""

    name = Reach.CORE
    steps = CORE_STEPS

    def hunt(self, mutant: Mutant, seed: int, limit_s: float) -> Hunt:
        with applied(mutant):
            return _search(self._histories(seed), limit_s)

    def _histories(self, seed: int) -> Iterator[Outcome]:
        rng = random.Random(f"{self.name.value}/{seed}")
        while True:
            history, steps = rng.randrange(2**48), rng.choice(self.steps)
            twin = rng.random() < TWIN_SHARE
            yield self._live(history, steps, twin)

    def _live(self, seed: int, steps: int, twin: bool) -> Outcome:
        outcome = live_through(seed, steps, twin=twin)
        return outcome.property, outcome.detail


class SharedWalk(CoreWalk):
    """The same of a fleet that is shared: racks, queues, quarantine, under the newest rules."""

    name = Reach.SHARED
    steps = SHARED_STEPS

    def _live(self, seed: int, steps: int, twin: bool) -> Outcome:
        outcome = share_through(seed, steps, twin=twin)
        return outcome.property, outcome.detail


class RaftRuns:
    """Three or five real servers alone, under load and faults of network, disk and processes."""

    name = Reach.RAFT

    def hunt(self, mutant: Mutant, seed: int, limit_s: float) -> Hunt:
        rules = all_but(*mutant.rules_off)
        with applied(mutant):
            return _search(self._runs(seed, rules), limit_s)

    def _runs(self, seed: int, rules: frozenset[str]) -> Iterator[Outcome]:
        for look in rounds(seed):
            yield self._run(look, rules)

    def _run(self, look: Look, rules: frozenset[str]) -> Outcome:
        outcome = raft_run(look.seed, rules, seconds=look.seconds, focus=look.focus)
        return outcome.broken, outcome.detail


class ClusterRuns:
    """Whole clusters: servers, agents, ranks, clients, and every fault there is."""

    name = Reach.CLUSTER

    def hunt(self, mutant: Mutant, seed: int, limit_s: float) -> Hunt:
        with applied(mutant):
            return _search(self._runs(seed, mutant.rules_off), limit_s)

    def _runs(self, seed: int, off: tuple[str, ...]) -> Iterator[Outcome]:
        rng = random.Random(f"cluster runs/{seed}")
        while True:
            number = rng.randrange(2**48)
            yield self._run(number, drawn_options(rng, off))

    def _run(self, seed: int, options: WorldOptions) -> Outcome:
        outcome = run_seed(seed, options)
        return outcome.broken, outcome.detail


class FocusedRuns:
    """Small clusters that each look at one kind of hazard between servers and who asks them."""

    name = Reach.FOCUS

    def hunt(self, mutant: Mutant, seed: int, limit_s: float) -> Hunt:
        with applied(mutant):
            return _search(self._runs(seed, mutant.rules_off), limit_s)

    def _runs(self, seed: int, off: tuple[str, ...]) -> Iterator[Outcome]:
        """One focus after the other, in the order in which the seed draws them."""
        rng = random.Random(f"focused runs/{seed}")
        names = rng.sample(sorted(FOCUSES), len(FOCUSES))
        for focus in itertools.cycle(names):
            options = WorldOptions(
                hosts=FOCUS_HOSTS,
                jobs=1,
                seconds=rng.choice(FOCUS_SECONDS),
                off=off,
                focus=focus,
            )
            yield self._run(rng.randrange(2**48), options)

    def _run(self, seed: int, options: WorldOptions) -> Outcome:
        outcome = run_seed(seed, options)
        return outcome.broken, outcome.detail


def drawn_options(rng: random.Random, off: tuple[str, ...] = ()) -> WorldOptions:
    """Of one run of a hunt in whole clusters."""
    return WorldOptions(
        hosts=rng.choice(CLUSTER_HOSTS),
        jobs=rng.choice(CLUSTER_JOBS),
        seconds=rng.choice(CLUSTER_SECONDS),
        faults=rng.choice(CLUSTER_FAULTS),
        off=off,
    )


class Explorations:
    """Recorded incidents taken apart: other orders and faults, found again from a log alone."""

    name = Reach.EXPLORE

    def hunt(self, mutant: Mutant, seed: int, limit_s: float) -> Hunt:
        for number in INCIDENTS:
            recorded(number)
        with applied(mutant):
            return _search(self._schedules(seed, limit_s / len(INCIDENTS)), limit_s)

    def _schedules(self, seed: int, budget_s: float) -> Iterator[Outcome]:
        """One outcome for each schedule, as far as the search tells of them one by one."""
        for number in INCIDENTS:
            try:
                yield from self._taken_apart(number, seed, budget_s)
            except Exception as error:  # The machine must take every entry (races.md 42).
                yield TOTAL, f"{type(error).__name__}: {error}"

    def _taken_apart(self, number: int, seed: int, budget_s: float) -> Iterator[Outcome]:
        incident = rewritten(number)
        tried = 0
        progress = Progress(())

        def keep(told: Progress) -> None:
            nonlocal progress
            progress = told

        for found in search(incident, budget_s=budget_s, seed=seed, on_progress=keep):
            yield from itertools.repeat(("", ""), found.schedules_so_far - tried - 1)
            violation = found.run.violation
            tried = found.schedules_so_far
            yield (violation.sentence, violation.detail) if violation else ("", "")
        yield from itertools.repeat(("", ""), max(progress.schedules - tried, 0))


FINDERS: dict[Reach, Finder] = {
    finder.name: finder
    for finder in (
        CoreWalk(),
        SharedWalk(),
        Explorations(),
        RaftRuns(),
        ClusterRuns(),
        FocusedRuns(),
    )
}


class _Overrun(BaseException):
    """One execution goes round in circles. No simulated process can catch it by `Exception`."""


def _search(outcomes: Iterator[Outcome], limit_s: float) -> Hunt:
    """Execute until something breaks, the CPU time is used up or nothing is left to try."""
    started_s = time.process_time()
    schedules = 0
    try:
        with _stopped_after(limit_s + EXECUTION_LIMIT_S):
            for schedules, (broken, detail) in enumerate(outcomes, 1):
                cpu_s = time.process_time() - started_s
                if broken or cpu_s >= limit_s:
                    return Hunt(broken, detail, schedules, cpu_s)
    except _Overrun:
        detail = f"still running after {EXECUTION_LIMIT_S:g} s beyond the limit"
        return Hunt(ENDS, detail, schedules + 1, time.process_time() - started_s)
    return Hunt("", "", schedules, time.process_time() - started_s)


@contextlib.contextmanager
def _stopped_after(cpu_s: float) -> Iterator[None]:
    """Raise _Overrun in this block after so much CPU time. On the main thread only."""

    def overrun(_signal: int, _frame: object) -> None:
        raise _Overrun

    before = signal.signal(signal.SIGPROF, overrun)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
