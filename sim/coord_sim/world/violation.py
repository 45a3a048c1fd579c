"""What a simulation found to be wrong."""

from __future__ import annotations


class Violation(Exception):
    """A property does not hold. `property` is its sentence, `detail` names the offenders."""

    def __init__(self, property: str, detail: str) -> None:
        super().__init__(f"{property}: {detail}")
        self.property = property
        self.detail = detail
