"""The page of a run: what it shows, and that it stays usable when there is much to show."""

from __future__ import annotations

import re
from pathlib import Path

from jepsen_lite.history.journal import History, read_history
from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import Replicas
from jepsen_lite.judge.verdict import Judgement, Verdict, judge_history
from jepsen_lite.report.availability import silences
from jepsen_lite.report.lanes import BARS, MOST_LANES, lanes_of
from jepsen_lite.report.run_page import PageInput, page_html
from jepsen_lite.report.timeline import draw_timeline, scale_of

from tests.faults.made_history import FACTS, SECOND, MadeHistory, stale_read


def page(history: History, judgements: list[Judgement] | None = None) -> str:
    return page_html(PageInput("registers under kill-leader", history, judgements or []))


def operation(number: int, client: str, at_ns: int, outcome: Outcome = Outcome.OK) -> Operation:
    return Operation(
        number, client, "registers", "r", "write", number, at_ns, at_ns + 1_000_000, outcome
    )


def many(count: int) -> History:
    """Evenly over 1,000 s, by 30 clients; one is in doubt."""
    step = 1_000 * SECOND // count
    return History(
        FACTS,
        [
            operation(n, f"registers/{n % 30}", n * step, Outcome.INFO if n == 7 else Outcome.OK)
            for n in range(1, count + 1)
        ],
    )


def test_a_violation_is_shown_with_its_picture_and_what_tells_it(tmp_path: Path) -> None:
    history = read_history(stale_read(tmp_path))
    judgements = judge_history(history.operations, Replicas(first=1))
    text = page(history, judgements)
    assert '<span class="word violation">violation</span></h1>' in text
    assert judgements[0].svg in text
    assert "#3 registers/1: read register-1 -&gt; ok = 5; 2.000 s to 2.100 s" in text
    assert text.count('class="ok accused"') == len(judgements[0].operations)


def test_a_run_that_holds_accuses_nobody(tmp_path: Path) -> None:
    history = read_history(stale_read(tmp_path))
    text = page(history, [Judgement("a promise", Verdict.LINEARIZABLE, "3 things")])
    assert '<span class="word holds">holds</span></h1>' in text
    assert 'class="ok accused"' not in text
    assert "What did not hold" not in text


def test_faults_reach_down_over_the_operations(tmp_path: Path) -> None:
    """The band and its shadow begin and end where the fault did."""
    lanes = draw_timeline(read_history(stale_read(tmp_path))).lanes
    told = "<title>kill -9 of the leader s1; 1.800 s to 3.000 s</title>"
    band = re.search(r'<rect class="fault" x="([\d.]+)" y="\d+" width="([\d.]+)"', lanes)
    shadow = re.search(r'<rect class="shadow" x="([\d.]+)" y="\d+" width="([\d.]+)"', lanes)
    assert told in lanes
    assert band is not None
    assert shadow is not None
    assert band.groups() == shadow.groups()
    scale = scale_of(read_history(tmp_path / "history.jsonl"))
    assert float(band[1]) == scale.x(round(1.8 * SECOND))


def test_a_client_stays_on_its_lane_whatever_name_it_goes_on_under() -> None:
    operations = [
        operation(1, "registers/10", 1),
        operation(2, "registers/9", 2, Outcome.INFO),
        operation(3, "registers/9.1", 3),
    ]
    lanes = lanes_of(operations, 10)
    assert [(lane.name, len(lane.operations)) for lane in lanes] == [
        ("registers/9", 2),
        ("registers/10", 1),
    ]


def test_more_clients_than_lanes_share_them() -> None:
    """As histories of others do, in which whoever is in doubt goes on as somebody new."""
    one_by_one = [operation(n, str(n), n * 10_000_000) for n in range(1, 500)]
    assert [len(lane.operations) for lane in lanes_of(one_by_one, 10**10)] == [499]
    at_once = [operation(n, str(n), 1) for n in range(1, 500)]
    lanes = lanes_of(at_once, 10**10)
    assert len(lanes) == MOST_LANES
    assert sum(len(lane.operations) for lane in lanes) == 499


def test_each_operation_has_a_bar_while_they_can_be_told_apart() -> None:
    timeline = draw_timeline(many(1_000))
    assert not timeline.dense
    assert timeline.lanes.count("<title>#") == 1_000


def test_a_hundred_thousand_operations_are_a_page_that_opens() -> None:
    """Drawn as density: the page grows with its width, and not with what happened. The one that
    is in doubt among them is still there to be seen."""
    text = page(many(100_000))
    assert len(text) < 3_000_000
    assert text.count("<path") + text.count("<rect") < 500
    assert re.search(r'<path class="info" d="[^"]+"><title>registers/7: 1 info</title>', text)
    assert draw_timeline(many(BARS + 1)).dense


def test_what_is_accused_stands_out_among_a_hundred_thousand() -> None:
    timeline = draw_timeline(many(100_000), accused=[4_321])
    assert timeline.lanes.count('class="ok accused"') == 1
    assert "<title>#4321 registers/1:" in timeline.lanes


def test_silence_is_between_acknowledged_writes_under_load(tmp_path: Path) -> None:
    """Reads break no silence, and after healing nobody has to write."""
    made = MadeHistory(tmp_path)
    for at in (1.0, 1.5, 4.0):
        made.done("registers/0", "write", 5, begins_s=at - 0.1, ends_s=at)
    made.done("registers/1", "read", begins_s=2.0, ends_s=2.1, result=5)
    made.mark("healing", 4.5)
    made.done("registers/0", "write", 6, begins_s=9.0, ends_s=9.1)
    made.writer.close()
    found = silences(read_history(made.path))
    assert [(pause.began_ns, pause.ended_ns) for pause in found] == [
        (round(1.5 * SECOND), 4 * SECOND)
    ]
    assert "no write acknowledged for 2.50 s, from 1.500 s on" in page(read_history(made.path))


def test_what_clients_and_errors_say_is_text(tmp_path: Path) -> None:
    made = MadeHistory(tmp_path)
    evil = "<script>alert(1)</script>"
    made.done(evil, "write", evil, begins_s=1, ends_s=2, outcome=Outcome.FAIL, key=evil, note=evil)
    made.fault(evil, begins_s=1, ends_s=2)
    made.mark(evil, 3)
    made.writer.close()
    judgements = [Judgement(evil, Verdict.UNKNOWN, evil)]
    assert "<script" not in page(read_history(made.path), judgements)


def test_the_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = page(read_history(stale_read(tmp_path)))
    assert not re.search(r'<script|<link|@import|url\(|src="', text)


def test_a_history_without_anything_is_a_page_too() -> None:
    assert "0 ok, 0 fail, 0 info" in page(History(FACTS))
    assert "0 ok, 0 fail, 0 info" in page(History({}))
