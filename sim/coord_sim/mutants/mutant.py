"""What a mutant is: the product with one guard taken out."""

from __future__ import annotations

import enum

import msgspec


class Reach(enum.StrEnum):
    """Who can reach a mutant: the names of finders."""

    CORE = "core walk"
    SHARED = "shared walk"
    EXPLORE = "explore"
    RAFT = "raft"
    CLUSTER = "cluster"
    FOCUS = "focus"


class Edit(msgspec.Struct, frozen=True):
    """In the function `target` (`package.module:Class.method`), `old` becomes `new`.

    `old` must stand in its source exactly once, as it is written there without the function's own
    indentation.
    """

    target: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One guard, by a name, and how it is taken out: by edits, or by switching off a raft rule.

    `races` are the numbers of the list of recovery-path races that are open again without it.
    """

    name: str
    guard: str
    """What the product promises here, in words."""
    breaks: str
    """What goes wrong without it."""
    reach: tuple[Reach, ...]
    races: tuple[int, ...] = ()
    edits: tuple[Edit, ...] = ()
    rules_off: tuple[str, ...] = ()
    survives: str = ""
    """Why no finder here can find it; empty for one that must be found."""

    @property
    def where(self) -> str:
        """The places that are changed, or the rule that is off."""
        if self.rules_off:
            return ", ".join(f"raft rule {rule}" for rule in self.rules_off)
        return ", ".join(dict.fromkeys(edit.target for edit in self.edits))
