"""Servers whose raft goes without rules of its guard (`coord/raft/rules.py`)."""

from __future__ import annotations

from jepsen_lite.broken.breakage import Breakage, Edit

_ALL = "ALL_RULES = frozenset(RULES)"


def without(*rules: str) -> tuple[Edit, ...]:
    """What takes these rules away from every server."""
    names = ", ".join(f'"{rule}"' for rule in rules)
    return (Edit("raft/rules.py", _ALL, f"{_ALL} - {{{names}}}"),)


def with_only(*rules: str) -> tuple[Edit, ...]:
    """What takes away all the others."""
    names = ", ".join(f'"{rule}"' for rule in rules)
    return (Edit("raft/rules.py", _ALL, f"ALL_RULES = frozenset({{{names}}})"),)


GUARD = (
    Breakage(
        name="guard-off",
        what="raft goes without every rule of its guard but G6, the streams",
        workload="registers",
        # A leader alone keeps on its log what nobody else has. Its connections break meanwhile, so
        # that the next leader has to ask where their logs part, and on a slow link signs of life
        # overtake the answer. The library's own way of sending, without G6, hardly has such signs.
        nemesis="isolate-leader+reset+slow",
        edits=with_only("G6"),
        options={"rate": 200.0, "seconds": 20.0},
    ),
    Breakage(
        name="guard-commit-cap-off",
        what="a follower commits what its leader has, not what was found to be the same (rule G2)",
        workload="registers",
        nemesis="isolate-leader+reset+slow",
        edits=without("G2"),
        options={"rate": 200.0, "seconds": 20.0},
    ),
    Breakage(
        name="guard-durability-off",
        what="log, term and vote reach the disk once a second, not before what depends on them "
        "(rules G5.log, G5.vote, G5.own)",
        workload="registers",
        nemesis="kill-all",
        edits=(
            *without("G5.log", "G5.vote", "G5.own"),
            # A turn that sends first still commits at its end, within a millisecond mostly.
            Edit(
                "raft/turns.py",
                "if due or (timer and self._environment.dirty):",
                "if timer and self._environment.dirty and self._loop.time() % 1 < 0.05:",
            ),
        ),
        options={"rate": 100.0},
    ),
)
