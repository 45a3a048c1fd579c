"""Damage to the journal of a stopped server: where it falls, and that the server minds."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import lmdb
import pytest
from jepsen_lite.disks.damage import JOURNALS, damage_journal, flip, tear
from jepsen_lite.disks.machine import Disks, MachineDisk
from jepsen_lite.disks.pages import DataFile
from jepsen_lite.disks.port import DiskError

from coord.raft.journal import Journal
from coord.store.environment import DATABASES, Environment, Identity
from coord.store.events import LmdbEventStore
from coord.store.ports import StorageCorrupt
from tests.store.records import records

ENTRIES = 300


def store_at(path: Path) -> None:
    """A server's store with some entries, one of which takes several pages."""
    environment = Environment.open(str(path), 1 << 22, Identity("c1", 1))
    journal = Journal(environment, ())
    store = LmdbEventStore(environment)
    for start in range(0, ENTRIES, 50):
        store.append(records(start + 1, start + 50), start + 50)
        for index in range(start + 2, start + 52):
            journal.add(b"x" * (20_000 if index == 77 else 90), index, 1)
        store.put_state({})
        environment.commit()
    environment.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a store; not to be written to."""
    path = tmp_path_factory.mktemp("sound") / "data"
    store_at(path)
    return path


def test_rows_are_found_where_they_stand(sound: Path) -> None:
    """All that LMDB itself reads, byte for byte, and nothing else."""
    content = (sound / "data.mdb").read_bytes()
    found = {
        (row.database, row.key): content[row.offset : row.offset + row.size_bytes]
        for row in DataFile(sound / "data.mdb").rows()
    }
    environment = lmdb.open(str(sound), max_dbs=len(DATABASES), readonly=True, lock=False)
    expected = {}
    for name in DATABASES:
        handle = environment.open_db(name.encode(), create=False)
        with environment.begin(db=handle) as transaction:
            expected |= {(name, bytes(key)): bytes(value) for key, value in transaction.cursor()}
    environment.close()
    assert found == expected
    assert sum(name in JOURNALS for name, _ in found) > 2 * ENTRIES - 10


@pytest.mark.parametrize("hurt", [flip, tear])
def test_a_damaged_row_is_noticed(sound: Path, tmp_path: Path, hurt: object) -> None:
    """Flipped bits by the checksum, when the row is read. (A torn sector may hit LMDB's own words
    as well, and then LMDB or the kernel speaks up.)"""
    rows = [row for row in DataFile(sound / "data.mdb").rows() if row.database in JOURNALS]
    assert callable(hurt)
    assert intact(sound)
    for seed in range(24):
        rng = random.Random(seed)
        data = tmp_path / str(seed)
        shutil.copytree(sound, data)
        row = rng.choice(rows)
        assert f"{row.database} entry" in hurt(data / "data.mdb", row, rng)
        before = (sound / "data.mdb").read_bytes()
        after = (data / "data.mdb").read_bytes()
        differing = [place for place in range(len(before)) if before[place] != after[place]]
        assert differing
        assert row.offset <= differing[0] < row.offset + row.size_bytes
        if hurt is flip:
            assert differing[-1] < row.offset + row.size_bytes
            assert not intact(data)


def intact(data: Path) -> bool:
    """Whether a server would find its journal and its event log as they were written."""
    environment = Environment.open(str(data), create=False)
    try:
        Journal(environment, ())
        store = LmdbEventStore(environment)
        list(store.scan(1, store.last_index + 1))
    except StorageCorrupt:
        return False
    finally:
        environment.close()
    return True


def test_a_seed_damages_the_same_bytes(sound: Path, tmp_path: Path) -> None:
    told, contents = set(), set()
    for copy in ("one", "two"):
        shutil.copytree(sound, tmp_path / copy)
        told.add(damage_journal(tmp_path / copy, random.Random(5)))
        contents.add((tmp_path / copy / "data.mdb").read_bytes())
    assert (len(told), len(contents)) == (1, 1)


def test_seeds_reach_both_journals_and_both_kinds(sound: Path, tmp_path: Path) -> None:
    told = set()
    for seed in range(20):
        data = tmp_path / str(seed)
        shutil.copytree(sound, data)
        words = damage_journal(data, random.Random(seed))
        told.add((words.split()[0], words.split(", ")[-2].split()[0]))
    assert told == {(how, name) for how in ("flipped", "tore") for name in JOURNALS}


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"data.mdb cannot be read: No such file"):
        damage_journal(tmp_path, random.Random(1))
    (tmp_path / "data.mdb").write_bytes(b"no pages here" * 1_000)
    with pytest.raises(DiskError, match="is no data file of a server"):
        damage_journal(tmp_path, random.Random(1))


def test_an_open_store_is_not_damaged(tmp_path: Path) -> None:
    disks = Disks(tmp_path, environ={})
    try:
        disk: MachineDisk = disks.open("s1")
        environment = Environment.open(str(disk.directory), identity=Identity("c1", 1))
        with pytest.raises(DiskError, match=r"a server still has .* open; stop it"):
            disk.damage(random.Random(1))
        environment.close()
        with pytest.raises(DiskError, match="holds no row of raft_log or events"):
            disk.damage(random.Random(1))
    finally:
        disks.close()
