"""Who opened a connection: the process that holds the other end of it, and so the party.

Linux tells the inode of every socket (asked by netlink, sock_diag(7), which takes 0.2 ms where
reading /proc/net/tcp takes 8), and in /proc/PID/fd whose it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct

from jepsen_lite.cluster.parties import CLIENTS, PARTY, environment_of

Address = tuple[str, int]

_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ANY = 4, 20, 1, 0xFFFFFFFF
_ANSWER_S = 1.0


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
        # Newest first: most connections come from few processes.
        for pid in reversed(list(self._known)):
            if _holds(pid, wanted):
                return self._remember(pid)
        self._forget_the_dead()
        others = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        others = [pid for pid in others if pid not in self._known]
        # Those of the run first, and then whoever may be a client.
        for pid in sorted(others, key=lambda pid: not self._party(pid)):
            if _holds(pid, wanted):
                return self._remember(pid)
        return CLIENTS

    def _remember(self, pid: int) -> str:
        """The party of a process that has a connection, looked up anew: numbers come again."""
        self._known.pop(pid, None)
        self._known[pid] = self._party(pid) or CLIENTS
        return self._known[pid]

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
    try:
        return inode_by_netlink(local, remote)
    except OSError:
        # Some sandboxes have no such sockets.
        return inode_in_table(local, remote)


def inode_by_netlink(local: Address, remote: Address) -> int:
    """Asks the kernel for the one socket. Raises OSError where it takes no such questions."""
    ports = struct.pack("!HH", local[1], remote[1])
    addresses = b"".join(socket.inet_aton(host) + bytes(12) for host, _ in (local, remote))
    which = ports + addresses + struct.pack("=III", 0, _ANY, _ANY)  # any interface, any cookie
    question = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY) + which
    header = struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_S)
        kernel.send(header + question)
        answer = kernel.recv(8192)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind == _BY_FAMILY:
        # After the header: 4 bytes of state, the 48 of `which`, timer, queues and uid.
        return int(struct.unpack_from("=I", answer, 16 + 4 + 48 + 16)[0])
    (number,) = struct.unpack_from("=i", answer, 16)
    if number == -errno.ENOENT:
        return 0
    raise OSError(-number, os.strerror(-number))


def inode_in_table(local: Address, remote: Address) -> int:
    """Looks through the sockets of this machine."""
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
