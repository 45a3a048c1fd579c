"""Histories with a known truth: simulated clients of one correct or one faulty store, and a judge
that is too simple to be wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import chain, combinations, count, permutations
from typing import Any

import msgspec
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import REFUSED, UNKNOWN, Model, Register, Replicas, Switch, TextByKey

QUIET_NS = 1_000_000_000
"""By then every simulated operation is over."""


class ExportedTokens:
    """A log of which only the tokens matter."""

    start_index = 1
    cut_off = ""
    damage = ""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}

    def indexes_of(self, token: str) -> Sequence[int]:
        return self.tokens.get(token, ())


class Story(msgspec.Struct):
    """What clients saw, and the log behind it."""

    operations: list[Operation]
    log: ExportedTokens


class Planned(msgspec.Struct):
    """An operation and when it takes effect; 0: never."""

    operation: Operation
    effect_ns: int


QUESTIONS: dict[str, list[tuple[str, Any]]] = {
    "register": [
        ("read", None),
        ("write", 0),
        ("write", 1),
        ("write", 2),
        ("cas", [0, 1]),
        ("cas", [1, 2]),
        ("cas", [2, 0]),
    ],
    "text": [("get", None), ("append", "a"), ("append", "b"), ("put", "c")],
    "replicas": [("read", None), ("write", 1), ("write", 2), ("write", 3)],
    "switch": [("read", None), ("drain", None), ("undrain", None)],
}

MODELS: list[Model[Any]] = [Register(), TextByKey(), Replicas(), Switch()]


def answers(action: str) -> list[Any]:
    """Whatever could come back, right or wrong, apart from what reads see."""
    return [True, False] if action == "cas" else [None, REFUSED]


def told(model: Model[Any], state: Any, action: str, argument: Any) -> tuple[Any, Any]:
    """What a correct store answers, and its state then."""
    if action in ("read", "get"):
        return state, state[0] if model.name == "register" else state
    for answer in answers(action):
        after = model.step(state, action, argument, answer)
        if after is not None:
            return after, answer
    raise AssertionError(f"{model.name} leaves {action} {argument} in {state} without an answer")


def plan(
    rng: random.Random,
    asked: Iterable[tuple[str, str, Any]],
    *,
    clients: int = 5,
    unknown: float = 0.0,
) -> list[Planned]:
    """Operations (key, action, argument), each asked by whoever is free first; `unknown` of them
    are never answered, and half of those never happen, the others some time later."""
    free = {f"c{number}": number for number in range(clients)}
    planned = []
    for number, (key, action, argument) in enumerate(asked, 1):
        client = min(free, key=free.__getitem__)
        invoked = free.pop(client) + rng.randint(1, 20)
        effect = invoked + rng.randint(0, 30)
        operation = Operation(
            number, client, "story", key, action, argument, invoked, token=f"t{number}"
        )
        if rng.random() < unknown:
            effect = invoked + rng.randint(0, 300) if rng.random() < 0.5 else 0
            free[f"{client}'"] = invoked + 40
        else:
            operation.outcome = Outcome.OK
            operation.completed_ns = effect + rng.randint(0, 30)
            free[client] = operation.completed_ns
        planned.append(Planned(operation, effect))
    for number, each in enumerate(sorted(planned, key=lambda each: each.operation.invoked_ns), 1):
        each.operation.number = number
    return planned


def carry_out(planned: Iterable[Planned], model: Model[Any]) -> Story:
    """What clients are told by a correct store when each takes effect at its instant."""
    planned = list(planned)
    log = ExportedTokens()
    states: dict[str, Any] = {}
    index = 1  # the entry that sets the store up; 0 would mean that the index is unknown
    happening = (each for each in planned if each.effect_ns)
    for each in sorted(happening, key=lambda each: (each.effect_ns, each.operation.number)):
        operation = each.operation
        before = states.get(operation.key, model.initial())
        state, answer = told(model, before, operation.action, operation.argument)
        if not model.only_looks(operation.action, UNKNOWN):
            index += 1
            log.tokens[operation.token] = [index]
        states[operation.key] = state
        if operation.outcome is Outcome.OK:
            operation.result = answer
            operation.index = index
    operations = sorted((each.operation for each in planned), key=lambda each: each.number)
    return Story(operations, log)


def unique_writes(rng: random.Random, size: int, keys: int) -> list[tuple[str, str, Any]]:
    """Reads, and writes of which no two have the same value."""
    values = count(1)
    return [
        (f"k{rng.randrange(keys)}", *(("write", next(values)) if rng.random() < 0.5 else READ))
        for _ in range(size)
    ]


READ = ("read", None)


def final_read(key: str, number: int, result: Any, after_ns: int) -> Operation:
    """One more read when all is quiet."""
    return Operation(
        number,
        "final",
        "story",
        key,
        "read",
        None,
        after_ns,
        after_ns + 5,
        Outcome.OK,
        result,
    )


def has_an_order(operations: Iterable[Operation], model: Model[Any]) -> bool:
    """By definition: some of the operations without an answer, and all those with one, in some
    order that real time allows and the model answers so. Factorial; for six operations or so."""
    answered = [each for each in operations if each.outcome is Outcome.OK]
    opened = [each for each in operations if each.outcome is Outcome.INFO]
    some = chain.from_iterable(combinations(opened, size) for size in range(len(opened) + 1))
    return any(
        _answered_so(order, model)
        for chosen in some
        for order in permutations([*answered, *chosen])
        if _in_real_time(order)
    )


def _in_real_time(order: Sequence[Operation]) -> bool:
    return not any(
        later.outcome is Outcome.OK and later.completed_ns < earlier.invoked_ns
        for at, earlier in enumerate(order)
        for later in order[at + 1 :]
    )


def _answered_so(order: Sequence[Operation], model: Model[Any]) -> bool:
    state = model.initial()
    for each in order:
        result = each.result if each.outcome is Outcome.OK else UNKNOWN
        state = model.step(state, each.action, each.argument, result)
        if state is None:
            return False
    return True


def small_history(rng: random.Random, model: Model[Any], size: int) -> list[Operation]:
    """Clients of a correct store for one key, with some lies and wrong indexes."""
    asked = [("k", *rng.choice(QUESTIONS[model.name])) for _ in range(size)]
    story = carry_out(plan(rng, asked, clients=rng.randint(2, 4), unknown=0.25), model)
    for each in story.operations:
        if each.outcome is Outcome.OK and rng.random() < 0.3:
            each.result = rng.choice([other.result for other in story.operations])
        if each.outcome is Outcome.INFO and rng.random() < 0.3:
            each.index = rng.randint(1, size)
        elif rng.random() < 0.1:
            each.index = rng.randint(0, size)
        if rng.random() < 0.3:
            each.completed_ns += rng.randint(0, 80)
        if rng.random() < 0.2:
            each.outcome = rng.choice([Outcome.INFO, Outcome.INFO, Outcome.FAIL])
    return story.operations
