"""Many hunts over worker processes: every mutant, by every finder that may reach it, from several
seeds. What was hunted before with the same code and limits is not hunted again."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import msgspec

import coord
import coord_sim
from coord_sim.mutants.catalogue import MUTANTS
from coord_sim.mutants.finders import FINDERS
from coord_sim.mutants.known import KNOWN
from coord_sim.mutants.mutant import Mutant, Reach
from coord_sim.world.scratch import remove_scratch

HUNTS_A_PROCESS = 40
TRIAL_SEEDS = 3
"""A finder that finds nothing from so many seeds, where another finds it from all of them, is not
asked any further."""


class Assignment(msgspec.Struct, frozen=True):
    """One hunt to do."""

    mutant: str
    finder: Reach
    seed: int
    limit_s: float


class Hunted(msgspec.Struct, frozen=True):
    """One hunt that was done. `code` is the fingerprint of the product and the simulator."""

    assignment: Assignment
    code: str
    broken: str
    detail: str
    schedules: int
    cpu_s: float


class Plan(NamedTuple):
    """`finders` empty: for each mutant those that may reach it. `results` is appended to. `quick`:
    whoever is known to find a mutant is asked first, and nobody after it was found."""

    mutants: tuple[str, ...]
    finders: tuple[Reach, ...]
    seeds: int
    limit_s: float
    workers: int
    results: Path
    quick: bool = False


class Campaign(NamedTuple):
    """What is known once a campaign is over. `known` hunts had been done before."""

    hunts: list[Hunted]
    known: int
    interrupted: bool


Tell = Callable[[Hunted, int, int], None]
"""(what was hunted just now, how many are done, of how many)"""


def run_campaign(plan: Plan, tell: Tell = lambda _hunted, _done, _all: None) -> Campaign:
    """Do every hunt of the plan; Ctrl-C ends it with what was found so far."""
    code = code_fingerprint()
    wanted = list(assignments(plan))
    before = {one.assignment: one for one in read_results(plan.results) if one.code == code}
    hunts = [before[one] for one in wanted if one in before]
    known = len(hunts)
    unknown = [one for one in wanted if one not in before]
    left = (one for one in unknown if not needless(one, hunts, plan.quick))
    interrupted = False
    plan.results.parent.mkdir(parents=True, exist_ok=True)
    with plan.results.open("ab") as file:
        try:
            for hunted in _hunt_all(left, code, plan.workers):
                file.write(msgspec.json.encode(hunted) + b"\n")
                file.flush()
                hunts.append(hunted)
                tell(hunted, len(hunts), len(wanted))
        except KeyboardInterrupt:
            interrupted = True
    return Campaign(hunts, known, interrupted)


def assignments(plan: Plan) -> Iterable[Assignment]:
    """Mutant by mutant, so that what is interrupted has whole results for the first ones."""
    for name in plan.mutants:
        finders = finders_of(MUTANTS[name], plan.finders)
        if name in KNOWN:
            finders = tuple(sorted(finders, key=lambda finder: finder != KNOWN[name].finder))
        for seed in range(1, plan.seeds + 1):
            for finder in finders:
                yield Assignment(name, finder, seed, plan.limit_s)


def needless(wanted: Assignment, hunts: Iterable[Hunted], quick: bool) -> bool:
    """Whether this hunt would tell little, by what came of others."""
    found: dict[Reach, int] = {}
    tried: dict[Reach, int] = {}
    for one in hunts:
        if one.assignment.mutant == wanted.mutant:
            finder = one.assignment.finder
            tried[finder] = tried.get(finder, 0) + 1
            found[finder] = found.get(finder, 0) + bool(one.broken)
    if quick:
        return any(found.values())
    if tried.get(wanted.finder, 0) < TRIAL_SEEDS or found[wanted.finder]:
        return False
    return any(count >= TRIAL_SEEDS and found[other] == count for other, count in tried.items())


def finders_of(mutant: Mutant, chosen: tuple[Reach, ...]) -> tuple[Reach, ...]:
    """Those of the chosen ones that may reach it and are there."""
    return tuple(
        finder for finder in mutant.reach if finder in FINDERS and (not chosen or finder in chosen)
    )


def read_results(path: Path) -> list[Hunted]:
    """What earlier campaigns wrote, up to a line that was cut off. Raises ValueError with the
    line's number for a file of another kind."""
    if not path.exists():
        return []
    found = []
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=Hunted))
        except msgspec.DecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number} is no result of a hunt: {error}") from None
    return found


def newest(hunts: Iterable[Hunted]) -> list[Hunted]:
    """Of several hunts of one mutant by one finder from one seed the last, whatever the code and
    the limit were."""
    found: dict[tuple[str, Reach, int], Hunted] = {}
    for one in hunts:
        if one.assignment.mutant in MUTANTS:
            what = one.assignment
            found[what.mutant, what.finder, what.seed] = one
    return list(found.values())


def code_fingerprint() -> str:
    """Of every source of the product and of the simulator, 16 bytes in hex."""
    digest = hashlib.blake2b(digest_size=16)
    for package in (coord, coord_sim):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def hunt(assignment: Assignment, code: str) -> Hunted:
    """Do one hunt in this process."""
    finder = FINDERS[assignment.finder]
    found = finder.hunt(MUTANTS[assignment.mutant], assignment.seed, assignment.limit_s)
    return Hunted(
        assignment, code, found.broken, found.detail[:500], found.schedules, round(found.cpu_s, 3)
    )


def _hunt_all(left: Iterable[Assignment], code: str, workers: int) -> Iterable[Hunted]:
    pool = ProcessPoolExecutor(
        max_workers=workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        max_tasks_per_child=HUNTS_A_PROCESS,
    )
    waiting = iter(left)
    running: set[Future[Hunted]] = set()
    try:
        while True:
            while len(running) < workers and (one := next(waiting, None)) is not None:
                running.add(pool.submit(hunt, one, code))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        _end(pool)


def _begin() -> None:
    # Ctrl-C is for the parent, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")


def _end(pool: ProcessPoolExecutor) -> None:
    """At once: a hunt has nothing to tidy up but its scratch directory, which names its pid."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
        process.join()
        remove_scratch(process.pid or 0)
