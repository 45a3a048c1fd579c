"""The search, the witness and the smallest prefix against a judge that tries every order."""

from __future__ import annotations

import random
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import UNKNOWN, Model
from jepsen_lite.judge.search import Search
from jepsen_lite.judge.verdict import Verdict, judge_history
from jepsen_lite.judge.witness import settle, why_not

from tests.faults.judge_stories import (
    MODELS,
    QUESTIONS,
    answers,
    has_an_order,
    small_history,
)


def searched(operations: list[Operation], model: Model[Any]) -> bool | None:
    kept = [each for each in operations if each.outcome is not Outcome.FAIL]
    return Search(kept, model).run(100_000)


@st.composite
def any_history(draw: st.DrawFn) -> tuple[Model[Any], list[Operation]]:
    """Up to six operations on one key, their answers and times drawn at random."""
    model = draw(st.sampled_from(MODELS))
    questions = QUESTIONS[model.name]
    seen = {"register": [None, 0, 1, 2], "text": ["", "a", "ab", "c", "ca", "ba", "aa"]}.get(
        model.name, [1, 2, 3] if model.name == "replicas" else [True, False]
    )
    operations = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        action, argument = draw(st.sampled_from(questions))
        invoked = draw(st.integers(1, 12))
        outcome = draw(st.sampled_from([Outcome.OK, Outcome.OK, Outcome.OK, Outcome.INFO]))
        looks = action in ("read", "get")
        result = draw(st.sampled_from(seen if looks else answers(action)))
        operations.append(
            Operation(
                number,
                f"c{number}",
                "story",
                "k",
                action,
                argument,
                invoked,
                invoked + draw(st.integers(0, 6)),
                outcome,
                result if outcome is Outcome.OK else None,
                draw(st.integers(0, 6)),
            )
        )
    return model, operations


@settings(max_examples=400, deadline=None)
@given(any_history())
def test_the_search_agrees_with_trying_every_order(
    drawn: tuple[Model[Any], list[Operation]],
) -> None:
    """Both ways: what has an order is never called a violation, and what has none always is."""
    model, operations = drawn
    assert searched(operations, model) is has_an_order(operations, model)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_search_agrees_on_what_clients_of_a_lying_store_see(model: Model[Any]) -> None:
    """Histories that are almost right are the hard ones: both verdicts are well represented."""
    rng = random.Random(f"lies of a {model.name}")
    found = {True: 0, False: 0}
    for _ in range(1_500):
        operations = small_history(rng, model, rng.randint(2, 6))
        expected = has_an_order(operations, model)
        assert searched(operations, model) is expected, operations
        found[expected] += 1
    assert min(found.values()) > 40


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_witness_is_a_proof(model: Model[Any]) -> None:
    """Whatever the log's order explains has an order, also where indexes were made up; and most of
    what is right is explained, or the witness would be of no use."""
    rng = random.Random(f"witness of a {model.name}")
    explained = linearizable = 0
    for _ in range(1_500):
        operations = settle(small_history(rng, model, rng.randint(2, 6)), None).operations
        for each in operations:
            if each.index and rng.random() < 0.2:
                each.index = max(0, each.index + rng.randint(-2, 2))
        expected = has_an_order(operations, model)
        linearizable += expected
        if not why_not(operations, model):
            explained += 1
            assert expected, operations
    assert explained > linearizable // 10


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_prefix_is_the_smallest(model: Model[Any]) -> None:
    """It has no order; had its last answer not come, it would have one."""
    rng = random.Random(f"prefix of a {model.name}")
    violations = 0
    while violations < 60:
        operations = small_history(rng, model, rng.randint(2, 6))
        (judgement,) = judge_history(operations, model)
        if judgement.verdict is not Verdict.VIOLATION:
            continue
        violations += 1
        prefix = judgement.operations
        assert not has_an_order(prefix, model)
        answered = [each for each in prefix if each.outcome is Outcome.OK]
        last = max(answered, key=lambda each: (each.completed_ns, each.invoked_ns, each.number))
        shorter = [
            msgspec.structs.replace(each, outcome=Outcome.INFO) if each is last else each
            for each in prefix
        ]
        assert has_an_order(shorter, model)
        assert max(each.invoked_ns for each in prefix) <= last.completed_ns
        assert f"of {last.client}, which was over at" in judgement.detail


def test_a_search_that_is_interrupted_comes_to_the_same_answer() -> None:
    """One step at a time, as when many keys take turns."""
    rng = random.Random(4)
    for model in MODELS:
        for _ in range(50):
            operations = settle(small_history(rng, model, 6), None).operations
            whole, pieces = Search(operations, model), Search(operations, model)
            whole.run(1_000_000)
            deadline = time.monotonic() + 20
            while pieces.run(1) is None:
                assert time.monotonic() < deadline
            assert pieces.found is whole.found


def test_a_step_that_nobody_heard_of_can_always_be_tried() -> None:
    """Every model has an answer to UNKNOWN, whatever the state, or an INFO could not be placed."""
    for model in MODELS:
        for action, argument in QUESTIONS[model.name]:
            assert model.step(model.initial(), action, argument, UNKNOWN) is not None
