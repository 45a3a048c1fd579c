"""What stands at both ends of an incident file. The entries between are `Recorded`."""

from __future__ import annotations

import msgspec

INCIDENT_FORMAT = 1


class IncidentHeader(
    msgspec.Struct, frozen=True, omit_defaults=True, tag="IncidentHeader", tag_field="type"
):
    """Where the file begins: replay starts from `start_state` and expects `start_index` next.

    `start_state` is `core.state.encode_state` of the state just before `start_index`, compressed
    with zstd in a binary file and base64 of the same in JSON lines; empty for the state before
    index 1.
    """

    cluster: str = ""
    start_index: int = 1
    format: int = INCIDENT_FORMAT
    coord_version: str = ""
    logic_version: int = 0
    start_state: bytes = b""


class IncidentFooter(
    msgspec.Struct, frozen=True, omit_defaults=True, tag="IncidentFooter", tag_field="type"
):
    """How many entries there were, the index of the last and the digest after it."""

    count: int
    last_index: int = 0
    digest: str = ""
