"""What every EventStore promises (`coord.store.ports`), on each implementation."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from coord.store.memory import MemoryEventStore
from coord.store.ports import EventStore, StorageCorrupt, StorageFull, WrongDataDirectory
from tests.store.conftest import Kind
from tests.store.records import record, records


def rows(**tables: dict[str, bytes | None]) -> dict[str, dict[str, bytes | None]]:
    return tables


def test_a_new_store_is_empty(store: EventStore) -> None:
    """And says so in every way it can be asked."""
    assert (store.first_index, store.last_index) == (1, 0)
    assert store.read(1, 10) == []
    assert list(store.scan(1, 100)) == []
    assert store.load_state() == (0, {})
    assert store.base_state() == b""


def test_staged_and_durable_entries_are_read_as_one(store: EventStore) -> None:
    """Across the seam, from any index, with any limit."""
    store.append(records(1, 3), 11)
    store.flush()
    store.append(records(4, 5), 12)
    assert store.last_index == 5
    for start in range(7):
        for limit in range(7):
            expected = list(records(max(start, 1), 5))[:limit]
            assert expected == store.read(start, limit)
    for start in range(7):
        for stop in range(8):
            expected = list(records(max(start, 1), min(stop - 1, 5)))
            assert expected == list(store.scan(start, stop))


def test_an_entry_that_does_not_follow_is_refused(store: EventStore) -> None:
    """A gap, or a repetition, is a fault of the caller."""
    store.append(records(1, 2), 1)
    for wrong in (2, 4):
        with pytest.raises(ValueError, match=f"entry {wrong} cannot follow on entry 2"):
            store.append((record(wrong),), 2)
    assert store.last_index == 2


def test_a_scan_may_be_drained_in_another_thread(store: EventStore) -> None:
    """While the loop goes on appending and committing."""
    store.append(records(1, 50), 1)
    store.flush()
    store.append(records(51, 60), 2)
    scan = store.scan(1, 61)
    found = [next(scan)]
    drained = threading.Thread(target=lambda: found.extend(scan))
    store.append(records(61, 70), 3)
    store.flush()
    drained.start()
    drained.join(30)
    assert found == list(records(1, 60))


def test_a_scan_that_is_given_up_holds_nothing(store: EventStore) -> None:
    """The store can be flushed and closed after it."""
    store.append(records(1, 9), 1)
    store.flush()
    scan = store.scan(1, 9)
    next(scan)
    del scan


def test_the_state_comes_back_with_the_entries_it_covers(store: EventStore, kind: Kind) -> None:
    """Rows are replaced and deleted one by one; the raft index is that of the last append."""
    store.append(records(1, 2), 7)
    store.put_state(rows(hosts={"a": b"1", "b": b"2"}, jobs={"j": b"3"}))
    store.flush()
    store.append((), 8)
    store.append((record(3),), 9)
    store.put_state(rows(hosts={"a": None, "b": b"4"}))
    store.flush()
    assert store.load_state() == (9, {"hosts": {"b": b"4"}, "jobs": {"j": b"3"}})
    again = kind.crashed(store)
    assert again.load_state() == (9, {"hosts": {"b": b"4"}, "jobs": {"j": b"3"}})
    assert again.read(1, 9) == list(records(1, 3))


def test_what_was_staged_is_lost_with_its_process(store: EventStore, kind: Kind) -> None:
    """State and entries alike: never one without the other."""
    store.append(records(1, 2), 7)
    store.put_state(rows(hosts={"a": b"1"}))
    store.flush()
    store.append(records(3, 4), 8)
    store.put_state(rows(hosts={"a": b"2"}))
    again = kind.crashed(store)
    assert again.load_state() == (7, {"hosts": {"a": b"1"}})
    assert again.last_index == 2


def test_entries_beyond_the_stored_state_are_applied_again(store: EventStore, kind: Kind) -> None:
    """They were durable, but the raft log starts from the state and brings them once more."""
    store.append(records(1, 2), 7)
    store.put_state(rows(hosts={"a": b"1"}))
    store.append(records(3, 5), 8)
    store.flush()
    again = kind.crashed(store)
    assert (again.load_state()[0], again.last_index, again.read(1, 9)) == (
        7,
        2,
        list(records(1, 2)),
    )
    again.append(records(3, 4), 8)
    again.flush()
    assert list(again.scan(1, 99)) == list(records(1, 4))


def test_old_entries_can_go(store: EventStore, kind: Kind) -> None:
    """They leave the state that they led to behind."""
    store.append(records(1, 6), 7)
    store.put_state(rows(hosts={"a": b"1"}))
    store.retain(4, b"state after 3")
    for found in (store, kind.crashed(store)):
        assert (found.first_index, found.last_index) == (4, 6)
        assert found.base_state() == b"state after 3"
        assert found.read(1, 9) == list(records(4, 6))
        assert list(found.scan(1, 6)) == list(records(4, 5))
    store.retain(2, b"older")
    assert (store.first_index, store.base_state()) == (4, b"state after 3")


def test_all_entries_can_go(store: EventStore, kind: Kind) -> None:
    """The count goes on where it was."""
    store.append(records(1, 6), 7)
    store.put_state({})
    store.retain(7, b"state after 6")
    again = kind.crashed(store)
    assert (again.first_index, again.last_index, again.read(1, 9)) == (7, 6, [])
    again.append((record(7),), 8)
    assert again.read(1, 9) == [record(7)]


def test_entries_that_a_restart_needs_cannot_go(store: EventStore) -> None:
    """Those that the stored state does not cover."""
    store.append(records(1, 3), 7)
    store.put_state({})
    store.append(records(4, 6), 8)
    with pytest.raises(ValueError, match="covers only those up to 3"):
        store.retain(5, b"state after 4")
    assert store.first_index == 1


def test_a_full_disk_loses_nothing_and_heals(store: EventStore, kind: Kind) -> None:
    """Flushing says so as long as it lasts; what is in memory can be read all the while."""
    store.append(records(1, 2), 7)
    store.put_state(rows(hosts={"a": b"1"}))
    store.flush()
    kind.fill_up(store)
    store.append(records(3, 4), 8)
    store.put_state(rows(hosts={"a": b"2"}))
    for _ in range(2):
        with pytest.raises(StorageFull):
            store.flush()
    assert store.read(1, 9) == list(records(1, 4))
    assert kind.crashed(store).load_state() == (7, {"hosts": {"a": b"1"}})
    kind.make_room(store)
    store.flush()
    again = kind.crashed(store)
    assert again.load_state() == (8, {"hosts": {"a": b"2"}})
    assert again.read(1, 9) == list(records(1, 4))


def test_names_of_any_length_and_alphabet_are_kept(store: EventStore) -> None:
    """An actor's name becomes a key, and nothing bounds it there."""
    names = {"": b"0", "é": b"1", "x" * 10_000: b"2", "x" * 10_000 + "y": b"3", "a/b#1": b"4"}
    store.put_state(rows(requests=dict(names)))
    store.flush()
    assert store.load_state()[1] == {"requests": names}
    store.put_state(rows(requests={"x" * 10_000: None}))
    store.flush()
    del names["x" * 10_000]
    assert store.load_state()[1] == {"requests": names}


def test_a_snapshot_makes_another_store_equal(
    store: EventStore, kind: Kind, tmp_path: Path
) -> None:
    """State, entries, base and indexes, in place of whatever was there."""
    store.append(records(1, 6), 7)
    store.put_state(rows(hosts={"a": b"1", "x" * 1_000: b"2"}))
    store.retain(3, b"state after 2")
    path = str(tmp_path / "snapshot")
    store.begin_snapshot()(path)
    other = kind.another()
    other.append(records(1, 9), 99)
    other.put_state(rows(hosts={"gone": b"9"}, jobs={"gone": b"9"}))
    other.flush()
    other.append(records(10, 12), 100)
    other.put_state(rows(hosts={"staged": b"9"}))
    other.install_snapshot(path)
    for found in (other, kind.crashed(other)):
        assert found.load_state() == store.load_state()
        assert (found.first_index, found.last_index) == (3, 6)
        assert found.base_state() == b"state after 2"
        assert found.read(1, 99) == list(records(3, 6))
        found.append((record(7),), 8)


def test_a_snapshot_is_of_the_moment_it_was_begun(
    store: EventStore, kind: Kind, tmp_path: Path
) -> None:
    """Whatever is applied and committed before it is written."""
    store.append(records(1, 2), 7)
    store.put_state(rows(hosts={"a": b"1"}))
    write = store.begin_snapshot()
    store.append(records(3, 4), 8)
    store.put_state(rows(hosts={"a": b"2"}))
    store.flush()
    path = str(tmp_path / "snapshot")
    writing = threading.Thread(target=write, args=(path,))
    writing.start()
    writing.join(30)
    other = kind.another()
    other.install_snapshot(path)
    assert other.load_state() == (7, {"hosts": {"a": b"1"}})
    assert other.last_index == 2


def test_a_snapshot_needs_a_state_that_covers_everything(store: EventStore) -> None:
    """Or a peer would start from less than the raft log believes."""
    store.append(records(1, 2), 7)
    with pytest.raises(ValueError, match="put_state first"):
        store.begin_snapshot()


def test_both_kinds_write_the_same_snapshot(store: EventStore, tmp_path: Path) -> None:
    """A file of one can be installed in the other."""
    path = str(tmp_path / "snapshot")
    store.append(records(1, 3), 7)
    store.put_state(rows(hosts={"a": b"1"}))
    store.begin_snapshot()(path)
    other = MemoryEventStore("test-cluster")
    other.install_snapshot(path)
    assert (other.load_state(), other.read(1, 9)) == (store.load_state(), store.read(1, 9))


def test_a_damaged_snapshot_changes_nothing(store: EventStore, kind: Kind, tmp_path: Path) -> None:
    """Cut off anywhere, or with any byte changed."""
    path = tmp_path / "snapshot"
    store.append(records(1, 3), 7)
    store.put_state(rows(hosts={"a": b"1"}))
    store.begin_snapshot()(str(path))
    whole = path.read_bytes()
    other = kind.another()
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        for wrong in (whole[:at], bytes(damaged)):
            path.write_bytes(wrong)
            with pytest.raises(StorageCorrupt, match="snapshot"):
                other.install_snapshot(str(path))
    assert (other.last_index, other.load_state()) == (0, (0, {}))
    path.write_bytes(whole)
    other.install_snapshot(str(path))
    assert other.last_index == 3


def test_a_snapshot_of_another_cluster_is_refused(store: EventStore, tmp_path: Path) -> None:
    """By name."""
    stranger = MemoryEventStore("elsewhere")
    path = str(tmp_path / "snapshot")
    stranger.begin_snapshot()(path)
    with pytest.raises(WrongDataDirectory, match="'elsewhere', not 'test-cluster'"):
        store.install_snapshot(path)


def test_the_size_is_known(store: EventStore) -> None:
    """In bytes, and it grows."""
    before = store.size_bytes()
    store.put_state(rows(hosts={"a": b"1" * 100_000}))
    store.flush()
    assert store.size_bytes() > before
