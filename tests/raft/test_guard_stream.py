"""The leader's rules by the hazards that they answer: what is sent, and what replies count for."""

from __future__ import annotations

from coord.raft.guard import Answering, Deliver, Guard, Send
from coord.raft.rules import all_but
from coord.raft.timings import DEFAULT_TIMINGS
from tests.raft.guarded import FakeLog, FakeRaft, append, guard, only, reply


class TestG3:
    """A reply counts only in the term of the append that it answers."""

    def test_a_reply_of_an_earlier_term_is_dropped(self) -> None:
        made = guard(FakeLog(*[1] * 5), FakeRaft(3, leads=True))
        assert made.incoming(2, reply(6, success=True, sequence=1, term=1)) == []

    def test_a_reply_to_a_follower_is_dropped(self) -> None:
        made = guard(FakeLog(*[1] * 5), FakeRaft(3))
        assert made.incoming(2, reply(6, success=True, sequence=1, term=3)) == []

    def test_no_follower_is_ahead_of_its_leader(self) -> None:
        made = guard(FakeLog(*[1] * 5), FakeRaft(leads=True))
        first = made.incoming(2, reply(99, success=True, sequence=1))[0]
        assert isinstance(first, Deliver)
        assert first.message["next_node_idx"] == 6

    def test_a_reply_carries_the_term_of_its_append(self) -> None:
        """Not the term at the time of sending."""
        made = guard(FakeLog(*[1] * 5), FakeRaft(4))
        made.answering = Answering(3, 7, 5, 2)
        sent = made.outgoing(
            2, {"type": "next_node_idx", "next_node_idx": 6, "reset": False, "success": True}
        )
        assert [(message["term"], message["sequence"]) for message in sent] == [(3, 7)]

    def test_switched_off_an_old_reply_counts(self) -> None:
        made = guard(FakeLog(*[1] * 5), FakeRaft(3, leads=True), all_but("G3", "G6"))
        assert len(made.incoming(2, reply(6, success=True, sequence=1, term=1))) == 1


class TestG6:
    """Per follower, one probe in flight until a success, then a stream."""

    def streaming(self, log: FakeLog, raft: FakeRaft) -> Guard:
        """A guard whose stream to node 2 has just begun, at the log's end."""
        made = guard(log, raft)
        probe = made.pump(2)[0]
        made.incoming(2, reply(log.last_index + 1, success=True, sequence=probe["sequence"]))
        return made

    def test_one_probe_and_then_only_signs_of_life(self) -> None:
        made = guard(FakeLog(*[1] * 5), FakeRaft(leads=True))
        first, second = made.pump(2), made.pump(2)
        assert [message["prevLogIdx"] for message in first] == [4]
        assert "prevLogIdx" not in second[0]

    def test_what_was_sent_is_not_sent_again(self) -> None:
        log = FakeLog(*[1] * 5)
        made = self.streaming(log, FakeRaft(leads=True))
        log.list.append((b"x", 6, 1))
        assert [e[1] for e in made.pump(2)[0]["entries"]] == [6]
        log.list.append((b"x", 7, 1))
        sent = made.pump(2)
        assert [(m["prevLogIdx"], [e[1] for e in m["entries"]]) for m in sent] == [(6, [7])]

    def test_a_late_success_sends_nothing_twice(self) -> None:
        """It moves the library's next index back, which is therefore said anew."""
        log = FakeLog(*[1] * 5)
        made = self.streaming(log, FakeRaft(leads=True))
        log.list += [(b"x", 6, 1), (b"x", 7, 1)]
        sequence = made.pump(2)[0]["sequence"]
        steps = made.incoming(2, reply(7, success=True, sequence=sequence))
        told = [step.message for step in steps if isinstance(step, Deliver)]
        assert [(m["next_node_idx"], m["reset"], m["success"]) for m in told] == [
            (7, False, True),
            (8, True, False),
        ]
        assert made.pump(2)[0]["entries"] == []

    def test_a_reject_probes_at_once_where_the_follower_says(self) -> None:
        made = self.streaming(FakeLog(*[1] * 9), FakeRaft(leads=True))
        sequence = made.pump(2)[0]["sequence"]
        steps = made.incoming(2, reply(4, success=False, sequence=sequence))
        sent = [step.message for step in steps if isinstance(step, Send)]
        assert [message["prevLogIdx"] for message in sent] == [3]

    def test_rejects_of_what_was_in_flight_do_not_move_it_again(self) -> None:
        """Three appends in flight, the first is rejected; the other rejects are its echo."""
        made = self.streaming(FakeLog(*[1] * 9), FakeRaft(leads=True))
        first, second = made.pump(2)[0], made.pump(2)[0]
        made.incoming(2, reply(4, success=False, sequence=first["sequence"]))
        steps = made.incoming(2, reply(2, success=False, sequence=second["sequence"]))
        assert [step for step in steps if isinstance(step, Send)] == []
        assert "prevLogIdx" not in made.pump(2)[0]

    def test_a_probe_that_was_lost_is_sent_again(self) -> None:
        """A sign of life sent after it came back, and it did not."""
        made = guard(FakeLog(*[1] * 5), FakeRaft(leads=True))
        made.pump(2)
        life = made.pump(2)[0]
        made.incoming(2, {"type": "alive", "term": 1, "sequence": life["sequence"]})
        assert "prevLogIdx" in made.pump(2)[0]

    def test_a_new_connection_probes_anew(self) -> None:
        made = self.streaming(FakeLog(*[1] * 5), FakeRaft(leads=True))
        made.connected(2)
        assert len(made.pump(2)) == 1
        assert "prevLogIdx" not in made.pump(2)[0]

    def test_a_new_term_probes_anew(self) -> None:
        raft = FakeRaft(leads=True)
        made = self.streaming(FakeLog(*[1] * 5), raft)
        raft.term = 2
        made.pump(2)
        assert "prevLogIdx" not in made.pump(2)[0]

    def test_a_new_connection_stops_the_library_from_sending_its_dump(self) -> None:
        """It is told that everything was sent; what is missing is the stream's business."""
        told = guard(FakeLog(*[1] * 5), FakeRaft(leads=True)).connected(2)
        assert [(m["next_node_idx"], m["reset"], m["success"]) for m in told] == [(6, True, False)]

    def test_a_slow_follower_has_so_much_in_flight_at_most(self) -> None:
        log = FakeLog(1, 1, size_bytes=3 * 1024 * 1024)
        made = self.streaming(log, FakeRaft(leads=True))
        log.list += [(b"x" * 3 * 1024 * 1024, 3 + n, 1) for n in range(20)]
        sent = sum(len(e[0]) for message in made.pump(2) for e in message["entries"])
        assert sent < DEFAULT_TIMINGS.window_bytes + DEFAULT_TIMINGS.append_bytes
        assert made.pump(2)[0]["entries"] == []

    def test_the_librarys_nowhere_is_a_plain_sign_of_life(self) -> None:
        """Past its own end it sends prevLogIdx None, which would be rejected for ever."""
        made = guard(FakeLog(0, 1), FakeRaft(leads=True), all_but("G6"))
        message = {**append(0, 0), "prevLogIdx": None, "prevLogTerm": None}
        assert "prevLogIdx" not in made.outgoing(2, message)[0]

    def test_a_sign_of_life_is_answered_by_one(self) -> None:
        life = {"type": "append_entries", "term": 1, "commit_index": 1, "sequence": 8}
        _, answer = guard(FakeLog(0, 1), FakeRaft()).incoming(2, life)
        assert answer == Send({"type": "alive", "term": 1, "sequence": 8})

    def test_alive_acknowledges_nothing(self) -> None:
        made = guard(FakeLog(*[1] * 5), FakeRaft(leads=True))
        step = only(made.incoming(2, {"type": "alive", "term": 1, "sequence": 1}))
        assert (step.message["success"], step.message["reset"]) == (False, False)
