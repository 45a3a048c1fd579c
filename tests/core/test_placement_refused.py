"""What can never be placed: refused where it contradicts itself, told of where hosts are short."""

from __future__ import annotations

from typing import Any

import pytest

from coord.core.placement import never_fits, rooms_of
from coord.core.state import State, new_state
from coord.model.entities import Host, HostStatus
from coord.model.place import Place, Rail
from coord.model.spec import JobSpec, Placing, Resources, RoleSpec, spec_problems


def role(name: str = "r", **said: Any) -> RoleSpec:
    resources = {key: said.pop(key) for key in list(said) if key in Resources.__struct_fields__}
    placing = {key: said.pop(key) for key in list(said) if key in Placing.__struct_fields__}
    return RoleSpec(
        name, ("x",), resources=Resources(**resources), placement=Placing(**placing), **said
    )


CONTRADICTIONS: dict[str, tuple[str, tuple[RoleSpec, ...]]] = {
    "spread inside the same level": ("placement.spread", (role(within="rack", spread="rack"),)),
    "spread over a wider level": ("placement.spread", (role(within="rack", spread="pod"),)),
    "spread and preferred together": (
        "placement.spread",
        (role(prefer_within="host", spread="rack"),),
    ),
    "unknown level": ("placement.within", (role(within="row"),)),
    "unknown level to spread over": ("placement.spread", (role(spread="Rack"),)),
    "unknown level of nearness": (
        "placement.near_level",
        (role("a"), role(near="a", near_level="floor")),
    ),
    "a part and whole devices": ("resources.device_millis", (role(devices=1, device_millis=5),)),
    "more than a device": ("resources.device_millis", (role(device_millis=1_000),)),
    "less than nothing of a device": ("resources.device_millis", (role(device_millis=-1),)),
    "types without devices": ("resources.device_types", (role(device_types=("a",)),)),
    "a type twice": ("resources.device_types", (role(devices=1, device_types=("a", "a")),)),
    "a skew over no level": ("placement.spread_skew", (role(spread_skew=2),)),
    "preferred as wide as required": (
        "placement.prefer_within",
        (role(within="rack", prefer_within="rack"),),
    ),
    "preferred wider than required": (
        "placement.prefer_within",
        (role(within="rack", prefer_within="pod"),),
    ),
    "near nobody at a level": ("placement.near_level", (role(near_level="pod"),)),
    "near on a host that is apart from the next": (
        "placement.near",
        (
            role("a"),
            role("b", near="a", near_level="host", near_required=True),
            role(near="b", near_level="host", near_required=True, apart_from=("a",)),
        ),
    ),
    "no skew": ("placement.spread_skew", (role(spread="rack", spread_skew=0),)),
    "fewer than none on a host": ("placement.per_host", (role(per_host=-1),)),
    "fewer on a host than must be": (
        "placement.per_host",
        (role(within="host", per_host=1, replicas=2),),
    ),
    "whole hosts, parts of devices": (
        "placement.whole_hosts",
        (role(whole_hosts=True, device_millis=5),),
    ),
    "apart from itself": ("placement.apart_from", (role(apart_from=("r",)),)),
    "apart from its own job": ("placement.apart_from", (role(apart_from=("job/j",)),)),
    "apart from nobody": ("placement.apart_from", (role(apart_from=("who",)),)),
    "near itself": ("placement.near", (role(near="r"),)),
    "near nobody": ("placement.near", (role(near="who"),)),
    "required near nobody": ("placement.near_required", (role(near_required=True),)),
    "after itself": ("placement.after", (role(after=("r",)),)),
    "after nobody": ("placement.after", (role(after=("who",)),)),
    "after one role twice": ("placement.after", (role("a"), role(after=("a", "a")))),
    "near on a host apart from": (
        "placement.near",
        (
            role("a"),
            role(near="a", near_level="host", near_required=True, apart_from=("a",)),
        ),
    ),
    "near on a whole host": (
        "placement.near",
        (role("a", whole_hosts=True), role(near="a", near_level="host", near_required=True)),
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradiction_is_refused_with_its_field(name: str) -> None:
    """And nothing else of the job is."""
    field, roles = CONTRADICTIONS[name]
    problems = spec_problems(JobSpec("j", roles))
    assert [problem.path for problem in problems] == [f"roles[{len(roles) - 1}].{field}"]


def test_roles_that_are_near_each_other_in_a_circle_are_refused() -> None:
    """A role stands near one before it, so the first of a circle is at fault."""
    roles = (role("a", near="b"), role("b", near="c"), role("c", near="a"))
    problems = spec_problems(JobSpec("j", roles))
    assert [problem.path for problem in problems] == [
        "roles[0].placement.near",
        "roles[1].placement.near",
    ]


def test_roles_that_start_after_each_other_in_a_circle_are_refused() -> None:
    """Each of the circle says the whole of it; who only hangs on to it says nothing."""
    roles = (role("a", after=("c",)), role("b", after=("a",)), role("c", after=("b",)))
    problems = spec_problems(JobSpec("j", (*roles, role("d", after=("a",)))))
    assert [problem.path for problem in problems] == [
        f"roles[{at}].placement.after" for at in range(3)
    ]
    assert problems[0].message == (
        "names 'c', which waits for it: a waits for c waits for b waits for a"
    )


def test_roles_that_start_after_one_that_must_be_near_them_are_refused() -> None:
    """A role that must stand near another waits for it, too."""
    roles = (role("a", after=("b",)), role("b", near="a", near_required=True))
    problems = spec_problems(JobSpec("j", roles))
    assert [problem.path for problem in problems] == ["roles[0].placement.after"]
    preferred = (roles[0], role("b", near="a"))
    assert not spec_problems(JobSpec("j", preferred))


@pytest.mark.parametrize("priority", [-1_000_001, 1_000_001])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    """It has a path of its own."""
    problems = spec_problems(JobSpec("j", (role(),), priority=priority))
    assert [problem.path for problem in problems] == ["priority"]


def fleet() -> State:
    """Two racks of two hosts and one of one; 8 and 4 devices, of two types; one host is lost."""
    state = new_state()
    state.meta.logic_version = 2
    for slot, (rack, devices, kind) in enumerate(
        (("r1", 8, "a"), ("r1", 8, "a"), ("r2", 4, "b"), ("r2", 4, "b"), ("r3", 4, "b"))
    ):
        name = f"h{slot}"
        state.slots.append(name)
        state.live_incarnations.append(0)
        state.last_seen_ms.append(0)
        state.put_host(
            Host(
                name,
                slot,
                1,
                HostStatus.LOST if slot == 0 else HostStatus.UP,
                "a",
                "b",
                name,
                devices=devices,
                cpu_millis=8_000,
                memory_mib=1_024,
                device_type=kind,
                place=Place("z", "p", rack),
                rails=(Rail("1"),),
            )
        )
    return state


NEVER: dict[str, tuple[str, RoleSpec]] = {
    "devices": ("resources.devices", role(devices=9)),
    "devices of that type": ("resources.devices", role(devices=8, device_types=("b",))),
    "a type": ("resources.device_types", role(devices=1, device_types=("c",))),
    "rails": ("resources.rails", role(rails=2)),
    "CPUs": ("resources.cpu_millis", role(cpu_millis=8_001)),
    "memory": ("resources.memory_mib", role(memory_mib=1_025)),
    "hosts": ("replicas", role(devices=8, replicas=3)),
    "hosts for the least": ("min_replicas", role(devices=8, replicas=9, min_replicas=3)),
    "a rack": ("placement.within", role(devices=4, replicas=5, within="rack")),
    "an even spread": ("placement.spread", role(devices=4, replicas=6, spread="rack")),
    "hosts, one each": ("replicas", role(replicas=6, per_host=1)),
}


@pytest.mark.parametrize("name", NEVER)
def test_a_job_that_can_never_fit_is_told_so(name: str) -> None:
    """By the field that is too much, although the event is accepted: fleets grow."""
    field, wish = NEVER[name]
    spec = JobSpec("j", (wish,))
    assert spec_problems(spec) == []
    assert [problem.path for problem in never_fits(fleet(), spec)] == [f"roles[0].{field}"]


FITS = (
    role(devices=8, replicas=2),
    role(devices=4, replicas=4, within="rack"),
    role(devices=4, replicas=4, spread="rack"),
    role(device_millis=999, replicas=28),
    role(replicas=5, per_host=1),
    role(devices=8, replicas=500, gang=False),
)


@pytest.mark.parametrize("at", range(len(FITS)))
def test_a_job_that_waits_for_others_alone_is_not_warned_of(at: int) -> None:
    """Also where hosts are lost now: they may come back."""
    assert never_fits(fleet(), JobSpec("j", (FITS[at],))) == []


def test_nothing_is_said_while_no_host_is_known() -> None:
    """Nor is the state touched by asking."""
    assert never_fits(new_state(), JobSpec("j", (role(devices=99),))) == []
    state = fleet()
    before = {name: room.kind for name, room in rooms_of(state).items()}
    never_fits(state, JobSpec("j", (role(devices=1),)))
    assert {name: room.kind for name, room in rooms_of(state).items()} == before
