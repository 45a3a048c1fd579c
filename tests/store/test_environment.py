"""The LMDB environment of a node: staging, identity, and what a full disk does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coord.store.environment import DATABASES, Environment, Identity
from coord.store.ports import DataDirectoryInUse, StorageCorrupt, StorageFull, WrongDataDirectory

IDENTITY = Identity("c1", 1)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    opened = Environment.open(str(tmp_path / "node"), 1 << 20, IDENTITY)
    yield opened
    opened.close()


# Staging

KEYS = st.binary(min_size=1, max_size=2)
BOUNDS = st.binary(max_size=2)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.binary(max_size=3)),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.just("delete_range"), BOUNDS, BOUNDS),
        st.tuples(st.just("commit"), st.none(), st.none()),
    ),
    max_size=30,
)


def within(key: bytes, start: bytes, stop: bytes) -> bool:
    return start <= key and (not stop or key < stop)


@settings(max_examples=150, deadline=None)
@given(operations=OPERATIONS, start=BOUNDS, stop=BOUNDS, limit=st.none() | st.integers(0, 4))
def test_reads_see_what_a_plain_dict_would(
    tmp_path_factory: pytest.TempPathFactory,
    operations: list[tuple[str, bytes, bytes]],
    start: bytes,
    stop: bytes,
    limit: int | None,
) -> None:
    """Whatever was staged and committed in whatever order, also after opening again."""
    path = str(tmp_path_factory.mktemp("environment") / "node")
    environment = Environment.open(path, 1 << 20, IDENTITY)
    expected: dict[bytes, bytes] = {}
    for name, key, value in operations:
        if name == "commit":
            environment.commit()
            assert not environment.dirty
        elif name == "delete_range":
            environment.stage_range_delete("events", key, value)
            expected = {one: expected[one] for one in expected if not within(one, key, value)}
        else:
            environment.stage("events", key, value)
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
    for _ in range(2):
        wanted = sorted(item for item in expected.items() if within(item[0], start, stop))
        assert wanted[:limit] == environment.range("events", start, stop, limit)
        assert all(expected.get(key) == environment.get("events", key) for key in (b"a", *expected))
        everything = sorted(expected.items())
        assert environment.first("events") == (everything[0] if everything else None)
        assert environment.last("events") == (everything[-1] if everything else None)
        environment.commit()
        environment.close()
        environment = Environment.open(path, identity=IDENTITY, create=False)
    environment.close()


def test_databases_do_not_see_each_other(environment: Environment) -> None:
    """The same key means something else in each."""
    for database in DATABASES[:-1]:
        environment.stage(database, b"k", database.encode())
    environment.stage_range_delete("state", b"", b"")
    environment.commit()
    assert environment.get("raft_log", b"k") == b"raft_log"
    assert environment.get("state", b"k") is None


def test_a_transaction_sees_one_moment(environment: Environment) -> None:
    """From another thread, while the loop commits."""
    environment.stage("events", b"1", b"old")
    environment.commit()
    environment.stage("events", b"2", b"staged")
    begun, committed, seen = threading.Event(), threading.Event(), []

    def read() -> None:
        with environment.read_transaction() as transaction:
            begun.set()
            assert committed.wait(30)
            seen.extend(transaction.range("events", b"", b""))

    reading = threading.Thread(target=read)
    reading.start()
    assert begun.wait(30)
    environment.stage("events", b"1", b"new")
    environment.commit()
    committed.set()
    reading.join(30)
    assert seen == [(b"1", b"old")]
    assert environment.range("events", b"", b"") == [(b"1", b"new"), (b"2", b"staged")]


@pytest.mark.parametrize("key", [b"", b"x" * 512])
def test_a_key_that_cannot_be_stored_is_refused_at_once(
    environment: Environment, key: bytes
) -> None:
    """And not by a commit that could then never succeed."""
    with pytest.raises(ValueError, match="it must have 1 to 511"):
        environment.stage("events", key, b"v")
    assert not environment.dirty


def test_an_unknown_database_is_named(environment: Environment) -> None:
    """With those that exist."""
    for call in (
        lambda: environment.get("evens", b"k"),
        lambda: environment.stage("evens", b"k", b"v"),
        lambda: environment.range("evens", b"", b""),
    ):
        with pytest.raises(KeyError, match=r"'evens'; there are .*events"):
            call()


def test_a_commit_is_timed_and_an_empty_one_is_free(environment: Environment) -> None:
    """The time it took is kept for metrics."""
    environment.stage("events", b"k", b"v")
    environment.commit()
    took_ms = environment.last_commit_ms
    assert took_ms > 0
    environment.commit()
    assert environment.last_commit_ms == took_ms


# Whose directory it is


def test_a_directory_remembers_whose_it_is(environment: Environment) -> None:
    """Its path and its owner can be asked for."""
    assert environment.identity == IDENTITY
    environment.close()
    opened = Environment.open(environment.path)
    assert opened.identity == IDENTITY
    opened.close()


@pytest.mark.parametrize(
    ("identity", "says"),
    [
        (Identity("c2", 1), "belongs to cluster 'c1', not 'c2'"),
        (Identity("c1", 2), "belongs to node 1, not 2"),
    ],
)
def test_anothers_directory_is_refused(
    environment: Environment, identity: Identity, says: str
) -> None:
    """By the names of both, and the right owner can still open it."""
    environment.close()
    with pytest.raises(WrongDataDirectory, match=says):
        Environment.open(environment.path, identity=identity)
    Environment.open(environment.path, identity=IDENTITY).close()


def test_a_newer_format_is_refused(environment: Environment) -> None:
    """By both numbers."""
    environment.stage("store_meta", b"format", b"9")
    environment.commit()
    environment.close()
    with pytest.raises(WrongDataDirectory, match="has data format 9, this release reads up to 1"):
        Environment.open(environment.path, identity=IDENTITY)


def test_a_directory_without_data_is_only_made_on_request(tmp_path: Path) -> None:
    """A mistyped path must not become a second, empty server."""
    with pytest.raises(WrongDataDirectory, match="holds no data of a server"):
        Environment.open(str(tmp_path / "typo"), identity=IDENTITY, create=False)
    assert not (tmp_path / "typo").exists()


def test_the_directory_of_an_agent_is_refused(tmp_path: Path) -> None:
    """Both would work in it for a while, and neither could be moved or removed alone."""
    (tmp_path / "agent.json").write_text("{}")
    with pytest.raises(WrongDataDirectory, match="is the data directory of an agent"):
        Environment.open(str(tmp_path), identity=IDENTITY)
    assert [path.name for path in tmp_path.iterdir()] == ["agent.json"]


def test_an_lmdb_of_another_program_is_refused(tmp_path: Path) -> None:
    """It has databases, or keys of its own, but no format."""
    with lmdb.open(str(tmp_path), max_dbs=1) as foreign:
        handle = foreign.open_db(b"events")
        with foreign.begin(write=True) as transaction:
            transaction.put(b"k", b"v", db=handle)
    with pytest.raises(WrongDataDirectory, match="has data without a format"):
        Environment.open(str(tmp_path), identity=IDENTITY)


def test_a_file_that_is_no_lmdb_is_named(tmp_path: Path) -> None:
    """With what to do about it."""
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1_000)
    with pytest.raises(
        StorageCorrupt, match=r"data.mdb cannot be opened: .*move its data directory"
    ):
        Environment.open(str(tmp_path), identity=IDENTITY)


def test_a_directory_is_open_once(environment: Environment) -> None:
    """A second opening, here or in another process, names the process that has it."""
    with pytest.raises(DataDirectoryInUse, match=f"process with id {os.getpid()}"):
        Environment.open(environment.path, identity=IDENTITY)
    code = (
        "import sys; from coord.store.environment import Environment, Identity\n"
        "Environment.open(sys.argv[1], identity=Identity('c1', 1))"
    )
    command = [sys.executable, "-c", code, environment.path]
    other = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert f"process with id {os.getpid()}" in other.stderr
    environment.close()
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


def test_closing_is_refused_under_a_reader(environment: Environment) -> None:
    """Its pages would vanish; once the reader is gone it closes, as often as one likes."""
    with (
        environment.read_transaction(),
        pytest.raises(RuntimeError, match="cannot be closed under 1 readers"),
    ):
        environment.close()
    environment.close()
    environment.close()
    with (
        pytest.raises(RuntimeError, match="is closed"),
        environment.read_transaction(),
    ):
        pytest.fail("a closed environment was read")


# Room


def test_the_map_grows_with_its_contents(tmp_path: Path) -> None:
    """From the smallest, over many times its size, in one commit."""
    environment = Environment.open(str(tmp_path / "node"), 1 << 16, IDENTITY)
    for number in range(1_000):
        environment.stage("events", number.to_bytes(8, "big"), b"x" * 4_000)
    environment.commit()
    assert environment.size_bytes() > 4_000_000
    environment.close()
    again = Environment.open(str(tmp_path / "node"), 1 << 16, IDENTITY)
    assert len(again.range("events", b"", b"")) == 1_000
    again.stage("events", b"more", b"y" * 10_000_000)
    again.commit()
    again.close()


def test_a_full_map_says_so_and_heals(tmp_path: Path) -> None:
    """Nothing is half written; what was pending is written once there is room."""
    path = str(tmp_path / "node")
    environment = Environment.open(path, 1 << 18, IDENTITY, max_map_size_bytes=1 << 18)
    environment.stage("events", b"1", b"one")
    environment.commit()
    environment.stage("events", b"2", b"two")
    environment.stage("state", b"big", b"x" * (1 << 19))
    for _ in range(3):
        with pytest.raises(StorageFull, match=r"262144 bytes is full .*nothing was written"):
            environment.commit()
    assert environment.dirty
    with environment.read_transaction() as transaction:
        assert list(transaction.range("events", b"", b"")) == [(b"1", b"one")]
    assert environment.get("events", b"2") == b"two"
    environment.limit_map(0)
    environment.commit()
    assert not environment.dirty
    assert environment.get("state", b"big") == b"x" * (1 << 19)
    environment.close()


def test_a_full_map_under_a_reader_heals_when_the_reader_goes(tmp_path: Path) -> None:
    """The map cannot move while somebody reads from it."""
    environment = Environment.open(str(tmp_path / "node"), 1 << 18, IDENTITY)
    environment.stage("state", b"big", b"x" * (1 << 19))
    with (
        environment.read_transaction(),
        pytest.raises(StorageFull, match="must not grow now"),
    ):
        environment.commit()
    environment.commit()
    environment.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=30)


def test_a_full_disk_says_so_and_heals(small_disk: Path) -> None:
    """With a real file system that has no room left, then has again."""
    ballast = small_disk / "ballast"
    environment = Environment.open(str(small_disk / "node"), identity=IDENTITY)
    environment.stage("events", b"1", b"one")
    environment.commit()
    for number in range(200):
        environment.stage("state", number.to_bytes(8, "big"), b"x" * 2_000)
    ballast.write_bytes(b"x" * 600_000)
    for _ in range(3):
        with pytest.raises(StorageFull, match="the disk is full"):
            environment.commit()
        assert environment.get("events", b"1") == b"one"
    ballast.unlink()
    environment.commit()
    environment.close()
    again = Environment.open(str(small_disk / "node"), identity=IDENTITY)
    assert len(again.range("state", b"", b"")) == 200
    again.close()


def test_a_full_disk_cannot_hold_a_new_directory(small_disk: Path) -> None:
    """Opening says so too, and leaves the directory free for another try."""
    ballast = small_disk / "ballast"
    with ballast.open("wb") as file:
        while True:
            try:
                os.write(file.fileno(), b"x" * 4_096)
            except OSError:
                break
    with pytest.raises(StorageFull):
        Environment.open(str(small_disk / "node"), identity=IDENTITY)
    ballast.unlink()
    Environment.open(str(small_disk / "node"), identity=IDENTITY).close()


# The file


def test_a_copy_is_the_same_directory_elsewhere(environment: Environment, tmp_path: Path) -> None:
    """Without what was only staged, and while the loop goes on."""
    environment.stage("events", b"1", b"one")
    environment.commit()
    environment.stage("events", b"2", b"two")
    copying = threading.Thread(target=environment.copy_to, args=(str(tmp_path / "copy"),))
    copying.start()
    copying.join(30)
    copy = Environment.open(str(tmp_path / "copy"), identity=IDENTITY)
    assert copy.range("events", b"", b"") == [(b"1", b"one")]
    copy.close()


def test_replacing_is_one_step_with_what_is_staged(environment: Environment) -> None:
    """The contents win over what was there and over what was staged for the same database."""
    environment.stage("state", b"old", b"1")
    environment.commit()
    environment.stage("state", b"staged", b"2")
    environment.stage("raft_log", b"kept", b"3")
    environment.replace(("state",), lambda: [("state", b"new", b"4"), ("store_meta", b"m", b"5")])
    assert not environment.dirty
    assert environment.range("state", b"", b"") == [(b"new", b"4")]
    assert environment.get("raft_log", b"kept") == b"3"
    assert environment.get("store_meta", b"m") == b"5"


def test_a_replacement_that_fails_changes_nothing(environment: Environment) -> None:
    """What was staged stays staged."""
    environment.stage("state", b"old", b"1")
    environment.commit()
    environment.stage("raft_log", b"staged", b"2")

    def contents() -> Iterator[tuple[str, bytes, bytes]]:
        yield "state", b"new", b"3"
        raise StorageCorrupt("the source ends early")

    with pytest.raises(StorageCorrupt):
        environment.replace(("state",), contents)
    assert environment.range("state", b"", b"") == [(b"old", b"1")]
    assert environment.dirty
    environment.commit()
    assert environment.get("raft_log", b"staged") == b"2"


def test_nothing_is_committed_after_a_commit_that_failed_for_good(tmp_path: Path) -> None:
    """A second fsync may succeed without having written what the first one lost."""
    environment = Environment.open(str(tmp_path / "node"), identity=Identity("c", 1))
    environment.stage("state", b"a", b"1")
    failing = lmdb.Error("mdb_txn_commit: the device is gone")
    failing.code = 9
    whole = environment._write

    def fails(*_: object) -> None:
        raise failing

    environment._write = fails  # type: ignore[method-assign]
    with pytest.raises(lmdb.Error, match="the device is gone"):
        environment.commit()
    environment._write = whole  # type: ignore[method-assign]
    with pytest.raises(lmdb.Error, match="the device is gone"):
        environment.commit()
    environment.close()
