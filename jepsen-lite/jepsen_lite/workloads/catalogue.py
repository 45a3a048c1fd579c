"""All workloads by name."""

from __future__ import annotations

from collections.abc import Callable

from jepsen_lite.workloads.churn import Churn
from jepsen_lite.workloads.jobs import Jobs
from jepsen_lite.workloads.members import Members
from jepsen_lite.workloads.port import Workload
from jepsen_lite.workloads.registers import Registers
from jepsen_lite.workloads.training import Training
from jepsen_lite.workloads.watches import Watches

WORKLOADS: dict[str, Callable[[], Workload]] = {
    kind.name: kind for kind in (Registers, Jobs, Training, Churn, Watches, Members)
}

APART = ("registers", "churn")
"""Both drain hosts, and the one judges them as if nobody else did."""


def workloads_named(words: str) -> tuple[Workload, ...]:
    """New ones, those that `registers+training` names. Raises ValueError for an unknown one, and
    for two that cannot run side by side."""
    names = list(dict.fromkeys(word.strip() for word in words.split("+")))
    for name in names:
        if name not in WORKLOADS:
            raise ValueError(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    if set(APART) <= set(names):
        raise ValueError(f"{' and '.join(APART)} both drain hosts; run one after the other")
    return tuple(WORKLOADS[name]() for name in names)
