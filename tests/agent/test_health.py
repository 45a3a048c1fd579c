"""Health checks before work is started."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from msgspec.structs import replace

from coord.agent.config import AgentConfig
from coord.agent.health import OUTPUT_LIMIT_BYTES, CommandHook, HealthGate, HealthHook, HealthResult
from coord.client.inbox import Superseded
from coord.model.events import HealthChecked, LaunchFailed, TaskExited
from coord.model.health import CheckOccasion, HealthOutcome
from coord.model.plans import Action, TaskOrder
from coord.model.rejections import Rejection

from .support import FakeChannel, config_for, key, running, until
from .support import order as order_of
from .support import plan as plan_of

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def check(command: str, timeout_s: float = 20.0) -> HealthResult:
    return asyncio.run(CommandHook(command, timeout_s, ENVIRONMENT).run())


def test_the_exit_code_decides_and_the_output_is_kept() -> None:
    assert check("""sh -c 'echo "{\\"gpu\\": 8}"'""") == HealthResult(
        HealthOutcome.PASSED, 0, '{"gpu": 8}'
    )
    assert check("sh -c 'echo bad; echo worse >&2; exit 3'") == HealthResult(
        HealthOutcome.FAILED, 3, "bad\nworse"
    )


def test_death_by_a_signal_is_no_pass() -> None:
    assert check("sh -c 'kill -9 $$'").outcome == HealthOutcome.FAILED


@pytest.mark.parametrize("command", ["/nowhere/check", "sh -c 'exit 127'", "/etc/passwd"])
def test_what_cannot_be_run_is_missing(command: str) -> None:
    """It is no pass, and no failure of the host either."""
    assert check(command).outcome == HealthOutcome.MISSING


def test_a_check_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    """Within its time, whatever it ignores."""
    pid_file = tmp_path / "pid"
    script = f"trap '' TERM; sleep 600 & echo $! > {pid_file}; echo begun; wait"
    result = check(f'sh -c "{script}"', timeout_s=1.0)
    assert result == HealthResult(HealthOutcome.TIMED_OUT, 0, "begun")
    pid = int(pid_file.read_text())
    status = Path(f"/proc/{pid}/status")
    assert not status.exists() or "Z (zombie)" in status.read_text()


def test_a_talkative_check_is_cut_off_and_not_blocked() -> None:
    code = "print('x' * 5_000_000)"
    result = check(f'{sys.executable} -c "{code}"')
    assert (result.outcome, len(result.detail)) == (HealthOutcome.PASSED, OUTPUT_LIMIT_BYTES)


Told = list[HealthChecked]


class Scripted:
    """A hook whose outcomes are given beforehand, each when `release` is set."""

    name = "gpu"

    def __init__(self, *outcomes: HealthOutcome) -> None:
        self.outcomes = list(outcomes)
        self.runs = 0

    async def run(self) -> HealthResult:
        self.runs += 1
        outcome = self.outcomes.pop(0)
        return HealthResult(outcome, 3 if outcome == HealthOutcome.FAILED else 0)


class Bench:
    """A gate, what it told and what it spawned."""

    def __init__(self, hook: Scripted | None) -> None:
        self.told: list[HealthChecked] = []
        self.done = 0
        self._work: list[Coroutine[None, None, None]] = []
        self.gate = HealthGate("h1", hook, self._tell, self._work.append, self._finished)

    def _tell(self, event: Callable[[int], HealthChecked]) -> None:
        self.told.append(event(2))

    def _finished(self) -> None:
        self.done += 1

    def run(self) -> None:
        while self._work:
            asyncio.run(self._work.pop(0))

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(one.outcome, one.occasion) for one in self.told]


def order(*devices: int) -> TaskOrder:
    return TaskOrder("j/t/0#1", "j", "t", 0, 1, Action.RUN, devices=devices)


def test_the_first_launch_waits_for_a_check_and_later_ones_do_not() -> None:
    hook = Scripted(HealthOutcome.PASSED)
    bench = Bench(hook)
    assert bench.gate.blocks(order())
    assert bench.gate.blocks(order(0))
    bench.run()
    assert (hook.runs, bench.done) == (1, 1)
    assert bench.told == [
        HealthChecked("h1", 2, "gpu", HealthOutcome.PASSED, CheckOccasion.BEFORE_LAUNCH)
    ]
    assert not bench.gate.blocks(order(0))
    assert bench.gate.take_verdict() == ""


def test_after_a_failure_only_launches_with_devices_wait() -> None:
    hook = Scripted(HealthOutcome.PASSED, HealthOutcome.PASSED)
    bench = Bench(hook)
    bench.gate.blocks(order())
    bench.run()
    bench.gate.failed(order())
    assert not bench.gate.blocks(order(0))
    bench.gate.failed(order(0))
    assert not bench.gate.blocks(order())
    assert bench.gate.blocks(order(0))
    bench.run()
    assert not bench.gate.blocks(order(0))


@pytest.mark.parametrize("outcome", [HealthOutcome.FAILED, HealthOutcome.TIMED_OUT])
def test_after_a_bad_check_what_waited_fails_and_the_next_launch_waits_again(
    outcome: HealthOutcome,
) -> None:
    bench = Bench(Scripted(outcome, HealthOutcome.PASSED))
    assert bench.gate.blocks(order(0))
    bench.run()
    assert not bench.gate.blocks(order(0))
    assert "health check gpu" in bench.gate.take_verdict()
    bench.gate.settle()
    assert bench.gate.blocks(order())
    bench.run()
    assert bench.gate.take_verdict() == ""
    assert not bench.gate.blocks(order(0))


def test_a_missing_check_lets_work_start_and_is_told() -> None:
    bench = Bench(Scripted(HealthOutcome.MISSING))
    bench.gate.blocks(order())
    bench.run()
    assert bench.outcomes == [("missing", "before_launch")]
    assert not bench.gate.blocks(order(0))


def test_a_test_is_run_once_for_each_number() -> None:
    bench = Bench(Scripted(HealthOutcome.PASSED, HealthOutcome.FAILED))
    for number in (0, 7, 7):
        bench.gate.test(number)
    bench.run()
    bench.gate.test(7)
    bench.gate.test(9)
    bench.run()
    assert bench.outcomes == [("passed", "on_request"), ("failed", "on_request")]
    assert [one.test for one in bench.told] == [7, 9]


def test_a_result_has_the_number_that_its_test_was_asked_for_with() -> None:
    """Another one is asked for while it runs: that one is run, too."""
    bench = Bench(Scripted(HealthOutcome.PASSED, HealthOutcome.FAILED))
    bench.gate.test(7)
    bench.gate.test(9)
    bench.run()
    assert [(one.test, one.outcome) for one in bench.told] == [(7, "passed"), (9, "failed")]


def test_a_host_without_a_check_launches_at_once_and_says_so_when_asked() -> None:
    bench = Bench(None)
    assert not bench.gate.blocks(order(0))
    bench.gate.failed(order(0))
    assert not bench.gate.blocks(order(0))
    bench.gate.test(4)
    assert bench.told == [
        HealthChecked("h1", 2, "health", HealthOutcome.MISSING, CheckOccasion.ON_REQUEST, test=4)
    ]


async def told_from_time_to_time(hook: HealthHook | None, enough: Callable[[int], bool]) -> Told:
    """What periodic checks tell until `enough` says so of their number."""
    told: Told = []
    gate = HealthGate("h1", hook, lambda event: told.append(event(2)), _refuse, lambda: None)
    checking = asyncio.create_task(gate.check_every(0.001))
    await until(lambda: enough(len(told)))
    checking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await checking
    assert {one.occasion for one in told} == {CheckOccasion.PERIODIC}
    return told


async def test_a_host_is_checked_from_time_to_time_beside_its_work() -> None:
    """A pass after a pass is not told again; what is bad is each time, and its end."""
    passed, failed = HealthOutcome.PASSED, HealthOutcome.FAILED
    hook = Scripted(passed, passed, failed, failed, passed, *[passed] * 10_000)
    told = await told_from_time_to_time(hook, lambda count: count >= 4 and hook.runs > 8)
    assert [one.outcome for one in told] == [passed, failed, failed, passed]


async def test_a_periodic_check_that_is_not_there_is_told_once() -> None:
    hook = Scripted(*[HealthOutcome.MISSING] * 10_000)
    (told,) = await told_from_time_to_time(hook, lambda count: hook.runs > 5)
    assert (told.check, told.outcome) == ("gpu", HealthOutcome.MISSING)
    (told,) = await told_from_time_to_time(None, lambda count: count > 0)
    assert (told.check, told.outcome) == ("health", HealthOutcome.MISSING)


async def test_an_agent_checks_its_host_from_time_to_time(tmp_path: Path) -> None:
    """Nothing is launched there, and nobody asked."""
    config = config_for(
        tmp_path / "data", health_check="sh -c 'exit 3'", health_check_every_s=3_600
    )
    channel = FakeChannel()
    async with running(config, channel):
        await until(lambda: len(healths(channel)) >= 1)
    told = healths(channel)[0]
    assert (told.occasion, told.outcome) == (CheckOccasion.PERIODIC, HealthOutcome.FAILED)


def _refuse(work: object) -> None:
    raise AssertionError(f"spawned {work}")


def healths(channel: FakeChannel) -> list[HealthChecked]:
    return [event for event in channel.events if isinstance(event, HealthChecked)]


async def test_an_agent_checks_its_host_before_it_launches(tmp_path: Path) -> None:
    """The check has ended, and is told, before the task's process exists; the next goes at once."""
    mark = tmp_path / "checked"
    config = config_for(tmp_path / "data", health_check=f"sh -c 'echo >> {mark}; echo fine'")
    channel = FakeChannel()
    async with running(config, channel):
        look = ("sh", "-c", f"test -s {mark}")
        channel.deliver(plan_of(order_of(look), version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted", "TaskExited", "TaskReaped"])
        assert channel.one(TaskExited, key()).exit_code == 0
        channel.deliver(plan_of(order_of(look, generation=2), version=2))
        await until(lambda: "TaskReaped" in channel.of(key(generation=2)))
    (told,) = healths(channel)
    assert (told.check, told.outcome, told.detail) == ("sh", HealthOutcome.PASSED, "fine")
    assert channel.events.index(told) == 0
    assert mark.read_text() == "\n"


async def test_an_agent_launches_nothing_on_an_unfit_host(tmp_path: Path) -> None:
    """The check is told first, then the launch that waited for it, as failed by the machine."""
    config = config_for(tmp_path / "data", health_check="sh -c 'exit 3'")
    channel = FakeChannel()
    async with running(config, channel):
        channel.deliver(plan_of(order_of(("true",)), version=1))
        await until(lambda: channel.of(key()) == ["LaunchFailed", "TaskReaped"])
    failed = channel.one(LaunchFailed, key())
    assert (failed.error, failed.user_error) == ("health check sh failed with exit code 3", False)
    assert channel.events.index(healths(channel)[0]) < channel.events.index(failed)


def is_reaped(channel: FakeChannel, generation: int) -> bool:
    return "TaskReaped" in channel.of(key(generation=generation))


async def test_after_a_failed_task_with_devices_the_host_is_checked_again(tmp_path: Path) -> None:
    config = config_for(tmp_path / "data", devices=1, health_check="true")
    channel = FakeChannel()
    async with running(config, channel):
        for version, code in enumerate((1, 0, 0), 1):
            command = ("sh", "-c", f"exit {code}")
            launch = order_of(command, generation=version, devices=(0,))
            channel.deliver(plan_of(launch, version=version))
            await until(functools.partial(is_reaped, channel, version))
        assert len(healths(channel)) == 2


async def test_what_is_told_of_the_host_outlives_an_outage(tmp_path: Path) -> None:
    """And a change of incarnation: it is told again under the new one."""
    config = config_for(tmp_path / "data", health_check="true")
    channel = FakeChannel()
    stale = {1}
    channel.judge = lambda event: (
        Rejection.STALE_INCARNATION if getattr(event, "incarnation", 0) in stale else ""
    )
    async with running(config, channel):
        channel.deliver(replace(plan_of(version=1), test=7))
        await until(lambda: len(healths(channel)) == 1)
        channel.deliver(Superseded(1, "silent for too long"))
        await until(lambda: len(healths(channel)) == 2)
    assert [(one.incarnation, one.occasion) for one in healths(channel)] == [
        (1, CheckOccasion.ON_REQUEST),
        (2, CheckOccasion.ON_REQUEST),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"health_check": "'open"}, "cannot be split"),
        ({"health_check": " "}, "blank"),
        ({"health_check_timeout_s": 0.0}, "more than 0"),
        ({"health_check_every_s": 0.5}, "0 for never"),
        ({"health_check_timeout_s": 1e9}, "at most 3,600"),
    ],
)
def test_a_check_that_cannot_be_is_refused(given: dict[str, object], said: str) -> None:
    servers = ("http://127.0.0.1:7101",)
    config = AgentConfig(servers=servers, data_dir=Path("x"), **given)  # type: ignore[arg-type]
    assert said in "; ".join(config.problems())
