"""A server that halts has found something that must never be: that is a violation."""

from __future__ import annotations

from pathlib import Path

from jepsen_lite.run.halts import halts

READY = "timestamp=1 level=info event=server_ready node=1\n"
HALT = 'timestamp=2 level=critical event=node_halted node={} error="InvariantBroken: {}"\n'


def test_each_server_that_halted_is_told_once(tmp_path: Path) -> None:
    """Started again it halts of the same; agents and the proxy have logs of other things."""
    (tmp_path / "s1.log").write_text(READY + 2 * HALT.format(1, "no") + HALT.format(1, "nor that"))
    (tmp_path / "s2.log").write_text(READY)
    (tmp_path / "h1.log").write_text(HALT.format(1, "what a rank printed"))

    assert halts(tmp_path) == [
        's1: node=1 error="InvariantBroken: no"',
        's1: node=1 error="InvariantBroken: nor that"',
    ]


def test_a_server_whose_store_was_damaged_may_halt(tmp_path: Path) -> None:
    """It has to halt or be right."""
    (tmp_path / "s1.log").write_text(HALT.format(1, "no"))
    (tmp_path / "s2.log").write_bytes(b"\xff\xfe" + HALT.format(2, "no").encode())

    assert halts(tmp_path, {"s1"}) == ['s2: node=2 error="InvariantBroken: no"']
    assert halts(tmp_path, {"s1", "s2"}) == []
