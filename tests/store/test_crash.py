"""What a killed process leaves behind."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import lmdb
import pytest

from coord.store.environment import Environment, Identity
from coord.store.events import LmdbEventStore
from coord.store.ports import StorageCorrupt
from tests.store.records import records

ROOT = Path(__file__).resolve().parent.parent.parent
IDENTITY = Identity("c1", 1)
PAGE_BYTES = 4096
PAGE_FLAGS_AT = 10
"""In a page of LMDB."""


def write_until_killed(path: str, entries: int) -> int:
    """The last index that the child called durable before it was killed with SIGKILL."""
    command = [sys.executable, "-m", "tests.store.writing_child", path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(entries):
            assert child.stdout.readline()
        child.kill()
        return max([int(line) for line in child.stdout.read().split()], default=0)


def test_a_killed_process_leaves_a_consistent_prefix(tmp_path: Path) -> None:
    """Every time: nothing that was called durable is missing, and all of a commit is there."""
    path = str(tmp_path / "node")
    for entries in (1, 40, 7, 100):
        acknowledged = write_until_killed(path, entries)
        environment = Environment.open(path, identity=IDENTITY, create=False)
        durable = len(environment.range("events", b"", b""))
        assert durable >= acknowledged
        assert len(environment.range("raft_log", b"", b"")) >= durable
        store = LmdbEventStore(environment)
        raft_index, tables = store.load_state()
        covered = durable - durable % 3
        assert (raft_index, store.last_index) == (covered, covered)
        if covered:
            assert tables["hosts"]["newest"] == str(covered).encode()
        assert list(store.scan(1, covered + 1)) == list(records(1, covered))
        store.flush()
        environment.close()


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    """With its file, its index and what to do, and never returned as if it were whole."""
    environment = Environment.open(str(tmp_path / "node"), identity=IDENTITY)
    store = LmdbEventStore(environment)
    store.append(records(1, 3), 1)
    key = (2).to_bytes(8, "big")
    stored = environment.get("events", key)
    assert stored is not None
    no_record = b"\xff\xff"
    for damaged in (
        stored[:-1] + bytes([stored[-1] ^ 1]),
        zlib.crc32(no_record).to_bytes(4, "big") + no_record,
        b"",
    ):
        environment.stage("events", key, damaged)
        with pytest.raises(
            StorageCorrupt, match=r"data.mdb, entry 2: .*coordctl cluster remove NODE"
        ):
            store.read(1, 10)
        with pytest.raises(StorageCorrupt, match="entry 2"):
            list(store.scan(1, 10))
    environment.close()


def test_a_damaged_entry_is_not_handed_on(tmp_path: Path) -> None:
    """A snapshot would bring it to a peer whose own data is whole."""
    environment = Environment.open(str(tmp_path / "node"), identity=IDENTITY)
    store = LmdbEventStore(environment)
    store.append(records(1, 3), 1)
    store.put_state({})
    key = (2).to_bytes(8, "big")
    stored = environment.get("events", key)
    assert stored is not None
    environment.stage("events", key, stored[:-1] + bytes([stored[-1] ^ 1]))
    write = store.begin_snapshot()
    with pytest.raises(StorageCorrupt, match="entry 2: its checksum does not match"):
        write(str(tmp_path / "snapshot"))
    environment.close()


@pytest.mark.parametrize("key", [b"\x00", b"\x00" * 7 + b"\x02x", b"zzz"])
def test_an_entry_under_a_key_that_is_none_is_named(tmp_path: Path, key: bytes) -> None:
    """Bits turn over in keys as well; in the last one the server meets it when it starts."""
    path = str(tmp_path / "node")
    environment = Environment.open(path, identity=IDENTITY)
    store = LmdbEventStore(environment)
    store.append(records(1, 3), 1)
    stored = environment.get("events", (2).to_bytes(8, "big"))
    environment.stage("events", (2).to_bytes(8, "big"), None)
    environment.stage("events", key, stored)
    store.put_state({})
    store.flush()
    with pytest.raises(StorageCorrupt, match=r"data.mdb.*coordctl cluster remove NODE"):
        store.read(1, 10)
    with pytest.raises(StorageCorrupt, match="coordctl cluster remove NODE"):
        list(store.scan(1, 10))
    write = store.begin_snapshot()
    with pytest.raises(StorageCorrupt, match="coordctl cluster remove NODE"):
        write(str(tmp_path / "snapshot"))
    if key > b"\x01":
        with pytest.raises(StorageCorrupt, match="coordctl cluster remove NODE"):
            LmdbEventStore(environment)
    environment.close()


@pytest.mark.parametrize(
    ("database", "key", "value"),
    [
        ("store_meta", b"first_index", b"short"),
        ("store_meta", b"state_index", b""),
        ("state", b"jobs\x00\xff" + b"h" * 32, b"\xff\xff\xff\xffshort"),
        ("state", b"jobs\x00\xff" + b"h" * 32, b"s"),
        ("state", b"jobs\x00\xc3", b"row"),
    ],
)
def test_what_the_state_is_read_from_may_be_damaged_too(
    tmp_path: Path, database: str, key: bytes, value: bytes
) -> None:
    environment = Environment.open(str(tmp_path / "node"), identity=IDENTITY)
    store = LmdbEventStore(environment)
    store.append(records(1, 3), 1)
    store.put_state({})
    environment.stage(database, key, value)
    environment.commit()
    with pytest.raises(StorageCorrupt, match=r"data.mdb.*coordctl cluster remove NODE"):
        LmdbEventStore(environment).load_state()
    environment.close()


@pytest.mark.parametrize("key", [b"format", b"cluster", b"node"])
def test_whose_directory_it_is_may_be_damaged(tmp_path: Path, key: bytes) -> None:
    path = str(tmp_path / "node")
    environment = Environment.open(path, identity=IDENTITY)
    environment.stage("store_meta", key, b"\xff")
    environment.commit()
    environment.close()
    with pytest.raises(StorageCorrupt, match=r"data.mdb.*coordctl cluster remove NODE"):
        Environment.open(path, identity=IDENTITY)


def spoil_pages(path: str, keeps_pages: int = 2) -> None:
    """Have no page of the file but the first look like one of LMDB's, as after a write that went
    astray. A process that has it open sees it at once."""
    with open(f"{path}/data.mdb", "r+b") as file:
        size_bytes = file.seek(0, 2)
        for page in range(keeps_pages, size_bytes // PAGE_BYTES):
            file.seek(page * PAGE_BYTES + PAGE_FLAGS_AT)
            file.write(b"\x10\x00")


def test_a_damaged_page_is_named_whoever_meets_it(tmp_path: Path) -> None:
    path = str(tmp_path / "node")
    environment = Environment.open(path, identity=IDENTITY)
    store = LmdbEventStore(environment)
    store.append(records(1, 500), 1)
    store.put_state({})
    store.flush()
    write = store.begin_snapshot()
    spoil_pages(path)
    environment.stage("raft_log", b"key", b"value")
    for meet in (
        lambda: store.read(1, 10),
        lambda: list(store.scan(1, 500)),
        lambda: write(str(tmp_path / "snapshot")),
        store.load_state,
        lambda: environment.range("events", b"", b""),
        lambda: environment.get("store_meta", b"node"),
        lambda: environment.last("events"),
        lambda: LmdbEventStore(environment),
        lambda: environment.copy_to(str(tmp_path / "copy")),
        environment.commit,
        environment.commit,
    ):
        with pytest.raises(StorageCorrupt, match=r"data.mdb.*coordctl cluster remove NODE"):
            meet()
    environment.close()
    with pytest.raises(StorageCorrupt, match=r"data.mdb.*coordctl cluster remove NODE"):
        Environment.open(path, identity=IDENTITY)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_missing_entry_is_named(tmp_path: Path, lost: int) -> None:
    """A reader must not take what a damaged page hides for the end of the log."""
    environment = Environment.open(str(tmp_path / "node"), identity=IDENTITY)
    store = LmdbEventStore(environment)
    store.append(records(1, 3), 1)
    store.flush()
    environment.stage("events", lost.to_bytes(8, "big"), None)
    environment.commit()
    with pytest.raises(StorageCorrupt, match=f"entry {lost} is missing; stop this server"):
        store.read(1, 10)
    with pytest.raises(StorageCorrupt, match=f"entry {lost} is missing"):
        list(store.scan(1, 10))
    there = [index for index in (1, 2, 3) if index != lost]
    assert [record.entry.index for index in there for record in store.read(index, 1)] == there
    environment.close()


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    """LMDB would have the kernel end the process at the first page that is not there."""
    path = str(tmp_path / "node")
    environment = Environment.open(path, identity=IDENTITY)
    store = LmdbEventStore(environment)
    store.append(records(1, 500), 1)
    store.flush()
    environment.close()
    data = tmp_path / "node" / "data.mdb"
    size_bytes = data.stat().st_size
    with data.open("r+b") as file:
        file.truncate(size_bytes // 2)
    with pytest.raises(StorageCorrupt, match=rf"cut off: it has \d+ of {size_bytes} bytes"):
        Environment.open(path, identity=IDENTITY)


def test_a_file_without_a_page_that_nobody_needs_is_opened(tmp_path: Path) -> None:
    """LMDB does not write pages at the end that the same transaction gave back."""
    path = str(tmp_path / "node")
    Environment.open(path, identity=IDENTITY).close()
    value = b"v" * 100_000
    with lmdb.open(path, max_dbs=8) as foreign:
        handle = foreign.open_db(b"raft_log")
        for number in range(5):
            with foreign.begin(write=True) as transaction:
                transaction.put(b"kept %d" % number, value, db=handle)
                for key in (b"a", b"b", b"c"):
                    transaction.put(key, value, db=handle)
                for key in (b"a", b"b", b"c"):
                    transaction.delete(key, db=handle)
        pages_bytes = (foreign.info()["last_pgno"] + 1) * foreign.stat()["psize"]
    assert (tmp_path / "node" / "data.mdb").stat().st_size < pages_bytes
    Environment.open(path, identity=IDENTITY).close()
