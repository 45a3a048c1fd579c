"""Random evidence against a gang, in any order: what always holds of its attribution."""

from __future__ import annotations

import msgspec
from coord_sim.core_world.driver import Driver
from hypothesis import given, settings
from hypothesis import strategies as st

from coord.core.causes.attribution import NO_BURST
from coord.core.causes.evidence import FAULTS_KEPT
from coord.core.invariants import violations
from coord.model import events
from coord.model.decisions import CauseRevised, IncidentOpened, RestartScheduled
from coord.model.entities import GangPhase
from coord.model.health import CheckOccasion, HealthOutcome
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec

WORLD = 4
ERRORS = (
    "",
    "ValueError: no",
    "Connection closed by peer",
    "Watchdog caught collective operation timeout",
    "uncorrectable ECC error encountered",
    "SignalException: got signal: 15",
)

exits = st.tuples(
    st.just("exit"),
    st.integers(0, WORLD - 1),
    st.fixed_dictionaries(
        {
            "exit_code": st.sampled_from((0, 1, 93, 124)),
            "signal": st.sampled_from((0, 0, 0, 6, 9, 11, 15)),
            "observed": st.sampled_from((True, True, False)),
            "expected": st.booleans(),
            "oom": st.sampled_from((False, False, True)),
            "error": st.sampled_from(ERRORS),
            "failed_at_ms": st.sampled_from((0, 1_000, 2_000)),
        }
    ),
)
reaps = st.tuples(st.just("reap"), st.integers(0, WORLD - 1), st.just({}))
faults = st.tuples(
    st.just("fault"),
    st.integers(0, 1),
    st.fixed_dictionaries({"code": st.sampled_from((13, 31, 45, 48, 63, 79, 149, 154, 9_999))}),
)
timeouts = st.tuples(
    st.just("timeout"),
    st.integers(0, WORLD - 1),
    st.fixed_dictionaries(
        {"missing": st.lists(st.integers(0, WORLD - 1), unique=True).map(sorted).map(tuple)}
    ),
)
checks = st.tuples(
    st.just("check"),
    st.integers(0, 1),
    st.fixed_dictionaries({"outcome": st.sampled_from(HealthOutcome)}),
)
starts = st.tuples(st.just("start"), st.integers(0, WORLD - 1), st.just({}))
clocks = st.tuples(st.just("clock"), st.just(0), st.just({}))
acts = st.one_of(exits, exits, reaps, faults, timeouts, checks, starts, clocks)


class Random:
    """A gang of four on two hosts; reports go to the generation that there is."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.send(events.LeaderElected(1, 1))
        self.send(events.ClusterConfigured("c", Settings(), 2))
        for host in ("h0", "h1"):
            self.send(events.HostRegistered(host, f"agent-{host}", "boot", host, devices=2))
        role = RoleSpec("t", ("train",), replicas=WORLD, resources=Resources(devices=1))
        policy = RestartPolicy(user_limit=50, unknown_limit=50, no_progress_limit=0, backoff_ms=0)
        self.send(events.JobSubmitted(JobSpec("j", (role,), policy)))
        self.start()

    def start(self) -> None:
        for rank in range(WORLD):
            self.act("start", rank, {})

    def send(self, event: events.AnyEvent) -> None:
        self.driver.wall_ms += 10
        self.driver.send(event)

    def act(self, what: str, which: int, fields: dict[str, object]) -> None:
        state = self.driver.state
        gang = state.gangs["j/t"]
        task = f"j/t/{which}#{gang.generation}"
        row = state.tasks.get(task)
        host = row.host if row is not None else f"h{which % 2}"
        about = {"host": host, "incarnation": 1, "task": task}
        if what == "exit":
            self.say("TaskExited", {**about, **fields})
        elif what == "reap":
            self.say("TaskReaped", about)
        elif what == "start":
            self.say("TaskStarted", {**about, "pid": 7})
        elif what == "timeout":
            self.say("CollectiveTimedOut", {**about, **fields})
        elif what == "fault":
            self.say(
                "DeviceFaultSeen", {"host": f"h{which}", "incarnation": 1, "kind": "xid", **fields}
            )
        elif what == "check":
            occasion = CheckOccasion.PERIODIC
            fields = {"check": "gpu", "occasion": occasion, **fields}
            self.say("HealthChecked", {"host": f"h{which}", "incarnation": 1, **fields})
        else:
            self.send(events.ClockAdvanced())

    def say(self, kind: str, fields: dict[str, object]) -> None:
        self.send(msgspec.convert({"type": kind, **fields}, events.AnyEvent))


@settings(max_examples=60, deadline=None)
@given(st.lists(acts, max_size=40))
def test_whatever_is_told_in_whatever_order(
    acts_drawn: list[tuple[str, int, dict[str, object]]],
) -> None:
    """Invariants hold after every entry, a machine reloaded from its rows decides the same (the
    driver compares), each generation has one incident and one restart, accounts add up, and a
    revision always says something new."""
    world = Random()
    for what, which, fields in acts_drawn:
        world.act(what, which, fields)
        assert violations(world.driver.state) == []
    state = world.driver.state
    gang = state.gangs["j/t"]
    opened: list[int] = []
    restarted: list[int] = []
    known: dict[int, tuple[str, str, str]] = {}
    for record in world.driver.records:
        for decision in record.decisions:
            if isinstance(decision, IncidentOpened):
                opened.append(decision.generation)
                known[decision.incident] = (decision.cause, decision.subject, decision.detail)
            elif isinstance(decision, CauseRevised):
                new = (decision.cause, decision.subject, decision.detail)
                assert known[decision.incident] != new
                known[decision.incident] = new
            elif isinstance(decision, RestartScheduled):
                restarted.append(decision.generation)
    assert len(opened) == len(dict.fromkeys(opened))
    assert len(restarted) == len(dict.fromkeys(restarted))
    counted = (
        gang.restarts_user + gang.restarts_infrastructure + gang.restarts_unknown
    ) + gang.restarts_preemption
    assert counted == len(opened)
    for number, (cause, subject, _) in known.items():
        incident = state.incidents.get(str(number))
        if incident is not None:
            assert (incident.cause, incident.subject) == (cause, subject)
    if gang.phase == GangPhase.STOPPING and gang.incident:
        assert gang.burst is not NO_BURST
    assert all(len(row.faults) <= FAULTS_KEPT for row in state.evidence.values())
