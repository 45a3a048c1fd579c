"""What is checked in under coord/pb is what proto/ gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.generate_proto import CHECKED_IN, generate


def test_the_generated_modules_are_those_of_the_sources(tmp_path: Path) -> None:
    """`make proto` was run after the last change, with the pinned compiler."""
    names = generate(tmp_path)
    checked_in = {path.name: path.read_bytes() for path in CHECKED_IN.glob("*.py")}
    fresh = {name: (tmp_path / name).read_bytes() for name in names}
    assert sorted(checked_in) == sorted(fresh), "run `make proto`"
    stale = [name for name in sorted(fresh) if checked_in[name] != fresh[name]]
    assert stale == [], "run `make proto`"


def test_the_generated_modules_need_no_path_of_their_own(tmp_path: Path) -> None:
    """They import from anywhere, as from an installed wheel, and without a warning."""
    code = "from coord.pb import channel_pb2; print(channel_pb2.ToServer.DESCRIPTOR.full_name)"
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert found.stdout == "coord.v1.ToServer\n"
