"""Whoever follows a log sees a restore point go back; what a resize took away has none."""

from __future__ import annotations

import pytest
from coord_sim.core_world.restore_points import (
    SENTENCE,
    Followed,
    RestorePoints,
    restore_points_of,
)
from coord_sim.explore.judge import RESTORES_GROW, Memory, Sight, judge
from coord_sim.world.outcome import Violation
from coord_sim.world.state_checks import StateChecks

from coord.core.machine import apply
from coord.core.state import State, new_state
from coord.model.decisions import AnyDecision, GangStopped, JobResized, TasksPlaced
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import ClockAdvanced
from coord.model.rollback_decisions import GangRolledBack
from tests.core.test_transcripts import TRANSCRIPTS
from tests.core.transcript import Transcript

TASK = "job/sampler/1"


def placed(generation: int, step: int = -1, gang: str = TASK) -> TasksPlaced:
    return TasksPlaced((), "job", gang, generation, (), restore_step=step)


def stopped(gang: str = TASK) -> GangStopped:
    return GangStopped((), "job", gang, 1)


def resized(replicas: int) -> JobResized:
    return JobResized((), "job", "sampler", replicas)


def followed(*decided: AnyDecision) -> str:
    """What was wrong with the last one; nothing was with those before."""
    last = Followed(RestorePoints())
    for decision in decided:
        assert not last.wrong
        last = last.points.after(decision)
    return last.wrong


def test_whoever_is_taken_back_begins_where_was_said() -> None:
    """No further back than that, and from there on only forward again."""
    back = GangRolledBack((), "job", TASK, 1, 4, "/c")
    assert not followed(placed(1, 8), back, placed(2, 4), placed(3, 8))
    assert followed(placed(1, 8), back, placed(2, 2)) == f"{TASK}: step 2 after 4"


def test_a_gang_that_goes_back_is_seen() -> None:
    """To an older step or to the beginning; a newer one and the same are well."""
    assert not followed(placed(1), placed(2, 4), placed(3, 4), placed(4, 8))
    assert followed(placed(1, 8), placed(2, 4)) == f"{TASK}: step 4 after 8"
    assert followed(placed(1, 0), placed(2)) == f"{TASK}: step -1 after 0"


def test_a_task_that_a_resize_took_away_comes_back_without_a_past() -> None:
    """But only that one, and what comes back goes on as any other."""
    taken = (placed(1, 8), resized(1), stopped(), resized(2))
    assert not followed(*taken, placed(2), placed(3, 2))
    assert followed(*taken, placed(2), placed(3, 2), placed(4)) == f"{TASK}: step -1 after 2"
    other = "job/sampler/0"
    assert followed(placed(1, 8, other), *taken, placed(2, 4, other))


@pytest.mark.parametrize(
    "between",
    [
        (stopped(),),
        (resized(1),),
        (resized(1), resized(2), stopped()),
        (resized(2), stopped()),
        (resized(1), stopped("job/sampler/2")),
        (JobResized((), "job", "other", 1), stopped()),
    ],
)
def test_whoever_no_resize_took_away_keeps_its_restore_point(
    between: tuple[AnyDecision, ...],
) -> None:
    """Stopped without a resize, still stopping, or wanted again before it had stopped."""
    assert followed(placed(1, 8), *between, placed(2)) == f"{TASK}: step -1 after 8"


def test_a_whole_role_keeps_its_restore_point_in_another_size() -> None:
    role = "job/sampler"
    between = (resized(1), stopped(role), resized(2))
    assert followed(placed(1, 8, role), *between, placed(2, gang=role))


def test_a_new_job_of_a_name_has_no_past() -> None:
    points = Followed(RestorePoints({TASK: 8, "jobs/sampler/1": 4}, {"job/sampler": 1})).points
    assert points.without("job") == RestorePoints({"jobs/sampler/1": 4})


def test_a_log_may_begin_with_a_state() -> None:
    """What that knows is what following every decision would have told."""
    state = new_state()
    points = RestorePoints()
    for record in resizing():
        for decision in apply(state, record.entry).decisions:
            points = points.after(decision).points
    assert points.steps == {"d/t/0": -1, "d/t/1": 5}
    assert restore_points_of(state) == points


# Whoever follows logs


def recorded(*decided: AnyDecision) -> Recorded:
    return Recorded(Entry(1, 0, 0, Origin("node:1"), ClockAdvanced()), 0, "", decided)


def judged(*decided: AnyDecision) -> str:
    _, broken = judge(Memory(), State(), recorded(*decided), [], Sight())
    return broken[0] if broken is not None else ""


def test_explorers_judge_it() -> None:
    assert judged(placed(1, 8), placed(2)) == RESTORES_GROW == SENTENCE
    assert not judged(placed(1, 8), resized(1), stopped(), placed(2))


def test_the_checks_on_nodes_judge_it() -> None:
    """A core that loses its checkpoints decides the same everywhere, and wrongly."""
    *before, restart = resizing()
    assert any(isinstance(one, TasksPlaced) and one.restore for one in restart.decisions)
    checks, state = StateChecks(), new_state()
    for record in before:
        checks.applied(1, (apply(state, record.entry),), state)
    lose_checkpoints(state)
    lose_checkpoints(checks.state)
    records = (apply(state, restart.entry),)
    with pytest.raises(Violation, match=SENTENCE):
        checks.applied(1, records, state)


def test_the_checks_on_nodes_let_a_resize_be() -> None:
    checks, state = StateChecks(), new_state()
    for record in resizing():
        checks.applied(1, (apply(state, record.entry),), state)


def resizing() -> list[Recorded]:
    """What came of the transcript on resizes and checkpoints."""
    transcript = Transcript()
    (path,) = (path for path in TRANSCRIPTS if path.stem == "resize-checkpoints")
    transcript.run(path.read_text())
    return transcript.driver.records


def lose_checkpoints(state: State) -> None:
    for key in list(state.checkpoints):
        state.drop_checkpoint(key)
