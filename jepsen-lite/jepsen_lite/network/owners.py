"""Who opened a connection: the process that holds the other end of it, and so the party.

Linux names in /proc/net/tcp the inode of every socket, and in /proc/PID/fd whose it is.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct

from jepsen_lite.cluster.parties import CLIENTS, PARTY, environment_of

Address = tuple[str, int]


class Owners:
    """Looks up the parties of one run: of the processes whose environment has `mark_name` set to
    `mark`. Remembers who had a connection before, since most come from few processes."""

    def __init__(self, mark_name: str, mark: str) -> None:
        self._mark_name = mark_name
        self._mark = mark
        self._known: dict[int, str] = {}

    def party(self, theirs: Address, ours: Address) -> str | None:
        """Of the process that connected from `theirs` to `ours`; `clients` for any that is none of
        the run's; None when it is gone already."""
        inode = socket_inode(theirs, ours)
        if not inode:
            return None
        wanted = f"socket:[{inode}]"
        for pid in list(self._known):
            if not _holds(pid, wanted):
                continue
            # Numbers come again: it may be another process by now.
            party = self._party(pid)
            if party:
                self._known[pid] = self._known.pop(pid)
                return party
        self._forget_the_dead()
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            if pid not in self._known and (party := self._party(pid)):
                self._known[pid] = party
                if _holds(pid, wanted):
                    return party
        return CLIENTS

    def _party(self, pid: int) -> str:
        """Empty for a process that is none of the run's."""
        environment = environment_of(pid)
        if environment.get(self._mark_name) != self._mark:
            return ""
        return environment.get(PARTY, "")

    def _forget_the_dead(self) -> None:
        for pid in [pid for pid in self._known if not os.path.exists(f"/proc/{pid}")]:
            del self._known[pid]


def socket_inode(local: Address, remote: Address) -> int:
    """Of the TCP socket at `local` that is connected to `remote`; 0 when there is none, or no
    process has it any more."""
    wanted = f": {_hex(local)} {_hex(remote)} ".encode()
    with open("/proc/net/tcp", "rb") as file:
        table = file.read()
    at = table.find(wanted)
    if at < 0:
        return 0
    # After the addresses: state, queues, timer, retransmits, uid, timeout, inode.
    return int(table[at + len(wanted) :].split(maxsplit=7)[6])


def _holds(pid: int, wanted: str) -> bool:
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    for name in names:
        # A descriptor that was closed since it was listed is not the one.
        with contextlib.suppress(OSError):
            if os.readlink(f"{directory}/{name}") == wanted:
                return True
    return False


def _hex(address: Address) -> str:
    """As the kernel writes it: the address as one native integer, the port as it is."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
