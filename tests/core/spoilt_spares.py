"""A healthy state (`test_invariants.healthy`) spoilt in what is kept beside a gang."""

from __future__ import annotations

from msgspec.structs import replace

from coord.core.state import State
from coord.model.entities import GangPhase, Hold, TaskStatus


def _more_spares_than_asked(state: State) -> None:
    gang = state.gangs["d/t"]
    state.gangs["d/t"] = replace(gang, holds=(*gang.holds, Hold("h1", True)))


def _stand_by(state: State, *keys: str, **fields: object) -> None:
    """The gang's second task is its standby, too."""
    state.put_gang(replace(state.gangs["d/t"], standbys=keys))
    state.tasks["d/t/1#1"] = replace(state.tasks["d/t/1#1"], **fields)


def _waits_and_counts(state: State) -> None:
    _stand_by(state, "d/t/1#1", standby=True)


def _rank_listed(state: State) -> None:
    _stand_by(state, "d/t/1#1")


def _ending_and_listed(state: State) -> None:
    _stand_by(state, "d/t/1#1", standby=True, status=TaskStatus.STOPPING)


def _listed_twice_over(state: State) -> None:
    _stand_by(state, "d/t/1#1", "d/t/1#1", standby=True)


def _waits_for_nobody(state: State) -> None:
    _stand_by(state, standby=True)


def _two_of_a_rank(state: State) -> None:
    _stand_by(state, index=0)


def _unseen(state: State) -> None:
    _waits_and_counts(state)
    del state.recovering.standing["d/t"]


def _ended_with_standby(state: State) -> None:
    _waits_and_counts(state)
    state.gangs["d/t"] = replace(state.gangs["d/t"], phase=GangPhase.STOPPED)


TOO_MANY = ((_more_spares_than_asked, "d/t keeps 2 of 1"),)
STANDBYS = (
    (_waits_and_counts, "d/t counts d/t/1#1, which waits"),
    (_rank_listed, "d/t/1#1 is running and listed, a rank"),
    (_ending_and_listed, "d/t/1#1 is stopping and listed"),
    (_listed_twice_over, "d/t/1#1 is listed 2 times, running"),
    (_waits_for_nobody, "d/t/1#1 waits for nobody"),
    (_two_of_a_rank, "rank 0 of d/t has 2"),
    (_unseen, "d/t has 1, listed False"),
    (_ended_with_standby, "d/t is stopped and has d/t/1#1"),
)
