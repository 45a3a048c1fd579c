"""Each rule of the guard by the hazard that it answers, as messages in and out."""

from __future__ import annotations

import pytest

from coord.raft.guard import Answering, Deliver, Fetch, Install, Send
from coord.raft.guard_append import GuardBroken, Message
from coord.raft.guard_durable import may_leave, must_commit_before_tick, must_step_down
from coord.raft.guard_snapshot import SnapshotPoint, beats_installed
from coord.raft.rules import ALL_RULES, RULES, all_but
from tests.raft.guarded import FakeLog, FakeRaft, append, covered, guard, handed, only, reply


class TestG1:
    """A follower keeps the entries that a message does not contradict."""

    def test_a_late_append_cuts_nothing(self) -> None:
        """Entries 1..5 are here; a message speaks of 2 and 3 only: nothing is deleted behind it,
        for the library is handed an empty append at the log's end."""
        steps = guard(FakeLog(0, 1, 1, 1, 1), FakeRaft()).incoming(2, append(1, 0, 1, 1))
        assert handed(steps) == (5, 1, [])
        assert covered(steps) == 3

    def test_only_what_is_new_is_handed_over(self) -> None:
        steps = guard(FakeLog(0, 1, 1), FakeRaft()).incoming(2, append(1, 0, 1, 1, 1, 1))
        assert handed(steps) == (3, 1, [(4, 1), (5, 1)])
        assert covered(steps) == 5

    def test_the_log_is_cut_at_the_first_difference_only(self) -> None:
        """Term 1 at 4 and 5 gives way to term 2 at 4; 2 and 3 stay."""
        steps = guard(FakeLog(0, 1, 1, 1, 1), FakeRaft(2)).incoming(
            2, append(1, 0, 1, 1, 2, term=2)
        )
        assert handed(steps) == (3, 1, [(4, 2)])

    def test_a_message_below_the_committed_part_is_moved_up(self) -> None:
        """Everything up to 4 is committed, hence the same on the leader."""
        steps = guard(FakeLog(0, 1, 1, 1), FakeRaft(commit=4)).incoming(2, append(1, 0, 1, 1, 1, 1))
        assert handed(steps) == (4, 1, [(5, 1)])

    def test_a_message_below_a_compacted_log_is_moved_up(self) -> None:
        log = FakeLog(1, 1, 1, first=10)
        steps = guard(log, FakeRaft(commit=11, applied=11)).incoming(2, append(3, 1, *[1] * 10))
        assert handed(steps) == (12, 1, [(13, 1)])

    def test_nothing_but_committed_entries_acknowledges_them(self) -> None:
        steps = guard(FakeLog(0, 1, 1, 1, 1), FakeRaft(commit=4)).incoming(2, append(1, 0, 1))
        assert handed(steps) == (5, 1, [])
        assert covered(steps) == 2

    def test_contradicting_a_committed_entry_halts(self) -> None:
        """No leader may do that; going on would spread it."""
        with pytest.raises(GuardBroken, match="term 2 at index 3, where term 1 is committed"):
            guard(FakeLog(0, 1, 1, 1), FakeRaft(2, commit=4)).incoming(2, append(2, 1, 2, term=2))

    def test_contradicting_the_last_committed_entry_halts(self) -> None:
        with pytest.raises(GuardBroken, match="term 2 at index 4, where term 1 is committed"):
            guard(FakeLog(0, 1, 1, 1), FakeRaft(2, commit=4)).incoming(2, append(4, 2, 2, term=2))

    def test_an_append_beyond_the_log_is_rejected_by_the_library(self) -> None:
        steps = guard(FakeLog(0, 1), FakeRaft()).incoming(2, append(7, 1, 1))
        assert handed(steps) == (7, 1, [(8, 1)])
        assert covered(steps) is None

    def test_switched_off_everything_is_handed_over(self) -> None:
        steps = guard(FakeLog(0, 1, 1, 1, 1), FakeRaft(), all_but("G1")).incoming(
            2, append(1, 0, 1)
        )
        assert handed(steps) == (1, 0, [(2, 1)])


class TestG1Covered:
    """A follower acknowledges only what the message covered."""

    @pytest.mark.parametrize(("rules", "expected"), [(ALL_RULES, 4), (all_but("G1.covered"), 9)])
    def test_a_longer_log_is_not_acknowledged(self, rules: frozenset[str], expected: int) -> None:
        """The log ends at 8, the message covered 3: what follows 3 may be another leader's."""
        made = guard(FakeLog(*[1] * 8), FakeRaft(), rules)
        made.answering = Answering(1, 5, 3, 2)
        sent = made.outgoing(
            2, {"type": "next_node_idx", "next_node_idx": 9, "reset": False, "success": True}
        )
        assert [message["next_node_idx"] for message in sent] == [expected]

    def test_a_reject_says_where_it_surely_fits(self) -> None:
        """Right after what is committed, instead of one entry back at a time."""
        made = guard(FakeLog(0, 1, 1, 1, 1, 1), FakeRaft(3, commit=2))
        step = only(made.incoming(2, append(5, 2, term=3)))
        made.answering = step.answering
        sent = made.outgoing(
            2, {"type": "next_node_idx", "next_node_idx": 5, "reset": True, "success": False}
        )
        assert sent[0]["next_node_idx"] == 3


class TestG2:
    """A follower commits no further than the message verified."""

    def test_an_unverified_tail_is_not_committed(self) -> None:
        """The leader has committed 9; of our log up to 5 this message verified 3."""
        steps = guard(FakeLog(*[1] * 5), FakeRaft()).incoming(2, append(1, 1, 1, 1, commit=9))
        assert only(steps).message["commit_index"] == 3

    def test_a_sign_of_life_commits_nothing(self) -> None:
        life = {"type": "append_entries", "term": 1, "commit_index": 9, "sequence": 1}
        deliver, _ = guard(FakeLog(*[1] * 5), FakeRaft(commit=2)).incoming(2, life)
        assert isinstance(deliver, Deliver)
        assert deliver.message["commit_index"] == 2

    def test_switched_off_the_leaders_word_stands(self) -> None:
        steps = guard(FakeLog(*[1] * 5), FakeRaft(), all_but("G2")).incoming(
            2, append(1, 1, 1, commit=9)
        )
        assert only(steps).message["commit_index"] == 9


class TestG4:
    """One vote per term and voter."""

    VOTE = {"type": "response_vote", "term": 4}

    def test_a_repeated_vote_counts_once(self) -> None:
        made = guard(FakeLog(0), FakeRaft(4))
        assert made.incoming(2, self.VOTE) == [Deliver(self.VOTE)]
        assert made.incoming(2, self.VOTE) == []
        assert made.incoming(3, self.VOTE) == [Deliver(self.VOTE)]

    def test_a_voter_votes_again_in_another_term(self) -> None:
        made = guard(FakeLog(0), FakeRaft(4))
        made.incoming(2, self.VOTE)
        assert len(made.incoming(2, {"type": "response_vote", "term": 5})) == 1

    def test_who_is_no_member_has_no_vote(self) -> None:
        assert guard(FakeLog(0), FakeRaft(4)).incoming(9, self.VOTE) == []

    def test_switched_off_it_counts_twice(self) -> None:
        made = guard(FakeLog(0), FakeRaft(4), all_but("G4"))
        assert len([*made.incoming(2, self.VOTE), *made.incoming(2, self.VOTE)]) == 2


class TestG5:
    """Durable before dependent."""

    SUCCESS = {"type": "next_node_idx", "success": True}

    @pytest.mark.parametrize(
        ("message", "entries", "hard_state", "rules", "expected"),
        [
            (SUCCESS, True, False, ALL_RULES, False),
            (SUCCESS, True, False, all_but("G5.log"), True),
            (SUCCESS, False, False, ALL_RULES, True),
            ({"type": "response_vote"}, False, True, ALL_RULES, False),
            ({"type": "response_vote"}, False, True, all_but("G5.vote"), True),
            ({"type": "append_entries"}, True, False, ALL_RULES, True),
            ({"type": "append_entries"}, True, True, ALL_RULES, False),
        ],
    )
    def test_what_may_overtake_the_fsync(
        self,
        message: Message,
        entries: bool,
        hard_state: bool,
        rules: frozenset[str],
        expected: bool,
    ) -> None:
        """A leader's appends may, an acknowledgement may not, and nothing may of a new term."""
        leaves = may_leave(message, entries_dirty=entries, hard_state_dirty=hard_state, rules=rules)
        assert leaves is expected

    def test_a_leader_counts_itself_only_when_durable(self) -> None:
        assert must_commit_before_tick(leads=True, dirty=True, rules=ALL_RULES)
        assert not must_commit_before_tick(leads=False, dirty=True, rules=ALL_RULES)
        assert not must_commit_before_tick(leads=True, dirty=True, rules=all_but("G5.own"))


class TestG7:
    """Snapshots travel as files beside the messages, installed in one step."""

    OFFER = {
        "type": "offer",
        "term": 1,
        "commit_index": 20,
        "sequence": 6,
        "snapshot_index": 10,
        "snapshot_term": 1,
    }
    POINT = SnapshotPoint(10, 1)

    def test_who_lacks_what_is_compacted_is_offered_the_snapshot(self) -> None:
        made = guard(FakeLog(1, 1, 1, first=10), FakeRaft(leads=True), snapshot=self.POINT)
        probe = made.pump(2)[0]
        steps = made.incoming(2, reply(3, success=False, sequence=probe["sequence"]))
        sent = [step.message for step in steps if isinstance(step, Send)]
        assert [(m["type"], m["snapshot_index"]) for m in sent] == [("offer", 10)]

    def test_the_librarys_chunks_become_one_offer(self) -> None:
        made = guard(
            FakeLog(1, 1, first=10), FakeRaft(leads=True), all_but("G6"), snapshot=self.POINT
        )
        chunk = {"type": "append_entries", "term": 1, "commit_index": 1}
        first = made.outgoing(2, {**chunk, "serialized": (b"ticket", True, False)})
        last = made.outgoing(2, {**chunk, "serialized": (b"", False, True)})
        assert [message["type"] for message in first + last] == ["offer"]

    def test_an_offer_is_fetched_and_answered_with_a_sign_of_life(self) -> None:
        """Else the leader would step down during a long transfer."""
        steps = guard(FakeLog(0, 1), FakeRaft()).incoming(2, self.OFFER)
        assert [type(step) for step in steps] == [Deliver, Send, Fetch]
        assert steps[1] == Send({"type": "alive", "term": 1, "sequence": 6})

    def test_a_fetched_snapshot_is_installed_at_the_next_offer(self) -> None:
        steps = guard(FakeLog(0, 1), FakeRaft(), fetched=self.POINT).incoming(2, self.OFFER)
        assert [type(step) for step in steps] == [Install]
        install = steps[0]
        assert isinstance(install, Install)
        assert install.message["commit_index"] == 10
        assert install.answering.covered == 10

    def test_a_file_of_another_term_is_not_installed(self) -> None:
        fetched = SnapshotPoint(10, 2)
        steps = guard(FakeLog(0, 1), FakeRaft(), fetched=fetched).incoming(2, self.OFFER)
        assert [type(step) for step in steps] == [Deliver, Send, Fetch]

    def test_a_snapshot_behind_the_committed_part_is_acknowledged_unseen(self) -> None:
        steps = guard(FakeLog(*[1] * 15), FakeRaft(commit=12), fetched=self.POINT).incoming(
            2, self.OFFER
        )
        assert handed(steps) == (15, 1, [])
        assert covered(steps) == 10

    def test_the_tail_behind_a_snapshot_stays(self) -> None:
        """Its last entry is in the log, so what follows it may be acknowledged already."""
        made = guard(FakeLog(*[1] * 15), FakeRaft(commit=2), fetched=self.POINT)
        assert handed(made.incoming(2, self.OFFER)) == (15, 1, [])

    def test_switched_off_the_tail_is_lost(self) -> None:
        made = guard(FakeLog(*[1] * 15), FakeRaft(commit=2), all_but("G7.tail"), fetched=self.POINT)
        assert [type(step) for step in made.incoming(2, self.OFFER)] == [Install]

    def test_a_snapshot_finished_late_replaces_nothing_newer(self) -> None:
        assert beats_installed(written=20, installed=10)
        assert not beats_installed(written=10, installed=20)


class TestG10:
    """A deposed leader is told, by a vote request that cannot win."""

    def test_a_stale_append_is_answered_by_a_hopeless_candidate(self) -> None:
        steps = guard(FakeLog(0, 1), FakeRaft(7)).incoming(2, append(1, 0, 1, term=6))
        expected = {"type": "request_vote", "term": 7, "last_log_index": 0, "last_log_term": 0}
        assert steps == [Send(expected)]

    def test_a_stale_offer_too(self) -> None:
        steps = guard(FakeLog(0, 1), FakeRaft(7)).incoming(2, TestG7.OFFER)
        assert [type(step) for step in steps] == [Send]

    def test_switched_off_it_is_ignored(self) -> None:
        made = guard(FakeLog(0, 1), FakeRaft(7), all_but("G10"))
        assert made.incoming(2, append(1, 0, 1, term=6)) == []


class TestG12:
    """A leader that cannot write steps down."""

    def test_after_two_election_timeouts(self) -> None:
        asked = {"election_ms": 1000, "rules": ALL_RULES}
        assert not must_step_down(leads=True, blocked_ms=1999.0, **asked)  # type: ignore[arg-type]
        assert must_step_down(leads=True, blocked_ms=2001.0, **asked)  # type: ignore[arg-type]
        assert not must_step_down(leads=False, blocked_ms=2001.0, **asked)  # type: ignore[arg-type]


class TestG14:
    """Commands are not forwarded over the raft connection."""

    COMMAND = {"type": "apply_command", "command": b"x"}

    def test_neither_out_nor_in(self) -> None:
        made = guard(FakeLog(0, 1), FakeRaft())
        assert made.outgoing(2, self.COMMAND) == []
        assert made.incoming(2, self.COMMAND) == []
        assert made.incoming(2, {"type": "apply_command_response", "request_id": 1}) == []


def test_what_the_guard_does_not_know_is_dropped() -> None:
    """A newer release's message does nothing."""
    assert guard(FakeLog(0, 1), FakeRaft()).incoming(2, {"type": "set_version"}) == []


def test_every_rule_has_a_name() -> None:
    """A rule that is misspelt cannot be switched off silently."""
    assert all_but() == frozenset(RULES)
    with pytest.raises(ValueError, match="no rule G15"):
        all_but("G15")
