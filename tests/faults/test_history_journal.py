"""The journal of a run: what is written comes back, and what is damaged is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from jepsen_lite.history.journal import HistoryError, HistoryWriter, read_history
from jepsen_lite.history.operation import Operation, Outcome


def ticking() -> Callable[[], int]:
    """A clock that moves on by 10 whenever it is asked."""
    return count(1_000, 10).__next__


def write(path: Path) -> HistoryWriter:
    """A run of three operations, a fault and two marks."""
    writer = HistoryWriter(path, {"seed": 7, "workload": "registers"}, clock=ticking())
    first = writer.invoke(
        client="registers/1", workload="registers", key="r1", action="write", argument=3, token="t1"
    )
    fault = writer.fault("kill", "kill -9", ["s1"])
    second = writer.invoke(client="registers/2", workload="registers", key="r1", action="read")
    writer.complete(second, Outcome.OK, result=[1, {"a": None}], index=17)
    writer.complete(first, Outcome.INFO, note="timed out")
    writer.invoke(client="registers/3", workload="registers", key="r2", action="read")
    writer.fault_ended(fault)
    writer.fault_ended(fault)
    writer.mark("healing")
    writer.mark("quiet")
    return writer


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Operations, faults, marks and facts come back as the writer holds them, open ones too."""
    path = tmp_path / "history.jsonl"
    writer = write(path)
    writer.close()
    history = read_history(path)
    assert history.facts == {"seed": 7, "workload": "registers"}
    assert history.operations == writer.operations
    assert history.faults == writer.faults
    assert history.marks == writer.marks
    assert history.cut_off == ""
    assert history.operations[2].completed_ns == 0
    assert history.operations[2].outcome is Outcome.INFO


def test_every_edge_is_in_the_file_before_the_call_returns(tmp_path: Path) -> None:
    """Nothing waits in a buffer of the process, so a killed suite loses nothing."""
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path, {}, clock=ticking())
    sizes = [path.stat().st_size]
    operation = writer.invoke(client="a", workload="w", key="k", action="read")
    sizes.append(path.stat().st_size)
    writer.complete(operation, Outcome.OK)
    sizes.append(path.stat().st_size)
    writer.mark("quiet")
    sizes.append(path.stat().st_size)
    writer.close()
    assert sizes == sorted(set(sizes))
    assert path.stat().st_size == sizes[-1]


def test_a_line_that_a_crash_cut_off_is_dropped_and_told(tmp_path: Path) -> None:
    """Cut at every byte of the last line, the lines before are all there."""
    path = tmp_path / "history.jsonl"
    write(path).close()
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    for end in range(last + 1, len(whole)):
        path.write_bytes(whole[:end])
        history = read_history(path)
        assert [mark.name for mark in history.marks] == ["healing"]
        assert f"cut off after {end - last} bytes" in history.cut_off


def test_no_damaged_byte_goes_unnoticed(tmp_path: Path) -> None:
    """A byte that is no text is refused, wherever it stands; only the last line's end may be
    missing, as after a crash."""
    path = tmp_path / "history.jsonl"
    write(path).close()
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        with pytest.raises(HistoryError, match=r"history\.jsonl: line \d+: "):
            read_history(path)
    path.write_bytes(whole[:-1] + b"\xff")
    assert read_history(path).cut_off


INVOKED = (
    '{"type":"invoke","number":1,"client":"c","workload":"w","key":"k","action":"read","at_ns":5}'
)
COMPLETED = '{"type":"complete","number":1,"at_ns":9,"outcome":"ok"}'

DAMAGED = [
    ("nothing", "", "line 1"),
    ("binary", "\0\1\2\n", "line 1"),
    ("not json", "INFO  jepsen.util\n", 'begins with {"type":"run"'),
    ("a list", "[]\n", "line 1"),
    ("no run first", INVOKED + "\n", "line 1"),
    ("not an edge", '{"type":"run"}\n{"type":"walk"}\n', "line 2"),
    ("an empty line", '{"type":"run"}\n\n' + INVOKED + "\n", "line 2"),
    ("a field of another type", '{"type":"run"}\n{"type":"mark","name":3,"at_ns":1}\n', "$.name"),
    ("a field missing", '{"type":"run"}\n{"type":"mark","at_ns":1}\n', "`name`"),
    ("an unknown outcome", '{"type":"run"}\n' + COMPLETED.replace("ok", "good") + "\n", "good"),
    ("completed only", '{"type":"run"}\n' + COMPLETED + "\n", "was never invoked"),
    ("invoked twice", "\n".join(['{"type":"run"}', INVOKED, INVOKED, ""]), "line 3"),
    (
        "completed twice",
        "\n".join(['{"type":"run"}', INVOKED, COMPLETED, COMPLETED, ""]),
        "line 4: operation 1 was completed before",
    ),
    (
        "over before it began",
        "\n".join(['{"type":"run"}', INVOKED, COMPLETED.replace("9", "4"), ""]),
        "before its invocation at 5 ns",
    ),
    ("a fault ends", '{"type":"run"}\n{"type":"fault_ended","number":1,"at_ns":1}\n', "fault 1"),
]


@pytest.mark.parametrize(
    ("text", "told"), [row[1:] for row in DAMAGED], ids=[r[0] for r in DAMAGED]
)
def test_a_damaged_history_is_refused_by_line(tmp_path: Path, text: str, told: str) -> None:
    """The message names the file, the line and what is wrong there."""
    path = tmp_path / "history.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(HistoryError) as refused:
        read_history(path)
    assert str(path) in str(refused.value)
    assert told in str(refused.value)


def test_a_missing_history_is_named(tmp_path: Path) -> None:
    """So is a folder given in place of a file."""
    with pytest.raises(HistoryError, match=r"none\.jsonl: No such file"):
        read_history(tmp_path / "none.jsonl")
    with pytest.raises(HistoryError, match="Is a directory"):
        read_history(tmp_path)


def test_a_history_is_never_written_over(tmp_path: Path) -> None:
    """A second run into the same folder is refused instead of mixing the two."""
    path = tmp_path / "history.jsonl"
    HistoryWriter(path, {}).close()
    with pytest.raises(FileExistsError):
        HistoryWriter(path, {})


def test_an_operation_completes_once(tmp_path: Path) -> None:
    """A client that reports twice is a mistake of the suite and says so at once."""
    writer = HistoryWriter(tmp_path / "history.jsonl", {})
    operation = writer.invoke(client="a", workload="w", key="k", action="read")
    writer.complete(operation, Outcome.FAIL)
    with pytest.raises(ValueError, match="completed before"):
        writer.complete(operation, Outcome.OK)
    writer.close()


def test_a_killed_writer_leaves_what_it_had_written(tmp_path: Path) -> None:
    """A process that ends with no chance to close has lost no edge."""
    path = tmp_path / "history.jsonl"
    child = os.fork()
    if child == 0:
        write(path)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    operations: list[Operation] = read_history(path).operations
    assert len(operations) == 3
