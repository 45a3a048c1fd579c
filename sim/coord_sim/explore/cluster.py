"""Confirming a finding: a whole simulated cluster is led along it and breaks the same, or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coord.agent.ports import LaunchError
from coord.cli.wording import count_text, listed
from coord.core.state import State, new_state
from coord.model.channel import Submit, ToClient, ToServer
from coord.model.entry import Origin, Recorded, Submission
from coord_sim.kernel import Kernel
from coord_sim.world import ground_truth
from coord_sim.world.channels import Channels
from coord_sim.world.ground_truth import GroundTruth
from coord_sim.world.hosts import SimHosts
from coord_sim.world.quiet import quiet_logs
from coord_sim.world.ranks import SimRank
from coord_sim.world.scratch import scratch_directory
from coord_sim.world.servers import SimServers
from coord_sim.world.state_checks import StateChecks
from coord_sim.world.violation import Violation

from . import judge
from .confirm import Tried
from .findings import Finding
from .scenario import (
    Act,
    AgentPause,
    AgentRestart,
    Ask,
    CutOff,
    EndRank,
    FailLaunch,
    Hold,
    JumpClock,
    NewLeader,
    PowerCycle,
    PowerOff,
    PowerOn,
    Preempt,
    Reconnect,
    RestartServers,
    Scenario,
    StallLeader,
    report_name,
    scenario_of,
    seat_of,
)

MARGINS_MS = (500, 2_000)
"""What a late message is held up beyond what the log says, one attempt for each."""
SEEDS = (1, 2, 3)
PATIENCE_S = 20.0
"""So long an act waits for what should come before it."""
AFTERWARDS_S = 15.0
IN_THE_END_S = 180.0
"""After all has healed, until what is judged in the end must hold."""
LOOK_S = 0.05

SAME_AS = {
    ground_truth.ONE_OWNER: judge.DEVICE_OWNER,
    ground_truth.EXCLUSIVE: judge.EXCLUSIVE_ONCE,
    ground_truth.CURRENT: judge.CURRENT_COMMITS,
    ground_truth.AGREED: judge.AS_STATED,
}
"""What the judge of the cluster calls otherwise than that of an execution."""


def in_cluster(finding: Finding) -> Tried:
    """A `Confirmer`: several attempts to lead a cluster along the finding's scenario."""
    scenario = scenario_of(finding)
    if scenario.beyond:
        return Tried(False, f"not tried, since no script brings about {listed(scenario.beyond)}")
    servers = count_text(scenario.servers, "server")
    other = ""
    for margin_ms in MARGINS_MS:
        for seed in SEEDS:
            broken = attempt(scenario, seed, margin_ms, finding.sentence)
            if broken == finding.sentence:
                held = [f"{hold.ms + margin_ms:,} ms" for hold in scenario.holds]
                late = f", late by {listed(held)}" if held else ""
                return Tried(True, f"it broke there too, with {servers}, seed {seed}{late}")
            other = other or broken
    words = f"{len(MARGINS_MS) * len(SEEDS)} attempts with {servers} did not come to it"
    return Tried(False, f"{words}; one of them came to this: {other}" if other else words)


def attempt(scenario: Scenario, seed: int, margin_ms: int, sentence: str = "") -> str:
    """What broke when a cluster was led along the scenario; empty for nothing. What must hold in
    the end is judged only where that is the `sentence` asked about."""
    with quiet_logs(), scratch_directory(seed) as directory:
        cluster = _Cluster(scenario, seed, margin_ms, directory)
        try:
            cluster.kernel.run_until(cluster.live(sentence in (judge.IN_THE_END, judge.AS_STATED)))
        except Violation as violation:
            return SAME_AS.get(violation.property, violation.property)
        finally:
            cluster.kernel.close()
    return ""


class _Cluster:
    def __init__(self, scenario: Scenario, seed: int, margin_ms: int, directory: str) -> None:
        self.scenario = scenario
        self.kernel = Kernel(seed)
        self.servers = SimServers(
            self.kernel,
            count=scenario.servers,
            settings=scenario.settings,
            directory=directory,
        )
        self.channels = Channels(self.kernel, self.servers)
        self.hosts = SimHosts(
            self.kernel,
            dial=lambda host: self.channels.dialer(host.caller),
            settings=scenario.settings,
            servers=tuple(self.servers.url(n) for n in range(1, scenario.servers + 1)),
            network=self.channels,
        )
        self.truth = GroundTruth(self.hosts)
        self.checks = StateChecks()
        self.checks.looks.append(self._look)
        self.servers.on_applied(self._applied)
        self._memory = judge.Memory()
        self._now_ms = new_state().meta.now_ms
        self._seen: dict[str, int] = {}
        self._asked = 0
        for offer in scenario.hosts:
            self.hosts.add(
                offer.host,
                devices=offer.devices,
                cpu_millis=offer.cpu_millis or 8_000,
                memory_mib=offer.memory_mib or 16_384,
            )
        for hold in scenario.holds:
            self.channels.delay_rule(_Held(self.kernel, hold, margin_ms))

    async def live(self, to_the_end: bool) -> None:
        """From the first leader to a while after the last act, or until all has healed."""
        await self.servers.start_all()
        begun_s = self.kernel.now_s()
        shift_s = 0.0
        for act in self.scenario.acts:
            due_s = begun_s + act.at_ms / 1000 + shift_s
            await asyncio.sleep(max(due_s - self.kernel.now_s(), 0.0))
            await self._until(lambda act=act: self._may(act))  # type: ignore[misc]
            shift_s += max(self.kernel.now_s() - due_s, 0.0)
            await self._perform(act)
        rest_ms = self.scenario.lasts_ms - max((act.at_ms for act in self.scenario.acts), default=0)
        await asyncio.sleep(max(rest_ms, 0) / 1000 + AFTERWARDS_S)
        if to_the_end:
            await self._heal()

    async def _heal(self) -> None:
        self.channels.heal_all()
        for _, host in sorted(self.hosts.hosts.items()):
            host.heal_network()
            host.power_on()
            host.agent_start()
        await asyncio.sleep(IN_THE_END_S)
        waits = judge.unmet(self.checks.state)
        if waits:
            raise Violation(judge.IN_THE_END, waits)
        self.truth.check_agreement(self.checks.state)

    async def _until(self, holds: Callable[[], bool]) -> None:
        for _ in range(round(PATIENCE_S / LOOK_S)):
            if holds():
                return
            await asyncio.sleep(LOOK_S)

    def _may(self, act: Act) -> bool:
        if isinstance(act, EndRank) and self._rank(act.task) is None:
            return False
        return all(self._seen.get(name, 0) >= count for name, count in act.after)

    def _rank(self, seat: str) -> SimRank | None:
        ranks = [
            rank
            for _, host in sorted(self.hosts.hosts.items())
            for rank in host.ranks.values()
            if rank.task.partition("#")[0] == seat
        ]
        return ranks[-1] if ranks else None

    async def _perform(self, act: Act) -> None:
        if isinstance(act, Ask):
            await self._ask(act)
        elif isinstance(act, NewLeader):
            await self.servers.transfer()
        elif isinstance(act, RestartServers):
            await self._restart_servers()
        elif isinstance(act, EndRank):
            rank = self._rank(act.task)
            if rank is not None and act.signal:
                rank.die(act.signal, oom=act.oom)
            elif rank is not None:
                rank.exit(act.exit_code)
        elif isinstance(act, JumpClock | StallLeader):
            self._to_the_leader(act)
        else:
            self._to_a_host(act)

    def _to_a_host(self, act: Act) -> None:
        host = self.hosts.hosts[getattr(act, "host", "")]
        if isinstance(act, PowerOn):
            host.power_on()
        elif isinstance(act, PowerOff):
            host.power_off()
        elif isinstance(act, PowerCycle):
            host.heal_network()
            host.power_cycle(0.1)
        elif isinstance(act, CutOff):
            host.cut_network()
        elif isinstance(act, Reconnect):
            host.heal_network()
        elif isinstance(act, AgentRestart):
            host.agent_kill(0.2)
        elif isinstance(act, AgentPause):
            host.agent_pause()
            self.kernel.call_later(act.ms / 1000, host.agent_resume)
        elif isinstance(act, Preempt):
            host.notice_preemption(act.grace_ms / 1000)
        elif isinstance(act, FailLaunch):
            host.launch_failures.append(LaunchError(act.error, user_error=act.user_error))

    def _to_the_leader(self, act: JumpClock | StallLeader) -> None:
        leader = self.servers.leader()
        if leader is None:
            return
        number = leader.config.node
        if isinstance(act, JumpClock):
            self.servers.clock(number).jump(act.ms)
        else:
            self.servers.stall(number, act.ms / 1000)

    async def _restart_servers(self) -> None:
        for number in self.servers.numbers():
            await self.servers.snapshot(number)
            self.servers.crash(number, lose_unsynced=False)
            self.servers.start(number)
        await self.servers.start_all()

    async def _ask(self, act: Ask) -> None:
        self._asked += 1
        submission = Submission(Origin("client:scenario", 0, self._asked), act.event)
        await self.servers.ask_leader(lambda node: node.submit(submission), PATIENCE_S)

    def _look(self, record: Recorded, state: State) -> None:
        if record.accepted:
            name = report_name(record.entry.event)
            self._seen[name] = self._seen.get(name, 0) + 1
        sight = judge.Sight(now_ms=self._now_ms)
        self._now_ms = record.now_ms
        self._memory, broken = judge.judge(self._memory, state, record, [], sight)
        if broken is not None:
            raise Violation(*broken)

    def _applied(self, number: int, records: tuple[Recorded, ...], state: State) -> None:
        try:
            if records:
                self.checks.applied(number, records, state)
            self.truth.on_applied(number, records, state)
        except Violation as found:
            self.servers.violated(found)


class _Held:
    """A rule of `Channels`: the first report that fits is under way for longer."""

    def __init__(self, kernel: Kernel, hold: Hold, margin_ms: int) -> None:
        self._kernel = kernel
        self._hold = hold
        self._held_s = (hold.ms + margin_ms) / 1000
        self._until_s = -1.0

    def __call__(self, caller: str, message: ToServer | ToClient) -> float | None:
        if caller != self._hold.host or not isinstance(message, Submit):
            return None
        hold = self._hold
        if not any(
            type(one.event).__name__ == hold.kind and seat_of(one.event) == hold.task
            for one in message.submissions
        ):
            return None
        if self._until_s < 0:
            self._until_s = self._kernel.now_s() + self._held_s
        return max(self._until_s - self._kernel.now_s(), 0.0) or None
