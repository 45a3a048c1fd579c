"""How fast the codec is here: `python -m tests.codec.speed`."""

from __future__ import annotations

import timeit
from typing import Any

from coord import codec
from coord.model.decisions import IncidentOpened, TasksStopping
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import HeartbeatsSeen, TaskExited

ORIGIN = Origin("host:h-000123", 3, 17, 123, 456)


def main() -> None:
    """Bytes, and microseconds to encode and decode, of typical records."""
    key = "digits/trainer/0#3"
    exited: Any = TaskExited("h-000123", 3, key, signal=9, stderr_tail="x" * 80)
    opened = IncidentOpened(("17",), 1, "digits", "digits/trainer", 3, "infrastructure", key)
    stopping = TasksStopping(("17.0",), "digits", "digits/trainer", 3, "user", "exit", (key,))
    beats = HeartbeatsSeen("node:1", tuple(range(10_000)), (3,) * 10_000)
    print(f"{'record':<28}{'bytes':>8}{'encode µs':>12}{'decode µs':>12}")
    for name, event, decisions, rounds in (
        ("TaskExited", exited, (), 5_000),
        ("TaskExited, two decisions", exited, (opened, stopping), 5_000),
        ("HeartbeatsSeen, 10,000", beats, (), 50),
    ):
        entry = Entry(1_234, 3, 1_700_000_000_000, ORIGIN, event)
        record = Recorded(entry, 123_456, "ab" * 16, decisions)
        encoded = codec.encode_recorded(record)
        calls = (
            lambda record=record: codec.encode_recorded(record),
            lambda encoded=encoded: codec.decode_recorded(encoded),
        )
        took = [min(timeit.repeat(call, number=rounds, repeat=5)) / rounds * 1e6 for call in calls]
        print(f"{name:<28}{len(encoded):>8}{took[0]:>12.1f}{took[1]:>12.1f}")


if __name__ == "__main__":
    main()
