"""The raft log on disk: what is found again after a crash, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from coord.raft.journal import HardState, Journal, SnapshotRecord
from coord.raft.library import MEMBERSHIP, NO_OP, PeerNode, regular_command
from coord.raft.ports import Member
from coord.raft.unpickle import dumps
from coord.store.environment import Environment, Identity
from coord.store.ports import StorageCorrupt
from tests.raft.fakes import FakeEnvironment

MEMBERS = tuple(Member(node, f"peer:{node}", f"api:{node}") for node in (1, 2, 3))
FOURTH = Member(4, "peer:4", "api:4")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    opened = Environment.open(str(tmp_path / "data"), identity=Identity("test", 1), create=True)
    yield opened
    opened.close()


def entry(number: int) -> bytes:
    return regular_command(b"payload %d" % number)


def change(adds: bool, member: Member) -> bytes:
    node = PeerNode(member.node, member.peer_address, member.api_address)
    return MEMBERSHIP + dumps(["add" if adds else "rem", member.node, node])


def filled(environment: Environment | FakeEnvironment, last: int = 5) -> Journal:
    journal = Journal(environment, MEMBERS)
    for index in range(2, last + 1):
        journal.add(entry(index), index, 1)
    journal.setCurrentTerm(1, 2)
    environment.commit()
    journal.committed()
    return journal


def test_a_new_log_has_one_entry_that_is_the_same_everywhere(environment: Environment) -> None:
    """The library's first entry."""
    journal = Journal(environment, MEMBERS)
    assert journal[0] == (NO_OP, 1, 0)
    assert (len(journal), journal.members) == (1, MEMBERS)


def test_what_was_committed_is_found_again(environment: Environment) -> None:
    """Entries, term, vote, commit hint, members."""
    journal = filled(environment)
    journal.setRaftCommitIndex(4)
    environment.commit()
    again = Journal(environment, ())
    assert [again[n] for n in range(len(again))] == [journal[n] for n in range(len(journal))]
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (1, 2)
    assert again.getRaftCommitIndex() == 4
    assert again.members == MEMBERS


def test_what_was_not_committed_is_not(tmp_path: Path) -> None:
    """A crash sees the old log or the new one, never half of a truncation."""
    disk = FakeEnvironment(str(tmp_path))
    journal = filled(disk)
    journal.deleteEntriesFrom(2)
    journal.add(entry(33), 3, 2)
    assert journal.dirty
    disk.crash()
    assert Journal(disk, ()).last_index == 5
    journal = Journal(disk, ())
    journal.deleteEntriesFrom(2)
    journal.add(entry(33), 3, 2)
    disk.commit()
    disk.crash()
    assert (Journal(disk, ()).last_index, Journal(disk, ()).term_at(3)) == (3, 2)


def test_a_flipped_bit_stops_the_node(environment: Environment) -> None:
    """By index and file, with what repairs it."""
    filled(environment)
    key = (3).to_bytes(8, "big")
    stored = environment.get("raft_log", key)
    assert stored is not None
    environment.stage("raft_log", key, stored[:-1] + bytes([stored[-1] ^ 1]))
    environment.commit()
    with pytest.raises(StorageCorrupt, match=r"data\.mdb: raft log index 3: its checksum.*rejoin"):
        Journal(environment, ())


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\x00" * 7 + b"\x03x", b"v" * 20), (b"k", b"v" * 20), ((6).to_bytes(8, "big"), b"short")],
)
def test_a_row_that_is_no_entry_stops_the_node(
    environment: Environment, key: bytes, value: bytes
) -> None:
    """Bits turn over in keys and lengths as well."""
    filled(environment)
    environment.stage("raft_log", key, value)
    environment.commit()
    with pytest.raises(StorageCorrupt, match=r"data\.mdb: raft log .*rejoin"):
        Journal(environment, ())


def test_a_gap_stops_the_node(environment: Environment) -> None:
    """An entry that is missing was acknowledged once."""
    filled(environment)
    environment.stage("raft_log", (3).to_bytes(8, "big"), None)
    environment.commit()
    with pytest.raises(StorageCorrupt, match="raft log index 4: the entry before it is 2"):
        Journal(environment, ())


def test_a_log_without_hard_state_is_refused(environment: Environment) -> None:
    """Starting could vote twice in one term."""
    filled(environment)
    environment.stage("raft_meta", b"hard_state", None)
    environment.commit()
    with pytest.raises(StorageCorrupt, match="lacks the term and the vote of a log that ends at"):
        Journal(environment, ())


@pytest.mark.parametrize("stored", [b"", b"{", b'{"term": "seven"}'])
def test_a_hard_state_that_cannot_be_read_is_refused(
    environment: Environment, stored: bytes
) -> None:
    """A zero-length one above all: it would forget the vote."""
    filled(environment)
    environment.stage("raft_meta", b"hard_state", stored)
    environment.commit()
    with pytest.raises(StorageCorrupt, match="raft_meta hard_state cannot be read"):
        Journal(environment, ())


def test_the_vote_is_dirty_until_committed(environment: Environment) -> None:
    journal = filled(environment)
    assert not journal.dirty
    journal.setCurrentTerm(2, None)
    assert (journal.hard_state_dirty, journal.entries_dirty) == (True, False)


def test_a_commit_hint_alone_need_not_be_synced(environment: Environment) -> None:
    journal = filled(environment)
    journal.setRaftCommitIndex(5)
    assert (journal.dirty, environment.dirty) == (False, True)


def test_members_follow_the_log(environment: Environment) -> None:
    """From the moment a change is appended, and back when it is cut off again."""
    journal = filled(environment)
    journal.add(change(True, FOURTH), 6, 1)
    assert journal.members == (*MEMBERS, FOURTH)
    assert journal.has_change_after(5)
    assert not journal.has_change_after(6)
    journal.add(change(False, MEMBERS[0]), 7, 1)
    assert journal.members == (*MEMBERS[1:], FOURTH)
    journal.deleteEntriesFrom(6)
    assert journal.members == (*MEMBERS, FOURTH)
    journal.deleteEntriesFrom(5)
    assert journal.members == MEMBERS


def test_members_outlive_the_entry_that_made_them(environment: Environment) -> None:
    """Compaction forgets the entry, not the configuration."""
    journal = filled(environment)
    journal.add(change(True, FOURTH), 6, 1)
    for index in range(7, 12):
        journal.add(entry(index), index, 1)
    journal.shorten(9)
    environment.commit()
    again = Journal(environment, ())
    assert (again.first_index, again.last_index) == (9, 11)
    assert again.members == (*MEMBERS, FOURTH)
    assert again.configuration_at(9).members == (*MEMBERS, FOURTH)


def test_a_snapshot_replaces_the_log(environment: Environment) -> None:
    """By the two entries that it ends with, and its members."""
    journal = filled(environment)
    journal.restart_from((entry(19), 19, 3), (entry(20), 20, 3), (*MEMBERS, FOURTH))
    journal.keep_snapshot(SnapshotRecord(20, 3, 7, "d", "f", (*MEMBERS, FOURTH)))
    environment.commit()
    again = Journal(environment, ())
    assert (again.first_index, again.last_index, again.term_at(20)) == (19, 20, 3)
    assert again.members == (*MEMBERS, FOURTH)
    assert again.snapshot == journal.snapshot


def test_a_start_shows_the_library_only_a_part(environment: Environment) -> None:
    """What is hidden stays readable by index, and comes back."""
    journal = filled(environment)
    journal.hide_before(4)
    assert (journal[0][1], len(journal)) == (4, 2)
    assert (journal.first_index, journal.term_at(2), journal.entry(1)) == (1, 1, (NO_OP, 1, 0))
    journal.reveal()
    assert (journal[0][1], len(journal)) == (1, 5)


def test_entries_are_read_in_portions(environment: Environment) -> None:
    """At least one, else as many as fit."""
    journal = filled(environment)
    size = len(entry(2))
    assert [e[1] for e in journal.entries(2, 1)] == [2]
    assert [e[1] for e in journal.entries(2, 2 * size)] == [2, 3]
    assert [e[1] for e in journal.entries(4, 10**9)] == [4, 5]
    assert journal.entries(6, 10**9) == []


def test_the_libraries_own_compaction_is_off(environment: Environment) -> None:
    with pytest.raises(RuntimeError, match="switched off"):
        filled(environment).deleteEntriesTo(2)


@pytest.mark.parametrize("seed", range(20))
def test_any_history_is_found_again(tmp_path: Path, seed: int) -> None:
    """Random changes, commits and crashes against a list that is deliberately dumb."""
    rng = random.Random(seed)
    disk = FakeEnvironment(str(tmp_path))
    journal = Journal(disk, MEMBERS)
    disk.commit()
    kept = expected = [(NO_OP, 1, 0)]
    for number in range(200):
        what = rng.randrange(6)
        if what <= 2:
            term = expected[-1][2] + rng.randrange(2)
            journal.add(entry(number), expected[-1][1] + 1, term)
            expected = [*expected, (entry(number), expected[-1][1] + 1, term)]
        elif what == 3 and len(expected) > 2:
            position = rng.randrange(1, len(expected))
            journal.deleteEntriesFrom(position)
            expected = expected[:position]
        elif what == 4 and len(expected) > 4:
            position = rng.randrange(1, 3)
            journal.shorten(expected[position][1])
            expected = expected[position:]
        elif rng.random() < 0.5:
            disk.commit()
            kept = expected
        else:
            disk.crash()
            journal = Journal(disk, ())
            expected = kept
        assert [journal[n] for n in range(len(journal))] == expected
        assert journal.last_index == expected[-1][1]


def test_no_bit_of_term_and_vote_can_turn_over_unseen(tmp_path: Path) -> None:
    """A node with another term or vote than it told could vote twice."""
    environment = FakeEnvironment(str(tmp_path))
    filled(environment)
    stored = environment.get("raft_meta", b"hard_state")
    assert stored is not None
    for bit in range(len(stored) * 8):
        value = bytearray(stored)
        value[bit // 8] ^= 1 << (bit % 8)
        environment.stage("raft_meta", b"hard_state", bytes(value))
        with pytest.raises(StorageCorrupt, match="rejoin"):
            Journal(environment, MEMBERS)


def test_term_and_vote_from_before_they_had_a_checksum_are_taken(tmp_path: Path) -> None:
    """They get one with the next term."""
    environment = FakeEnvironment(str(tmp_path))
    filled(environment)
    environment.stage("raft_meta", b"hard_state", b'{"term":7,"vote":2}')
    journal = Journal(environment, MEMBERS)
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (7, 2)
    journal.setCurrentTerm(8, None)
    assert HardState.sealed(8, None) == msgspec.json.decode(
        environment.get("raft_meta", b"hard_state") or b"", type=HardState
    )
