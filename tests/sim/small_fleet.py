"""Simulated hosts around one server that never fails, and jobs for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from coord_sim.kernel import Kernel
from coord_sim.world.channels import Channels
from coord_sim.world.ground_truth import GroundTruth
from coord_sim.world.hosts import SimHost, SimHosts
from coord_sim.world.quiet import quiet_logs
from coord_sim.world.ranks import SimRank
from coord_sim.world.watched import WatchedNode

from coord.core.state import State
from coord.model.channel import Result
from coord.model.entities import Job, TaskStatus
from coord.model.entry import Origin, Recorded, Submission
from coord.model.events import AnyEvent, JobCancelRequested, JobSubmitted
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec
from coord.node.config import Limits, NodeConfig
from tests.sim.one_server import CLUSTER, INTERVALS, KernelClock, OneServer

SETTINGS = Settings(
    lease_ms=4_000,
    heartbeat_ms=500,
    suspect_ms=1_500,
    fence_ms=2_000,
    launch_timeout_ms=10_000,
    unkillable_ms=4_000,
    hold_ms=20_000,
    breaker_min_hosts=4,
)
PATIENCE_S = 120.0


class WatchedServer(OneServer):
    """Tells of what it applies."""

    def __init__(self, kernel: Kernel, settings: Settings) -> None:
        super().__init__(kernel, Limits(command_apply_s=0))
        self._settings = settings
        self.listeners: list[Callable[[int, tuple[Recorded, ...], State], None]] = []

    async def _main(self) -> None:
        log = self._hub.log(1)
        config = NodeConfig(
            node=1,
            cluster=CLUSTER,
            settings=self._settings,
            limits=self._limits,
            intervals=INTERVALS,
            api_address="sim-1:7101",
        )
        clock = KernelClock(self._kernel)
        node = WatchedNode(self._tell, log, log.bus, self._store, clock, config)
        await node.start()
        self._node = node
        await asyncio.Event().wait()

    def _tell(self, node: int, records: tuple[Recorded, ...], state: State) -> None:
        for listener in self.listeners:
            listener(node, records, state)


class SmallFleet:
    """A kernel, a server and hosts `h1`, `h2`, ... that have registered. Use it in a `with`.

    Two hosts share a rack, every other one a switch.
    """

    def __init__(
        self, seed: int = 1, *, hosts: int = 2, devices: int = 2, settings: Settings = SETTINGS
    ) -> None:
        self._quiet = contextlib.ExitStack()
        self._quiet.enter_context(quiet_logs())
        self.kernel = Kernel(seed)
        self.server = WatchedServer(self.kernel, settings)
        self.records: list[Recorded] = []
        self.server.start()
        self.channels = Channels(self.kernel, self.server)
        self.hosts = SimHosts(
            self.kernel,
            dial=lambda host: self.channels.dialer(host.caller),
            settings=settings,
            servers=("http://sim-1:7101",),
            network=self.channels,
        )
        self.truth = GroundTruth(self.hosts)
        self.server.listeners.append(self._applied)
        self._asked = 0
        for number in range(1, hosts + 1):
            labels = {"rack": f"r{(number + 1) // 2}", "switch": f"s{number % 2}"}
            self.hosts.add(f"h{number}", devices=devices, labels=labels).power_on()
        self.until(lambda: len(self.state.hosts) == hosts, "hosts")

    def __enter__(self) -> SmallFleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.kernel.close()
        self._quiet.close()
        assert self.channels.defects == []

    @property
    def state(self) -> State:
        return self.server.running.state

    def host(self, number: int = 1) -> SimHost:
        return self.hosts.hosts[f"h{number}"]

    def job(self, name: str = "job") -> Job:
        return self.state.jobs[name]

    def rank(self, key: str) -> SimRank | None:
        """The process of this task that lives."""
        found = [rank for rank in self.hosts.live_ranks() if rank.task == key]
        return found[0] if found else None

    def submit(self, *roles: RoleSpec, name: str = "job", **policy: Any) -> None:
        generous = {"user_limit": 20, "infrastructure_limit": 20, "no_progress_limit": 20}
        restart = RestartPolicy(**{**generous, "backoff_ms": 200, "backoff_max_ms": 500, **policy})
        self.ask(JobSubmitted(JobSpec(name, roles, restart, "/checkpoints"), "me"))

    def cancel(self, name: str = "job") -> None:
        self.ask(JobCancelRequested(name, "me"))

    def ask(self, event: AnyEvent) -> None:
        """Have the server's own log take a client's request."""
        self._asked += 1
        submission = Submission(Origin("client:me", 0, self._asked), event)
        decided: list[asyncio.Task[Result]] = []
        process, node = self.server.process(1), self.server.running
        assert process is not None
        process.call_soon(lambda: decided.append(process_task(node.submit(submission))))
        self.until(lambda: decided and decided[0].done(), f"decision on {event}")
        result = decided[0].result()
        assert (result.outcome, result.rejection) == ("committed", ""), result

    def run_for(self, seconds: float) -> None:
        self.kernel.run_for(seconds)

    def until(self, condition: Callable[[], Any], what: str = "", step_s: float = 0.01) -> Any:
        """Run until the condition yields something; fails after PATIENCE_S."""
        deadline_s = self.kernel.now_s() + PATIENCE_S
        while not (value := condition()):
            tasks = {key: str(task.status) for key, task in self.state.tasks.items()}
            assert self.kernel.now_s() < deadline_s, f"no {what or 'such thing'}: {tasks}"
            self.kernel.run_for(step_s)
        return value

    def until_running(self, *keys: str) -> list[SimRank]:
        """Until the log says of each task that it runs."""

        def ranks() -> list[SimRank]:
            rows = [self.state.tasks.get(key) for key in keys]
            if not all(row is not None and row.status is TaskStatus.RUNNING for row in rows):
                return []
            return [rank for rank in map(self.rank, keys) if rank is not None]

        return list(self.until(ranks, f"running {keys}"))

    def _applied(self, node: int, records: tuple[Recorded, ...], state: State) -> None:
        self.records += records
        self.truth.on_applied(node, records, state)

    def events(self, kind: type[Any], task: str = "") -> list[Any]:
        """Events of this kind that took effect, of one task or of all."""
        found = [record.entry.event for record in self.records if record.accepted]
        return [
            event
            for event in found
            if isinstance(event, kind) and (not task or getattr(event, "task", "") == task)
        ]


def process_task(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task of the process whose code is running."""
    return asyncio.get_running_loop().create_task(work)


def role(
    name: str = "trainer", *, last_step: int = 10, replicas: int = 2, **fields: Any
) -> RoleSpec:
    """One device a replica; steps of half a second, a checkpoint every other step."""
    env = {
        "SIM_LAST_STEP": str(last_step),
        "SIM_STEP_S": "0.5",
        "SIM_CHECKPOINT_EVERY": "2",
        "SIM_COLLECTIVE_S": "5",
        **fields.pop("env", {}),
    }
    defaults = {"resources": Resources(1, 500, 128), "grace_ms": 1_500}
    return RoleSpec(name, ("train",), replicas, env=env, **{**defaults, **fields})
