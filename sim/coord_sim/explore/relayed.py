"""Which hosts each recorded frame of a relay vouched for."""

from __future__ import annotations

import msgspec

from coord.core.rosters import Members, members_of, relay_of_actor
from coord.core.state import State
from coord.model.decisions import RosterCut
from coord.model.entry import Recorded
from coord.model.roster import RosterChanged, RosterHeard


class Rosters:
    """Rosters as a log tells of them, entry after entry."""

    def __init__(self, start: State) -> None:
        self._members: dict[str, Members] = {
            relay: members_of(roster) for relay, roster in start.rosters.items()
        }

    def heard(self, record: Recorded) -> tuple[int, ...]:
        """Slots that were heard by what this entry says; none of other entries."""
        event = record.entry.event
        relay = relay_of_actor(record.entry.origin.actor)
        if isinstance(event, RosterChanged) and record.accepted:
            self._change(relay, event)
        for decision in record.decisions:
            if isinstance(decision, RosterCut):
                for slot in decision.slots:
                    self._members.get(decision.relay, {}).pop(slot, None)
        if isinstance(event, RosterHeard) and record.accepted:
            return vouched(self._members.get(relay, {}), event)
        return ()

    def _change(self, relay: str, event: RosterChanged) -> None:
        members = {} if event.replaces else self._members.get(relay, {})
        for slot in event.left_slots:
            members.pop(slot, None)
        columns = zip(
            event.joined_slots, event.joined_incarnations, event.joined_phases, strict=True
        )
        members |= {slot: (phase, incarnation) for slot, incarnation, phase in columns}
        if members:
            # A host stands in one roster at most, so others' cuts say the rest.
            self._members[relay] = members


def vouched(members: Members, event: RosterHeard) -> tuple[int, ...]:
    ages = dict(zip(event.except_slots, event.except_ages, strict=True))
    found = [
        slot
        for slot, (phase, _) in members.items()
        if ages.get(slot, int(event.from_phase <= phase < event.to_phase))
    ]
    return tuple(sorted(found))


def but_for(event: RosterHeard, silent: list[int]) -> RosterHeard:
    """The same frame, in which these were not heard."""
    ages = dict(zip(event.except_slots, event.except_ages, strict=True))
    ages |= dict.fromkeys(silent, 0)
    slots = tuple(sorted(ages))
    return msgspec.structs.replace(
        event, except_slots=slots, except_ages=tuple([ages[slot] for slot in slots])
    )
