"""Recorded logs that must replay for ever: `tests/histories/<release>-<name>.jsonl`.

Each is an incident file of JSON lines: a header, one Recorded a line, a footer with the digest.
Run as a program, it records a new release's logs; what exists is an interface and is never written
over:

    python -m tests.core.histories 0.2.0
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from coord_sim.core_world.world import World

from coord import __version__
from coord.core.machine import apply
from coord.core.state import new_state, state_digest
from coord.model.entry import Recorded
from coord.model.incident import IncidentFooter, IncidentHeader

from .transcript import Transcript

FOLDER = Path(__file__).parent.parent / "histories"
TRANSCRIPTS = Path(__file__).parent / "transcripts"

RECORDED = (
    "breaker",
    "checkpoints",
    "clock-jump",
    "drain",
    "exclusive",
    "failures-budget",
    "hang",
    "hosts-agent-restart",
    "jobs-cancel",
    "leader-change",
    "preemption",
    "recovery-host-lost-spare",
    "recovery-rank-crash",
    "requests",
    "resize-independent",
    "services",
    "unkillable",
)


class History(msgspec.Struct, frozen=True):
    """A file's content: what was recorded, and the digest of the whole state at its end."""

    header: IncidentHeader
    records: tuple[Recorded, ...]
    footer: IncidentFooter


def read(path: Path) -> History:
    first, *lines, last = path.read_bytes().splitlines()
    return History(
        msgspec.json.decode(first, type=IncidentHeader),
        tuple(msgspec.json.decode(line, type=Recorded) for line in lines),
        msgspec.json.decode(last, type=IncidentFooter),
    )


def replay(history: History) -> tuple[list[Recorded], str]:
    """(what today's machine makes of the same entries, the digest of the state it ends in)."""
    state = new_state()
    again = [apply(state, record.entry) for record in history.records]
    return again, state_digest(state)


def sources() -> dict[str, list[Recorded]]:
    """What is recorded of a release: a transcript of each family, fleets that live through much."""
    found = {}
    for name in RECORDED:
        transcript = Transcript()
        transcript.run((TRANSCRIPTS / f"{name}.txt").read_text())
        found[f"transcript-{name}"] = transcript.driver.records
    for seed in (3, 14, 15):
        world = World(seed, twin=False)
        world.live_through(250)
        world.calm_down()
        found[f"fleet-{seed}"] = world.driver.records
    return found


def write(path: Path, records: list[Recorded]) -> None:
    header = IncidentHeader("c", 1, coord_version=__version__, logic_version=1)
    last = records[-1]
    footer = IncidentFooter(len(records), last.entry.index, last.digest)
    lines = [msgspec.json.encode(line) for line in (header, *records, footer)]
    path.write_bytes(b"\n".join(lines) + b"\n")


def main(release: str) -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, records in sources().items():
        path = FOLDER / f"{release}-{name}.jsonl"
        if path.exists():
            print(f"kept {path.name}: a recorded log is never written over")
            continue
        write(path, records)
        print(f"wrote {path.name}: {len(records)} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else __version__))
