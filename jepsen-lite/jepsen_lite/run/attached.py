"""A run on somebody else's cluster: what can be done there, and what must be left as it was.

Workloads that need nothing but clients run anywhere. A nemesis runs where the file of hooks names a
command for each of its acts. Whatever a run names ends with the run's own suffix, and what is left
of it is cancelled at the end, however it ends.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from pathlib import Path

from coord.client import CoordError, Rejected
from jepsen_lite.cluster.attached import Attached, AttachedMember
from jepsen_lite.nemeses.catalogue import NEMESES
from jepsen_lite.run.abilities import Abilities
from jepsen_lite.run.options import RunOptions

ACTOR = "faults"
REACH_S = 5.0
HEAL_S = 90.0
LEAVE_S = 20.0
POLL_S = 0.25

_KILLS, _PAUSES = ("kill", "start"), ("pause", "resume")
_SERVER_ACTS = {
    **dict.fromkeys(("kill-leader", "kill-follower", "kill-all"), _KILLS),
    **dict.fromkeys(("pause-short", "pause-leader", "pause-follower"), _PAUSES),
}
_HOST_ACTS = {
    "kill-agent": _KILLS,
    "kill-host": ("kill_all", "start"),
    "pause-host": ("pause", "pause_all", "resume"),
}
_LINK_ACTS = {
    **dict.fromkeys(("halves", "ring", "one-way", "isolate-leader"), ("cut", "mend")),
    "cut-agents": ("cut", "mend"),
    "slow": ("delay", "mend"),
    "throttle": ("throttle", "mend"),
    "lossy": ("lossy", "mend"),
    "reset": ("reset",),
}
"""Acts that a nemesis needs of each server, of each host, and of the network."""
_LEAST_SERVERS = {"ring": 3}
_OF_OUR_OWN = "run it on a cluster of the suite's own, without --attach"
_WORKLOADS = {
    "training": f"its ranks write what they do where the suite can read it; {_OF_OUR_OWN}",
    "churn": f"it drains and removes hosts, which are not ours; {_OF_OUR_OWN}",
    "members": f"it starts servers and makes them members; {_OF_OUR_OWN}",
}


def new_run() -> str:
    """What the names of one run end with, so that no two runs on a cluster share one."""
    return f"-run-{secrets.token_hex(4)}"


def attached_to(options: RunOptions) -> Attached:
    """Not yet entered. Raises HooksError, ValueError."""
    hooks = Path(options.hooks) if options.hooks else None
    return Attached(options.attach, hooks=hooks, timeout_s=REACH_S)


async def abilities_there(options: RunOptions) -> Abilities:
    """What the cluster lacks for each workload and nemesis. Raises Unreachable."""
    attached = attached_to(options)
    await attached.wait_ready(REACH_S)
    async with attached.client(ACTOR) as client:
        up = [host for host in await client.hosts() if host.status == "up"]
    workloads = dict(_WORKLOADS)
    if not up:
        workloads["jobs"] = "no host of the cluster is up: start an agent"
    nemeses = {
        name: "; ".join(lacking) for name in NEMESES if (lacking := lacking_for(attached, name))
    }
    return Abilities({}, workloads=workloads, nemeses=nemeses)


def lacking_for(attached: Attached, nemesis: str) -> list[str]:
    """What the hooks lack for it, each with what to write where; empty when it can be done."""
    if nemesis in _SERVER_ACTS:
        return [
            *_unnamed(attached.servers, "servers", 1),
            *(
                f"give servers.{one.name}.url: it has to be known who leads"
                for one in attached.servers.values()
                if not one.url
            ),
            *_missing(attached.servers.values(), "servers", _SERVER_ACTS[nemesis]),
        ]
    if nemesis in _HOST_ACTS:
        return [
            *_unnamed(attached.hosts, "hosts", 1),
            *_missing(attached.hosts.values(), "hosts", _HOST_ACTS[nemesis]),
        ]
    if nemesis in _LINK_ACTS:
        hosts = _unnamed(attached.hosts, "hosts", 1) if nemesis == "cut-agents" else ()
        return [
            *_unnamed(attached.servers, "servers", _LEAST_SERVERS.get(nemesis, 2)),
            *hosts,
            *(
                f"give network.{act} in the file of hooks"
                for act in _LINK_ACTS[nemesis]
                if act not in attached.network.acts
            ),
        ]
    return [f"no hook can do that to a cluster that is not ours; {_OF_OUR_OWN}"]


def _unnamed(members: Sized, what: str, least: int) -> list[str]:
    if len(members) >= least:
        return []
    return [f"the hooks name {len(members)} {what}, it takes {least}: name them in --hooks FILE"]


def _missing(members: Iterable[AttachedMember], what: str, acts: Iterable[str]) -> Iterator[str]:
    needed = list(acts)
    for member in members:
        for act in needed:
            if act not in member.can:
                yield f"give {what}.{member.name}.{act} in the file of hooks"


async def heal_attached(attached: Attached) -> list[str]:
    """Take back what hooks did, and wait until every server answers whose URL is known. Returns
    what is not right in the end, each in a sentence."""
    deadline = time.monotonic() + HEAL_S
    try:
        await attached.stop()
    except ExceptionGroup as group:
        return [f"{type(error).__name__}: {error}" for error in group.exceptions]
    named = {name for name, server in attached.servers.items() if server.url}
    while silent := named - set(await attached.views()):
        if time.monotonic() > deadline:
            return [f"after {HEAL_S:g} s {name} does not answer" for name in sorted(silent)]
        await asyncio.sleep(POLL_S)
    return []


async def leave_nothing(attached: Attached, run: str) -> list[str]:
    """Cancel every job of this run that has not ended. Returns the names of those that could not be
    cancelled within LEAVE_S."""
    deadline = time.monotonic() + LEAVE_S
    left: list[str] = ["(the jobs could not be listed)"]
    while time.monotonic() < deadline:
        with suppress(CoordError):
            async with attached.client(ACTOR, timeout_s=LEAVE_S / 4) as client:
                jobs = await client.jobs()
                left = [job.name for job in jobs if job.name.endswith(run) and not job.finished]
                for name in left:
                    with suppress(Rejected):  # It has ended meanwhile, or is being cancelled.
                        await client.cancel_job(name, reason="the run is over")
        if not left:
            break
        await asyncio.sleep(POLL_S)
    return left
