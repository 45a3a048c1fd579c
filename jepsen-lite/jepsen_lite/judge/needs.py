"""Who needs which state, and who can still bring it about: dead ends seen when they are entered.

Leaving a state that an operation yet to be placed was answered from is a dead end, unless another
one that leads there can still be placed before that answer came. For a register this turns most
wrong turns back at once: no value is written over while somebody has yet to read it. And what
nobody can have needed, nobody has to try: see `Needs.idle` and `worth_trying`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from jepsen_lite.history.operation import Operation
from jepsen_lite.judge.models import UNKNOWN, Effect, Model

NEVER = 1 << 62

Effects = Callable[[str, Any, Any], Effect]
"""(action, argument, result) -> what it says. A model's optional method `effect`."""


class Needs:
    """The operations of one key by the states they need and lead to. `answered` and `opened` are in
    order of invocation, as `search` numbers them."""

    blind: list[bool]
    """Of each answered one, whether it leads to its state from any other."""
    idle: list[bool]
    """Of each answered one, whether it is blind and nobody can have needed what it wrote: it was
    written over first. Such a write may as well stand right before whichever blind one is next."""

    def __init__(
        self, effect: Effects, answered: Sequence[Operation], opened: Sequence[Operation]
    ) -> None:
        self._answered = answered
        self._opened = opened
        said = [effect(each.action, each.argument, each.result) for each in answered]
        asked = [effect(each.action, each.argument, UNKNOWN) for each in opened]
        self._needing = _by_state(each.needs for each in said)
        self._making = _by_state(each.leads_to for each in said)
        self._making_open = _by_state(each.leads_to for each in asked)
        self.blind = [each.blind for each in said]
        self.idle = self._find_idle(said, asked)

    def _find_idle(self, said: list[Effect], asked: list[Effect]) -> list[bool]:
        answered = self._answered
        reaches = _waiting(answered, said, self._opened, asked)
        writes = [i for i, blind in enumerate(self.blind) if blind]
        begins = [answered[i].invoked_ns for i in writes]
        # The earliest end of the writes from each on: by then its predecessors are written over.
        ends = [*accumulate((answered[i].completed_ns for i in reversed(writes)), min)][::-1]
        idle = [False] * len(answered)
        for i in writes:
            each = answered[i]
            after = bisect_right(begins, each.completed_ns)
            until = ends[after] if after < len(ends) else NEVER
            idle[i] = not any(
                state in reaches and reaches[state].overlaps(each.invoked_ns, until)
                for state in (said[i].leads_to, None)
            )
        return idle

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


def worth_trying(
    model: Model[Any], answered: Sequence[Operation], opened: list[Operation]
) -> list[Operation]:
    """Those without an answer of which somebody can have seen whether they happened."""
    effect = getattr(model, "effect", None)
    if effect is None:
        return opened
    said = [effect(each.action, each.argument, each.result) for each in answered]
    asked = [effect(each.action, each.argument, UNKNOWN) for each in opened]
    reaches = _waiting(answered, said, opened, asked)
    return [
        each
        for each, that in zip(opened, asked, strict=True)
        if any(
            state in reaches and reaches[state].overlaps(each.invoked_ns, NEVER)
            for state in (that.leads_to, None)
        )
    ]


def needs_of(
    model: Model[Any], answered: Sequence[Operation], opened: Sequence[Operation]
) -> Needs | None:
    """None for a model whose answers say nothing about single states."""
    effect = getattr(model, "effect", None)
    return None if effect is None else Needs(effect, answered, opened)


class _Reach:
    """Spans of time, asked whether any of them touches another."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        spans.sort()
        self._begins = [begin for begin, _ in spans]
        self._latest = [*accumulate((end for _, end in spans), max)]

    def overlaps(self, begin: int, end: int) -> bool:
        before = bisect_right(self._begins, end)
        return before > 0 and self._latest[before - 1] >= begin


def _waiting(
    answered: Sequence[Operation],
    said: list[Effect],
    opened: Sequence[Operation],
    asked: list[Effect],
) -> dict[Hashable, _Reach]:
    """When each state may be needed; None stands for any: what is neither blind nor needs a
    single state, as a refusal or a change that was none if it had been so already, may need any."""
    spans: dict[Hashable, list[tuple[int, int]]] = {}
    for each, effect in zip(answered, said, strict=True):
        if effect.needs is not None or not effect.blind:
            spans.setdefault(effect.needs, []).append((each.invoked_ns, each.completed_ns))
    for each, effect in zip(opened, asked, strict=True):
        if effect.needs is not None or effect.leads_to is None:
            spans.setdefault(effect.needs, []).append((each.invoked_ns, NEVER))
    return {state: _Reach(its_spans) for state, its_spans in spans.items()}


def _by_state(states: Iterable[Hashable]) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for i, state in enumerate(states):
        if state is not None:
            found.setdefault(state, []).append(i)
    return found
