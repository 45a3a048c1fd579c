"""Who needs which state, and who can still bring it about: dead ends seen when they are entered.

Leaving a state that an operation yet to be placed was answered from is a dead end, unless another
one that leads there can still be placed before that answer came. For a register this turns most
wrong turns back at once: an unread value is written over only once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from jepsen_lite.history.operation import Operation
from jepsen_lite.judge.models import UNKNOWN, Effect, Model

NEVER = 1 << 62


Effects = Callable[[str, Any, Any], Effect]
"""(action, argument, result) -> what it says. A model's optional method `effect`."""


class Needs:
    """The operations of one key by the states they need and lead to. `answered` and `opened` are in
    order of invocation, as `search` numbers them."""

    def __init__(
        self, effect: Effects, answered: Sequence[Operation], opened: Sequence[Operation]
    ) -> None:
        self._answered = answered
        self._opened = opened
        self._needing: dict[Hashable, list[int]] = {}
        self._making: dict[Hashable, list[int]] = {}
        self._making_open: dict[Hashable, list[int]] = {}
        for i, each in enumerate(answered):
            said = effect(each.action, each.argument, each.result)
            if said.needs is not None:
                self._needing.setdefault(said.needs, []).append(i)
            if said.leads_to is not None:
                self._making.setdefault(said.leads_to, []).append(i)
        for i, each in enumerate(opened):
            said = effect(each.action, each.argument, UNKNOWN)
            if said.leads_to is not None:
                self._making_open.setdefault(said.leads_to, []).append(i)

    def unmet(self, state: Hashable, base: int, mask: int, used: int) -> bool:
        """Whether somebody needs this state, which is not the present one, and it cannot come back
        in time. `base`, `mask` and `used` tell what is placed, as in `search`."""
        needing = self._needing.get(state)
        if needing is None:
            return False
        back = NEVER
        making = self._making.get(state, ())
        for at in range(bisect_left(making, base), len(making)):
            i = making[at]
            if not mask >> (i - base) & 1:
                back = self._answered[i].invoked_ns
                break
        for i in self._making_open.get(state, ()):
            if not used >> i & 1:
                back = min(back, self._opened[i].invoked_ns)
                break
        for at in range(bisect_left(needing, base), len(needing)):
            i = needing[at]
            if mask >> (i - base) & 1:
                continue
            operation = self._answered[i]
            if operation.invoked_ns > back:
                return False
            if operation.completed_ns < back:
                return True
        return False

    def unmet_from(self, first: Hashable) -> bool:
        """Whether somebody needs a state that never comes, when all begins in this one."""
        return any(self.unmet(state, 0, 0, 0) for state in self._needing if state != first)


def needs_of(
    model: Model[Any], answered: Sequence[Operation], opened: Sequence[Operation]
) -> Needs | None:
    """None for a model whose answers say nothing about single states."""
    effect = getattr(model, "effect", None)
    return None if effect is None else Needs(effect, answered, opened)
