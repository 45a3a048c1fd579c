"""The agent: registers the host, follows its plans, keeps its fence, hears its workers.

Everything happens on one loop. What takes time runs in tasks of one TaskGroup: a defect in any of
them ends the agent, and the tasks of the host go on without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Coroutine
from typing import Any

import structlog

from coord import __version__
from coord.agent import fence, host, kernel_log
from coord.agent.config import AgentConfig
from coord.agent.launching import Workshop, inheritable
from coord.agent.ports import AgentChannel, HostPorts
from coord.agent.posix import posix_ports
from coord.agent.proctable import boot_id
from coord.agent.records import AlreadyRunning, Phase, Records, WrongDirectory
from coord.agent.reporting import Reporter
from coord.agent.tasks import FENCED, HostTasks
from coord.agent.worker_desk import Desk
from coord.client.agent import Agent
from coord.client.errors import CoordError, Rejected
from coord.client.inbox import Superseded
from coord.model.channel import LogChunk, LogRead

TICK_S = 1.0
REGISTER_AGAIN_S = 2.0
OUTAGE_BEATS = 3
OUTAGE_LEAST_S = 1.0
FLUSH_S = 5.0
"""How long a stopping agent waits for its last reports to be decided."""

log = structlog.get_logger()


class AgentFailed(Exception):
    """The agent could not start or go on; the message says why and what to do. Tasks go on."""


class _Stopped(Exception):
    """Somebody asked the agent to stop."""


class Daemon:
    """One agent, over ports. `run` once."""

    def __init__(self, config: AgentConfig, ports: HostPorts, channel: AgentChannel) -> None:
        self._config = config
        self._ports = ports
        self._channel = channel
        self.socket_path = ports.workers.path
        self._fence_wake = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._reporter = Reporter(channel, config.host, self._act)
        self.tasks = HostTasks(
            config.host,
            ports,
            self._reporter,
            Workshop(
                config.host,
                ports.records.identity.agent,
                ports.output,
                ports.workers.path,
                inheritable(config.base_environment()),
                ports.is_free,
            ),
            spawn=self._spawn,
            fence=self._keep_fence,
            arm_fence=self._arm_fence,
            unkillable_s=config.unkillable_s,
        )
        self._desk = Desk(
            config.host,
            self.tasks.records,
            self._reporter,
            self.tasks.is_ending,
            self._is_outage,
            self.tasks.environment,
        )
        channel.on_log_read = self._read_log

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises what went wrong; tasks of the host go on either way, unless
        the config says to end them with the agent."""
        try:
            async with self._group:
                self._ports.keeper.fill()
                self.tasks.recover()
                await self._ports.workers.start(self._desk, self._spawn)
                self._spawn(self._follow())
                self._spawn(self._watch_fence())
                self._spawn(self._tick())
                if self._config.health_check_every_s:
                    self._spawn(self.tasks.check_every(self._config.health_check_every_s))
                if self._ports.kernel_log is not None:
                    source, tell = self._ports.kernel_log, self._reporter.tell
                    self._spawn(kernel_log.watch(source, self._config.host, tell))
                await stop.wait()
                if self._config.stop_tasks:
                    await self._end_all()
                else:
                    left = [record.order.task for record in self.tasks.holding()]
                    log.info("agent stops; its tasks go on", tasks=left)
                raise _Stopped
        except* _Stopped:
            pass
        finally:
            await self._ports.workers.close()
            self._ports.runner.close()
            self._ports.keeper.leave()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Nothing begins once the agent ends: a worker that spoke meanwhile is told that it has
        gone, and an exit that was seen meanwhile is seen again by the next one."""
        try:
            return self._group.create_task(work)
        except RuntimeError:  # The group is shutting down, or has.
            task = asyncio.get_running_loop().create_task(work)
            task.cancel()
            return task

    def _act(self) -> None:
        self.tasks.act()

    # The coordinator

    async def _follow(self) -> None:
        await self._register()
        async for item in self._channel.plans():
            if isinstance(item, Superseded):
                log.warning("registration is over", reason=item.reason)
                self._reporter.end()
                self.tasks.drop_plan()
                await self._register()
            else:
                self.tasks.obey(item)
        raise AgentFailed("the channel to the coordinator was closed under the agent")

    async def _register(self) -> None:
        while True:
            found = self.tasks.found()
            try:
                incarnation = await self._channel.register(found)
            except Rejected as rejected:
                if not self.tasks.holding():
                    raise
                # Tasks run here: better to go on asking than to leave them without an agent.
                log.error("registration refused; asking again", error=str(rejected))
                await asyncio.sleep(REGISTER_AGAIN_S)
                continue
            log.info("registered", incarnation=incarnation, tasks=[one.task for one in found])
            self.tasks.registered(incarnation, found)
            return

    def _is_outage(self) -> bool:
        """Whether heartbeats have gone unanswered for so long that something is wrong."""
        deadline = self._channel.lease_deadline
        if deadline is None:
            return True
        settings = self._channel.settings
        heard_s = deadline - settings.lease_ms / 1000
        quiet_s = asyncio.get_running_loop().time() - heard_s
        return quiet_s > max(OUTAGE_BEATS * settings.heartbeat_ms / 1000, OUTAGE_LEAST_S)

    async def _read_log(self, request: LogRead) -> LogChunk:
        record = self.tasks.records.get(request.task)
        live = record is not None and record.phase in (Phase.LAUNCHING, Phase.RUNNING)
        return await self._ports.output.read(request, live=live)

    # The fence

    def _keep_fence(self) -> bool:
        """End exclusive tasks whose time has come; returns whether none may start now."""
        now = asyncio.get_running_loop().time()
        deadline = self._deadline()
        if deadline is None:
            return True
        lease_s = self._channel.settings.lease_ms / 1000
        limit = fence.fence_before(deadline, lease_s)
        due = limit.due(now)
        for record in self.tasks.holding():
            if not fence.is_fenced(record):
                continue
            self._fence_wake.set()
            if due is not fence.Step.NONE:
                kill_at = now if due is fence.Step.KILL else limit.kill_at
                self.tasks.end(record.order.task, kill_at, FENCED)
        return due is not fence.Step.NONE

    def _deadline(self) -> float | None:
        """The newest known; while there are exclusive tasks it is on disk, for our successor."""
        deadline = self._channel.lease_deadline
        exclusive = any(fence.is_fenced(record) for record in self.tasks.holding())
        if deadline is None:
            lease = self._ports.lease.read()
            deadline = None if lease is None else lease.deadline
            if deadline is None and exclusive:
                # Nobody knows for how long they may run.
                deadline = asyncio.get_running_loop().time()
        elif exclusive:
            try:
                self._write_deadline(deadline)
            except OSError as error:
                # The one on disk is earlier: keeper and successor end tasks too early, not late.
                log.error("cannot keep the lease deadline; trying again", error=str(error))
        return deadline

    def _arm_fence(self) -> None:
        deadline = self._channel.lease_deadline
        assert deadline is not None, "an exclusive task is to start without a lease"
        self._write_deadline(deadline)

    def _write_deadline(self, deadline: float) -> None:
        lease_s = self._channel.settings.lease_ms / 1000
        self._ports.lease.write(deadline, fence.fence_before(deadline, lease_s).kill_at)

    async def _watch_fence(self) -> None:
        """Looks at the fence when it is due; sleeps while there is nothing exclusive."""
        loop = asyncio.get_running_loop()
        while True:
            self._fence_wake.clear()
            self._keep_fence()
            if not self._fence_wake.is_set():
                await self._fence_wake.wait()
                continue
            deadline = self._deadline()
            assert deadline is not None, "exclusive tasks without a deadline"
            lease_s = self._channel.settings.lease_ms / 1000
            next_time = fence.fence_before(deadline, lease_s).next_time(loop.time())
            wait_s = TICK_S if next_time is None else min(next_time - loop.time(), TICK_S)
            await asyncio.sleep(max(wait_s, 0.0))

    # Now and then

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._ports.runner.collect()
            self.tasks.write_again()
            self.tasks.act()
            self._ports.keeper.fill()
            for record in self.tasks.holding():
                await self._ports.output.trim(record.order.task)

    # The end

    async def _end_all(self) -> None:
        self.tasks.retire()
        await self.tasks.all_gone()
        if not await self._channel.flush(FLUSH_S):
            log.warning("the coordinator has not heard of every end", waited_s=FLUSH_S)


async def run_agent(config: AgentConfig, stop: asyncio.Event) -> int:
    """Run an agent until `stop` is set; returns an exit code. Raises AgentFailed."""
    problems = config.problems()
    if problems:
        raise AgentFailed("; ".join(problems))
    try:
        disk = Records.open(config.data_dir, config.host, uuid.uuid4().hex, boot_id())
    except (AlreadyRunning, WrongDirectory) as error:
        raise AgentFailed(str(error)) from error
    except OSError as error:
        raise AgentFailed(f"cannot use data directory {config.data_dir}: {error}") from error
    try:
        with contextlib.closing(host.PortBlock(config.host, config.port_range)) as block:
            await _run_with(config, disk, block.ports, stop)
    except* (host.NoPorts, OSError, WrongDirectory, CoordError) as errors:
        raise AgentFailed("; ".join(str(error) for error in _leaves(errors))) from errors
    finally:
        disk.close()
    return 0


async def _run_with(
    config: AgentConfig, disk: Records, ports: tuple[int, ...], stop: asyncio.Event
) -> None:
    capacity = host.capacity()
    agent = Agent(
        config.servers,
        host=config.host,
        agent_id=disk.identity.agent,
        boot=boot_id(),
        address=config.address,
        next_seq=disk.next_registration,
        devices=config.devices,
        cpu_millis=config.cpu_millis or capacity.cpu_millis,
        memory_mib=config.memory_mib or capacity.memory_mib,
        device_type=config.device_type,
        labels=config.labels,
        ports=ports,
        version=__version__,
        place=config.place,
        rails=config.rails,
        cluster=config.cluster,
        relays=config.relays,
    )
    async with agent:
        await Daemon(config, posix_ports(config, disk), agent).run(stop)


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
