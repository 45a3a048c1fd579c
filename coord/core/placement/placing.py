"""Places for one gang: as many of its tasks as fit, at least the smallest number, or none.

First the domains are chosen that it is to stand in (`within`, `prefer_within`, `spread`), then the
hosts in each. Hosts where the gang ran before come first, then its spares, then those that are
nearest to where it should be, where taking it wastes least (`fragmentation.py`) and least is left
over. Ties go to what comes first along the topology.

`within` and `spread` of a role whose tasks are placed one by one hold for all of them together:
each joins the others. `spread` counts the domains inside the one that the gang stands within; with
`prefer_within`, if all of it fits into one domain so, those inside that one.
"""

from __future__ import annotations

from typing import NamedTuple

from coord.core.placement.candidates import Candidates, Pool
from coord.core.placement.choosing import Choice
from coord.core.placement.plain import place_plainly
from coord.core.placement.plan import Plan
from coord.core.placement.rooms import Rooms
from coord.core.placement.shares import few, most_spread, spread
from coord.core.state import State
from coord.model.entities import Gang
from coord.model.place import LEVELS
from coord.model.spec import Placing, RoleSpec


def place(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> Plan | None:
    """Take places for as many of `gang.desired` tasks as fit, at least `smallest`; else None.

    What the gang itself holds counts as free for it. On None, `rooms` are as before.
    """
    rooms.free_holds(gang)
    if by_first_rules(state, rooms, role):
        plan = place_plainly(rooms, gang, role, smallest)
    else:
        plan = _place(state, rooms, gang, role, smallest)
    if plan is None:
        rooms.take_holds(gang)
    return plan


def by_first_rules(state: State, rooms: Rooms, role: RoleSpec) -> bool:
    """An old log, and nothing in it that old releases did not know."""
    need = role.resources
    return (
        state.meta.logic_version < 2
        and role.placement == Placing()
        and not (need.device_millis or need.device_types or need.rails)
        and not rooms.guarded
    )


def _place(state: State, rooms: Rooms, gang: Gang, role: RoleSpec, smallest: int) -> Plan | None:
    candidates = Candidates(state, rooms, gang, role)
    layout = Layout.find(candidates, smallest)
    if layout is None:
        return None
    choice = Choice(candidates, sum(share.size for share in layout.shares))
    for share in layout.shares:
        choice.fill(share.pool, share.size)
    spares = choice.keep_spares(layout.ground, role.spares)
    for room in choice.changed.values():
        rooms.put(room)
    return Plan(choice.places(), spares)


class Share(NamedTuple):
    pool: Pool
    size: int


class Layout(NamedTuple):
    """How many replicas go where; `ground` is where all of it may stand, spares included."""

    ground: Pool
    shares: tuple[Share, ...]

    @classmethod
    def find(cls, candidates: Candidates, smallest: int) -> Layout | None:
        """None when fewer than `smallest` have places."""
        ground: Pool | None = candidates.pool()
        assert ground is not None
        if ground.fit < smallest:
            return None
        placing, wanted = candidates.placing, candidates.gang.desired
        if placing.within:
            level = LEVELS.index(placing.within)
            ground = best_domain(candidates, ground, level, wanted, smallest)
            if ground is None:
                return None
        shares = _shares(candidates, ground, wanted)
        if sum(share.size for share in shares) < smallest:
            return None
        return cls(ground, shares)


def best_domain(
    candidates: Candidates, ground: Pool, level: int, wanted: int, smallest: int
) -> Pool | None:
    """The domain where most of the wanted replicas fit, of those for the smallest number: where
    they are as close together as is preferred, then where most of them ran before, then the
    nearest, then the tightest, then the lesser name."""
    domains, _ = ground.split(level)
    joined = {order[level]: None for order in candidates.siblings if order[level]}
    alone = candidates.gang.index >= 0
    back = returning(candidates, level)
    best: tuple[tuple[int, tuple[int, int], int, int, int, str], Pool] | None = None
    for name in sorted(domains):
        pool = domains[name]
        if joined and name not in joined:
            continue
        fit = most(candidates, pool)
        if fit < smallest:
            continue
        # Where tasks come one by one, the first looks for room for all of them.
        count = min(fit, candidates.role.replicas if alone and not joined else wanted)
        scattered = _scattered(candidates, pool, level, min(fit, wanted))
        key = (-count, scattered, -back.get(name, 0), pool.distance, fit - count, name)
        if best is None or key < best[0]:
            best = (key, pool)
    return best[1] if best else None


def _scattered(candidates: Candidates, pool: Pool, level: int, wanted: int) -> tuple[int, int]:
    """(replicas in no domain, domains) of the preferred level that so many replicas take."""
    preferred = candidates.placing.prefer_within
    if not preferred or candidates.placing.spread or LEVELS.index(preferred) <= level:
        return (0, 0)
    domains, _ = pool.split(LEVELS.index(preferred))
    counts = few({name: one.fit for name, one in domains.items()}, {}, {}, wanted)
    return (wanted - sum(counts.values()), len(counts))


def returning(candidates: Candidates, level: int) -> dict[str, int]:
    """By domain, how many ranks could return to the hosts that they ran on."""
    found: dict[str, int] = {}
    for name in candidates.gang.hosts:
        room = candidates.rooms.get(name)
        if room is not None and candidates.fit(room) and room.order[level]:
            found[room.order[level]] = found.get(room.order[level], 0) + 1
    return found


def most(candidates: Candidates, pool: Pool) -> int:
    """How many replicas have places in the pool, spread as they must be."""
    if not candidates.placing.spread or not pool.fit:
        return pool.fit
    fits, before = spread_over(candidates, pool)[1:]
    if any(before.values()):
        return sum(spread(fits, before, {}, candidates.placing.spread_skew, 1).values())
    return most_spread(fits, candidates.placing.spread_skew)


def spread_over(
    candidates: Candidates, pool: Pool
) -> tuple[dict[str, Pool], dict[str, int], dict[str, int]]:
    """(pools of the domains that the role is spread over, how many each fits, how many it has)."""
    level = LEVELS.index(candidates.placing.spread)
    domains, _ = pool.split(level)
    before = candidates.grounds(level, pool.inside)
    return domains, {name: domains[name].fit if name in domains else 0 for name in before}, before


def _shares(candidates: Candidates, ground: Pool, wanted: int) -> tuple[Share, ...]:
    placing = candidates.placing
    pool = ground
    if placing.prefer_within:
        level = LEVELS.index(placing.prefer_within)
        whole = best_domain(candidates, ground, level, wanted, wanted)
        if whole is not None:
            pool = whole
        elif not placing.spread:
            return _in_few(candidates, ground, level, wanted)
    if not placing.spread:
        return (Share(pool, min(wanted, pool.fit)),)
    domains, fits, before = spread_over(candidates, pool)
    back = returning(candidates, LEVELS.index(placing.spread))
    counts = spread(fits, before, back, placing.spread_skew, wanted)
    return tuple(Share(domains[name], count) for name, count in counts.items())


def _in_few(candidates: Candidates, ground: Pool, level: int, wanted: int) -> tuple[Share, ...]:
    domains, rest = ground.split(level)
    fits = {name: pool.fit for name, pool in domains.items()}
    distances = {name: pool.distance for name, pool in domains.items()}
    counts = few(fits, returning(candidates, level), distances, wanted)
    shares = [Share(domains[name], count) for name, count in counts.items()]
    left = min(wanted - sum(counts.values()), rest.fit)
    if left:
        shares.append(Share(rest, left))
    return tuple(shares)
