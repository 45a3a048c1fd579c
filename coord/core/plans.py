"""What a host is to run, read off the state (design.md, Worker contract)."""

from __future__ import annotations

from typing import NamedTuple

from coord.core.state import LIVE_HOST, State
from coord.model.entities import Gang, Task, TaskStatus
from coord.model.plans import STANDBY, Action, HostPlan, TaskOrder
from coord.model.spec import RoleSpec

DEFAULT_PORT = 29_500
"""For a rendezvous host that offers no ports; torchrun's own default."""

KEPT_FROM = 32
"""Ranks from which on a gang's seating is not worked out anew for every host."""

_TO_RUN = (TaskStatus.PLACED, TaskStatus.RUNNING)


def host_plan(state: State, name: str) -> HostPlan:
    """The plan of a host; without tasks when it is not known or not live."""
    host = state.hosts.get(name)
    if host is None or host.status not in LIVE_HOST:
        incarnation = host.incarnation if host else 0
        return HostPlan(name, incarnation, host.plan_version if host else 0)
    seats: dict[str, Seats] = {}
    orders = tuple(_order(state, state.tasks[key], name, seats) for key in host.tasks)
    return HostPlan(name, host.incarnation, host.plan_version, orders, host.test)


class Seats(NamedTuple):
    """How the ranks of a gang lie on one host."""

    local_ranks: dict[int, int]
    """Rank -> its number among those of this host."""
    group_rank: int
    """The host's number among the gang's, in the order of their first ranks."""


class Seating:
    """How the ranks of a gang lie on all of its hosts."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self.hosts = hosts
        self._by_host: dict[str, Seats] = {}
        for rank, name in enumerate(hosts):
            seats = self._by_host.get(name)
            if seats is None:
                seats = self._by_host[name] = Seats({}, len(self._by_host))
            seats.local_ranks[rank] = len(seats.local_ranks)

    def on(self, host: str) -> Seats:
        return self._by_host[host]


def _seats(state: State, gang: Gang, host: str) -> Seats:
    """A large gang's seating is kept: every one of its hosts asks for its plan, and looking through
    all ranks for each of them took most of the time that a restart of 2,048 hosts cost."""
    if len(gang.hosts) < KEPT_FROM:
        return Seating(gang.hosts).on(host)
    known: Seating | None = state.seatings.get(gang.key)
    if known is None or known.hosts is not gang.hosts:
        known = Seating(gang.hosts)
        kept = {key: one for key, one in state.seatings.items() if key in state.gangs}
        state.seatings = {**kept, gang.key: known}
    return known.on(host)


def _order(state: State, task: Task, host: str, seats: dict[str, Seats]) -> TaskOrder:
    gang = state.gangs.get(task.gang)
    role = state.jobs[task.job].spec.role(task.role) if task.job in state.jobs else None
    if gang is None or role is None or task.status not in _TO_RUN:
        return TaskOrder(
            task=task.key,
            job=task.job,
            role=task.role,
            index=task.index,
            generation=task.generation,
            action=Action.STOP,
            grace_ms=task.stop_grace_ms,
            exclusive=role.exclusive if role else False,
        )
    if gang.key not in seats and not task.standby:
        seats[gang.key] = _seats(state, gang, host)
    return TaskOrder(
        task=task.key,
        job=task.job,
        role=task.role,
        index=task.index,
        generation=task.generation,
        action=Action.RUN,
        grace_ms=role.grace_ms,
        exclusive=role.exclusive,
        command=role.command,
        env=_standby_environment(state, role, task)
        if task.standby
        else _environment(state, gang, role, task, seats[gang.key]),
        workdir=role.workdir,
        devices=task.devices,
        ports=_ports(gang, task),
    )


def _standby_environment(state: State, role: RoleSpec, task: Task) -> dict[str, str]:
    """What is known before it takes a rank, and stays as it is when it does."""
    devices = ",".join(str(device) for device in task.devices)
    env = {
        "OMP_NUM_THREADS": "1",
        **role.env,
        "COORD_JOB": task.job,
        "COORD_ROLE": task.role,
        "COORD_TASK": task.key,
        "COORD_CHECKPOINT_DIR": state.jobs[task.job].spec.checkpoint_dir,
        "COORD_DEVICES": devices,
        STANDBY: "1",
    }
    return {**env, **_of_devices(task, devices)}


def _ports(gang: Gang, task: Task) -> tuple[int, ...]:
    first = gang.port and not task.standby and _rank(gang, task) == 0
    return (gang.port,) if first else ()


def _rank(gang: Gang, task: Task) -> int:
    return task.index if gang.index < 0 else 0


def _environment(
    state: State, gang: Gang, role: RoleSpec, task: Task, seats: Seats
) -> dict[str, str]:
    job = state.jobs[task.job]
    rank = _rank(gang, task)
    devices = ",".join(str(device) for device in task.devices)
    env = {
        "OMP_NUM_THREADS": "1",
        **role.env,
        "RANK": str(rank),
        "WORLD_SIZE": str(gang.size),
        "LOCAL_RANK": str(seats.local_ranks[rank]),
        "LOCAL_WORLD_SIZE": str(len(seats.local_ranks)),
        "GROUP_RANK": str(seats.group_rank),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(gang.size),
        "MASTER_ADDR": gang.address,
        "MASTER_PORT": str(gang.port or DEFAULT_PORT),
        "TORCHELASTIC_RUN_ID": task.job,
        "TORCHELASTIC_RESTART_COUNT": str(gang.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(job.spec.restart.user_limit),
        "COORD_JOB": task.job,
        "COORD_ROLE": task.role,
        "COORD_INDEX": str(task.index),
        "COORD_GENERATION": str(task.generation),
        "COORD_TASK": task.key,
        "COORD_CHECKPOINT_DIR": job.spec.checkpoint_dir,
        "COORD_RESTORE": gang.restore,
        "COORD_RESTORE_STEP": str(gang.restore_step) if gang.restore else "",
        "COORD_DEVICES": devices,
    }
    if gang.weights:
        env["COORD_WEIGHTS_VERSION"] = str(gang.weights)
        env["COORD_WEIGHTS_URI"] = gang.weights_uri
    return {**env, **_of_devices(task, devices)}


def _of_devices(task: Task, devices: str) -> dict[str, str]:
    env = {"CUDA_VISIBLE_DEVICES": devices} if task.devices else {}
    if task.device_millis:
        env["COORD_DEVICE_MILLIS"] = str(task.device_millis)
    return env
