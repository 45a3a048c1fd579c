"""What is promised of who belongs to the cluster, checked whenever a node says that it changed."""

from __future__ import annotations

from collections.abc import Callable

from coord.raft.ports import Member, RaftStatus, Role
from coord_sim.world.violation import Violation

STANDS = "only a member stands for election"
ONE_BY_ONE = "members change one by one: the next when the last is committed"

PROPERTIES = (STANDS, ONE_BY_ONE)


class MemberChecks:
    """Told by `SimServers` of every change of a node's status; tells `broken` of violations."""

    def __init__(self, broken: Callable[[Violation], None]) -> None:
        self._broken = broken
        self._led: dict[int, tuple[int, tuple[Member, ...]]] = {}
        """Leader to its term and the members that it last named in it."""

    def status(
        self, number: int, status: RaftStatus, settled: Callable[[], tuple[Member, ...]]
    ) -> None:
        """`settled` says who the members are by what the node knows to be committed."""
        if status.role is not Role.FOLLOWER and number not in _numbers(status.members):
            told = f"node {number} is {status.role.value} in term {status.term}"
            self._broken(Violation(STANDS, f"{told} of {_numbers(status.members)}"))
        if status.role is not Role.LEADER:
            self._led.pop(number, None)
            return
        term, before = self._led.get(number, (status.term, status.members))
        self._led[number] = (status.term, status.members)
        if term == status.term and before != status.members:
            known = settled()
            if known not in (before, status.members):
                self._broken(
                    Violation(
                        ONE_BY_ONE,
                        f"node {number}, term {term}: {_numbers(known)} are committed, "
                        f"{_numbers(before)} were not yet, now {_numbers(status.members)}",
                    )
                )


def _numbers(members: tuple[Member, ...]) -> list[int]:
    return [member.node for member in members]
