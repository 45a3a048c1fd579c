"""Who is who on the network: servers `s1`, `s2`, ..., hosts `h1`, `h2`, ..., and `clients`.

A process belongs to the party that its environment names. Agents hand their environment on, so
keepers, tasks and whatever those start belong to the host. Whoever names none is a client.
"""

from __future__ import annotations

import os
import re

PARTY = "JEPSEN_LITE_PARTY"
"""Environment variable of every process of a cluster. Not COORD_...: agents keep those back."""

CLIENTS = "clients"
"""All that the suite itself asks."""

_KNOWN = re.compile(r"(?:(s)([1-9]\d?)|(h)([1-9]\d?)|clients)")

FIRST_HOST = 100
_CLIENTS_NUMBER = 250
MOST_SERVERS = 99
MOST_HOSTS = 99


def server_name(node: int) -> str:
    """`s1` for node 1."""
    return f"s{node}"


def node_of(server: str) -> int:
    """1 for `s1`. Raises ValueError."""
    if not server.startswith("s") or not server[1:].isdigit():
        raise ValueError(f"{server!r} is no server; servers are called s1, s2, ...")
    return int(server[1:])


def party_number(party: str) -> int:
    """The last part of the party's address: 1 to 99 for servers, 101 to 199 for hosts, 250 for
    clients. Raises ValueError for what is no party."""
    found = _KNOWN.fullmatch(party)
    if found is None:
        raise ValueError(
            f"{party!r} is no party; there are s1 to s{MOST_SERVERS}, h1 to h{MOST_HOSTS}, "
            f"and {CLIENTS}"
        )
    if found[1]:
        return int(found[2])
    return FIRST_HOST + int(found[4]) if found[3] else _CLIENTS_NUMBER


def environment_of(pid: int) -> dict[str, str]:
    """What a process was started with; empty when it is gone, or not ours to look at."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in content.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def party_of(pid: int) -> str:
    """The party of a process, `clients` for one that names none."""
    return environment_of(pid).get(PARTY, CLIENTS)
