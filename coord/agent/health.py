"""Health checks of the host: a command of whoever runs it, before work is started there, when a
server asks for a test, and from time to time beside whatever runs.

The command exits with 0 when the host is fit, and with anything else when it is not; what it writes
to standard output, JSON or text, goes into the log as it is, bounded. It has `timeout_s`, then all
of its process group is killed and the check counts as failed. A command that does not exist, or
may not be run, is a missing check and no pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import structlog

from coord.model.events import HealthChecked
from coord.model.health import BAD_OUTCOMES, CheckOccasion, HealthOutcome
from coord.model.plans import TaskOrder

OUTPUT_LIMIT_BYTES = 4_096
RETELL_S = 3_600.0
"""How long it is enough to have told that the periodic check passes, or that there is none."""
REAP_S = 2.0
"""How long to wait for a killed check: one that hangs in a driver may outlive SIGKILL."""
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes by which shells say that there was nothing to run."""

log = structlog.get_logger()


class HealthResult(msgspec.Struct, frozen=True):
    """How a check ended. `detail` is what it printed."""

    outcome: HealthOutcome
    exit_code: int = 0
    detail: str = ""


PERIODIC = CheckOccasion.PERIODIC
MISSING = HealthResult(HealthOutcome.MISSING)


class HealthHook(Protocol):
    """A check of this host. One run at a time."""

    @property
    def name(self) -> str:
        """What it is called in the log."""

    async def run(self) -> HealthResult:
        """Run it to its end, or to the end of its time."""


class CommandHook:
    """See `HealthHook`. A command line, split as a shell does, without a shell."""

    def __init__(self, command: str, timeout_s: float, environment: Mapping[str, str]) -> None:
        self._words = shlex.split(command)
        self._timeout_s = timeout_s
        self._environment = dict(environment)

    @property
    def name(self) -> str:
        return os.path.basename(self._words[0])

    async def run(self) -> HealthResult:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                process_group=0,
            )
        except OSError as error:
            return HealthResult(HealthOutcome.MISSING, detail=f"{self._words[0]}: {error.strerror}")
        try:
            return await self._watch(process)
        finally:
            _kill_group(process)

    async def _watch(self, process: asyncio.subprocess.Process) -> HealthResult:
        kept = bytearray()
        try:
            async with asyncio.timeout(self._timeout_s):
                await _read_all(process, kept)
                code = await process.wait()
        except TimeoutError:
            _kill_group(process)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REAP_S):
                    await process.wait()
            return HealthResult(HealthOutcome.TIMED_OUT, detail=_text(kept))
        detail = _text(kept)
        if code == 0:
            return HealthResult(HealthOutcome.PASSED, 0, detail)
        if code in (NOT_EXECUTABLE, NOT_FOUND):
            return HealthResult(HealthOutcome.MISSING, code, detail)
        return HealthResult(HealthOutcome.FAILED, code, detail)


async def _read_all(process: asyncio.subprocess.Process, kept: bytearray) -> None:
    """Keep the first bytes; read on, so that a talkative check does not block."""
    assert process.stdout is not None
    while chunk := await process.stdout.read(65_536):
        kept += chunk[: OUTPUT_LIMIT_BYTES - len(kept)]


def _text(kept: bytearray) -> str:
    return kept.decode(errors="replace").replace("\0", "").strip()


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class HealthGate:
    """Lets launches pass once the host is known to be fit.

    The first launch waits for a check, and so does the first launch with devices after a task with
    devices failed here. While the check runs, `blocks` holds such launches back; when it is done,
    `on_done` is called, and `verdict` says why nothing may be launched, if it may not. After a bad
    outcome the next launch waits for a new check.
    """

    def __init__(
        self,
        host: str,
        hook: HealthHook | None,
        tell: Callable[[Callable[[int], HealthChecked]], None],
        spawn: Callable[..., object],
        on_done: Callable[[], None],
    ) -> None:
        self._host = host
        self._hook = hook
        self._tell = tell
        self._spawn = spawn
        self._on_done = on_done
        self._due = hook is not None
        self._due_for_devices = False
        self._running = False
        self._refused = ""
        self._wanted = self._tested = 0

    def blocks(self, order: TaskOrder) -> bool:
        """Whether this launch has to wait; a check is begun if none runs."""
        if self._refused:
            return False
        waits = self._due or (self._due_for_devices and bool(order.devices))
        if waits and not self._running:
            self._begin(CheckOccasion.BEFORE_LAUNCH)
        return waits

    def take_verdict(self) -> str:
        """Why the launches that waited must fail; empty when they need not."""
        return self._refused

    def settle(self) -> None:
        """Those that waited have failed: from now on a launch waits for another check."""
        self._refused = ""

    def failed(self, order: TaskOrder) -> None:
        """A task failed here."""
        if self._hook is not None and order.devices:
            self._due_for_devices = True

    def test(self, number: int) -> None:
        """A check is asked for, once for each number."""
        self._wanted = number
        if not number or number == self._tested or self._running:
            return
        self._tested = number
        if self._hook is None:
            self._report("health", MISSING, CheckOccasion.ON_REQUEST, number)
        else:
            self._begin(CheckOccasion.ON_REQUEST, number)

    async def check_every(self, period_s: float) -> None:
        """Checks for ever, one each period, beside whatever runs here; only a launch that waits
        meanwhile notices. A pass after a pass is told once in `RETELL_S`, all else each time."""
        loop = asyncio.get_running_loop()
        told, told_s = "", 0.0
        while True:
            if not self._running:  # Another check says as much.
                result = MISSING if self._hook is None else await self._run_hook(PERIODIC)
                known = result.outcome not in BAD_OUTCOMES and result.outcome == told
                if not known or loop.time() - told_s >= RETELL_S:
                    self._report(self._name, result, PERIODIC)
                    told, told_s = result.outcome, loop.time()
                self._settle_check(result, PERIODIC)
            await asyncio.sleep(period_s)

    def _begin(self, occasion: CheckOccasion, number: int = 0) -> None:
        self._running = True
        self._spawn(self._check(occasion, number))

    async def _check(self, occasion: CheckOccasion, number: int) -> None:
        result = await self._run_hook(occasion)
        self._report(self._name, result, occasion, number)
        self._settle_check(result, occasion)

    @property
    def _name(self) -> str:
        return self._hook.name if self._hook is not None else "health"

    async def _run_hook(self, occasion: CheckOccasion) -> HealthResult:
        assert self._hook is not None
        self._running = True
        try:
            result = await self._hook.run()
        finally:
            self._running = False
        log.info("health checked", check=self._name, outcome=result.outcome, occasion=occasion)
        return result

    def _settle_check(self, result: HealthResult, occasion: CheckOccasion) -> None:
        """What follows from a check for launches and for tests that wait."""
        if self._hook is None:
            return
        bad = result.outcome in BAD_OUTCOMES
        self._due = self._due_for_devices = bad
        if bad and occasion is CheckOccasion.BEFORE_LAUNCH:
            self._refused = f"health check {self._name} {result.outcome.replace('_', ' ')}"
            if result.exit_code:
                self._refused += f" with exit code {result.exit_code}"
        self._on_done()
        self.test(self._wanted)

    def _report(
        self, check: str, result: HealthResult, occasion: CheckOccasion, number: int = 0
    ) -> None:
        self._tell(
            lambda incarnation: HealthChecked(
                self._host,
                incarnation,
                check,
                result.outcome,
                occasion,
                result.exit_code,
                result.detail,
                number,
            )
        )
