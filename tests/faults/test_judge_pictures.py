"""What a violation looks like, and what a judge says that could not decide."""

from __future__ import annotations

import random
import time
from xml.etree import ElementTree

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import Register
from jepsen_lite.judge.search import FIRST_BUDGET, Memory, Search, search_in_turns
from jepsen_lite.judge.verdict import EXPLAINED, Verdict, judge_history

from tests.faults.judge_stories import carry_out, plan, unique_writes


def stale(key: str, first: int = 1) -> list[Operation]:
    """Two writes, another of unknown outcome, and a read of the first when the second was over."""
    rows = [
        ("a", "write", 1, 10, 20, Outcome.OK, None),
        ("b", "write", 2, 25, 40, Outcome.OK, None),
        ("c", "write", 3, 30, 45, Outcome.INFO, None),
        ("a", "read", None, 35, 38, Outcome.OK, 2),
        ("d", "read", None, 50, 60, Outcome.OK, 1),
        ("a", "read", None, 70, 80, Outcome.OK, 3),
    ]
    return [Operation(first + at, row[0], "story", key, *row[1:]) for at, row in enumerate(rows)]


PICTURE = """\
register r1: no order explains these answers

  a write 1 -> ok  1 ├──┤
  b write 2 -> ok  2       ├───────────┤
  c write 3 -> ?              ├┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
  a read -> 2      3             ├──┤
  d read -> 1      x                      ├──┤

Until then the answers have an order, numbered here, which leaves the state [2]. With `read -> 1` \
of d, which was over at 60 ns, they have none."""


def test_the_picture_shows_who_overlaps_whom() -> None:
    """The read that fits nowhere, the order of the others, what may have happened; not what came
    later."""
    (judgement,) = judge_history(stale("r1"), Register())
    assert judgement.picture == PICTURE
    assert [each.number for each in judgement.operations] == [1, 2, 3, 4, 5]
    assert "by the first 5 of 6 operations" in judgement.detail


def test_the_picture_for_a_page_is_whole() -> None:
    """It is well-formed whatever clients are called, with a bar for each operation."""
    operations = stale("r1")
    operations[0].client = '<a & "b">'
    (judgement,) = judge_history(operations, Register())
    root = ElementTree.fromstring(judgement.svg)
    bars = root.findall("{http://www.w3.org/2000/svg}rect")
    assert [bar.get("class") for bar in bars] == ["ok", "ok", "open", "ok", "culprit"]
    told = "".join(root.itertext())
    assert '<a & "b">: write 1 -> ok' in told


def test_no_line_of_a_picture_is_wider_than_a_terminal() -> None:
    """Long names and many operations at a time are cut short, and counted."""
    rng = random.Random(2)
    planned = plan(rng, unique_writes(rng, 200, 1), clients=60, unknown=0.3)
    for each in planned:
        each.operation.client = f"a/very/long/name/of/a/client/{each.operation.client}"
    operations = carry_out(planned, Register()).operations
    last = max(each.completed_ns for each in operations)
    operations.append(
        Operation(999, "z", "story", "k0", "read", None, 1, last, Outcome.OK, "never written")
    )
    (judgement,) = judge_history(operations, Register(), budget_s=20)
    assert judgement.verdict is Verdict.VIOLATION
    *drawn, _, explanation = judgement.picture.splitlines()
    assert max(map(len, drawn)) <= 100
    assert "more overlap and are not shown" in judgement.picture
    assert "never written" in explanation


def test_of_many_violations_only_the_first_are_explained() -> None:
    """The others are named, and no key is passed over."""
    operations = [each for at in range(9) for each in stale(f"r{at}", 10 * at + 1)]
    judgements = judge_history(operations, Register())
    assert [bool(each.picture) for each in judgements] == [True] * EXPLAINED + [False]
    assert judgements[-1].detail == "4 more keys are no better: r5, r6, r7, r8"


def test_nothing_to_judge_is_not_a_success() -> None:
    """A workload that never reached the cluster fails."""
    (judgement,) = judge_history([], Register())
    assert judgement.verdict is Verdict.UNKNOWN
    assert "no operation" in judgement.detail


class Opaque(Register):
    """A register of which the search knows nothing but its steps."""

    effect = None  # type: ignore[assignment]

    def only_looks(self, action: str, result: object) -> bool:
        return False


def hard(key: str, size: int = 22) -> list[Operation]:
    """As many writes at a time, and a read of what nobody wrote: every subset is to be tried."""
    operations = [
        Operation(at, f"c{at}", "story", key, "write", at, at, 1_000, Outcome.OK)
        for at in range(1, size)
    ]
    read = Operation(size, "z", "story", key, "read", None, 5, 2_000, Outcome.OK, -1)
    return [*operations, read]


def test_what_takes_too_long_is_unknown_and_the_rest_is_judged() -> None:
    """One key that cannot be decided in time keeps no other from its verdict, wherever it stands;
    and the time given is kept."""
    began = time.thread_time()
    operations = [*hard("hard"), *stale("bad"), *(each for each in hard("good")[:-1])]
    judgements = judge_history(operations, Opaque(), budget_s=1.0)
    verdicts = {each.check: each.verdict for each in judgements}
    assert verdicts == {
        "linearizable: register": Verdict.LINEARIZABLE,
        "linearizable: register bad": Verdict.VIOLATION,
        "linearizable: register hard": Verdict.UNKNOWN,
    }
    assert "give more time" in judgements[-1].detail
    assert time.thread_time() - began < 5


def test_keys_take_turns() -> None:
    """A hard key gets no more than twice the steps that an easy one needed."""
    searches = [Search(hard("hard"), Opaque()), Search(stale("bad"), Opaque())]
    search_in_turns(searches, time.thread_time() + 0.5)
    assert [search.found for search in searches] == [None, False]
    alone = Search(hard("hard"), Opaque())
    assert alone.run(FIRST_BUDGET) is None


def test_a_search_without_memory_left_is_slow_and_right() -> None:
    """What cannot be remembered is tried again."""
    for operations, expected in (
        (stale("k"), False),
        (stale("k")[:4], True),
        (hard("k", 6), False),
    ):
        search = Search(operations, Opaque(), Memory(left=3))
        assert search.run(1_000_000) is expected


def test_a_register_sees_at_once_what_an_opaque_one_has_to_try() -> None:
    """The needs of reads end the hard history of above within a few steps."""
    search = Search(hard("k", 400), Register())
    assert search.run(FIRST_BUDGET) is False
