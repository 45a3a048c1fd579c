"""Registers and switches: what clients see of one value must be explained by one order.

A job that fits on no host is a register: to resize it is to write, to show it is to read. A host is
a switch: to drain it succeeds only if it is not drained, a compare-and-set.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from coord.model.events import (
    DrainRequested,
    JobCancelRequested,
    JobResizeRequested,
    JobSubmitted,
    UndrainRequested,
)
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge.models import Replicas, Switch
from jepsen_lite.judge.verdict import Judgement, judge_history
from jepsen_lite.workloads.asking import Asker, Pace
from jepsen_lite.workloads.judging import judge_common
from jepsen_lite.workloads.port import Context, Evidence
from jepsen_lite.workloads.specs import register_job

MOST = 40
"""Registers hold 1 to this."""
OPERATIONS_A_REGISTER = 400
"""Then its clients go on to a new one, so that a long run is many short histories."""
CLIENTS_A_REGISTER = 3
REGISTER_CLIENTS = 9
SWITCHES = 2
SETUP_TRIES = 20


class Register:
    """The register that a few clients share, and the ones they shared before."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._made = 0
        self._asked = 0
        self._making = asyncio.Lock()
        self.users: Counter[str] = Counter()
        """By job: how many are asking it something just now."""
        self.job = ""
        """Empty before the first."""

    async def begin(self, asker: Asker, ctx: Context) -> str:
        """The job to ask, which is then in use; empty when a new one could not be submitted."""
        async with self._making:
            if not self.job or self._asked >= OPERATIONS_A_REGISTER:
                before = self.job
                self.job = await self._make(asker, ctx)
                self._asked = 0
                if before and not self.users[before]:
                    await _cancel(asker, before)
        if self.job:
            self._asked += 1
            self.users[self.job] += 1
        return self.job

    async def end(self, asker: Asker, job: str) -> None:
        """No longer in use by this one; whoever leaves a former one last has it cancelled."""
        self.users[job] -= 1
        if not self.users[job] and job != self.job:
            await _cancel(asker, job)

    async def _make(self, asker: Asker, ctx: Context) -> str:
        self._made += 1
        name = f"register-{self._number}-{self._made}{ctx.run}"
        operation = await asker.write(
            "", "submit", lambda token: JobSubmitted(register_job(name, token, MOST), asker.name)
        )
        return name if operation.outcome is Outcome.OK else ""


class Registers:
    """See `port.Workload`."""

    name = "registers"
    line = (
        "Reads, writes and compare-and-sets from many clients: resizes of jobs that fit nowhere, "
        "and drains of hosts."
    )
    needs: frozenset[str] = frozenset()
    clients = REGISTER_CLIENTS + SWITCHES
    makes: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._registers = [Register(n) for n in range(REGISTER_CLIENTS // CLIENTS_A_REGISTER)]
        self._hosts: list[str] = []

    async def prepare(self, ctx: Context) -> None:
        if ctx.guest:
            return  # Hosts of others are not drained; there are registers alone.
        async with Asker(ctx, self.name, self.clients) as asker:
            hosts = await asker.client.hosts()
            self._hosts = [host.host for host in hosts][:SWITCHES]
            for host in self._hosts:
                await self._undrained(asker, host)

    async def client(self, ctx: Context, number: int) -> None:
        rng = ctx.rng(f"{self.name}/{number}")
        pace = Pace(ctx, self.clients, rng)
        async with Asker(ctx, self.name, number) as asker:
            while await pace.turn():
                if number < REGISTER_CLIENTS:
                    await self._ask_register(ctx, asker, rng, number)
                elif self._hosts:
                    await self._ask_switch(asker, rng)

    async def settle(self, ctx: Context) -> None:
        """Read every register and switch twice, from different servers."""
        for number in range(2):
            async with Asker(ctx, self.name, self.clients + 1 + number) as asker:
                for register in self._registers:
                    if register.job:
                        await self._read_register(asker, register.job)
                for host in self._hosts:
                    await self._read_switch(asker, host)
                if number:
                    await self._tidy(asker)

    def judge(self, evidence: Evidence) -> list[Judgement]:
        asked = [each for each in evidence.history.operations if each.key]
        registers = [each for each in asked if each.key.startswith("register-")]
        switches = [each for each in asked if each.key.startswith("switch-")]
        return [
            *judge_history(registers, Replicas(first=1), log=evidence.log, changes_due=True),
            # Without hosts, or with hosts of others, there are none.
            *(judge_history(switches, Switch(), log=evidence.log) if switches else ()),
            *judge_common(evidence),
        ]

    async def _ask_register(
        self, ctx: Context, asker: Asker, rng: random.Random, number: int
    ) -> None:
        register = self._registers[number // CLIENTS_A_REGISTER]
        job = await register.begin(asker, ctx)
        if not job:
            return
        if rng.random() < 0.5:
            value = rng.randint(1, MOST)
            await asker.write(
                job,
                "write",
                lambda token: JobResizeRequested(job, "value", value, asker.name, token),
                value,
            )
        else:
            await self._read_register(asker, job)
        await register.end(asker, job)

    async def _read_register(self, asker: Asker, job: str) -> None:
        async def look() -> tuple[Any, int]:
            view = await asker.client.job(job)
            return view.replicas[0], view.applied_index

        await asker.read(job, "read", look)

    async def _ask_switch(self, asker: Asker, rng: random.Random) -> None:
        host = rng.choice(self._hosts)
        what = rng.choice(("drain", "undrain", "read"))
        if what == "read":
            await self._read_switch(asker, host)
        elif what == "drain":
            await asker.write(
                f"switch-{host}", what, lambda token: DrainRequested(host, asker.name, token)
            )
        else:
            await asker.write(
                f"switch-{host}", what, lambda token: UndrainRequested(host, asker.name, token)
            )

    async def _read_switch(self, asker: Asker, host: str) -> None:
        async def look() -> tuple[Any, int]:
            view = await asker.client.host(host)
            return bool(view.drain), view.applied_index

        await asker.read(f"switch-{host}", "read", look)

    async def _undrained(self, asker: Asker, host: str) -> None:
        """The models begin with a host that is not drained."""
        for _ in range(SETUP_TRIES):
            view = await asker.client.host(host)
            if not view.drain:
                return
            await _undrain(asker, host)
        raise RuntimeError(
            f"host {host} is {view.drain} and {SETUP_TRIES} requests did not change it; see "
            f"`coordctl host show {host}`"
        )

    async def _tidy(self, asker: Asker) -> None:
        """Leave nothing behind on a cluster that lives on."""
        for host in self._hosts:
            await _undrain(asker, host)
        for register in self._registers:
            if register.job:
                await _cancel(asker, register.job)


async def _undrain(asker: Asker, host: str) -> None:
    """Beside what is judged, as is `_cancel`: under no key."""
    await asker.write("", "undrain", lambda token: UndrainRequested(host, asker.name, token))


async def _cancel(asker: Asker, job: str) -> None:
    await asker.write("", "cancel", lambda token: JobCancelRequested(job, asker.name, token))
