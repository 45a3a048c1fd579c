"""What may be said of how roles recover, and what is refused with the field's path."""

from __future__ import annotations

import pytest

from coord.model.recovery import RoleRecovery, recovery_of
from coord.model.spec import JobSpec, RoleSpec, spec_problems

TRAINER = RoleSpec("trainer", ("train",), replicas=4, min_replicas=2)
SAMPLER = RoleSpec("sampler", ("sample",), replicas=2, gang=False)
SERVICE = RoleSpec("serve", ("serve",), gang=False, service=True)


def paths(*recovery: RoleRecovery) -> list[str]:
    spec = JobSpec("job", (TRAINER, SAMPLER, SERVICE), recovery=recovery)
    return [problem.path for problem in spec_problems(spec)]


def test_every_way_to_recover_may_be_asked_for() -> None:
    """One entry for each role, in any order; a role without one recovers alone, at once."""
    sampler = RoleRecovery("sampler", scope="role", required=False)
    trainer = RoleRecovery("trainer", scope="job", shrink_after_ms=60_000, grow_every_ms=0)
    assert paths(sampler, trainer) == []
    spec = JobSpec("job", (TRAINER, SAMPLER, SERVICE), recovery=(sampler, trainer))
    assert recovery_of(spec, "trainer") == trainer
    usual = recovery_of(spec, "serve")
    assert (usual.scope, usual.required, usual.shrink_after_ms) == ("own", True, 0)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (RoleRecovery("nobody"), "recovery[0].role"),
        (RoleRecovery("trainer", scope="gang"), "recovery[0].scope"),
        (RoleRecovery("trainer", scope=""), "recovery[0].scope"),
        (RoleRecovery("trainer", shrink_after_ms=-1), "recovery[0].shrink_after_ms"),
        (RoleRecovery("trainer", hot_spares=-1), "recovery[0].hot_spares"),
        (RoleRecovery("trainer", hot_spares=1), "recovery[0].hot_spares"),
        (RoleRecovery("trainer", shrink_after_ms=1 << 40), "recovery[0].shrink_after_ms"),
        (RoleRecovery("trainer", grow_every_ms=-1), "recovery[0].grow_every_ms"),
        (RoleRecovery("sampler", shrink_after_ms=1), "recovery[0].shrink_after_ms"),
    ],
)
def test_what_cannot_be_is_refused(wrong: RoleRecovery, path: str) -> None:
    """With the path of the field, so that a job file's line can be named."""
    assert paths(wrong) == [path]


def test_a_role_is_named_once() -> None:
    """Of two entries nobody could say which one counts."""
    assert paths(RoleRecovery("trainer"), RoleRecovery("trainer")) == ["recovery[1].role"]


def test_some_role_that_can_finish_is_required() -> None:
    """Else nothing would ever complete the job."""
    optional = [RoleRecovery(name, required=False) for name in ("trainer", "sampler")]
    assert paths(*optional) == ["recovery"]
