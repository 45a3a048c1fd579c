"""What one simulated cluster is made of, and the command line that says the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import msgspec

from coord_sim.world.focuses import FOCUSES

ALL = "all"
NONE = "none"

NODES_LIMIT = 7
HOSTS_LIMIT = 64
JOBS_LIMIT = 64
SECONDS_LIMIT = 86_400


class WorldOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """`hosts` and `jobs` of 0 are drawn by the seed. `seconds` are virtual, of load and faults.

    `faults` are names and families of faults, `all` or `none`, each with `-` in front to take it
    away again, in order: `all,-disk` or `none,server.crash`. `off` are rules of the raft guard that
    are switched off, to see what breaks without them. `focus` is one of `focuses.FOCUSES`, or
    empty.
    """

    nodes: int = 3
    hosts: int = 0
    jobs: int = 0
    seconds: int = 60
    faults: tuple[str, ...] = (ALL,)
    membership: bool = True
    off: tuple[str, ...] = ()
    focus: str = ""

    def command_line(self) -> str:
        """Flags of `coordctl sim run` that give the same options in any release."""
        flags = [f"--nodes {self.nodes}"]
        if self.hosts:
            flags.append(f"--hosts {self.hosts}")
        if self.jobs:
            flags.append(f"--jobs {self.jobs}")
        flags.append(f"--seconds {self.seconds}")
        flags.append(f"--faults {shlex.quote(','.join(self.faults))}")
        if not self.membership:
            flags.append("--no-membership")
        if self.focus:
            flags.append(f"--focus {self.focus}")
        flags += [f"--off {shlex.quote(rule)}" for rule in self.off]
        return " ".join(flags)

    def problems(self, known_faults: Iterable[str], known_rules: Iterable[str]) -> list[str]:
        """What is wrong with them, as sentences; empty when a world can be made."""
        found = [
            f"{flag} is {value}; it must be {low} to {high}"
            for flag, value, low, high in (
                ("--nodes", self.nodes, 1, NODES_LIMIT),
                ("--hosts", self.hosts, 0, HOSTS_LIMIT),
                ("--jobs", self.jobs, 0, JOBS_LIMIT),
                ("--seconds", self.seconds, 1, SECONDS_LIMIT),
            )
            if not low <= value <= high
        ]
        if not self.faults:
            found.append(f"--faults is empty; for a cluster without any say {NONE}")
        names = sorted(known_faults)
        families = sorted({name.partition(".")[0] for name in names})
        for word in self.faults:
            if word.removeprefix("-") not in (ALL, NONE, *families, *names):
                found.append(
                    f"--faults names {word!r}; there are {', '.join(families)}, {ALL} and {NONE}, "
                    f"and in particular {', '.join(names)}"
                )
        if self.focus and self.focus not in FOCUSES:
            known = ", ".join(FOCUSES)
            found.append(f"--focus is {self.focus!r}; there are {known}")
        rules = sorted(known_rules)
        found += [
            f"--off is {rule!r}; the rules are {', '.join(rules)}"
            for rule in self.off
            if rule not in rules
        ]
        return found


def split_words(text: str) -> tuple[str, ...]:
    """`a, b` as ('a', 'b')."""
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def chosen_faults(words: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """The faults that these words allow, ascending."""
    names = sorted(known)
    allowed: dict[str, None] = {}
    for word in words:
        name = word.removeprefix("-")
        gives = name == word
        if name == NONE:
            allowed.clear()
            continue
        for known_name in names:
            if name in (ALL, known_name, known_name.partition(".")[0]):
                if gives:
                    allowed[known_name] = None
                else:
                    allowed.pop(known_name, None)
    return tuple(sorted(allowed))
