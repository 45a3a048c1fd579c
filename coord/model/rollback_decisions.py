"""What a person's going back to an older checkpoint decides (`core/recovery/rollback.py`)."""

from __future__ import annotations

from coord.model.decision import Decision


class GangRolledBack(Decision, frozen=True):
    """The gang's next start begins at this older checkpoint. Those of the steps in `aside`,
    ascending, are offered no more; their files stay."""

    job: str
    gang: str
    generation: int
    step: int
    path: str
    aside: tuple[int, ...] = ()
