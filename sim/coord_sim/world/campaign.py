"""Many seeds over worker processes; what comes out does not depend on who ran which."""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import msgspec

from coord_sim.world.options import WorldOptions
from coord_sim.world.outcome import Outcome, added
from coord_sim.world.scratch import remove_scratch

RUN_SEED = "coord_sim.world.run:run_seed"
LOOK_S = 0.2
HUNG_S = 600.0
"""Of wall time. A run is over in seconds; one that takes so long goes round in circles."""
RUNS_A_PROCESS = 500
"""Then a fresh one takes over, so that nothing that leaks grows without end."""

ENDS = "a run ends"

RunSeed = Callable[[int, WorldOptions], Outcome]


class Plan(NamedTuple):
    """`seeds` of None goes on until the time is over. `run_seed` is `module:function`."""

    first_seed: int
    seeds: int | None
    options: WorldOptions
    workers: int
    minutes: float | None = None
    keep_going: bool = False
    run_seed: str = RUN_SEED
    hung_s: float = HUNG_S


class Totals(msgspec.Struct):
    """Sums over all seeds that ran."""

    seeds: int = 0
    failed: int = 0
    virtual_ms: int = 0
    entries: int = 0
    faults: dict[str, int] = {}
    counts: dict[str, int] = {}


class Result(NamedTuple):
    """Outcomes by seed, ascending. `wall_s` and `cpu_s` are what it took here and now."""

    outcomes: list[Outcome]
    totals: Totals
    digest: str
    """Of the digests of all seeds, in order."""
    interrupted: bool
    wall_s: float
    cpu_s: float

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.ok]


class Progress(NamedTuple):
    """How far a campaign is, for whoever watches."""

    done: int
    failed: int
    virtual_s: float
    wall_s: float


def run_campaign(plan: Plan, tell: Callable[[Progress], None] = lambda _: None) -> Result:
    """Run the seeds; Ctrl-C ends it with what was found so far.

    Without `keep_going` it ends at the lowest seed that fails: all below it have passed, and
    whatever ran beyond it is left out, so that a second run says the same.
    """
    return _Campaign(plan, tell).run()


class _Campaign:
    def __init__(self, plan: Plan, tell: Callable[[Progress], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._started_s = time.monotonic()
        self._outcomes: dict[int, Outcome] = {}
        self._cpu_s = 0.0
        self._last_seed: int | None = None
        """The lowest that failed, when that ends the campaign."""
        self._seeds = self._unstarted()

    def run(self) -> Result:
        workers = [_Worker(self._plan) for _ in range(max(1, self._workers()))]
        interrupted = False
        try:
            while self._busy(workers):
                self._collect(workers)
                self._tell(self._progress())
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for worker in workers:
                worker.end()
        return self._result(interrupted)

    def _workers(self) -> int:
        seeds = self._plan.seeds
        return self._plan.workers if seeds is None else min(self._plan.workers, seeds)

    def _unstarted(self) -> Iterator[int]:
        plan = self._plan
        last = None if plan.seeds is None else plan.first_seed + plan.seeds
        for seed in count(plan.first_seed):
            over = plan.minutes is not None and self._wall_s() >= plan.minutes * 60
            if over or self._last_seed is not None or seed == last:
                return
            yield seed

    def _busy(self, workers: list[_Worker]) -> bool:
        """Hand out seeds; whether there is anything to wait for."""
        for worker in workers:
            if worker.seed is None:
                seed = next(self._seeds, None)
                if seed is not None:
                    worker.take(seed)
        return any(self._wanted(worker.seed) for worker in workers)

    def _wanted(self, seed: int | None) -> bool:
        return seed is not None and (self._last_seed is None or seed < self._last_seed)

    def _collect(self, workers: list[_Worker]) -> None:
        connections = [worker.connection for worker in workers if worker.seed is not None]
        ready = wait(connections, timeout=LOOK_S)
        for worker in workers:
            seed = worker.seed
            if seed is None:
                continue
            if worker.connection in ready:
                outcome, cpu_s = worker.finished()
            elif worker.hung():
                outcome, cpu_s = worker.given_up(), self._plan.hung_s
            else:
                continue
            self._outcomes[seed] = outcome
            self._cpu_s += cpu_s
            if not outcome.ok and not self._plan.keep_going:
                last = self._last_seed
                self._last_seed = seed if last is None else min(seed, last)

    def _wall_s(self) -> float:
        return time.monotonic() - self._started_s

    def _progress(self) -> Progress:
        done = self._outcomes.values()
        failed = sum(not outcome.ok for outcome in done)
        virtual_s = sum(outcome.virtual_ms for outcome in done) / 1_000
        return Progress(len(done), failed, virtual_s, self._wall_s())

    def _result(self, interrupted: bool) -> Result:
        last = self._last_seed
        outcomes = [
            outcome
            for seed, outcome in sorted(self._outcomes.items())
            if last is None or seed <= last
        ]
        totals = Totals(faults={}, counts={})
        chained = hashlib.blake2b(digest_size=16)
        for outcome in outcomes:
            totals.seeds += 1
            totals.failed += not outcome.ok
            totals.virtual_ms += outcome.virtual_ms
            totals.entries += outcome.entries
            added(totals.faults, outcome.faults)
            added(totals.counts, outcome.counts)
            chained.update(f"{outcome.seed} {outcome.digest} {outcome.broken}\n".encode())
        totals.faults = dict(sorted(totals.faults.items()))
        totals.counts = dict(sorted(totals.counts.items()))
        digest = chained.hexdigest()
        return Result(outcomes, totals, digest, interrupted, self._wall_s(), self._cpu_s)


class _Worker:
    """A process that runs one seed after another, and a fresh one when that has died."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.seed: int | None = None
        self._start()

    def take(self, seed: int) -> None:
        if self._runs >= RUNS_A_PROCESS:
            self.end()
            self._start()
        self._runs += 1
        self.seed = seed
        self._taken_s = time.monotonic()
        self.connection.send(seed)

    def finished(self) -> tuple[Outcome, float]:
        """What the process sent, or that it died."""
        seed = self._seed_done()
        try:
            encoded, cpu_s = self.connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            remove_scratch(self._process.pid or 0)
            code = self._process.exitcode
            self._start()
            return self._broken(seed, f"the process that ran it died with exit code {code}"), 0.0
        return msgspec.json.decode(encoded, type=Outcome), cpu_s

    def hung(self) -> bool:
        return time.monotonic() - self._taken_s > self._plan.hung_s

    def given_up(self) -> Outcome:
        seed = self._seed_done()
        self.end()
        self._start()
        return self._broken(seed, f"it was still running after {self._plan.hung_s:g} s")

    def end(self) -> None:
        """At once: a run has nothing to tidy up but its scratch directory, which names its pid."""
        self._process.kill()
        self._process.join()
        remove_scratch(self._process.pid or 0)
        self.connection.close()

    def _start(self) -> None:
        # Not forked: a fresh interpreter has a hash seed of its own, which no run may depend on.
        context = multiprocessing.get_context("spawn")
        self._runs = 0
        self.connection, other = context.Pipe()
        self._process = context.Process(
            target=_work, args=(other, self._plan.run_seed, self._plan.options), daemon=True
        )
        self._process.start()
        other.close()

    def _seed_done(self) -> int:
        seed, self.seed = self.seed, None
        assert seed is not None
        return seed

    def _broken(self, seed: int, detail: str) -> Outcome:
        return Outcome(seed, self._plan.options, "", "", broken=ENDS, detail=detail)


def _work(connection: Connection[Any, Any], run_seed: str, options: WorldOptions) -> None:
    """The life of a worker process: it ends when its parent closes the connection or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who then ends us.
    run = load_run_seed(run_seed)
    with suppress(EOFError, ConnectionError):  # The parent has gone.
        while True:
            seed = connection.recv()
            before_s = time.process_time()
            outcome = run(seed, options)
            cpu_s = time.process_time() - before_s
            connection.send((msgspec.json.encode(outcome), cpu_s))


def load_run_seed(where: str) -> RunSeed:
    """The function that `module:function` names."""
    module, _, name = where.partition(":")
    found: RunSeed = getattr(importlib.import_module(module), name)
    return found


def available_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))
