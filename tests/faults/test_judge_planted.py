"""A store with one planted fault among thousands of right answers is found out, and a right one
never."""

from __future__ import annotations

import random

import pytest
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import Register, Switch, TextByKey
from jepsen_lite.judge.verdict import Judgement, Verdict, judge_history

from tests.faults.judge_stories import (
    MODELS,
    QUESTIONS,
    QUIET_NS,
    Planned,
    Story,
    carry_out,
    final_read,
    plan,
    unique_writes,
)

SEEDS = range(6)
KEYS = 3
SIZE = 1_500


def planned_writes(seed: int) -> list[Planned]:
    rng = random.Random(f"planted {seed}")
    return plan(rng, unique_writes(rng, SIZE, KEYS), unknown=0.03)


def writes_of(planned: list[Planned], key: str) -> list[Planned]:
    """Writes that somebody was told of, in the order in which they took effect."""
    return sorted(
        (
            each
            for each in planned
            if each.operation.key == key
            and each.operation.action == "write"
            and each.operation.outcome is Outcome.OK
        ),
        key=lambda each: each.effect_ns,
    )


def silent_at_the_end(planned: list[Planned], key: str) -> None:
    """No write of this key without an answer can take effect after the last answered one, for none
    ever does: what is planted has no other explanation."""
    for each in planned:
        if each.operation.key == key and each.operation.outcome is Outcome.INFO:
            each.effect_ns = 0


def in_sequence(planned: list[Planned], key: str) -> tuple[Planned, Planned]:
    """The last write, and the newest one that was over before it was asked."""
    *before, last = writes_of(planned, key)
    over = [each for each in before if each.operation.completed_ns < last.operation.invoked_ns]
    return over[-1], last


def with_final_reads(story: Story, key: str, *results: object) -> list[Operation]:
    number = len(story.operations) + 1
    return [
        *story.operations,
        *(
            final_read(key, number + at, result, QUIET_NS + 10 * at)
            for at, result in enumerate(results)
        ),
    ]


def only_violation(judgements: list[Judgement], key: str) -> Judgement:
    """The key is a violation, the others are not."""
    assert [each.verdict for each in judgements] == [Verdict.LINEARIZABLE, Verdict.VIOLATION]
    assert judgements[1].check == f"linearizable: register {key}"
    assert f"of {KEYS - 1} keys" in judgements[0].detail
    return judgements[1]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_store_is_never_accused(seed: int, model: object) -> None:
    """With indexes and a log by the witness, without them by search, with unknown outcomes."""
    model = next(each for each in MODELS if each is model)
    rng = random.Random(f"right {seed} {model.name}")
    questions = QUESTIONS[model.name]
    # A text grows with every append, so there are fewer of them on a key.
    keys = 40 if model.name == "text" else KEYS
    asked = [(f"k{rng.randrange(keys)}", *rng.choice(questions)) for _ in range(SIZE)]
    story = carry_out(plan(rng, asked, unknown=0.03), model)
    (by_log,) = judge_history(story.operations, model, log=story.log)
    assert (by_log.verdict, by_log.by) == (Verdict.LINEARIZABLE, "witness")
    for each in story.operations:
        each.index = 0
    (by_search,) = judge_history(story.operations, model, budget_s=30)
    assert (by_search.verdict, by_search.by) == (Verdict.LINEARIZABLE, "search")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stale_read_is_found(seed: int) -> None:
    """A read that sees a value which was overwritten before it was asked."""
    planned = planned_writes(seed)
    silent_at_the_end(planned, "k1")
    story = carry_out(planned, Register())
    older, _ = in_sequence(planned, "k1")
    operations = with_final_reads(story, "k1", older.operation.argument)
    found = only_violation(judge_history(operations, Register(), log=story.log), "k1")
    assert "of final, which was over at" in found.detail
    assert f"read -> {older.operation.argument}" in found.picture


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_write_is_found(seed: int) -> None:
    """A write that was acknowledged and has no effect."""
    planned = planned_writes(seed)
    silent_at_the_end(planned, "k2")
    story = carry_out(planned, Register())
    *_, newest = writes_of(planned, "k2")
    lost = Operation(
        SIZE + 1, "late", "story", "k2", "write", -1, QUIET_NS - 20, QUIET_NS - 10, Outcome.OK
    )
    story.operations.append(lost)
    operations = with_final_reads(story, "k2", newest.operation.argument)
    found = only_violation(judge_history(operations, Register(), log=story.log), "k2")
    assert "write -1 -> ok" in found.picture


@pytest.mark.parametrize("seed", SEEDS)
def test_a_write_that_is_applied_twice_is_found(seed: int) -> None:
    """The last value is read, and after it the one before, which came back."""
    planned = planned_writes(seed)
    silent_at_the_end(planned, "k0")
    story = carry_out(planned, Register())
    older, last = in_sequence(planned, "k0")
    values = (last.operation.argument, older.operation.argument)
    found = only_violation(judge_history(with_final_reads(story, "k0", *values), Register()), "k0")
    assert f"read -> {values[1]}" in found.picture


@pytest.mark.parametrize("seed", SEEDS)
def test_writes_in_the_wrong_order_are_found(seed: int) -> None:
    """Two writes, one asked when the other was over, take effect the other way round."""
    planned = planned_writes(seed)
    silent_at_the_end(planned, "k1")
    older, last = in_sequence(planned, "k1")
    older.effect_ns, last.effect_ns = last.effect_ns, older.effect_ns
    story = carry_out(planned, Register())
    operations = with_final_reads(story, "k1", older.operation.argument)
    only_violation(judge_history(operations, Register(), log=story.log), "k1")


def test_what_stands_in_the_log_twice_is_found_without_any_read() -> None:
    """The log alone tells: one operation, two entries that took part."""
    planned = planned_writes(0)
    story = carry_out(planned, Register())
    twice = writes_of(planned, "k0")[7].operation
    story.log.tokens[twice.token].append(9_999)
    judgements = judge_history(story.operations, Register(), log=story.log)
    assert [each.verdict for each in judgements] == [Verdict.LINEARIZABLE, Verdict.VIOLATION]
    assert judgements[1].by == "log"
    assert judgements[1].operations == (twice,)
    assert f"at indexes {twice.index}, 9999" in judgements[1].detail


def asked(*operations: tuple[str, object, int, int, object], key: str = "k") -> list[Operation]:
    """(action, argument, invoked, completed, result)."""
    return [
        Operation(
            number, f"c{number}", "story", key, action, argument, invoked, completed,
            Outcome.OK, result,
        )
        for number, (action, argument, invoked, completed, result) in enumerate(operations, 1)
    ]  # fmt: skip


def test_an_append_that_is_applied_twice_is_found() -> None:
    """The text holds it twice, whoever reads it."""
    operations = asked(
        ("append", "a", 1, 5, None), ("append", "b", 6, 9, None), ("get", None, 10, 12, "aba")
    )
    (judgement,) = judge_history(operations, TextByKey())
    assert judgement.verdict is Verdict.VIOLATION


def test_two_who_both_turned_a_switch_are_found() -> None:
    """Of two drains at a time only one can be told that it turned it."""
    operations = asked(("drain", None, 1, 5, None), ("drain", None, 2, 6, None))
    (judgement,) = judge_history(operations, Switch())
    assert judgement.verdict is Verdict.VIOLATION
    operations[1].result = "nothing_to_do"
    (judgement,) = judge_history(operations, Switch())
    assert judgement.verdict is Verdict.LINEARIZABLE


def test_a_write_of_unknown_outcome_happened_if_the_log_has_it() -> None:
    """It explains a read when it is there, and cannot when a whole log lacks it."""
    operations = asked(("read", None, 20, 25, 7))
    operations[0].index = 3
    unknown = Operation(2, "c2", "story", "k", "write", 7, 1, token="t2")
    story = carry_out([], Register())
    story.log.tokens["t2"] = [3]
    (judgement,) = judge_history([unknown, *operations], Register(), log=story.log)
    assert (judgement.verdict, judgement.by) == (Verdict.LINEARIZABLE, "witness")
    story.log.tokens.clear()
    (judgement,) = judge_history([unknown, *operations], Register(), log=story.log)
    assert judgement.verdict is Verdict.VIOLATION


@pytest.mark.parametrize(
    ("name", "value"), [("start_index", 40), ("cut_off", "no end"), ("damage", "byte 7")]
)
def test_a_log_that_is_not_whole_excludes_nothing(name: str, value: object) -> None:
    """What may have stood in the missing part may have happened."""
    operations = asked(("read", None, 20, 25, 7))
    unknown = Operation(2, "c2", "story", "k", "write", 7, 1, token="t2")
    story = carry_out([], Register())
    setattr(story.log, name, value)
    (judgement,) = judge_history([unknown, *operations], Register(), log=story.log)
    assert judgement.verdict is Verdict.LINEARIZABLE
