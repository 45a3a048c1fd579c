"""The one exception by which a simulated world says that something broke."""

from __future__ import annotations


class CoreViolation(AssertionError):
    """What must hold did not. `property` names it in words, `detail` names the offenders."""

    def __init__(self, property: str, detail: str = "") -> None:
        super().__init__(f"{property}: {detail}" if detail else property)
        self.property = property
        self.detail = detail
