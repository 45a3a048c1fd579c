"""What the things under test promise, each as a state and one step of it.

A model answers one question: from this state, can this action be answered so, and which state is it
then? States are hashable. A step whose answer is not known (`UNKNOWN`) takes effect if it can and
changes nothing otherwise: such an operation is one that was refused without anybody hearing of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from jepsen_lite.history.operation import Operation, Outcome


class _Unknown(Enum):
    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


class Effect(msgspec.Struct, frozen=True):
    """What an answer says about the states around it, each None when it says nothing."""

    needs: Hashable = None
    """The only state in which this could be answered so."""
    leads_to: Hashable = None
    """The state afterwards, if it changes anything."""
    blind: bool = False
    """It was answered and leads there from any state whatever."""


UNKNOWN: Final = _Unknown.UNKNOWN
"""The result of an operation of which no answer is known."""

REFUSED: Final = "nothing_to_do"
"""The product's word for "it is so already; nothing was changed"."""

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """A specification of one key."""

    name: str

    def initial(self) -> S:
        """The state before the first operation."""
        ...

    def step(self, state: S, action: str, argument: Any, result: Any) -> S | None:
        """The state afterwards, or None when this answer cannot be given in this state."""
        ...

    def only_looks(self, action: str, result: Any) -> bool:
        """Whether with this answer the operation never changes any state: reads, refusals. False
        is always safe; True lets the search place it as soon as its answer fits."""
        ...

    def tell(self, operation: Operation) -> str:
        """The operation in a few words, as in "write 3 -> ok"."""
        ...


class Knowing(Model[S], Protocol[S]):
    """A model that has seen the operations it will be asked about. Its `step` may take states that
    none of their answers can tell apart for one."""

    def out_of_reach(self, state: S, result: Any) -> bool:
        """Whether none of the operations, in no order, lead from the state to one in which a look
        is answered so. False is always safe."""
        ...


def knowing(model: Model[Any], operations: Sequence[Operation]) -> Model[Any]:
    """What the model's method `knowing` makes of the operations of one key, if it has one: worth
    having where there are as many states as orders that lead to them."""
    know = getattr(model, "knowing", None)
    return model if know is None else cast(Model[Any], know(operations))


class UnknownAction(ValueError):
    """A model was given an action that it does not have."""

    def __init__(self, model: str, action: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{model} has no action {action!r}; it has {', '.join(known)}")


class Register:
    """One value: `write v`, `read`, and `cas [from, to]`, answered True or False."""

    name = "register"
    actions = ("write", "read", "cas")

    def __init__(self, first: Any = None) -> None:
        self.first = first

    def initial(self) -> tuple[Hashable]:
        return (hashable(self.first),)

    def step(
        self, state: tuple[Hashable], action: str, argument: Any, result: Any
    ) -> tuple[Hashable] | None:
        if action == "read":
            return state if result is UNKNOWN or state[0] == hashable(result) else None
        if action == "write":
            return (hashable(argument),)
        if action == "cas":
            expected, replacement = argument
            matches = state[0] == hashable(expected)
            if result is UNKNOWN or result is matches:
                return (hashable(replacement),) if matches else state
            return None
        raise UnknownAction(self.name, action, self.actions)

    def only_looks(self, action: str, result: Any) -> bool:
        return action == "read" or (action == "cas" and result is False)

    def effect(self, action: str, argument: Any, result: Any) -> Effect:
        if action == "read":
            return Effect(needs=(hashable(result),))
        if action == "write":
            return Effect(leads_to=(hashable(argument),), blind=result is not UNKNOWN)
        if result is False:
            return Effect()
        expected, replacement = argument
        return Effect((hashable(expected),), (hashable(replacement),))

    def tell(self, operation: Operation) -> str:
        if operation.action == "cas":
            expected, replacement = operation.argument
            asked = f"cas {brief(expected)} to {brief(replacement)}"
        else:
            asked = ask(operation)
        if operation.action != "cas" or operation.outcome is not Outcome.OK:
            return answered(operation, asked)
        return f"{asked} -> {'ok' if operation.result else 'differs'}"


class TextByKey:
    """A text that grows: `append t`, `put t`, `get`. A key begins empty."""

    name = "text"
    actions = ("append", "put", "get")

    def initial(self) -> str:
        return ""

    def step(self, state: str, action: str, argument: Any, result: Any) -> str | None:
        if action == "get":
            return state if result is UNKNOWN or state == result else None
        if action == "put":
            return str(argument)
        if action == "append":
            return state + str(argument)
        raise UnknownAction(self.name, action, self.actions)

    def only_looks(self, action: str, result: Any) -> bool:
        return action == "get"

    def knowing(self, operations: Sequence[Operation]) -> Model[Any]:
        return _KnownText(operations)

    def tell(self, operation: Operation) -> str:
        return answered(operation, ask(operation))


class _Lost(Enum):
    LOST = "begins no answer"


class _KnownText(TextByKey):
    """A text that begins no answer is lost, whatever it is: it matters no more until the next put.
    Without this, n appends at a time are as many states as they have orders."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._answers = sorted(
            {
                str(each.result)
                for each in operations
                if each.action == "get" and each.outcome is Outcome.OK
            }
        )
        self._puts = tuple({str(each.argument) for each in operations if each.action == "put"})

    def step(self, state: Any, action: str, argument: Any, result: Any) -> Any:
        if state is _Lost.LOST and action != "put":
            return None if action == "get" and result is not UNKNOWN else state
        after = super().step(state, action, argument, result)
        if after is None or action == "get":
            return after
        at = bisect_left(self._answers, after)
        begins_one = at < len(self._answers) and self._answers[at].startswith(after)
        return after if begins_one else _Lost.LOST

    def out_of_reach(self, state: Any, result: Any) -> bool:
        if str(result).startswith(self._puts):
            return False
        return state is _Lost.LOST or not str(result).startswith(state)


class Replicas:
    """The number of tasks of a job: `write v` is answered None when it changed the number, and
    "nothing_to_do" when it was v already; `read` answers it."""

    name = "replicas"
    actions = ("write", "read")

    def __init__(self, first: int = 1) -> None:
        self.first = first

    def initial(self) -> int:
        return self.first

    def step(self, state: int, action: str, argument: Any, result: Any) -> int | None:
        if action == "read":
            return state if result is UNKNOWN or state == result else None
        if action == "write":
            wanted = int(argument)
            if result is UNKNOWN:
                return wanted
            if result is None:
                return wanted if state != wanted else None
            return state if result == REFUSED and state == wanted else None
        raise UnknownAction(self.name, action, self.actions)

    def only_looks(self, action: str, result: Any) -> bool:
        return action == "read" or result == REFUSED

    def effect(self, action: str, argument: Any, result: Any) -> Effect:
        if action == "read":
            return Effect(needs=result)
        if result == REFUSED:
            return Effect(needs=int(argument))
        return Effect(leads_to=int(argument))

    def tell(self, operation: Operation) -> str:
        return answered(operation, ask(operation))


class Switch:
    """A host that is drained or not: `drain` and `undrain` are answered None when they turned it,
    and "nothing_to_do" when it was so already; `read` answers whether it is drained."""

    name = "switch"
    actions = ("drain", "undrain", "read")

    def initial(self) -> bool:
        return False

    def step(self, state: bool, action: str, argument: Any, result: Any) -> bool | None:
        if action == "read":
            return state if result is UNKNOWN or state == result else None
        if action not in self.actions:
            raise UnknownAction(self.name, action, self.actions)
        wanted = action == "drain"
        if result is UNKNOWN:
            return wanted
        if result is None:
            return wanted if state != wanted else None
        return state if result == REFUSED and state == wanted else None

    def only_looks(self, action: str, result: Any) -> bool:
        return action == "read" or result == REFUSED

    def tell(self, operation: Operation) -> str:
        return answered(operation, operation.action)


KNOWN: dict[str, Callable[..., Model[Any]]] = {
    kind.name: kind for kind in (Register, TextByKey, Replicas, Switch)
}


def name_of(model: Model[Any]) -> str:
    """By which `model_named` finds it again; a model of somebody else's has that of its class."""
    kind = type(model)
    return model.name if KNOWN.get(model.name) is kind else f"{kind.__module__}.{kind.__qualname__}"


def model_named(name: str, first: Any = None) -> Model[Any] | None:
    """One that begins with `first`, if that can be chosen; None for what is not of this module."""
    if name not in KNOWN:
        return None
    return KNOWN[name]() if first is None else KNOWN[name](first)


def hashable(value: Any) -> Hashable:
    """A JSON value as one that can be a state: lists become tuples, objects sorted pairs."""
    if isinstance(value, list | tuple):
        return tuple(hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple(sorted((name, hashable(item)) for name, item in value.items()))
    plain: Hashable = value
    return plain


def brief(value: Any) -> str:
    """A JSON value in at most 24 characters."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 24 else f"{text[:10]}...{text[-11:]}"


def ask(operation: Operation) -> str:
    """The action and its argument, if it has one."""
    if operation.argument is None:
        return operation.action
    return f"{operation.action} {brief(operation.argument)}"


def answered(operation: Operation, asked: str) -> str:
    """What was asked, and what came of it."""
    if operation.outcome is Outcome.INFO:
        return f"{asked} -> ?"
    if operation.outcome is Outcome.FAIL:
        return f"{asked} -> failed"
    reading = operation.action in ("read", "get")
    return f"{asked} -> {brief(operation.result) if reading or operation.result else 'ok'}"
