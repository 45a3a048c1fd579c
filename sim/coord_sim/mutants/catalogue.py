"""Every mutant, by name."""

from __future__ import annotations

from coord_sim.mutants.mutant import Mutant
from coord_sim.mutants.of_agents import AGENT_AND_LIBRARY_MUTANTS
from coord_sim.mutants.of_gangs import GANG_MUTANTS
from coord_sim.mutants.of_hosts import HOST_MUTANTS
from coord_sim.mutants.of_raft import RAFT_MUTANTS
from coord_sim.mutants.of_servers import SERVER_MUTANTS
from coord_sim.mutants.of_tasks import TASK_MUTANTS

ALL = (
    *HOST_MUTANTS,
    *TASK_MUTANTS,
    *GANG_MUTANTS,
    *AGENT_AND_LIBRARY_MUTANTS,
    *SERVER_MUTANTS,
    *RAFT_MUTANTS,
)
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in ALL}
if len(MUTANTS) != len(ALL):
    raise ValueError("two mutants of one name")
