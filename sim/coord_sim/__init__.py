"""The simulator of coord: the real code on a simulated network, disk, clock and processes.

For tests of agents and workers of your own:

    from coord_sim import job, world

    with world(seed=1, nodes=3, hosts=2) as w:
        w.submit(job("train", replicas=2, steps=20))
        w.run_for(5)
        w.host("h1").power_off()
        w.settle()

Everything is loaded when it is first asked for, so that the pytest plugin costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coord_sim.scenario import AgentContext as AgentContext
    from coord_sim.scenario import HostHandle as HostHandle
    from coord_sim.scenario import Machine as Machine
    from coord_sim.scenario import NotReached as NotReached
    from coord_sim.scenario import RankHandle as RankHandle
    from coord_sim.scenario import RequestFailed as RequestFailed
    from coord_sim.scenario import Scenario as Scenario
    from coord_sim.scenario import ServerHandle as ServerHandle
    from coord_sim.scenario import Violation as Violation
    from coord_sim.scenario import Worker as Worker
    from coord_sim.scenario import job as job
    from coord_sim.scenario import world as world

__all__ = [
    "AgentContext", "HostHandle", "Machine", "NotReached", "RankHandle", "RequestFailed",
    "Scenario", "ServerHandle", "Violation", "Worker", "job", "world",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # `world` is the package of that name, which can be called: the import system finds it.
    if name in __all__ and name != "world":
        from coord_sim import scenario

        return getattr(scenario, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
