"""Old logs are an interface: what was recorded with a release replays by its rules for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from .histories import FOLDER, main, read, replay

HISTORIES = sorted(FOLDER.glob("*.jsonl"))


def test_there_are_recorded_logs() -> None:
    assert HISTORIES, f"no recorded log in {FOLDER}; run python -m tests.core.histories"


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_log_replays_to_the_same_decisions(path: Path) -> None:
    """Every decision, rejection and digest, to the last one."""
    history = read(path)
    again, _ = replay(history)
    for was, now in zip(history.records, again, strict=True):
        assert now == was
    assert history.footer.count == len(history.records)
    assert history.footer.digest == again[-1].digest


def test_a_recorded_log_is_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.core.histories.FOLDER", tmp_path)
    monkeypatch.setattr("tests.core.histories.sources", lambda: {"x": read(HISTORIES[0]).records})
    assert main("9.9.9") == 0
    path = tmp_path / "9.9.9-x.jsonl"
    assert read(path).records == read(HISTORIES[0]).records
    path.write_text("mine\n")
    assert main("9.9.9") == 0
    assert path.read_text() == "mine\n"
