"""`with world(seed) as w`: a simulated cluster, driven from an ordinary test function."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, overload

from coord.core.state import LIVE_HOST, State
from coord.model import events as ev
from coord.model.decisions import AnyDecision
from coord.model.entities import Job as JobRow
from coord.model.entry import Recorded
from coord.model.settings import Settings
from coord_sim.kernel import Deadlock, Livelock, Trace
from coord_sim.scenario.handles import HostHandle, RankHandle, ServerHandle
from coord_sim.scenario.jobs import Job, spec_of
from coord_sim.scenario.led import LedWorld, weights_of
from coord_sim.scenario.own_agent import AgentMain, OwnHost
from coord_sim.scenario.own_worker import WorkerMain
from coord_sim.scenario.telling import NotReached, ToldViolation, last_events
from coord_sim.world.artefacts import incident_bytes
from coord_sim.world.hosts import SimHost
from coord_sim.world.options import split_words
from coord_sim.world.outcome import Violation
from coord_sim.world.run import (
    GOES_ON,
    KEPT_LINES,
    RecordingTrace,
    logs_to,
    no_collector,
)
from coord_sim.world.scratch import scratch_directory
from coord_sim.world.swarm import Climate
from coord_sim.world.world import QUIET_S, SETTINGS

T = TypeVar("T")
LOOK_S = 0.05
ASKED = "asked by the scenario"
UP_S = 60.0


def world(
    seed: int = 0,
    *,
    nodes: int = 3,
    hosts: int = 2,
    devices: int = 2,
    network: str = "orderly",
    disk: str = "fast",
    faults: str | Iterable[str] = (),
    fault_gap_s: float = 5.0,
    settings: Settings = SETTINGS,
    record: bool = False,
) -> Scenario:
    """A cluster of `nodes` servers and `hosts` hosts `h1`, `h2`, ... with our agent and so many
    devices each, for a `with` block. Inside, all of them are up and one server leads.

    `network` is `orderly`, `delays` or `chaos`, `disk` (of servers) `fast`, `slow` or `uneven`.
    `faults` befall it at random, one every `fault_gap_s` virtual seconds in the mean, until
    `heal` or `settle`: names and families as in `coordctl sim run --faults`, in one text or many,
    e.g. `host.cut`, `all,-disk`; none unless given. `settings` are the cluster's; unless given a
    lease is 10 s and a fence 2 s. `record` keeps the whole trace, and in it what was logged.
    ValueError: an argument is unknown or out of range.
    """
    words = split_words(faults) if isinstance(faults, str) else tuple(faults)
    _check_range("nodes", nodes, 1, 7)
    _check_range("hosts", hosts, 0, 64)
    _check_range("devices", devices, 0, 64)
    _check_word("network", network, ("orderly", "delays", "chaos"))
    _check_word("disk", disk, ("fast", "slow", "uneven"))
    if settings.problems():
        raise ValueError(f"settings: {'; '.join(settings.problems())}")
    climate = Climate(
        nodes=nodes, hosts=0, jobs=0, clients=0, devices=devices, network=network, disk=disk,
        fault_gap_s=fault_gap_s, request_gap_s=1.0, faults=weights_of(words),
    )  # fmt: skip
    return Scenario(seed, climate, hosts, settings, record=record)


class Scenario:
    """A world and its virtual time, which passes only inside of the methods that say so.

    A violation of anything that the simulator checks is raised by whichever method was running,
    and once more of what stands at the end by leaving the block. It tells seed, time and the last
    events.
    """

    def __init__(
        self, seed: int, climate: Climate, hosts: int, settings: Settings, *, record: bool = False
    ) -> None:
        self.seed = seed
        self._settings = settings
        self._climate = climate
        self._hosts = hosts
        self._trace: Trace = RecordingTrace() if record else Trace(keep=KEPT_LINES)
        self._within = contextlib.ExitStack()
        self._world: LedWorld | None = None
        self._broken: ToldViolation | None = None
        self._closed = False

    def __enter__(self) -> Scenario:
        if self._world is not None:
            raise RuntimeError("this world was entered before; make a new one")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a world runs a loop of its own: use it in a plain `def`")
        try:
            directory = self._within.enter_context(scratch_directory(self.seed))
            self._within.enter_context(logs_to(self._trace, directory))
            self._within.enter_context(no_collector())
            self._world = LedWorld(self.seed, self._climate, directory, self._trace, self._settings)
            self._run(self._world.begin())
            for number in range(1, self._hosts + 1):
                self.add_host(f"h{number}", devices=self._climate.devices)
            self.run_until(self._all_up, UP_S, "every host is up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._broken is None:
                self.check()
            elif error is not None and error is not self._broken:
                error.add_note(f"in a simulated world of seed {self.seed}, at {self.now_s:.3f} s")
        finally:
            self.close()

    def close(self) -> None:
        """Take everything apart; what happened can still be looked at. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._world is not None:
                self._world.close()
            self._within.close()

    # Time

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self._led.lived_ms() / 1000

    def run_for(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        __tracebackhide__ = True
        self._drive(lambda: self._led.kernel.run_for(seconds))

    def run_until(self, predicate: Callable[[], T], within_s: float = 60.0, what: str = "") -> T:
        """Let time pass until the predicate, asked every 0.05 s, yields something true; returns
        that. Raises NotReached, which calls it `what`."""
        __tracebackhide__ = True
        until_s = self.now_s + within_s
        while not (found := predicate()):
            left_s = until_s - self.now_s
            if left_s <= 0:
                raise NotReached(self._not_reached(what or "what was waited for", within_s))
            self.run_for(min(LOOK_S, left_s))
        return found

    def after(self, seconds: float, act: Callable[..., object], *arguments: Any) -> None:
        """Have something done once so much more time has passed, while something else runs."""
        self._led.kernel.call_later(seconds, act, *arguments)

    @property
    def rng(self) -> random.Random:
        """For what the test itself draws: the same for the same seed, and no part of the world's
        own chances."""
        return self._led.kernel.rng("scenario")

    # Hosts, agents, workers

    def add_host(
        self,
        name: str,
        *,
        agent: AgentMain | None = None,
        worker: WorkerMain | None = None,
        devices: int = 2,
        cpu_millis: int = 8_000,
        memory_mib: int = 16_384,
        labels: dict[str, str] | None = None,
    ) -> HostHandle:
        """A host with power. It runs our agent, or `agent`: an `async def main(context)`. What it
        launches runs `worker`, unless the role has one of its own. Registers as time passes."""
        if name in self._led.hosts.hosts:
            raise ValueError(f"there is a host {name} already")
        make = SimHost if agent is None else functools.partial(OwnHost, agent)
        host = self._led.hosts.add(name, devices, cpu_millis, memory_mib, labels, make)
        if worker is not None:
            self._led.programs[f"@{name}"] = worker
        host.power_on()
        return HostHandle(host)

    def worker(self, role: str, program: WorkerMain) -> None:
        """Have ranks of a role, `trainer` or `job/trainer`, that start from now on run an
        `async def program(worker)`."""
        self._led.programs[role] = program

    # Asking, as an operator does with the client library

    def submit(self, job: Job, *, within_s: float = 30.0) -> str:
        """Submit a job: a JobSpec, a RoleSpec, a mapping, or the path of a job file. Time passes
        until it is decided; returns its name. Raises RequestFailed."""
        __tracebackhide__ = True
        spec = spec_of(job)
        self.ask(ev.JobSubmitted(spec), within_s)
        return spec.name

    def cancel(self, job: str, *, reason: str = ASKED, within_s: float = 30.0) -> None:
        """As `submit`."""
        self.ask(ev.JobCancelRequested(job, "", reason), within_s)

    def resize(
        self, job: str, role: str, replicas: int, *, reason: str = ASKED, within_s: float = 30.0
    ) -> None:
        """As `submit`."""
        self.ask(ev.JobResizeRequested(job, role, replicas, "", reason), within_s)

    def drain(self, host: str, *, reason: str = ASKED, within_s: float = 30.0) -> None:
        """As `submit`."""
        self.ask(ev.DrainRequested(host, "", reason), within_s)

    def undrain(self, host: str, *, reason: str = ASKED, within_s: float = 30.0) -> None:
        """As `submit`."""
        self.ask(ev.UndrainRequested(host, "", reason), within_s)

    def ask(self, event: ev.AnyEvent, within_s: float = 30.0) -> int:
        """Anything that a client may ask; its actor becomes a tag of the simulator's. Returns the
        log index of the decision. Raises RequestFailed."""
        __tracebackhide__ = True
        return self._run(self._led.ask(event, within_s)).index

    # Parts by name

    def host(self, name: str) -> HostHandle:
        return HostHandle(self._found(self._led.hosts.hosts, name, "host"))

    def server(self, number: int) -> ServerHandle:
        self._found(self._led.servers.all, number, "server")
        return ServerHandle(self._led, number)

    @property
    def leader(self) -> ServerHandle | None:
        """Who leads in the highest term, by its own word; None while nobody does."""
        node = self._led.servers.leader()
        return ServerHandle(self._led, node.config.node) if node is not None else None

    def ranks(self, task: str = "") -> list[RankHandle]:
        """Processes that live in truth, whatever anybody believes, by host and age: of a job, role
        or task (`job`, `job/role`, `job/role/0`), or all."""
        return [
            RankHandle(rank)
            for rank in self._led.hosts.live_ranks()
            if not task or f"{rank.task.partition('#')[0]}/".startswith(f"{task}/")
        ]

    def rank(self, task: str) -> RankHandle:
        """The youngest live process of a task such as `job/trainer/0`. LookupError: none lives."""
        found = self.ranks(task)
        if not found:
            live = ", ".join(rank.task for rank in self.ranks()) or "none"
            raise LookupError(f"no process of {task} lives; there are {live}")
        return found[-1]

    # The network

    def partition(self, *sides: Sequence[int | str]) -> None:
        """Nothing passes between the sides, of server numbers and host names, until `heal`. Who is
        on no side reaches everybody."""
        servers = self._led.servers
        for side in sides:
            for one in side:
                self.server(one) if isinstance(one, int) else self.host(one)
        numbers = [tuple(one for one in side if isinstance(one, int)) for side in sides]
        servers.peers.partition(*numbers)
        for side in sides:
            for host in (one for one in side if isinstance(one, str)):
                caller = self._led.hosts.hosts[host].caller
                for others in (number for number in numbers):
                    for number in (one for one in others if one not in side):
                        self._led.channels.cut_silently(caller, number)

    def slow(self, host: str, delay_s: float) -> None:
        """Every message between a host's agent and any server takes so much longer, until
        `heal`."""
        caller = self._led.hosts.hosts[self.host(host).name].caller
        for number in self._led.servers.numbers():
            self._led.channels.slow(caller, number, delay_s)

    # Ending faults

    def heal(self) -> None:
        """End every fault, drawn or made: links, disks and clocks are well, what was killed or
        without power is started. A little time passes."""
        __tracebackhide__ = True
        self._run(self._led.heal())

    def settle(self, within_s: float = QUIET_S) -> None:
        """Heal, then let time pass until what was promised has come about: servers level, hosts up,
        what fits run to its end, and truth and state agree. Hosts in drain or quarantine are
        returned, as by an operator. Raises Violation, of liveness when it takes too long."""
        __tracebackhide__ = True
        self._run(self._led.settle(within_s))

    def check(self) -> None:
        """Raise a Violation of anything that can be judged now. Most is checked all the time:
        the invariants of the state after every entry, one history on all servers, raft, what truly
        happens to processes, what clients were told."""
        __tracebackhide__ = True
        self._drive(self._led.check)

    # What happened

    @property
    def state(self) -> State:
        """A copy, after the newest entry that any server has applied: hosts, jobs, gangs, tasks by
        name. Durations in it are milliseconds of log time."""
        return self._led.state_checks.state.view()

    def job(self, name: str) -> JobRow:
        """Its row in `state`. LookupError: there is none."""
        return self._found(self._led.state_checks.state.jobs, name, "job")

    @property
    def records(self) -> list[Recorded]:
        """The whole log with what was decided, entry 1 first."""
        return list(self._led.state_checks.records)

    @overload
    def events(self) -> list[ev.AnyEvent]: ...

    @overload
    def events(self, kind: type[T]) -> list[T]: ...

    def events(self, kind: type[Any] | None = None) -> list[Any]:
        """Events that were accepted, oldest first; of one type, or all."""
        found: list[Any] = [
            one.entry.event for one in self._led.state_checks.records if one.accepted
        ]
        return [event for event in found if kind is None or isinstance(event, kind)]

    def rejected(self) -> list[tuple[ev.AnyEvent, str]]:
        """What was refused, and why, oldest first."""
        records = self._led.state_checks.records
        return [(one.entry.event, one.rejection) for one in records if one.rejection]

    @overload
    def decisions(self) -> list[AnyDecision]: ...

    @overload
    def decisions(self, kind: type[T]) -> list[T]: ...

    def decisions(self, kind: type[Any] | None = None) -> list[Any]:
        """Decisions, oldest first; of one type, or all."""
        found: list[Any] = [
            decision for one in self._led.state_checks.records for decision in one.decisions
        ]
        return [decision for decision in found if kind is None or isinstance(decision, kind)]

    def trace(self) -> list[str]:
        """What happened below the log, line by line; the last lines only, unless `record`."""
        return self._trace.lines()

    @property
    def digest(self) -> str:
        """Of the trace so far: the same seed and scenario give the same one."""
        return self._trace.digest

    def export(self, path: str | Path) -> Path:
        """Write the log as an incident, for `coordctl replay` and `coordctl sim explore`; works
        after the block, too. ValueError: nothing was applied yet."""
        history = self._led.history()
        if history is None:
            raise ValueError("nothing was applied yet, so there is no log to export")
        path = Path(path)
        path.write_bytes(incident_bytes(history))
        return path

    # Inside

    @property
    def _led(self) -> LedWorld:
        if self._world is None:
            raise RuntimeError("the world has not begun; use `with world(seed) as w`")
        return self._world

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        try:
            return self._drive(lambda: self._led.kernel.run_until(work))
        finally:
            work.close()

    def _drive(self, work: Callable[[], T]) -> T:
        __tracebackhide__ = True
        if self._closed:
            raise RuntimeError("the world is over; look at what happened, or make a new one")
        if self._broken is not None:
            raise self._broken
        try:
            result = work()
            self._led.raise_found()
        except Violation as found:
            raise self._told(found) from found.__cause__
        except (Deadlock, Livelock) as error:
            raise self._told(Violation(GOES_ON, str(error))) from error
        return result

    def _told(self, found: Violation) -> ToldViolation:
        events = last_events(self._led.state_checks.records)
        self._broken = ToldViolation(found, seed=self.seed, virtual_s=self.now_s, events=events)
        return self._broken

    def _not_reached(self, what: str, within_s: float) -> str:
        when = f"seed {self.seed}, {self.now_s:.3f} s after the start"
        lines = [f"not within {within_s:g} virtual seconds: {what} ({when})"]
        lines += [f"  {line}" for line in last_events(self._led.state_checks.records)]
        return "\n".join(lines)

    def _all_up(self) -> bool:
        hosts = self._led.state_checks.state.hosts
        return all(
            name in hosts and hosts[name].status in LIVE_HOST for name in self._led.hosts.hosts
        )

    def _found(self, table: dict[Any, T], key: object, kind: str) -> T:
        if key not in table:
            known = ", ".join(str(one) for one in sorted(table)) or "none"
            raise LookupError(f"there is no {kind} {key!r}; there are {known}")
        return table[key]


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low} to {high}")


def _check_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(words)}")
