"""Histories that others recorded, with the verdicts that are known of them."""

from __future__ import annotations

import csv
import gzip
import time
from pathlib import Path

import pytest
from jepsen_lite.history.foreign import read_etcd_log, read_text_log
from jepsen_lite.history.journal import HistoryError
from jepsen_lite.history.operation import Outcome
from jepsen_lite.judge.models import Register, TextByKey
from jepsen_lite.judge.verdict import Verdict, judge_history

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "histories" / "porcupine"


def recorded() -> Path:
    """The folder of recorded histories, where this checkout has it beside it."""
    if not RECORDED.is_dir():
        pytest.skip(f"the recorded histories are not here: {RECORDED}")
    return RECORDED


def test_every_etcd_history_gets_its_known_verdict() -> None:
    """102 of them: none wrong, none unknown."""
    folder = recorded()
    rows = list(csv.DictReader((folder / "jepsen_etcd_labels.csv").read_text().splitlines()))
    assert len(rows) == 102
    began = time.process_time()
    wrong = []
    for row in rows:
        operations = read_etcd_log(folder / "jepsen_etcd" / row["file"])
        (judgement,) = judge_history(operations, Register())
        expected = Verdict.LINEARIZABLE if row["linearizable"] == "true" else Verdict.VIOLATION
        if judgement.verdict is not expected:
            wrong.append((row["file"], expected, judgement.verdict))
        if judgement.verdict is Verdict.VIOLATION:
            assert judgement.operations
            assert judgement.picture
    assert wrong == []
    assert time.process_time() - began < 20


@pytest.mark.parametrize("clients", ["c01", "c10", "c50"])
@pytest.mark.parametrize("verdict", ["ok", "bad"])
def test_every_key_value_history_gets_its_known_verdict(clients: str, verdict: str) -> None:
    """Six of them; in a bad one every key is decided too."""
    operations = read_text_log(recorded() / f"kv_{clients}-{verdict}.txt.gz")
    began = time.process_time()
    judgements = judge_history(operations, TextByKey())
    found = {each.verdict for each in judgements}
    assert Verdict.UNKNOWN not in found
    assert (Verdict.VIOLATION in found) == (verdict == "bad")
    assert time.process_time() - began < 10


ETCD = "INFO  jepsen.util - 0\t:invoke\t:write\t3\nINFO  jepsen.util - 0\t:ok\t:write\t3\n"

DAMAGED_ETCD = [
    ("nothing", "", "it holds no operation"),
    ("another line", ETCD + "WARN  jepsen - no\n", "line 3: 'WARN  jepsen - no' is no edge"),
    ("cut off", ETCD + "INFO  jepsen.util - 0\t:inv", "line 3"),
    ("an unknown action", ETCD.replace("write", "erase"), "line 1"),
    ("no invocation", ETCD.splitlines()[1] + "\n", "line 1: process 0 has nothing under way"),
    ("twice over", ETCD + ETCD.splitlines()[1] + "\n", "line 3: process 0 has nothing"),
    ("asked twice", ETCD.splitlines()[0] + "\n" + ETCD, "the end of its :write of line 1"),
    ("another value", ETCD.replace(":ok\t:write\t3", ":ok\t:write\t4"), "expected 3"),
    ("another action", ETCD.replace(":ok\t:write\t3", ":ok\t:read\t3"), "at another operation"),
    ("a write of nil", ETCD.replace("3", "nil"), "line 1: :write is asked with None"),
    ("a write of two", ETCD.replace("3", "[1 2]"), "[from to] for :cas alone"),
]


@pytest.mark.parametrize(
    ("text", "wanted"), [row[1:] for row in DAMAGED_ETCD], ids=[row[0] for row in DAMAGED_ETCD]
)
def test_a_damaged_etcd_history_is_refused_by_line(tmp_path: Path, text: str, wanted: str) -> None:
    """The message names file and line, and what was expected there."""
    path = tmp_path / "etcd.log"
    path.write_text(text)
    with pytest.raises(HistoryError) as refused:
        read_etcd_log(path)
    assert str(path) in str(refused.value)
    assert wanted in str(refused.value)


TEXT = (
    '{:process 0, :type :invoke, :f :append, :key "0", :value "a \\"b\\""}\n'
    '{:process 0, :type :ok, :f :append, :key "0", :value "a \\"b\\""}\n'
)

DAMAGED_TEXT = [
    ("another format", ETCD, "line 1"),
    ("an open brace", TEXT.replace("}", "", 1), "line 1"),
    ("a bad escape", TEXT.replace('\\"b', "\\qb", 1), "line 1"),
    ("another key", TEXT.replace('"0"', '"1"', 1), "expected the end of :append of key '1'"),
]


@pytest.mark.parametrize(
    ("text", "wanted"), [row[1:] for row in DAMAGED_TEXT], ids=[row[0] for row in DAMAGED_TEXT]
)
def test_a_damaged_key_value_history_is_refused_by_line(
    tmp_path: Path, text: str, wanted: str
) -> None:
    """As for the other format."""
    path = tmp_path / "kv.txt"
    path.write_text(text)
    with pytest.raises(HistoryError) as refused:
        read_text_log(path)
    assert str(path) in str(refused.value)
    assert wanted in str(refused.value)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    """Cut off, flipped, or no archive at all."""
    path = tmp_path / "kv.txt.gz"
    whole = gzip.compress(TEXT.encode() * 50)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x55
    for content in (whole[:-12], bytes(flipped), b"INFO", TEXT.encode()):
        path.write_bytes(content)
        with pytest.raises(HistoryError, match="whole gzip file"):
            read_text_log(path)


def test_bytes_that_are_no_text_are_refused_by_line(tmp_path: Path) -> None:
    """So is a file that is not there."""
    path = tmp_path / "etcd.log"
    path.write_bytes(ETCD.encode() + b"\xff\n")
    with pytest.raises(HistoryError, match="line 3: byte"):
        read_etcd_log(path)
    with pytest.raises(HistoryError, match="No such file"):
        read_etcd_log(tmp_path / "none.log")


def test_what_a_log_says_becomes_operations(tmp_path: Path) -> None:
    """A failed compare-and-set is an answer, a read that timed out is none, the rest may be."""
    path = tmp_path / "etcd.log"
    edges = [
        "0 :invoke :cas [1 2]",
        "1 :invoke :read nil",
        "2 :invoke :write 5",
        "3 :invoke :read nil",
        "0 :fail :cas [1 2]",
        "1 :fail :read :timed-out",
        "2 :info :write :timed-out",
        "3 :ok :read nil",
        "4 :invoke :cas [1 2]",
    ]
    path.write_text("".join(f"INFO  jepsen.util - {edge}\n".replace(" :", "\t:") for edge in edges))
    found = [
        (each.action, each.outcome, each.result, each.invoked_ns, each.completed_ns)
        for each in read_etcd_log(path)
    ]
    assert found == [
        ("cas", Outcome.OK, False, 1, 5),
        ("read", Outcome.FAIL, None, 2, 6),
        ("write", Outcome.INFO, None, 3, 7),
        ("read", Outcome.OK, None, 4, 8),
        ("cas", Outcome.INFO, None, 9, 0),
    ]
