"""Is there an order? A search after Wing and Gong (1993) with Lowe's memory (2017), for one key.

Entries, that is calls and returns in order of time, stand in a doubly linked list. What may happen
next is every call before the first return. Choosing one lifts its two entries out of the list;
nothing left to choose puts the last one back. A configuration (what is done, state) that was seen
is not entered again.

What keeps it small:

- A look whose answer fits the state is placed at once: it changes nothing, so no order that has it
  later has anything which this one has not.
- What is done is a base, below which everything is, and a bit mask for the few above it; so a
  configuration of a history of a million operations is as small as one of a hundred.
- An INFO has no return, so it stands outside the list and is tried last; of several that ask the
  same only the eldest is tried. One that changes nothing, or whose effect the next step wipes out,
  need not have happened.
- A state is not left while somebody needs it and it cannot come back in time: see `needs`.
- A write that nobody can have seen goes along with the next one.
- A model may know more once it has seen the answers: see `models.Knowing`.
- Calls are tried in order of their log index, where they have one.

The search stops and goes on where it was, so that many keys can take turns.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic

import msgspec

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import UNKNOWN, Model, S, hashable, knowing
from jepsen_lite.judge.needs import needs_of, worth_trying

FIRST_BUDGET = 2_000
"""Steps that each key gets in the first round; every later round gives twice as many."""

SLICE = 20_000
"""Steps between two looks at the clock: some tens of milliseconds."""

REMEMBERED = 2_000_000
"""Configurations kept in memory over all keys, about 500 MB. Beyond it the search goes on without
remembering more, which is right but slow."""

TOLD = 64
"""How many of the operations last placed are kept to explain a violation."""

_NOTHING: Any = object()


class Memory(msgspec.Struct):
    """How many more configurations may be remembered."""

    left: int = REMEMBERED


class Order(msgspec.Struct):
    """The end of one order of operations."""

    placed: tuple[Operation, ...]
    """At most the last `TOLD` of them."""
    state: Any
    """The model's state after them."""


class Stuck(msgspec.Struct):
    """The furthest that any order came."""

    operation: Operation
    """It was over before anything else that is not in the order."""
    order: Order


class _Frame(Generic[S]):
    """A configuration, and what is yet to be tried from it."""

    __slots__ = (
        "at",
        "base",
        "before",
        "choices",
        "first",
        "mask",
        "open_too",
        "state",
        "trail",
        "used",
    )

    def __init__(self, state: S, base: int, mask: int, used: int, trail: int) -> None:
        self.state = state
        self.base = base
        self.mask = mask
        self.used = used
        self.trail = trail
        self.before: Any = _NOTHING
        self.choices: list[int] = []
        self.at = 0
        self.open_too = False
        self.first = -1


class Search(Generic[S]):
    """Looks for an order of the operations of one key, none of which has failed."""

    def __init__(
        self, operations: Iterable[Operation], model: Model[S], memory: Memory | None = None
    ) -> None:
        operations = list(operations)
        model = knowing(model, operations)
        self._step = model.step
        self._memory = memory or Memory()
        self._seen: set[Hashable] = set()
        answered: list[Operation] = []
        opened: list[Operation] = []
        for operation in operations:
            if operation.outcome is Outcome.OK:
                answered.append(operation)
            elif operation.outcome is Outcome.INFO and not model.only_looks(
                operation.action, UNKNOWN
            ):
                opened.append(operation)
        answered.sort(key=lambda each: (each.invoked_ns, each.number))
        opened.sort(key=lambda each: (each.invoked_ns, each.number))
        opened = worth_trying(model, answered, opened)
        self._answered = answered
        self._opened = opened
        self._looks = [model.only_looks(each.action, each.result) for each in answered]
        self._foresee = getattr(model, "out_of_reach", None)
        self._needs = needs_of(model, answered, opened)
        self._link()
        self._group()
        self._trail: list[int] = []
        self._left = len(answered)
        self._deepest = -1
        self._furthest: tuple[tuple[int, ...], int, Any] = ((), -1, None)
        root = _Frame(model.initial(), 0, 0, 0, 0)
        self._stack = [root]
        self._settle(root)
        self.found: bool | None = None if self._left else True

    def run(self, steps: int) -> bool | None:
        """Go on for so many steps: True, there is an order; False, there is none; None, not known
        yet."""
        stack, step = self._stack, self._step
        answered, opened = self._answered, self._opened
        while self.found is None and steps > 0:
            steps -= 1
            frame = stack[-1]
            if frame.at == len(frame.choices) and not self._more(frame):
                self._leave(frame)
                continue
            choice = frame.choices[frame.at]
            frame.at += 1
            state, used = frame.state, frame.used
            if choice >= 0:
                operation = answered[choice]
                result = operation.result
            else:
                operation = opened[~choice]
                result = UNKNOWN
                used |= 1 << ~choice
            after = step(state, operation.action, operation.argument, result)
            if after is None or (choice < 0 and after == state):
                continue
            if (
                frame.before is not _NOTHING
                and step(frame.before, operation.action, operation.argument, result) == after
            ):
                continue
            if self._enter(frame, choice, after, used) and not self._left:
                self.found = True
        return self.found

    def _enter(self, frame: _Frame[S], choice: int, after: S, used: int) -> bool:
        """Place the choice and what goes along with it; False where that was seen before, or
        is a dead end."""
        base, mask, state = frame.base, frame.mask, frame.state
        along = self._along(frame, choice)
        for i in along:
            if i >= 0:
                base, mask = _with(base, mask, i)
        needs = self._needs
        if needs is not None and after != state and needs.unmet(state, base, mask, used):
            return False
        configuration = (base, mask, used, after)
        if configuration in self._seen:
            return False
        if self._memory.left > 0:
            self._memory.left -= 1
            self._seen.add(configuration)
        entered = _Frame(after, base, mask, used, len(self._trail))
        for i in along:
            self._place(i)
        if not self._settle(entered) and choice < 0:
            entered.before = state
        self._stack.append(entered)
        return True

    def _along(self, frame: _Frame[S], choice: int) -> list[int]:
        """What to place when this is chosen: before a blind write, whatever is idle
        and may be next."""
        needs = self._needs
        if choice < 0 or needs is None or not needs.blind[choice]:
            return [choice]
        idle = needs.idle
        return [*(i for i in frame.choices if i >= 0 and i != choice and idle[i]), choice]

    @property
    def stuck(self) -> Stuck:
        """Why there is no order; only after False."""
        trail, first, state = self._furthest
        return Stuck(self._answered[first], self._order(trail, state))

    @property
    def order(self) -> Order:
        """One that explains everything; only after True."""
        return self._order(self._trail[-TOLD:], self._stack[-1].state)

    def _order(self, trail: Sequence[int], state: Any) -> Order:
        placed = (self._answered[i] if i >= 0 else self._opened[~i] for i in trail)
        return Order(tuple(placed), state)

    def _link(self) -> None:
        """The list of entries: 2i is the call of i, 2i + 1 its return; calls go first at a tie, for
        only what is strictly before is before."""
        answered = self._answered
        edges = [(each.invoked_ns, 0, 2 * i) for i, each in enumerate(answered)]
        edges += [(each.completed_ns, 1, 2 * i + 1) for i, each in enumerate(answered)]
        edges.sort()
        end = 2 * len(answered)
        self._end = end
        self._next = [0] * (end + 1)
        self._previous = [0] * (end + 1)
        before = end
        for _, _, entry in edges:
            self._next[before] = entry
            self._previous[entry] = before
            before = entry
        self._next[before] = end
        self._previous[end] = before
        self._next_look = [-1] * (len(answered) + 1)
        for i in range(len(answered) - 1, -1, -1):
            self._next_look[i] = i if self._looks[i] else self._next_look[i + 1]

    def _group(self) -> None:
        """INFOs that ask the same, eldest first."""
        groups: dict[Hashable, list[int]] = {}
        self._group_of: list[int] = []
        numbers: dict[Hashable, int] = {}
        for i, each in enumerate(self._opened):
            question = (each.action, hashable(each.argument))
            groups.setdefault(question, []).append(i)
            self._group_of.append(numbers.setdefault(question, len(numbers)))
        self._groups = list(groups.values())
        self._taken = [0] * len(groups)

    def _settle(self, frame: _Frame[S]) -> int:
        """Place every look that fits, list what else may be next; how many looks were placed."""
        following, end, answered, looks = self._next, self._end, self._answered, self._looks
        step, state = self._step, frame.state
        choices: list[int] = []
        waiting: list[int] = []
        placed = 0
        entry = following[end]
        while entry != end and not entry & 1:
            i = entry >> 1
            entry = following[entry]
            if not looks[i]:
                choices.append(i)
                continue
            operation = answered[i]
            if step(state, operation.action, operation.argument, operation.result) is not None:
                if entry == 2 * i + 1:
                    entry = following[entry]
                self._place(i)
                frame.base, frame.mask = _with(frame.base, frame.mask, i)
                placed += 1
            else:
                waiting.append(i)
        frame.first = entry >> 1 if entry != end else -1
        if self._foresee is not None and self._hopeless(frame, waiting):
            frame.open_too = True
            return placed
        if len(choices) > 1:
            choices.sort(key=self._promise)
        frame.choices = choices
        return placed

    def _hopeless(self, frame: _Frame[S], waiting: list[int]) -> bool:
        """Whether a look that is still to come can never be answered as it was: one of those that
        may be next, or the first after the base."""
        after = self._next_look[frame.base]
        if after >= 0 and not frame.mask >> (after - frame.base) & 1:
            waiting.append(after)
        out_of_reach, answered = self._foresee, self._answered
        assert out_of_reach is not None
        return any(out_of_reach(frame.state, answered[i].result) for i in waiting)

    def _promise(self, i: int) -> tuple[bool, int, int]:
        operation = self._answered[i]
        return not operation.index, operation.index, operation.completed_ns

    def _more(self, frame: _Frame[S]) -> bool:
        """Add the INFOs that may be next to the choices, once; False when there are no more."""
        if frame.open_too:
            return False
        frame.open_too = True
        until = self._answered[frame.first].completed_ns
        taken, opened = self._taken, self._opened
        for group, members in enumerate(self._groups):
            at = taken[group]
            if at < len(members) and opened[members[at]].invoked_ns <= until:
                frame.choices.append(~members[at])
        return frame.at < len(frame.choices)

    def _leave(self, frame: _Frame[S]) -> None:
        """Nothing is left to try from here: undo what led to it."""
        returned = self._answered[frame.first].completed_ns
        if returned > self._deepest:
            self._deepest = returned
            self._furthest = (tuple(self._trail[-TOLD:]), frame.first, frame.state)
        self._stack.pop()
        if not self._stack:
            self.found = False
            return
        while len(self._trail) > frame.trail:
            self._replace(self._trail.pop())

    def _place(self, choice: int) -> None:
        self._trail.append(choice)
        if choice < 0:
            self._taken[self._group_of[~choice]] += 1
            return
        self._left -= 1
        following, previous = self._next, self._previous
        for entry in (2 * choice, 2 * choice + 1):
            before, after = previous[entry], following[entry]
            following[before] = after
            previous[after] = before

    def _replace(self, choice: int) -> None:
        """Undo `_place`; the opposite order puts both entries back where they were."""
        if choice < 0:
            self._taken[self._group_of[~choice]] -= 1
            return
        self._left += 1
        following, previous = self._next, self._previous
        for entry in (2 * choice + 1, 2 * choice):
            following[previous[entry]] = entry
            previous[following[entry]] = entry


def _with(base: int, mask: int, i: int) -> tuple[int, int]:
    """The window with i done too, its base moved up to the first that is not."""
    mask |= 1 << (i - base)
    if mask & 1:
        done = (~mask & (mask + 1)).bit_length() - 1
        return base + done, mask >> done
    return base, mask


def search_in_turns(searches: Sequence[Search[Any]], deadline: float) -> None:
    """Run all until each has found an answer or `time.thread_time()` passes the deadline. Everyone
    gets the same steps in a round, and twice as many in the next: a hard key delays the others by a
    constant factor only."""
    budget = FIRST_BUDGET
    pending = [search for search in searches if search.found is None]
    while pending:
        for search in pending:
            left = budget
            while left > 0 and search.found is None:
                if time.thread_time() >= deadline:
                    return
                search.run(min(left, SLICE))
                left -= SLICE
        pending = [search for search in pending if search.found is None]
        budget *= 2
