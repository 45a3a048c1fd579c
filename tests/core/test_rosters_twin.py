"""Beats through relays against a dumb twin, in which every host's own beats are recorded one by one
at the moment they arrive: the same hosts are suspected and lost, none before the twin's is, and
none later than a unit of time explains. But for a host that beats only when its lease is about to
end: it may be lost while that beat still waits for its window to close.

Relays die, hosts fall silent, move between relays and servers, and frames are late or lost.
"""

from __future__ import annotations

from typing import Any

from coord_sim.core_world.driver import Driver
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coord.core.machine import log_time_ms, next_due_ms
from coord.model.decisions import HostCleared, HostLost, HostSuspected
from coord.model.entry import Origin
from coord.model.events import (
    ClockAdvanced,
    ClusterConfigured,
    HeartbeatsSeen,
    HostRegistered,
    LeaderElected,
)
from coord.model.roster import RosterChanged, RosterHeard
from coord.model.settings import Settings

SETTINGS = Settings(
    lease_ms=6_000,
    suspect_ms=3_000,
    heartbeat_ms=1_000,
    fence_ms=1_000,
    max_step_ms=5_000,
    breaker_min_hosts=99,
)
UNIT_MS = 20
UNITS = 50
"""Of a period."""
WINDOWS = ((0, 17), (17, 34), (34, 50))
HOSTS = 4
ROUNDS = 24
START_MS = 1_000_000
SLACK_MS = UNIT_MS
"""A beat is taken as heard at the end of its unit."""

plans = st.fixed_dictionaries(
    {
        "phases": st.lists(st.integers(1, UNITS - 1), min_size=HOSTS, max_size=HOSTS),
        "silent": st.lists(
            st.tuples(st.integers(0, HOSTS - 1), st.integers(2, ROUNDS), st.integers(1, 12)),
            max_size=4,
        ),
        "moves": st.lists(
            st.tuples(st.integers(0, HOSTS - 1), st.integers(2, ROUNDS), st.integers(0, 2)),
            max_size=4,
        ),
        "early": st.lists(
            st.tuples(st.integers(0, HOSTS - 1), st.integers(1, ROUNDS), st.integers(-9, 9)),
            max_size=6,
        ),
        "lags": st.lists(st.integers(0, 60), min_size=3, max_size=3),
    }
)


class World:
    """The same fleet twice: `relayed` hears of beats as relays tell, `straight` of each by itself.

    A host is with relay 1 or 2, or with none (0), and beats once in a period, in the unit of its
    phase but for `early`, at once in `straight`.
    """

    def __init__(self, plan: dict[str, Any], *, checked: bool = False) -> None:
        self.plan = plan
        self.relayed = Driver(twin=checked, check=checked)
        self.straight = Driver(twin=False, check=False)
        self.number = {1: 0, 2: 0}
        self.seq = 0
        self.joined: dict[int, int] = {}
        """Host -> the relay in whose roster it is."""
        self.marked_ms = START_MS
        for event in (LeaderElected(1, 1), ClusterConfigured("c", SETTINGS, 2)):
            self.both(event, START_MS)
        for host in range(HOSTS):
            self.both(HostRegistered(f"h{host}", f"a{host}", "b", "l"), START_MS)

    def both(self, event: Any, at_ms: int) -> None:
        for driver in (self.relayed, self.straight):
            driver.wall_ms = max(driver.wall_ms, at_ms)
            driver.send(event)

    def is_live(self, host: int) -> bool:
        return bool(self.straight.state.live_incarnations[host])

    def beats(self, host: int, round_: int) -> bool:
        return not any(
            one == host and since <= round_ < since + length
            for one, since, length in self.plan["silent"]
        )

    def where(self, host: int, round_: int) -> int:
        found = 1
        for one, since, relay in self.plan["moves"]:
            if one == host and since <= round_:
                found = relay
        return found

    def unit(self, host: int, round_: int) -> int:
        """In which it beats, of the period: its phase's, or one aside."""
        unit = self.plan["phases"][host]
        for one, at, aside in self.plan["early"]:
            if (one, at) == (host, round_):
                unit += aside
        return min(max(unit, 0), UNITS - 1)

    def run(self) -> None:
        for round_ in range(ROUNDS):
            for window, (first, stop) in enumerate(WINDOWS):
                self.play(round_, first, stop, self.plan["lags"][window])

    def play(self, round_: int, first: int, stop: int, lag_ms: int) -> None:
        period_ms = START_MS + round_ * UNITS * UNIT_MS
        heard = {}
        for unit in range(first, stop):
            at_ms = period_ms + unit * UNIT_MS + UNIT_MS // 2
            for host in range(HOSTS):
                if not self.beats(host, round_) or self.unit(host, round_) != unit:
                    continue
                heard[host] = unit
                self.send(self.straight, at_ms, HeartbeatsSeen("node:1", (host,), (1,)))
                if not self.where(host, round_):
                    self.send(self.relayed, at_ms, HeartbeatsSeen("node:1", (host,), (1,)))
                    self.joined.pop(host, None)
            self.tick(self.straight, at_ms + UNIT_MS // 2)
            self.tick(self.relayed, at_ms + UNIT_MS // 2)
        for relay in (1, 2):
            mine = {one: unit for one, unit in heard.items() if self.where(one, round_) == relay}
            self.tell(relay, mine, first, stop, period_ms + stop * UNIT_MS, lag_ms)

    def tell(
        self, relay: int, heard: dict[int, int], first: int, stop: int, ended_ms: int, lag_ms: int
    ) -> None:
        phases = self.plan["phases"]
        joining = [host for host in heard if self.joined.get(host) != relay and self.is_live(host)]
        members = [host for host, at in self.joined.items() if at == relay]
        if joining:
            anew = not members
            self.number[relay] += 1
            change = RosterChanged(
                self.number[relay],
                tuple(sorted(joining)),
                (1,) * len(joining),
                tuple(phases[host] for host in sorted(joining)),
                replaces=anew,
                unit_ms=UNIT_MS if anew else 0,
            )
            self.send(self.relayed, ended_ms + lag_ms, change, relay)
            self.joined.update(dict.fromkeys(joining, relay))
        excepted = {}
        for host in sorted({*members, *joining}):
            unit = heard.get(host)
            if unit is not None and not (first <= phases[host] < stop and unit == phases[host]):
                excepted[host] = stop - unit
            elif unit is None and first <= phases[host] < stop:
                excepted[host] = 0
        if members or joining:
            said = RosterHeard(
                self.number[relay],
                first,
                stop,
                lag_ms,
                tuple(excepted),
                tuple(excepted.values()),
            )
            self.send(self.relayed, ended_ms + lag_ms, said, relay)

    def send(self, driver: Driver, at_ms: int, event: Any, relay: int = 0) -> None:
        driver.wall_ms = max(driver.wall_ms, at_ms)
        self.seq += 1
        origin = Origin(f"relay:r{relay}", 7, self.seq) if relay else None
        record = driver.send(event, origin=origin)
        if relay and record.rejection:
            # Its last host has left the roster by itself: the relay begins anew.
            assert record.rejection == "stale_roster", record
            self.joined = {host: at for host, at in self.joined.items() if at != relay}
        for decision in record.decisions:
            if type(decision).__name__ == "RosterCut":
                gone = decision.slots  # type: ignore[union-attr]
                name = int(decision.relay[1:])  # type: ignore[union-attr]
                for host in gone:
                    if self.joined.get(host) == name:
                        del self.joined[host]

    def tick(self, driver: Driver, at_ms: int) -> None:
        """As a leader does: only when the core has something to look at."""
        due_ms = next_due_ms(driver.state)
        if due_ms is not None and due_ms <= log_time_ms(driver.state, at_ms):
            self.send(driver, at_ms, ClockAdvanced())


def verdicts(driver: Driver, kind: type) -> dict[str, list[int]]:
    """Host -> log times of decisions of that kind."""
    found: dict[str, list[int]] = {}
    for record in driver.records:
        for decision in record.decisions:
            if type(decision) is kind:
                found.setdefault(decision.host, []).append(record.now_ms)
    return found


def beats_on_the_brink(world: World) -> bool:
    """Some host beats again a whole lease after its last beat, give or take what `early` may."""
    last_silent = SETTINGS.lease_ms // SETTINGS.heartbeat_ms - 1
    for host in range(HOSTS):
        told = "".join(".X"[world.beats(host, round_)] for round_ in range(ROUNDS))
        if f"X{'.' * last_silent}X" in told:
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(plan=plans)
def test_relays_lead_to_the_verdicts_of_single_beats(plan: dict[str, Any]) -> None:
    """Never earlier, and later by a unit at most, but for the moments at which the clock looks."""
    world = World(plan)
    assume(not beats_on_the_brink(world))
    world.run()
    expected = verdicts(world.straight, HostLost)
    found = verdicts(world.relayed, HostLost)
    for host in {**expected, **found}:
        # A verdict that the history ended before is none of either.
        ended_ms = world.straight.state.meta.now_ms - 2 * SLACK_MS - UNIT_MS
        due = [at_ms for at_ms in expected.get(host, []) if at_ms < ended_ms]
        late = found.get(host, [])
        assert len(late) >= len(due), (host, expected, found)
        for then_ms, now_ms in zip(expected.get(host, []), late, strict=False):
            assert then_ms - UNIT_MS <= now_ms, (host, expected, found)
            assert now_ms <= then_ms + SLACK_MS + 2 * UNIT_MS, (host, expected, found)


def test_a_host_whose_beat_waits_for_its_window_when_its_lease_ends_is_lost() -> None:
    """What a relay has heard and not said yet keeps nobody alive: a third of a period at most."""
    plan = {
        "phases": [1, 1, 1, 1],
        "silent": [(0, 2, 5), (0, 8, 6)],
        "moves": [],
        "early": [],
        "lags": [0, 0, 0],
    }
    world = World(plan)
    assert beats_on_the_brink(world)
    world.run()
    assert verdicts(world.straight, HostLost) == {"h0": [13_040]}
    assert verdicts(world.relayed, HostLost) == {"h0": [7_040]}


@settings(max_examples=20, deadline=None)
@given(plan=plans)
def test_a_relay_is_never_behind_the_beats_that_arrived(plan: dict[str, Any]) -> None:
    """At the end of each window no host was heard earlier than its own beat, nor a unit later."""
    world = World(plan)
    for round_ in range(ROUNDS):
        for window, (first, stop) in enumerate(WINDOWS):
            world.play(round_, first, stop, plan["lags"][window])
            for host in range(HOSTS):
                arrived_ms = world.straight.state.last_seen_ms[host]
                known_ms = world.relayed.state.last_seen_ms[host]
                if world.is_live(host) and world.relayed.state.live_incarnations[host]:
                    assert arrived_ms <= known_ms <= arrived_ms + UNIT_MS


def test_the_twin_is_no_idle_one() -> None:
    """Hosts fall silent, are suspected, cleared and lost, in a plan that is known to do so."""
    plan = {
        "phases": [3, 20, 40, 49],
        "silent": [(0, 3, 20), (1, 4, 4), (2, 9, 3)],
        "moves": [(1, 10, 2), (2, 12, 0), (3, 5, 2)],
        "early": [(3, 2, -4), (1, 2, 5)],
        "lags": [0, 30, 60],
    }
    world = World(plan, checked=True)
    world.run()
    assert list(verdicts(world.relayed, HostLost)) == ["h0"]
    assert sorted(verdicts(world.relayed, HostSuspected)) == ["h0", "h1", "h2"]
    assert sorted(verdicts(world.relayed, HostCleared)) == ["h1", "h2"]
