"""Which gangs stop together, which keep spares, and which have standbys. Kept beside their rows."""

from __future__ import annotations

from coord.model.entities import Gang, GangPhase

_RUNS = (GangPhase.STARTING, GangPhase.RUNNING)


class Recovering:
    """`leaving`: by incident, gangs that stop for it together with others and have not stopped yet.
    `sparing`: gangs that run and are to have spares. `standing`: gangs that have standbys."""

    def __init__(self) -> None:
        self.leaving: dict[int, dict[str, None]] = {}
        self.sparing: dict[str, None] = {}
        self.standing: dict[str, None] = {}

    def copy(self) -> Recovering:
        copy = Recovering()
        copy.leaving = {number: dict(keys) for number, keys in self.leaving.items()}
        copy.sparing = dict(self.sparing)
        copy.standing = dict(self.standing)
        return copy

    def note(self, gang: Gang, before: Gang | None) -> None:
        """The gang's row is written anew; `before` is what it was."""
        if before is not None and before.together in self.leaving:
            keys = self.leaving[before.together]
            keys.pop(gang.key, None)
            if not keys:
                del self.leaving[before.together]
        if gang.together and gang.phase == GangPhase.STOPPING:
            self.leaving.setdefault(gang.together, {})[gang.key] = None
        if gang.spares and gang.phase in _RUNS:
            self.sparing[gang.key] = None
        else:
            self.sparing.pop(gang.key, None)
        if gang.standbys:
            self.standing[gang.key] = None
        elif before is not None and before.standbys:
            self.standing.pop(gang.key, None)
