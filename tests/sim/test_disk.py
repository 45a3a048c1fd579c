"""The simulated disk: the real environment's twin, and what it loses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from coord_sim.kernel import Kernel
from coord_sim.world.disk import FsyncFailed, SimDisk, SimEnvironment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coord.store.environment import DATABASES, Environment, Identity
from coord.store.ports import DataDirectoryInUse, StorageFull, WrongDataDirectory

OWN = Identity("c", 1)

KEYS = st.binary(min_size=1, max_size=2)
BOUNDS = st.one_of(st.just(b""), KEYS)
NAMES = st.sampled_from(("raft_log", "events", "state"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stage"), NAMES, KEYS, st.one_of(st.none(), st.binary(max_size=3))),
        st.tuples(st.just("stage_range_delete"), NAMES, BOUNDS, BOUNDS),
        st.tuples(st.just("commit")),
        st.tuples(st.just("replace"), NAMES, st.lists(st.tuples(NAMES, KEYS, st.binary()))),
        st.tuples(st.just("reopen")),
    ),
    max_size=25,
)


def seen(environment: Any) -> list[object]:
    """Everything that can be asked of an environment."""
    found: list[object] = [environment.identity, environment.dirty]
    for name in DATABASES:
        found += [
            environment.range(name, b"", b""),
            environment.range(name, b"\x40", b"\xc0", 3),
            environment.first(name),
            environment.last(name),
            environment.staged(name, b"", b""),
        ]
        with environment.read_transaction() as durable:
            found += [
                list(durable.range(name, b"", b"")),
                list(durable.backwards(name)),
                durable.count(name),
            ]
    return found


@given(steps=STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_it_answers_as_the_real_environment_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    """Whatever is staged, committed, replaced, and read in between or after a restart."""
    path = tmp_path_factory.mktemp("real")
    with Kernel(1) as kernel:
        disk = SimDisk(kernel, "1", str(path / "twin"))
        real = Environment.open(str(path / "real"), map_size_bytes=1 << 22, identity=OWN)
        twin = SimEnvironment.open(disk, OWN)
        for step in steps:
            if step[0] == "reopen":
                real.close()
                twin.close()
                real = Environment.open(str(path / "real"), map_size_bytes=1 << 22, identity=OWN)
                twin = SimEnvironment.open(disk, OWN)
            elif step[0] == "replace":
                # One value a key: in which order equal keys are written is nobody's promise.
                rows = list({row[:2]: row for row in step[2]}.values())
                for one in (real, twin):
                    one.replace((step[1],), lambda rows=rows: rows)  # type: ignore[misc]
            else:
                for one in (real, twin):
                    getattr(one, step[0])(*step[1:])
            assert seen(real)[2:] == seen(twin)[2:]
        assert seen(real) == seen(twin)
        real.close()


class TestFaults:
    @pytest.fixture
    def kernel(self) -> Any:
        with Kernel(1) as kernel:
            yield kernel

    @pytest.fixture
    def disk(self, kernel: Kernel, tmp_path: Path) -> SimDisk:
        return SimDisk(kernel, "1", str(tmp_path / "1"))

    def test_a_crash_loses_what_was_staged_and_keeps_what_was_committed(
        self, disk: SimDisk
    ) -> None:
        """The disk finds itself as the last commit left it."""
        environment = SimEnvironment.open(disk, OWN)
        environment.stage("state", b"a", b"1")
        environment.commit()
        environment.stage("state", b"b", b"2")
        disk.crash()
        assert SimEnvironment.open(disk, OWN).range("state", b"", b"") == [(b"a", b"1")]

    def test_a_full_disk_keeps_everything_staged(self, disk: SimDisk) -> None:
        """And takes it once there is room."""
        environment = SimEnvironment.open(disk, OWN)
        environment.stage("state", b"a", b"1")
        disk.faults.full = True
        with pytest.raises(StorageFull):
            environment.commit()
        with pytest.raises(StorageFull):
            environment.replace(("state",), lambda: [("state", b"x", b"y")])
        assert environment.dirty
        disk.faults.full = False
        environment.commit()
        assert disk.survives("state", b"a") == b"1"

    def test_a_slow_commit_stalls_its_process_and_a_crash_meanwhile_may_lose_it(
        self, kernel: Kernel, tmp_path: Path
    ) -> None:
        """It is not on the platter before the stall has ended; lost or kept as a whole."""
        outcomes = set()
        for number in range(20):
            disk = SimDisk(kernel, f"s{number}", str(tmp_path / str(number)))

            async def main(disk: SimDisk = disk) -> None:
                environment = SimEnvironment.open(disk, OWN)
                disk.faults.slow_s = (1.0, 2.0)
                for key in (b"a", b"b"):
                    environment.stage("state", key, b"1")
                environment.commit()
                await kernel.loop.create_future()

            process = kernel.spawn("p", main)
            kernel.run_for(0.5)
            assert process.paused
            assert disk.survives("state", b"a") is None
            process.kill()
            disk.crash()
            outcomes.add(tuple(disk.tables["state"].keys))
        assert outcomes == {(), (b"a", b"b")}

    def test_a_slow_commit_is_there_when_the_stall_has_ended(
        self, kernel: Kernel, disk: SimDisk
    ) -> None:
        """No crash undoes it any more."""

        async def main() -> None:
            environment = SimEnvironment.open(disk, OWN)
            disk.faults.slow_s = (1.0, 1.0)
            environment.stage("state", b"a", b"1")
            environment.commit()
            await kernel.loop.create_future()

        process = kernel.spawn("p", main)
        kernel.run_for(1.5)
        assert not process.paused
        assert disk.survives("state", b"a") == b"1"
        disk.crash()
        assert disk.tables["state"].keys == [b"a"]

    def test_a_lying_disk_loses_what_it_acknowledged(self, disk: SimDisk) -> None:
        """The checks may ask what would survive."""
        environment = SimEnvironment.open(disk, OWN)
        disk.faults.lies = True
        environment.stage("state", b"a", b"1")
        environment.commit()
        with environment.read_transaction() as durable:
            assert durable.get("state", b"a") == b"1"
        assert disk.survives("state", b"a") is None
        disk.crash()
        assert disk.tables["state"].keys == []

    def test_a_failed_fsync_is_an_error_that_no_retry_hides(self, disk: SimDisk) -> None:
        """Whoever runs on it has to stop."""
        environment = SimEnvironment.open(disk, OWN)
        disk.faults.fails_next = True
        environment.stage("state", b"a", b"1")
        with pytest.raises(FsyncFailed):
            environment.commit()
        assert disk.broken
        environment.stage("state", b"b", b"1")
        with pytest.raises(FsyncFailed):
            environment.commit()

    def test_a_process_may_die_in_the_middle_of_a_commit(
        self, kernel: Kernel, disk: SimDisk
    ) -> None:
        """It does not return from it."""
        seen: list[str] = []

        async def main() -> None:
            environment = SimEnvironment.open(disk, OWN)
            disk.faults.dies_in_commit = True
            environment.stage("state", b"a", b"1")
            environment.commit()
            seen.append("returned")

        process = kernel.spawn("p", main)
        kernel.run_for(1)
        assert (process.alive, seen) == (False, [])

    def test_a_dead_process_writes_nothing_while_its_stack_unwinds(
        self, kernel: Kernel, disk: SimDisk
    ) -> None:
        """A finally block that flushes does not reach the disk."""

        async def main() -> None:
            environment = SimEnvironment.open(disk, OWN)
            try:
                process.die()
            finally:
                environment.stage("state", b"a", b"1")
                environment.commit()

        process = kernel.spawn("p", main)
        kernel.run_for(1)
        assert disk.tables["state"].keys == []

    def test_a_bit_turns_over_only_on_a_disk_at_rest(self, disk: SimDisk) -> None:
        """And the disk remembers where, so that a refusal is expected."""
        environment = SimEnvironment.open(disk, OWN)
        environment.stage("events", b"a", b"\x00\x00")
        environment.commit()
        assert disk.flip_bit() == ""
        environment.close()
        assert disk.flip_bit() == disk.flipped[0]
        assert sum(disk.tables["events"].values[b"a"]).bit_count() == 1

    def test_a_reader_sees_the_moment_it_began(self, disk: SimDisk) -> None:
        """Whatever is committed meanwhile."""
        environment = SimEnvironment.open(disk, OWN)
        with environment.read_transaction() as before:
            environment.stage("state", b"a", b"1")
            environment.commit()
            assert before.get("state", b"a") is None
        assert disk.survives("state", b"a") == b"1"

    def test_it_is_one_server_s_alone(self, disk: SimDisk) -> None:
        """In use, another node's, nobody's."""
        with pytest.raises(WrongDataDirectory):
            SimEnvironment.open(disk, OWN, create=False)
        SimEnvironment.open(disk, OWN)
        with pytest.raises(DataDirectoryInUse):
            SimEnvironment.open(disk, OWN)
        disk.crash()
        with pytest.raises(WrongDataDirectory):
            SimEnvironment.open(disk, Identity("c", 2))
        disk.wipe()
        SimEnvironment.open(disk, Identity("c", 2))


@pytest.mark.parametrize("seed", range(12))
def test_a_commit_survives_only_with_the_one_before_it(tmp_path: Path, seed: int) -> None:
    """The first is slow, and the process does not give way before the second."""
    kernel = Kernel(seed)
    disk = SimDisk(kernel, "1", str(tmp_path / "d"))

    async def write_twice() -> None:
        environment = SimEnvironment.open(disk, OWN)
        disk.faults.slow_s = (0.5, 1.0)
        environment.stage("raft_log", b"2", b"first")
        environment.commit()
        disk.faults.slow_s = (0.0, 0.0)
        environment.stage("raft_log", b"3", b"second")
        environment.commit()

    kernel.spawn("writer", write_twice)
    kernel.run_for(0.1)
    disk.crash()
    kept = disk.tables["raft_log"].keys
    kernel.close()
    assert list(kept) in ([], [b"2"], [b"2", b"3"])


def test_what_was_durable_before_a_bit_turned_over_is_remembered(tmp_path: Path) -> None:
    """A node that acknowledged an entry had it, whatever became of its disk later."""
    kernel = Kernel(1)
    disk = SimDisk(kernel, "1", str(tmp_path / "d"))
    environment = SimEnvironment.open(disk, OWN)
    environment.stage("raft_log", b"1", b"entry")
    environment.commit()
    environment.close()
    disk.crash()
    assert disk.flip_bit(("raft_log",))
    assert disk.survives("raft_log", b"1") != b"entry"
    assert disk.undamaged("raft_log", b"1") == b"entry"
    assert disk.undamaged("raft_log", b"2") is None
    disk.tables["raft_log"].put(b"1", b"another")
    kernel.close()
    assert disk.undamaged("raft_log", b"1") == b"another"
