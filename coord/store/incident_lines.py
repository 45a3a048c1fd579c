"""Incident files as JSON lines, which people may write by hand.

    {"type":"IncidentHeader","cluster":"c1"}
    # what cannot be known may be left out
    {"entry":{"origin":{"actor":"client:ann","seq":1},"event":{"type":"NoteAdded",...}}}

An entry without `index` follows on the one before; without `term` or `wall_ms` it has those of the
one before; without `origin` it comes from `client:hand`, numbered by index. A line without `digest`
yields a Recorded with the digest "" (and `now_ms` -1 unless given): there is nothing to compare a
replay with; its event may have no field that is unknown. Blank lines and lines that begin with #
are skipped.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from coord.model.decisions import AnyDecision
from coord.model.entry import Entry, Origin, Recorded
from coord.model.events import AnyEvent
from coord.model.incident import IncidentFooter, IncidentHeader
from coord.store.incident_errors import IncidentCorrupt

Decoded = TypeVar("Decoded")

_FOOTER_LINE = re.compile(rb'\s*\{\s*"type"\s*:\s*"IncidentFooter"')
_HEADER_EXAMPLE = '{"type":"IncidentHeader","cluster":"c1"}'


class _EntryLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An Entry of which only the event must be given."""

    event: AnyEvent
    index: int | None = None
    term: int | None = None
    wall_ms: int | None = None
    origin: Origin | None = None


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Recorded of which only the entry must be given."""

    entry: _EntryLine
    now_ms: int = -1
    digest: str = ""
    decisions: tuple[AnyDecision, ...] = ()
    rejection: str = ""
    duplicate_of: int = 0
    result: int = 0


_LINE = msgspec.json.Decoder(_Line)
_HEADER = msgspec.json.Decoder(IncidentHeader)
_FOOTER = msgspec.json.Decoder(IncidentFooter)


def is_footer_line(line: bytes) -> bool:
    return _FOOTER_LINE.match(line) is not None


def _unknown_field(given: object, read: object, path: str = "event") -> str:
    """The first field that is in `given`, as plain JSON, and not in the struct read from it."""
    if isinstance(read, msgspec.Struct) and isinstance(given, dict):
        fields = {field.encode_name: field.name for field in msgspec.structs.fields(read)}
        for key, value in given.items():
            if key == "type" and key not in fields:
                continue  # says which struct it is
            if key not in fields:
                return f"{path}.{key}"
            found = _unknown_field(value, getattr(read, fields[key]), f"{path}.{key}")
            if found:
                return found
    elif isinstance(read, tuple) and isinstance(given, list):
        for at, (value, item) in enumerate(zip(given, read, strict=False)):
            found = _unknown_field(value, item, f"{path}[{at}]")
            if found:
                return found
    return ""


class LineDecoder:
    """Lines -> Recorded, filling in from the line before what a line leaves out."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._index = 0
        self._term = 1
        self._wall_ms = 0

    def header(self, line: bytes, number: int, offset: int) -> IncidentHeader:
        """Raises IncidentCorrupt, as all of these do."""
        if b'"IncidentHeader"' not in line:
            raise self._wrong(number, offset, f"must be the header, such as {_HEADER_EXAMPLE}")
        header = self._decoded(_HEADER, line, number, offset)
        self._index = header.start_index - 1
        return header

    def footer(self, line: bytes, number: int, offset: int) -> IncidentFooter:
        return self._decoded(_FOOTER, line, number, offset)

    def record(self, line: bytes, number: int, offset: int) -> Recorded:
        found = self._decoded(_LINE, line, number, offset)
        given = found.entry
        if not found.digest:
            # Somebody wrote it, and a mistyped field would otherwise be a field left out.
            unknown = _unknown_field(msgspec.json.decode(line)["entry"]["event"], given.event)
            if unknown:
                kind = type(given.event).__name__
                raise self._wrong(number, offset, f"has a field that {kind} lacks: {unknown}")
        self._index = self._index + 1 if given.index is None else given.index
        self._term = self._term if given.term is None else given.term
        self._wall_ms = self._wall_ms if given.wall_ms is None else given.wall_ms
        origin = given.origin or Origin("client:hand", seq=self._index)
        return Recorded(
            entry=Entry(self._index, self._term, self._wall_ms, origin, given.event),
            now_ms=found.now_ms,
            digest=found.digest,
            decisions=found.decisions,
            rejection=found.rejection,
            duplicate_of=found.duplicate_of,
            result=found.result,
        )

    def _decoded(
        self, decoder: msgspec.json.Decoder[Decoded], line: bytes, number: int, offset: int
    ) -> Decoded:
        try:
            return decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._wrong(number, offset, f"cannot be read: {error}") from error

    def _wrong(self, number: int, offset: int, what: str) -> IncidentCorrupt:
        return IncidentCorrupt(f"{self._name}, line {number} {what}", offset, number)
