"""Every mutant, by name."""

from __future__ import annotations

from coord_sim.mutants.mutant import Mutant
from coord_sim.mutants.of_agents import AGENT_MUTANTS, LIBRARY_MUTANTS
from coord_sim.mutants.of_gangs import GANG_MUTANTS
from coord_sim.mutants.of_hosts import HOST_MUTANTS
from coord_sim.mutants.of_raft import RAFT_MUTANTS
from coord_sim.mutants.of_servers import SERVER_MUTANTS
from coord_sim.mutants.of_shared import SHARED_MUTANTS
from coord_sim.mutants.of_tasks import TASK_MUTANTS

GROUPS: dict[str, tuple[Mutant, ...]] = {
    "core": (*HOST_MUTANTS, *TASK_MUTANTS, *GANG_MUTANTS),
    "shared fleet": SHARED_MUTANTS,
    "agent": AGENT_MUTANTS,
    "library": LIBRARY_MUTANTS,
    "servers": SERVER_MUTANTS,
    "raft guard": RAFT_MUTANTS,
}
"""By what of the product they are taken out of."""
ALL = tuple(mutant for group in GROUPS.values() for mutant in group)
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutant in ALL}
if len(MUTANTS) != len(ALL):
    raise ValueError("two mutants of one name")
