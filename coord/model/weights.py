"""What a job's trainers have published, as the state keeps it."""

from __future__ import annotations

import msgspec


class Weights(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest weights that were published in a job, and who made them. They outlive the
    generation that did."""

    job: str
    version: int
    step: int
    uri: str
    task: str
    gang: str
    generation: int
    published: int
    """Log index."""
    published_ms: int
