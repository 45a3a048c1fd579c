"""All nemeses by name, and families of them."""

from __future__ import annotations

from jepsen_lite.nemeses import killing, links, machines, membership
from jepsen_lite.nemeses.port import Nemesis

NEMESES: dict[str, Nemesis] = {
    nemesis.name: nemesis
    for module in (killing, links, machines, membership)
    for nemesis in module.NEMESES
}
NONE = "none"
"""Nothing goes wrong: what does the load alone show?"""


def chosen(words: str) -> tuple[Nemesis, ...]:
    """Those that `kill-leader+slow` names together. Raises ValueError for an unknown one."""
    names = [word.strip() for word in words.split("+")]
    for name in names:
        if name not in NEMESES and name != NONE:
            known = ", ".join((NONE, *NEMESES))
            raise ValueError(f"there is no nemesis {name!r}; there are {known}")
    return tuple(NEMESES[name] for name in dict.fromkeys(names) if name != NONE)
