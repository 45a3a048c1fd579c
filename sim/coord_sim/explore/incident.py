"""A recorded incident that replays as it is: where every exploration begins."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coord.cli.verify import Difference, Replayer, difference_text
from coord.core.cluster import NEWEST_LOGIC_VERSION
from coord.core.state import State, decode_state
from coord.model.entry import Recorded
from coord.model.incident import IncidentHeader
from coord.store.incident import IncidentCorrupt, IncidentReader

LONGEST = 100_000
"""Entries of an incident: beyond that it is a history, and a span of it is what to take apart."""


class IncidentUnfit(Exception):
    """Base: the file can be read, and still nothing can be explored from it."""


class IncidentDiffers(IncidentUnfit):
    """The replay of the entry at `index` gave something else than was recorded."""

    def __init__(self, index: int, difference: Difference) -> None:
        super().__init__(f"{difference_text(difference)}; only what replays as it is can be varied")
        self.index = index
        self.difference = difference


class IncidentTooShort(IncidentUnfit):
    """There are fewer than two entries: nothing that could have come in another order."""


class IncidentTooLong(IncidentUnfit):
    """There are more entries than `LONGEST`."""


class LogicUnknown(IncidentUnfit):
    """It was recorded under rules that this release does not have."""


class Incident(msgspec.Struct, frozen=True):
    """A span of the log and the state before it. A *position* counts `records` from 0.

    `start` is as `core.state.encode_state` gives it. Every record is as this release derives it;
    `verified` tells how many had a digest to compare with.
    """

    header: IncidentHeader
    start: bytes
    records: tuple[Recorded, ...]
    verified: int = 0
    name: str = ""

    def start_state(self) -> State:
        """A new state, as it was before the first record."""
        return decode_state(self.start)

    def index(self, position: int) -> int:
        """The log index of a position."""
        return self.header.start_index + position


def load(path: str | Path) -> Incident:
    """Read and replay a file of either format.

    Raises IncidentError where the file is damaged or of an unknown format, and IncidentUnfit where
    it is sound but cannot be varied. A file that was cut off is refused as well.
    """
    with open(path, "rb", buffering=1 << 20) as file:
        reader = IncidentReader(file, str(path))
        start = reader.start_state()
        recorded = []
        for located in reader:
            recorded.append(located.record)
            if len(recorded) > LONGEST:
                raise IncidentTooLong(
                    f"{path} has more than {LONGEST} entries; cut out the span to take apart with "
                    "`coordctl incident export --from INDEX --to INDEX`"
                )
    return replayed(reader.header, start, recorded, str(path))


def replayed(
    header: IncidentHeader, start: bytes, recorded: list[Recorded], name: str = "incident.log"
) -> Incident:
    """The same from parts in memory; raises as `load` does."""
    if header.logic_version > NEWEST_LOGIC_VERSION:
        raise LogicUnknown(
            f"{name} was recorded under rules of version {header.logic_version}, this release has "
            f"{NEWEST_LOGIC_VERSION}; upgrade coord"
        )
    if len(recorded) < 2:
        raise IncidentTooShort(
            f"{name} has {len(recorded)} entries; it takes two for another order"
        )
    state = _start_state(start, header.start_index)
    replayer = Replayer(state)
    derived = []
    for offset, record in enumerate(recorded):
        again = replayer.apply(record, offset)
        if isinstance(again, Difference):
            raise IncidentDiffers(record.entry.index, again)
        derived.append(again)
    return Incident(header, start, tuple(derived), replayer.verified, name)


def _start_state(start: bytes, start_index: int) -> State:
    try:
        state = decode_state(start)
    except msgspec.MsgspecError as error:
        raise IncidentCorrupt(f"the start state cannot be read: {error}", 0) from error
    if state.meta.applied_index != start_index - 1:
        raise IncidentCorrupt(
            f"the start state is as of index {state.meta.applied_index}, but the file begins with "
            f"{start_index}",
            0,
        )
    return state
