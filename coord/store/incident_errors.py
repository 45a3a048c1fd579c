"""What can be wrong with an incident file."""

from __future__ import annotations


class IncidentError(Exception):
    """Base. `offset` is in bytes from the start of the file; `line` counts from 1, 0 in binary."""

    def __init__(self, message: str, offset: int, line: int = 0) -> None:
        super().__init__(message)
        self.offset = offset
        self.line = line


class IncidentTruncated(IncidentError):
    """The file ends too early. Everything read until now is good; `offset` is where that ends."""


class IncidentCorrupt(IncidentError):
    """The file is damaged, or not what it should be, at `offset`. What came before is good."""
