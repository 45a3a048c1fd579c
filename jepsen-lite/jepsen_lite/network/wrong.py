"""A proxy that does what no network may do to TCP and some have done, to see whether it is noticed.

A sum of 16 bits is all that TCP has against a device that changes a packet in its memory, and a
middlebox that speaks TCP itself delivers what it likes.
"""

from __future__ import annotations

import enum
import os
import random
from collections.abc import Mapping

BROKEN_PROXY = "JEPSEN_LITE_BROKEN_PROXY"
"""Environment variable by which a run is given a network that is wrong: a word of Wrong."""
ONE_IN = 40
"""So many chunks one of them is wrong."""


class Wrong(enum.StrEnum):
    """What the proxy does to some of the chunks that it delivers."""

    CORRUPT = "corrupt"
    """One bit is flipped."""
    DUPLICATE = "duplicate"
    """It is delivered twice."""


def wrong_by(environ: Mapping[str, str] = os.environ) -> Wrong | None:
    """What the environment asks for; None: a network as it should be. Raises ValueError."""
    word = environ.get(BROKEN_PROXY, "")
    try:
        return Wrong(word) if word else None
    except ValueError:
        known = ", ".join(Wrong)
        raise ValueError(
            f"{BROKEN_PROXY} is {word!r}; it may be one of {known}, or not set"
        ) from None


def mistreated(chunk: bytes, wrong: Wrong, rng: random.Random) -> bytes:
    """What is delivered in place of a chunk, which is not empty."""
    if rng.randrange(ONE_IN):
        return chunk
    if wrong is Wrong.DUPLICATE:
        return chunk + chunk
    at = rng.randrange(len(chunk))
    return chunk[:at] + bytes([chunk[at] ^ (1 << rng.randrange(8))]) + chunk[at + 1 :]
