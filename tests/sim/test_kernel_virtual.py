"""The kernel: virtual time, processes that die without a word, streams, the trace."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from coord_sim.kernel import Deadlock, Kernel, Livelock, SimProcess, Trace, current_process
from coord_sim.kernel import loop as virtual

ROOT = Path(__file__).resolve().parents[2]


async def ticking(seen: list[float], every_s: float = 1.0) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(every_s)
        seen.append(loop.time())


class TestTime:
    def test_a_sleep_takes_no_time_and_moves_the_clock_exactly(self) -> None:
        """Days pass at once, and the clock stands where the timer was set."""

        async def sleep() -> float:
            await asyncio.sleep(86_400)
            return asyncio.get_running_loop().time()

        with Kernel(1) as kernel:
            assert kernel.run_until(sleep()) == virtual.START_S + 86_400

    def test_timers_of_one_instant_go_in_the_order_they_were_set(self) -> None:
        """Ties are decided by history, never by chance."""
        with Kernel(1) as kernel:
            seen: list[int] = []
            for number in range(20):
                kernel.call_at(1005.0, seen.append, number)
            kernel.run_for(6)
            assert seen == list(range(20))

    def test_run_for_stops_at_the_second_and_goes_on_later(self) -> None:
        """Nothing is lost between two runs."""
        with Kernel(1) as kernel:
            seen: list[float] = []
            kernel.spawn("a", ticking(seen))
            kernel.run_for(2.5)
            assert kernel.now_s() == 1002.5
            kernel.run_for(2.0)
            assert seen == [1001.0, 1002.0, 1003.0, 1004.0]

    def test_a_cancelled_timer_does_not_run_and_many_are_swept(self) -> None:
        """Time-outs that were not needed leave nothing behind."""
        with Kernel(1) as kernel:
            seen: list[int] = []
            timers = [kernel.call_later(9, seen.append, number) for number in range(3_000)]
            for timer in timers[:-1]:
                timer.cancel()
            assert len(kernel.loop._heap) < 1_500
            kernel.run_for(10)
            assert seen == [2_999]

    def test_everything_of_asyncio_works(self) -> None:
        """Groups, time-outs, events, worker threads, queues, generators."""

        async def numbers() -> AsyncIterator[int]:
            for number in range(3):
                await asyncio.sleep(1)
                yield number

        async def main() -> list[object]:
            event = asyncio.Event()
            results: list[object] = []
            async with asyncio.TaskGroup() as group:
                group.create_task(event.wait())
                group.create_task(asyncio.sleep(3))
                event.set()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.sleep(10)
            results.append(await asyncio.to_thread(sum, [1, 2, 3]))
            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(lambda: 1 // 0)
            results += [number async for number in numbers()]
            async for number in numbers():
                results.append(number)
                break
            return results

        with Kernel(1) as kernel:
            assert kernel.run_until(main()) == [6, 0, 1, 2, 0]
            assert kernel.now_s() == 1012.0

    def test_the_answer_of_a_worker_comes_when_the_simulation_says(self) -> None:
        """Other code runs in between, as beside a real thread."""

        async def main() -> float:
            await asyncio.to_thread(int)
            return asyncio.get_running_loop().time()

        with Kernel(1) as kernel:
            kernel.loop.worker_s = lambda: 0.25
            assert kernel.run_until(main()) == 1000.25

    def test_a_deadlock_and_a_livelock_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A simulation that cannot go on ends instead of hanging."""

        async def wait() -> None:
            await asyncio.get_running_loop().create_future()

        async def spin() -> None:
            while not kernel.loop.closing:  # noqa: ASYNC110 - the point of the test
                await asyncio.sleep(0)

        monkeypatch.setattr(virtual, "LIVELOCK_CALLBACKS", 1_000)
        with Kernel(1) as kernel:
            with pytest.raises(Deadlock):
                kernel.run_until(wait())
            with pytest.raises(Livelock):
                kernel.run_until(spin())

    def test_an_exception_that_nobody_took_ends_the_run(self) -> None:
        """A callback that raises is a defect, of the product or of the simulation."""
        with Kernel(1) as kernel:
            kernel.call_later(1, lambda: next(iter(())))
            with pytest.raises(StopIteration) as raised:
                kernel.run_for(5)
            assert "in a callback of the simulation at 1001.000 s" in raised.value.__notes__[0]


class TestProcesses:
    def test_a_killed_process_does_nothing_more_not_even_its_finally_blocks(self) -> None:
        """As kill -9: tasks, timers and clean-up all end there."""
        with Kernel(1) as kernel:
            seen: list[object] = []

            async def main() -> None:
                asyncio.get_running_loop().call_later(5, seen.append, "timer")
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(ticking(seen))
                        group.create_task(ticking(seen))
                finally:
                    if kernel.now_s() < 1010:
                        seen.append("finally")

            process = kernel.spawn("a", main)
            process.on_death.append(lambda: seen.append(current_process()))
            kernel.run_for(1.5)
            process.kill()
            process.kill()
            kernel.run_for(10)
            assert seen == [1001.0, 1001.0, None]
            assert (process.alive, process.crashed) == (False, None)

    @pytest.mark.filterwarnings("error")
    def test_closing_leaves_nothing_that_warns(self) -> None:
        """Tasks that hang, never began, await while they clean up, or failed unseen."""

        async def clinging() -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                await asyncio.sleep(1)
                asyncio.get_running_loop().create_task(asyncio.sleep(3))

        async def failing() -> None:
            raise ValueError("unseen")

        async def generator() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                await asyncio.sleep(1)

        async def main() -> None:
            tasks = [asyncio.create_task(one()) for one in (clinging, failing, clinging)]
            async for _ in generator():
                await asyncio.gather(*tasks, return_exceptions=True)

        kernel = Kernel(1)
        first, second = (kernel.spawn(name, main) for name in "ab")
        kernel.run_for(1)
        first.kill()
        kernel.run_for(1)
        second.call_soon(lambda: asyncio.create_task(clinging()))
        kernel.spawn("c", main())
        kernel.start(clinging())
        kernel.close()
        kernel.close()
        del first, second, kernel
        gc.collect()

    def test_a_process_ends_with_its_main_and_says_why(self) -> None:
        """What is left of it dies with it; an error is kept for whoever judges."""
        with Kernel(1) as kernel:
            seen: list[float] = []

            async def main(fails: bool) -> None:
                asyncio.get_running_loop().create_task(ticking(seen))
                await asyncio.sleep(2.5)
                if fails:
                    raise ValueError("broken")

            good = kernel.spawn("good", main(False))
            bad = kernel.spawn("bad", lambda: main(True))
            kernel.run_for(5)
            assert seen == [1001.0, 1001.0, 1002.0, 1002.0]
            assert (good.alive, good.crashed) == (False, None)
            assert repr(bad.crashed) == "ValueError('broken')"

    def test_a_process_can_die_in_the_middle_of_a_callback(self) -> None:
        """The code after the place never runs, and nothing that it had begun goes on."""
        with Kernel(1) as kernel:
            seen: list[object] = []

            def strike() -> None:
                process = current_process()
                assert process is not None
                process.die()

            async def main() -> None:
                asyncio.get_running_loop().call_soon(seen.append, "scheduled")
                strike()
                seen.append("after")

            async def plain() -> None:
                asyncio.get_running_loop().call_later(1, strike)
                await ticking(seen)

            one, two = kernel.spawn("one", main), kernel.spawn("two", plain)
            kernel.run_for(3)
            assert (one.alive, two.alive, one.crashed, two.crashed) == (False, False, None, None)
            assert seen == []

    def test_a_paused_process_wakes_to_what_waited(self) -> None:
        """Its timers fire late, once each, while others go on; kill works in a pause, too."""
        with Kernel(1) as kernel:
            slow: list[float] = []
            quick: list[float] = []
            process = kernel.spawn("slow", ticking(slow))
            kernel.spawn("quick", ticking(quick, 2.0))
            kernel.run_for(1.5)
            process.pause()
            assert process.paused
            kernel.run_for(3)
            process.resume()
            kernel.run_for(1.2)
            assert slow == [1001.0, 1004.5, 1005.5]
            assert quick == [1002.0, 1004.0]
            process.pause()
            process.kill()
            process.resume()
            kernel.run_for(5)
            assert len(slow) == 3

    def test_a_stall_ends_by_itself_and_stalls_add_up(self) -> None:
        """The second fsync begins when the first has ended; a pause outlasts both."""
        with Kernel(1) as kernel:
            seen: list[float] = []
            process = kernel.spawn("a", ticking(seen))
            kernel.run_for(0.5)
            process.stall(1)
            process.stall(1)
            assert process.stalled_until_s == 1002.5
            kernel.run_for(3.1)
            assert seen == [1002.5, 1003.5]
            process.stall(1)
            process.pause()
            kernel.run_for(2)
            assert process.paused
            process.resume()
            kernel.run_for(0.1)
            assert seen[-1] == 1005.6

    def test_what_another_process_completes_still_belongs_to_the_one_who_waits(self) -> None:
        """A future set from outside wakes a task of its own process, or none if that is dead."""
        with Kernel(1) as kernel:
            woken: list[str] = []
            waits: dict[str, asyncio.Future[None]] = {}

            async def wait(name: str) -> None:
                waits[name] = asyncio.get_running_loop().create_future()
                await waits[name]
                process = current_process()
                woken.append(process.name if process else "")

            dead = kernel.spawn("dead", wait("dead"))
            kernel.spawn("alive", wait("alive"))
            kernel.run_for(1)
            dead.kill()
            for future in waits.values():
                kernel.call_later(1, future.set_result, None)
            kernel.run_for(2)
            assert woken == ["alive"]


class TestChance:
    def test_streams_are_independent_and_follow_from_seed_and_name(self) -> None:
        """A fault more in one place leaves every other place as it was."""
        with Kernel(7) as one, Kernel(7) as two, Kernel(8) as other:
            one.rng("disk/1").random()
            assert one.rng("net").random() == two.rng("net").random()
            assert one.rng("disk/1").random() != two.rng("disk/1").random()
            assert other.rng("net").random() != two.rng("net").random()
            assert one.rng("net") is one.rng("net")

    def test_the_trace_keeps_the_last_lines_and_a_digest_of_all(self) -> None:
        """Facts stand in the order of their names."""
        trace = Trace(keep=2)
        with Kernel(1, trace=trace) as kernel:

            async def main() -> None:
                await asyncio.sleep(0.25)
                trace.note("woke", z=1, a="x")

            before = trace.digest
            kernel.spawn("p", main)
            kernel.run_for(1)
            trace.note("end")
            assert trace.lines() == ["1000250.000 p woke a=x z=1", "1001000.000 - end"]
            assert trace.digest != before


def small_world(seed: int) -> str:
    """Processes that talk, stall, die and come back at random; the digest of what they did."""
    with Kernel(seed) as kernel:
        rng = kernel.rng("faults")
        boxes: dict[str, asyncio.Queue[str]] = {}

        def body(name: str) -> Callable[[], object]:
            async def main() -> None:
                boxes[name] = asyncio.Queue()
                while True:
                    try:
                        async with asyncio.timeout(kernel.rng(name).random()):
                            kernel.trace.note("got", what=await boxes[name].get())
                    except TimeoutError:
                        for other in {"a", "b", "c"} - {name} and ("a", "b", "c"):
                            boxes[other].put_nowait(f"from {name}")

            return main

        running: dict[str, SimProcess] = {}
        for _ in range(200):
            name = rng.choice("abc")
            process = running.get(name)
            if process is None or not process.alive:
                running[name] = kernel.spawn(name, body(name))  # type: ignore[arg-type]
                kernel.run_for(0.001)
            elif rng.random() < 0.3:
                process.kill()
            else:
                process.stall(rng.random())
            if len(boxes) == 3:
                kernel.run_for(rng.random())
        return kernel.trace.digest


def test_a_seed_gives_one_digest_twice_and_under_three_hash_seeds() -> None:
    """In this process, in others, and whatever order sets have there."""
    here = small_world(5)
    assert here == small_world(5) != small_world(6)
    code = "from tests.sim.test_kernel_virtual import small_world; print(small_world(5))"
    for hash_seed in ("0", "1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == here
