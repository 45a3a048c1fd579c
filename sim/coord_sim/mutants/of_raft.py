"""Rules of the raft guard, each off alone (coord/raft/rules.py)."""

from __future__ import annotations

from coord.raft.rules import RULES
from coord_sim.mutants.mutant import Edit, Mutant, Reach

RAFT = (Reach.RAFT, Reach.CLUSTER)
_BREAKS = {
    "G1": ("an applied entry changes", (39,)),
    "G1.covered": ("a node never catches up", (39,)),
    "G2": ("an entry is applied that no leader committed", (39,)),
    "G3": ("a committed entry leaves the disk", (39,)),
    "G4": ("a minority elects a leader", (40, 43)),
    "G5.log": ("an entry is committed that no majority has on disk", (39,)),
    "G5.vote": ("a term or a vote goes back, two leaders share a term", (40, 43)),
    "G5.own": ("an entry is committed that no majority has on disk", (39,)),
    "G6": ("two nodes' states differ, or a node never catches up", (39,)),
    "G7.late": ("a committed entry leaves the disk", (38, 39)),
    "G7.tail": ("a committed entry leaves the disk", (38, 39)),
    "G8": ("what was overtaken by a new connection counts as news", (39, 43)),
    "G10": ("a leader that was replaced goes on believing it leads", (40,)),
    "G11": ("a call is never answered", (37,)),
    "G12": ("a leader that cannot write keeps the cluster from going on", (40,)),
    "G13": ("state goes back at a restart, entries are applied twice or lost", (39,)),
}
RULE_MUTANTS = tuple(
    Mutant(
        name=f"rule-{rule.lower()}",
        guard=RULES[rule],
        breaks=breaks,
        races=races,
        reach=RAFT,
        rules_off=(rule,),
    )
    for rule, (breaks, races) in _BREAKS.items()
)

RAFT_MUTANTS = (
    *RULE_MUTANTS,
    Mutant(
        name="rule-g7",
        guard="an offered snapshot is answered only when it was fetched and installed",
        breaks="a follower claims what it lacks and never catches up",
        races=(38,),
        reach=RAFT,
        edits=(
            Edit(
                "coord.raft.guard:Guard._incoming_offer",
                "if answer is OfferAnswer.HELD:",
                "if answer is not OfferAnswer.INSTALL:",
            ),
        ),
    ),
)
