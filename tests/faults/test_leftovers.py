"""Whatever happens to a run, nothing of it is left, and nothing of anybody else is touched."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jepsen_lite.cluster import leftovers
from jepsen_lite.disks import capped
from jepsen_lite.disks.port import DiskError
from jepsen_lite.network.namespaces import interface_prefix, obstacle

from coord.cli.processes import MARK, marked

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 30.0

RUN = """
import asyncio, sys
from pathlib import Path
from jepsen_lite.cluster.cluster import Cluster

async def main():
    async with Cluster(Path(sys.argv[1]), servers=1, hosts=1, tell=lambda _: None) as cluster:
        await cluster.start()
        await cluster.wait_ready()
        print(cluster.mark, flush=True)
        if sys.argv[2] == "raise":
            raise RuntimeError("of the suite")
        await asyncio.sleep(600)

asyncio.run(main())
"""


def until(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.05)


def start_run(directory: Path, how: str) -> tuple[subprocess.Popen[str], str]:
    """A suite with a running cluster, and its mark."""
    suite = subprocess.Popen(
        [sys.executable, "-c", RUN, str(directory), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert suite.stdout is not None
    assert select.select([suite.stdout], [], [], 60.0)[0]
    return suite, suite.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, 0])
def test_the_end_of_the_suite_ends_everything(tmp_path: Path, number: int) -> None:
    """Ctrl-C, SIGTERM, kill -9, and 0 for an exception: processes, namespaces and mounts go."""
    suite, mark = start_run(tmp_path, "wait" if number else "raise")
    interfaces = f"{interface_prefix(mark)}*"
    with suite:
        if number:
            assert len(marked(mark)) >= 3
            in_namespaces = any(Path("/sys/class/net").glob(interfaces))
            assert in_namespaces == (not obstacle())
            suite.send_signal(number)
        suite.wait(60)
    assert suite.returncode != 0
    until("processes to end", lambda: not marked(mark))
    until("mounts to go", lambda: not leftovers.mounts(mark))
    until("interfaces to go", lambda: not any(Path("/sys/class/net").glob(interfaces)))


@pytest.fixture
def sleeper() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """`sleeper(mark)`: a process that carries it."""
    started = []

    def start(mark: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: mark}))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def mark_of_the_dead() -> str:
    """The mark of a process that has ended."""
    code = "from jepsen_lite.cluster.leftovers import new_mark; print(new_mark())"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return ended.stdout.strip()


def test_a_sweep_ends_what_a_crashed_run_left_and_nothing_else(
    sleeper: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    """Of a run whose process is gone, even its guard; not of one that lives, nor of one of another
    pid namespace or another program, of which nothing can be known."""
    dead = mark_of_the_dead()
    number, namespace = dead.split(".")[1], dead.split(".")[3]
    left = sleeper(dead)
    others = [
        sleeper(leftovers.new_mark()),
        sleeper(dead.replace(namespace, "17")),
        sleeper(f"{number}-1f2e3d"),
        sleeper(dead + "/else"),
    ]
    assert f"process {left.pid} (sleep)" in [found.what for found in leftovers.sweep()]
    left.wait(10)
    assert [other.poll() for other in others] == [None] * 4
    assert dead not in [found.mark for found in leftovers.find()]


def test_a_sweep_takes_the_mounts_of_a_crashed_run(tmp_path: Path) -> None:
    """Of the run that signed a directory above them; a mount that nobody signed stays."""
    theirs, signed = tmp_path / "theirs", tmp_path / "signed" / "disk"
    dead = mark_of_the_dead()
    leftovers.sign(signed.parent, dead)
    try:
        for where in (theirs, signed):
            capped.mount(where, 1 << 20)
    except DiskError as error:
        pytest.skip(f"nothing can be mounted: {error}")
    try:
        assert leftovers.Leftover(dead, f"mount at {signed}") in leftovers.sweep()
        assert signed not in capped.mounted()
        assert theirs in capped.mounted()
    finally:
        capped.unmount(theirs)
        capped.unmount(signed)
