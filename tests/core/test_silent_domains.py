"""Random silence over a random tree: what a domain explains is judged as one, the rest as ever.

A dumb second implementation says which hosts were part of a silent domain.
"""

from __future__ import annotations

from random import Random

from coord_sim.core_world.driver import Driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coord.core.state import LIVE_HOST, State
from coord.model import events
from coord.model.care_decisions import DomainHeard, DomainLost, DomainSilent
from coord.model.decisions import HostLost, IncidentOpened
from coord.model.entities import HostStatus
from coord.model.entry import Recorded
from coord.model.place import Place, Rail
from coord.model.settings import Policy, Settings, SilenceSettings
from coord.model.spec import JobSpec, Resources, RoleSpec

SETTINGS = Settings(
    lease_ms=3_000,
    suspect_ms=1_500,
    heartbeat_ms=500,
    fence_ms=1_000,
    breaker_window_ms=3_000,
    breaker_share_permille=800,
    policy=Policy(silence=SilenceSettings(grace_ms=2_500)),
)
SEEDS = st.integers(0, 2**32 - 1)
CI = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


class Fleet:
    """Hosts in a tree, of which some are cut off for a while, alone or a domain at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.driver = Driver()
        self.state = self.driver.state
        self.cut: dict[str, int] = {}
        """Host -> log time until which it is not heard."""
        self.found: list[Recorded] = []
        self.send(events.LeaderElected(1, 1))
        self.send(events.ClusterConfigured("c", SETTINGS))
        self.places: dict[str, tuple[Place, tuple[Rail, ...]]] = {}
        for zone in range(self.rng.randrange(1, 3)):
            for pod in range(self.rng.randrange(1, 3)):
                for rack in range(self.rng.randrange(1, 4)):
                    for number in range(self.rng.randrange(1, 6)):
                        self._add(zone, pod, rack, number)
        for number in range(self.rng.randrange(1, 4)):
            replicas = self.rng.randrange(1, max(len(self.places) // 2, 2))
            role = RoleSpec("t", ("x",), replicas, resources=Resources(devices=1))
            self.send(events.JobSubmitted(JobSpec(f"j{number}", (role,)), "me"))

    def _add(self, zone: int, pod: int, rack: int, number: int) -> None:
        name = f"h{zone}{pod}{rack}{number}"
        place = Place(f"z{zone}", f"p{pod}", f"r{rack}")
        if self.rng.random() < 0.1:
            place = Place()
        leaf = f"leaf{self.rng.randrange(3)}"
        rails = (Rail("a", leaf),) if self.rng.random() < 0.4 else ()
        self.places[name] = (place, rails)
        self.register(name)

    def register(self, name: str) -> None:
        place, rails = self.places[name]
        self.send(
            events.HostRegistered(
                name, f"agent-{name}", "boot", f"{name}.lan", 1, place=place, rails=rails
            )
        )

    def send(self, event: events.AnyEvent) -> Recorded:
        self.driver.wall_ms += 10
        return self.driver.send(event)

    def live(self, rounds: int) -> None:
        for _ in range(rounds):
            self.driver.wall_ms += 480
            now_ms = self.state.meta.now_ms
            if self.rng.random() < 0.12:
                self._cut_off(now_ms)
            if self.rng.random() < 0.03:
                self.send(events.LeaderElected(1, self.state.meta.term + 1))
            if self.rng.random() < 0.02:
                self.send(events.EvictionsAllowed("me", "dead"))
            for name in sorted(self.places):
                lost = self.state.hosts[name].status == HostStatus.LOST
                if lost and self.cut.get(name, 0) <= now_ms and self.rng.random() < 0.3:
                    self.register(name)
            self._beat(now_ms)
            self.tick()

    def _cut_off(self, now_ms: int) -> None:
        """One host, or all but a few of a domain."""
        names = sorted(self.places)
        until_ms = now_ms + self.rng.randrange(500, 12_000)
        if self.rng.random() < 0.5:
            self.cut[self.rng.choice(names)] = until_ms
            return
        where = self.rng.choice(sorted(dumb_domains(self.state)) or [("", "")])
        for name in dumb_domains(self.state).get(where, []):
            if self.rng.random() < 0.85:
                self.cut[name] = until_ms

    def _beat(self, now_ms: int) -> None:
        heard = [
            self.state.hosts[name]
            for name in self.state.slots
            if self.state.hosts[name].status in LIVE_HOST and self.cut.get(name, 0) <= now_ms
        ]
        slots = tuple(host.slot for host in heard)
        self.send(events.HeartbeatsSeen("node:1", slots, tuple(host.incarnation for host in heard)))

    def tick(self) -> None:
        """Judge, and compare with what was known before."""
        before = self.state.view()
        restarts = {key: gang.restarts for key, gang in self.state.gangs.items()}
        record = self.send(events.ClockAdvanced())
        self.found.append(record)
        together = [one for one in record.decisions if isinstance(one, DomainLost)]
        lost = [one.host for one in record.decisions if isinstance(one, HostLost)]
        accounted = [name for one in together for name in one.hosts]
        assert [name for name in accounted if name not in lost] == []
        alone = [name for name in lost if name not in accounted]
        silent = dumb_silent(before, self.state.meta.now_ms)
        assert [name for name in alone if name in silent] == []
        for key, gang in self.state.gangs.items():
            assert gang.restarts <= restarts.get(key, 0) + 1
        opened = [one.job for one in record.decisions if isinstance(one, IncidentOpened)]
        assert len(opened) == len(set(opened))
        for one in together:
            assert one.level in ("rack", "pod", "zone", "switch", "nvlink")


def dumb_domains(state: State) -> dict[tuple[str, str], list[str]]:
    """Written out by hand, for every host that is not removed."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in sorted(state.hosts):
        host = state.hosts[name]
        place = host.place
        if place.rack:
            found.setdefault(("rack", f"{place.zone}/{place.pod}/{place.rack}"), []).append(name)
        if place.pod:
            found.setdefault(("pod", f"{place.zone}/{place.pod}"), []).append(name)
        if place.zone:
            found.setdefault(("zone", place.zone), []).append(name)
        for rail in host.rails:
            found.setdefault(("switch", rail.switch), []).append(name)
    return found


def dumb_silent(state: State, now_ms: int) -> dict[str, None]:
    """Hosts that a domain explains, asked of each of them in turn."""
    found: dict[str, None] = {}
    since_ms = now_ms - SETTINGS.breaker_window_ms
    for names in dumb_domains(state).values():
        live = [name for name in names if state.hosts[name].status in LIVE_HOST]
        recent = [
            name
            for name in names
            if state.hosts[name].status == HostStatus.LOST
            and state.hosts[name].lost_at_ms > since_ms
        ]
        quiet = [
            name
            for name in live
            if state.hosts[name].status == HostStatus.SUSPECT
            or now_ms - state.last_seen_ms[state.hosts[name].slot] >= SETTINGS.suspect_ms
        ]
        gone = len(quiet) + len(recent)
        if gone >= 3 and gone * 2 > len(live) + len(recent):
            found.update(dict.fromkeys(quiet))
    return found


@CI
@given(SEEDS)
def test_no_host_of_a_silent_domain_is_lost_alone(seed: int) -> None:
    """Whatever falls silent and comes back: verdicts on a domain are taken in one entry, and each
    job is restarted once by it. Invariants and the twin are checked at every entry on the way."""
    Fleet(seed).live(70)


def test_the_histories_show_what_they_are_to_show() -> None:
    """They are no proof if domains never fall silent, return, or are lost."""
    shown: dict[str, int] = {}
    for seed in range(6):
        fleet = Fleet(seed)
        fleet.live(70)
        for record in fleet.found:
            for one in record.decisions:
                shown[type(one).__name__] = shown.get(type(one).__name__, 0) + 1
    for kind in (DomainSilent, DomainHeard, DomainLost, HostLost):
        assert shown.get(kind.__name__, 0) > 3, shown
