"""Numbers of conversations: which is whose. Pure.

A number is used once in the life of the relay, so that it is never used again in a connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import msgspec

from coord.relay.conversations import Conversation


class Place(msgspec.Struct, frozen=True):
    """Behind one number: an agent, as `below` 0; or conversation `below` of the relay below."""

    conversation: Conversation
    below: int
    actor: str


class Table:
    """All conversations upwards, and the connections from below."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._places: dict[int, Place] = {}
        self._relays: dict[str, Conversation] = {}
        self.connections: dict[Conversation, None] = {}

    def __len__(self) -> int:
        """Agents, here and behind relays below."""
        return len(self._places)

    def new_number(self) -> int:
        return next(self._numbers)

    def add(self, number: int, conversation: Conversation, below: int, actor: str) -> None:
        self._places[number] = Place(conversation, below, actor)
        if below:
            conversation.numbers[below] = number

    def find(self, number: int) -> Place | None:
        return self._places.get(number)

    def remove(self, number: int) -> None:
        """Idempotent."""
        place = self._places.pop(number, None)
        if place is not None and place.below:
            place.conversation.numbers.pop(place.below, None)

    def places(self) -> Iterator[tuple[int, Place]]:
        """In the order of their numbers."""
        yield from self._places.items()

    def route(self, relay: str, conversation: Conversation) -> None:
        """Answers to that relay's frames go there."""
        self._relays[relay] = conversation

    def way_to(self, relay: str) -> Conversation | None:
        conversation = self._relays.get(relay)
        return conversation if conversation in self.connections else None

    def forget_routes(self, conversation: Conversation) -> None:
        for relay in [name for name, one in self._relays.items() if one is conversation]:
            del self._relays[relay]
