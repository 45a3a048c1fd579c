"""Who belongs to the cluster: each promise speaks up when it is broken, and only then."""

from __future__ import annotations

import pytest
from coord_sim.world.member_checks import ONE_BY_ONE, STANDS, MemberChecks
from coord_sim.world.server import member_of
from coord_sim.world.violation import Violation

from coord.raft.ports import Member, RaftStatus, Role

FIRST = (1, 2, 3)


def members(*numbers: int) -> tuple[Member, ...]:
    return tuple(member_of(number) for number in numbers)


class Told:
    """A node's word, and what became of it."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self._checks = MemberChecks(self.found.append)

    def says(
        self, role: Role, *numbers: int, node: int = 1, term: int = 1, settled: tuple[int, ...]
    ) -> None:
        leader = node if role is Role.LEADER else 0
        status = RaftStatus(node, role, term, leader, 1, 1, 1, 1, members(*numbers), ())
        self._checks.status(node, status, lambda: members(*settled))

    @property
    def broken(self) -> list[str]:
        return [violation.property for violation in self.found]


@pytest.mark.parametrize("role", [Role.CANDIDATE, Role.LEADER])
def test_only_members_stand(role: Role) -> None:
    """Whoever is none may follow."""
    told = Told()
    told.says(role, *FIRST, settled=FIRST)
    told.says(Role.FOLLOWER, *FIRST, node=4, settled=FIRST)
    assert told.broken == []
    told.says(role, *FIRST, node=4, settled=FIRST)
    assert told.broken == [STANDS]


def test_members_change_one_by_one() -> None:
    """The next change begins from members that are committed, or is committed at once."""
    told = Told()
    told.says(Role.LEADER, *FIRST, settled=FIRST)
    told.says(Role.LEADER, *FIRST, 4, settled=FIRST)
    told.says(Role.LEADER, *FIRST, 4, 5, settled=(*FIRST, 4))
    told.says(Role.LEADER, *FIRST, 4, settled=(*FIRST, 4))
    assert told.broken == []


def test_two_changes_under_way_are_found() -> None:
    """The second while the members are still the first ones."""
    told = Told()
    told.says(Role.LEADER, *FIRST, settled=FIRST)
    told.says(Role.LEADER, *FIRST, 4, settled=FIRST)
    told.says(Role.LEADER, *FIRST, 4, 5, settled=FIRST)
    assert told.broken == [ONE_BY_ONE]


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.LEADER])
def test_what_a_leader_inherits_binds_it_not(role: Role) -> None:
    """Another term, or a time as a follower, begins anew: of the changes in a log that it took
    over it cannot know which are committed."""
    told = Told()
    told.says(Role.LEADER, *FIRST, settled=FIRST)
    told.says(role, *FIRST, 4, term=2, settled=FIRST)
    told.says(Role.LEADER, *FIRST, 4, term=3, settled=FIRST)
    assert told.broken == []
