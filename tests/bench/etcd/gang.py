"""One change that concerns every agent: a job on all hosts is started and cancelled."""

from __future__ import annotations

import time

from coord.client.sync import SyncClient
from coord.model.spec import JobSpec, Resources, RoleSpec
from tests.bench.etcd.agents import DEVICES
from tests.bench.etcd.crowd import Crowd
from tests.bench.etcd.sizes import Sizes

ARRIVE_S = 30.0
FREE_S = 60.0


def changes(urls: list[str], crowd: Crowd, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Milliseconds until the last agent was told to start, and to stop, of each change.

    The first is for caches and is not counted.
    """
    started: list[float] = []
    stopped: list[float] = []
    with SyncClient(urls, actor="bench", timeout_s=ARRIVE_S) as client:
        for number in range(sizes.changes + 1):
            role = RoleSpec(
                "rank",
                ("true",),
                replicas=sizes.receivers,
                resources=Resources(devices=DEVICES),
            )
            job = JobSpec(f"change-{number}", (role,))
            crowd.expect("run")
            asked_s = time.monotonic()
            client.submit_job(job)
            started.append(1_000 * (crowd.arrived(ARRIVE_S) - asked_s))
            crowd.expect("stop")
            asked_s = time.monotonic()
            client.cancel_job(job.name)
            stopped.append(1_000 * (crowd.arrived(ARRIVE_S) - asked_s))
            _wait_free(client)
    return started[1:], stopped[1:]


def _wait_free(client: SyncClient) -> None:
    deadline_s = time.monotonic() + FREE_S
    while any(host.free.devices < DEVICES for host in client.hosts()):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"hosts were not free again after {FREE_S:.0f} s")
        time.sleep(0.1)
