"""Decisions about hot spares. What follows from them is told in `core/recovery/standbys.py`."""

from __future__ import annotations

from coord.model.decision import Decision


class StandbyPlaced(Decision, frozen=True):
    """A hot spare: its process is to be up on a place kept beside the gang, and to wait there."""

    job: str
    gang: str
    generation: int
    task: str
    host: str
    devices: tuple[int, ...] = ()


class StandbyPromoted(Decision, frozen=True):
    """A hot spare takes this rank of the new generation, in the process that it has."""

    job: str
    gang: str
    generation: int
    task: str
    host: str
    index: int


class StandbyEnded(Decision, frozen=True):
    """A hot spare waits no more: it has ended, or is told to."""

    job: str
    gang: str
    generation: int
    task: str
    host: str
    reason: str
