"""Who the members are, as the log says it.

The first leader writes the configuration that the cluster was started with into the log, so that a
node which joins with an empty list learns it; after that, changes add or remove one member each.
"""

from __future__ import annotations

import msgspec

from coord.raft import unpickle
from coord.raft.library import MEMBERSHIP, NO_OP, REGULAR
from coord.raft.ports import Member

LogEntry = tuple[bytes, int, int]
"""(command, index, term): the library's order."""


class Configuration(msgspec.Struct, frozen=True):
    """Members sorted by node, as of an entry of the log; as this node was started with while both
    term and index are 0."""

    members: tuple[Member, ...]
    term: int = 0
    index: int = 0

    @property
    def in_log(self) -> bool:
        """The log or a snapshot says so, so that everybody will know."""
        return self.term > 0

    @property
    def version(self) -> tuple[int, int]:
        """The greater one is the newer one."""
        return self.term, self.index


class MembershipChange(msgspec.Struct, frozen=True):
    """What an entry of type MEMBERSHIP asks."""

    adds: bool
    member: Member


def first_configuration(members: tuple[Member, ...]) -> bytes:
    """The command of the entry that says who the members are. A no-op for the library."""
    rows = [(member.node, member.peer_address, member.api_address) for member in members]
    return NO_OP + unpickle.dumps(rows)


def membership_change(command: bytes) -> MembershipChange | None:
    """The change that an entry's command makes, None for any other entry."""
    if command[:1] != MEMBERSHIP:
        return None
    request = unpickle.restricted_loads(command[1:])
    return MembershipChange(request[0] == "add", request[2].member)


def configured(before: Configuration, entry: LogEntry) -> Configuration:
    """The configuration after an entry."""
    command, index, term = entry
    kind = command[:1]
    if kind == REGULAR or command == NO_OP:
        return before
    if kind == NO_OP:
        rows = unpickle.restricted_loads(command[1:])
        return Configuration(tuple(sorted(Member(*row) for row in rows)), term, index)
    change = membership_change(command)
    if change is None:
        return before
    members = {member.node: member for member in before.members}
    if change.adds:
        members.setdefault(change.member.node, change.member)
    else:
        members.pop(change.member.node, None)
    return Configuration(tuple(members[node] for node in sorted(members)), term, index)
