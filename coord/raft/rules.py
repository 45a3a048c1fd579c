"""The names of the guard's rules. Each can be switched off alone, to see what breaks without it."""

from __future__ import annotations

from collections.abc import Iterable

RULES: dict[str, str] = {
    "G1": "a follower keeps the entries that a message does not contradict",
    "G1.covered": "a follower acknowledges only what the message covered",
    "G2": "a follower commits no further than the message verified",
    "G3": "a reply counts only in the term of the append that it answers",
    "G4": "one vote per term and voter",
    "G5.log": "entries are durable before the reply that acknowledges them",
    "G5.vote": "term and vote are durable before any message of that term",
    "G5.own": "the leader's entries are durable before the tick that counts them",
    "G6": "per follower, one probe in flight until a success, then a stream",
    "G7": "snapshots travel as files beside the messages, installed in one step",
    "G7.late": "a snapshot finished late never replaces a newer one",
    "G7.tail": "a snapshot whose last entry the log holds leaves the log alone",
    "G8": "nothing is delivered from a superseded connection",
    "G9": "nothing but plain values and member nodes is ever unpickled",
    "G10": "a deposed leader is told, by a vote request that cannot win",
    "G11": "every proposal is answered, with Unknown where nobody can know",
    "G12": "a leader that cannot write steps down",
    "G13": "the library starts from the state at hand, before any message is let in",
    "G14": "commands are not forwarded over the raft connection",
}

ALL_RULES = frozenset(RULES)


def all_but(*names: str) -> frozenset[str]:
    """Every rule but these. Raises ValueError for a name that is none."""
    return ALL_RULES - _known(names)


def _known(names: Iterable[str]) -> frozenset[str]:
    wrong = sorted(set(names) - ALL_RULES)
    if wrong:
        raise ValueError(f"no rule {', '.join(wrong)}; there are {', '.join(sorted(ALL_RULES))}")
    return frozenset(names)
