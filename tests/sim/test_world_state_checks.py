"""The checks on what nodes apply see each kind of disagreement."""

from __future__ import annotations

import msgspec
import pytest
from coord_sim.core_world.world import World as CoreWorld
from coord_sim.world.outcome import Violation
from coord_sim.world.state_checks import StateChecks

from coord.core.machine import apply
from coord.core.state import State, new_state
from coord.model.entry import Recorded


def history() -> list[Recorded]:
    """A life with restarts, losses and ends of jobs."""
    world = CoreWorld(3, twin=False)
    world.live_through(150)
    return world.driver.records


RECORDS = history()


def fed(checks: StateChecks, node: int, records: list[Recorded]) -> State:
    """A node that applies these one by one."""
    state = new_state()
    for record in records:
        checks.applied(node, (apply(state, record.entry),), state)
    return state


def test_nodes_that_agree_pass() -> None:
    """One behind the other, and one that starts again from the beginning."""
    checks = StateChecks()
    seen: list[int] = []
    checks.looks.append(lambda record, state: seen.append(record.entry.index))
    for node in (1, 2, 3, 2):
        checks.compare(node, fed(checks, node, RECORDS))
    assert seen == [record.entry.index for record in RECORDS]
    assert 0 < checks.checked < len(RECORDS)
    assert checks.compared > 4


def test_another_decision_is_seen() -> None:
    checks = StateChecks()
    fed(checks, 1, RECORDS)
    wrong = msgspec.structs.replace(RECORDS[20], digest="0" * 32)
    with pytest.raises(Violation, match="digests are equal at equal index"):
        checks.applied(2, (wrong,), new_state())


def test_an_entry_out_of_nowhere_is_seen() -> None:
    checks = StateChecks()
    fed(checks, 1, RECORDS[:10])
    with pytest.raises(Violation, match="applied 12, the newest anywhere was 10"):
        checks.applied(2, (RECORDS[11],), new_state())


def test_another_row_is_seen() -> None:
    """Though every digest agreed."""
    checks = StateChecks()
    state = fed(checks, 1, RECORDS)
    host = next(iter(state.hosts.values()))
    state.put_host(msgspec.structs.replace(host, next_port=host.next_port + 1))
    with pytest.raises(Violation, match=f"hosts {host.host}"):
        checks.compare(1, state)


def test_a_broken_invariant_is_seen() -> None:
    """By its sentence, at the entry that broke it."""
    checks = StateChecks()
    start = next(at for at, record in enumerate(RECORDS) if _started(record))
    fed(checks, 1, RECORDS[: start + 1])
    task = next(task for task in checks.state.tasks.values() if task.devices)
    checks.state.tasks.put("twin", msgspec.structs.replace(task, key="twin"))
    with pytest.raises(Violation, match="no device serves two tasks") as caught:
        fed(checks, 2, RECORDS)
    assert "after entry" in caught.value.detail


def _started(record: Recorded) -> bool:
    return any(type(decision).__name__ == "GenerationStarted" for decision in record.decisions)
