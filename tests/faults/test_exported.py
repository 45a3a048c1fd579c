"""The exported log against what clients were told: each planted fault is found, and only it."""

from __future__ import annotations

from pathlib import Path

import pytest
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge import exported
from jepsen_lite.judge.exported import (
    ExportedLog,
    judge_exported,
    judge_order,
    read_exported,
)
from jepsen_lite.judge.verdict import Verdict

from coord.model.entry import Origin
from coord.model.events import NoteAdded
from coord.store.incident import IncidentFormat, IncidentWriter, incident_header
from tests.faults.made_logs import Asked, MadeLog, verdicts

VIOLATION, UNKNOWN = Verdict.VIOLATION, Verdict.UNKNOWN
HEADER = incident_header("made", 1, b"", "test", 1)


@pytest.fixture
def made() -> MadeLog:
    return MadeLog()


@pytest.fixture
def asked() -> Asked:
    return Asked()


def note(made: MadeLog, token: str) -> int:
    return made.say(NoteAdded("c/1", "k", f"{token} and more")).entry.index


def test_what_was_acknowledged_failed_or_is_in_doubt_is_held_against_the_log(
    made: MadeLog, asked: Asked
) -> None:
    """Acknowledged once, refused as told, failed nowhere, in doubt once or not at all."""
    asked.add("note", token="t1", index=note(made, "t1"))
    refused = made.say(NoteAdded("c/1", "k", ""))
    assert refused.rejection == "invalid"
    note(made, "t2")
    asked.add("note", token="t2", outcome=Outcome.INFO)
    asked.add("note", token="t3", outcome=Outcome.INFO)
    asked.add("note", token="t4", outcome=Outcome.FAIL)
    judgements = judge_exported(asked.operations, made.log())
    assert verdicts(judgements) == {}
    assert {each.check: each.detail for each in judgements}[exported.ONCE] == "1 writes"


def test_a_lost_acknowledged_write_is_found(made: MadeLog, asked: Asked) -> None:
    """The log has everything else."""
    lost = asked.add("note", token="t1", index=note(made, "t0"))
    (judgement,) = [
        each
        for each in judge_exported(asked.operations, made.log())
        if each.verdict in (Verdict.VIOLATION, Verdict.UNKNOWN)
    ]
    assert (judgement.check, judgement.verdict) == (exported.ONCE, VIOLATION)
    assert judgement.operations == (lost,)
    assert "acknowledged, but lost" in judgement.detail


@pytest.mark.parametrize(
    ("outcome", "check"),
    [(Outcome.OK, exported.ONCE), (Outcome.INFO, exported.AT_MOST_ONCE)],
)
def test_a_write_applied_twice_is_found(
    made: MadeLog, asked: Asked, outcome: Outcome, check: str
) -> None:
    """As by a table of requests that was lost: the same event, decided anew."""
    first = note(made, "t1")
    note(made, "t1")
    asked.add("note", token="t1", outcome=outcome, index=first)
    assert verdicts(judge_exported(asked.operations, made.log())) == {check: VIOLATION}


def test_a_repetition_that_the_state_recognised_is_no_second_effect(
    made: MadeLog, asked: Asked
) -> None:
    """It stands in the log as a duplicate of the first."""
    origin = Origin("client:other", 0, 1)
    first = made.say(NoteAdded("c/1", "k", "t1"), origin)
    again = made.say(NoteAdded("c/1", "k", "t1"), origin)
    assert again.duplicate_of == first.entry.index
    asked.add("note", token="t1", index=first.entry.index)
    assert verdicts(judge_exported(asked.operations, made.log())) == {}


def test_an_effect_of_what_certainly_failed_is_found(made: MadeLog, asked: Asked) -> None:
    """A client was told that nothing happened."""
    note(made, "t1")
    asked.add("note", token="t1", outcome=Outcome.FAIL)
    found = verdicts(judge_exported(asked.operations, made.log()))
    assert found == {exported.NOWHERE: VIOLATION}


def test_an_acknowledgement_with_the_wrong_index_is_found(made: MadeLog, asked: Asked) -> None:
    """The index is what the client orders its world by."""
    asked.add("note", token="t1", index=note(made, "t1") + 1)
    found = verdicts(judge_exported(asked.operations, made.log()))
    assert found == {exported.ONCE: VIOLATION}


def test_a_refusal_that_the_log_does_not_have_is_found(made: MadeLog, asked: Asked) -> None:
    """Answered with a word, but the log says another, or that it took effect."""
    index = note(made, "t1")
    asked.add("note", token="t1", result="nothing_to_do", index=index)
    found = verdicts(judge_exported(asked.operations, made.log()))
    assert found == {exported.REFUSED: VIOLATION}


def test_a_gap_in_the_log_is_found(made: MadeLog) -> None:
    """An index that nobody has."""
    note(made, "t1"), note(made, "t2"), note(made, "t3")
    records = [record for record in made.records if record.entry.index != 4]
    assert verdicts(judge_exported([], ExportedLog(records))) == {exported.WHOLE: VIOLATION}


def test_what_is_beyond_a_log_that_was_cut_off_is_unknown(made: MadeLog, asked: Asked) -> None:
    """Neither lost nor there: the file does not go so far."""
    asked.add("note", token="t1", index=50)
    log = ExportedLog(made.records, cut_off="it ends in the middle")
    found = verdicts(judge_exported(asked.operations, log))
    assert found == {exported.ONCE: UNKNOWN, exported.WHOLE: UNKNOWN}


def test_a_stale_read_is_found_across_keys(asked: Asked) -> None:
    """It began after a write was acknowledged, and reflects what was before."""
    asked.add("write", key="a", token="t1", index=7, at=(10, 20))
    fine = asked.add("read", key="b", index=7, at=(21, 30))
    stale = asked.add("read", key="b", index=6, at=(21, 30))
    judgement = judge_order(asked.operations)
    assert judgement.verdict is VIOLATION
    assert stale in judgement.operations
    assert fine not in judgement.operations


def test_operations_that_overlap_have_any_order(asked: Asked) -> None:
    """Also when one was acknowledged at the moment at which the other began."""
    asked.add("write", token="t1", index=7, at=(10, 20))
    asked.add("read", index=6, at=(20, 30))
    asked.add("write", token="t2", index=5, at=(5, 40))
    assert judge_order(asked.operations).verdict is Verdict.LINEARIZABLE


def test_a_write_that_shares_an_index_with_one_before_it_is_found(asked: Asked) -> None:
    """Two acknowledged writes are two entries."""
    asked.add("write", token="t1", index=7, at=(10, 20))
    asked.add("write", token="t2", index=7, at=(30, 40))
    assert judge_order(asked.operations).verdict is VIOLATION


@pytest.mark.parametrize("form", list(IncidentFormat))
def test_an_incident_file_is_read_whole_cut_off_and_damaged(
    made: MadeLog, tmp_path: Path, form: IncidentFormat
) -> None:
    """What stands before the trouble is there, and the trouble is said."""
    for number in range(5):
        note(made, f"t{number}")
    path = tmp_path / "incident.log"
    with path.open("wb") as file, IncidentWriter(file, HEADER, form) as writer:
        for record in made.records:
            writer.write(record)
    whole = read_exported(path)
    assert (list(whole.records), whole.cut_off, whole.damage) == (made.records, "", "")
    assert whole.indexes_of("t3") == [6]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    cut_off = read_exported(path)
    assert cut_off.cut_off
    assert 0 < len(cut_off.records) < len(made.records)
    assert verdicts(judge_exported([], cut_off)) == {exported.WHOLE: UNKNOWN}
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 0x80]) + content[middle + 1 :]
    path.write_bytes(flipped)
    damaged = read_exported(path)
    assert verdicts(judge_exported([], damaged)) == {exported.WHOLE: VIOLATION}


def test_a_record_is_found_by_its_index(made: MadeLog) -> None:
    """Also in a log that does not begin at 1."""
    note(made, "t1"), note(made, "t2")
    log = ExportedLog(made.records[2:], start_index=3)
    assert log.at(3) == made.records[2]
    assert log.at(2) is None
    assert log.at(9) is None
    assert log.last_index == 4
