"""Incident files: a span of the log with the state before it, replayable without a server.

Binary:      magic | frame (header) | frame (Recorded) ... | frame (footer) | end mark
A frame:     u32 length | u32 CRC-32 of length and payload | payload: kind (one byte), message
JSON lines:  the header, then one Recorded a line, then the footer, which may be missing.

A binary file without its end mark was cut off; with the end mark, whatever does not fit is damage.
JSON lines may be written by hand: see `coord.store.incident_lines`.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, TypeVar

import msgspec
import zstandard

from coord.codec import (
    MalformedMessage,
    decode_incident_footer,
    decode_incident_header,
    decode_recorded,
    encode_incident_footer,
    encode_incident_header,
    encode_recorded,
)
from coord.model.entry import Recorded
from coord.model.incident import INCIDENT_FORMAT, IncidentFooter, IncidentHeader
from coord.store.incident_errors import IncidentCorrupt, IncidentError, IncidentTruncated
from coord.store.incident_lines import LineDecoder, is_footer_line

MAGIC = b"\xc5coord-incident\n"
"""Its first byte is no text, nor is it one flipped bit away from how JSON lines can begin."""
END_MARK = b"coord-incident-end\n"
FRAME_LIMIT_BYTES = 64 << 20

Decoded = TypeVar("Decoded")

_FRAME = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
_HEADER, _RECORD, _FOOTER = b"H", b"R", b"F"

__all__ = [
    "IncidentCorrupt",
    "IncidentEncoder",
    "IncidentError",
    "IncidentFormat",
    "IncidentReader",
    "IncidentTruncated",
    "IncidentWriter",
    "Located",
    "incident_header",
]


class IncidentFormat(enum.StrEnum):
    BINARY = "binary"
    JSON_LINES = "jsonl"


class Located(msgspec.Struct, frozen=True):
    """An entry and where it stands: bytes from the start of the file; `line` is 0 in binary."""

    record: Recorded
    offset: int
    line: int = 0


def incident_header(
    cluster: str, start_index: int, start_state: bytes, coord_version: str, logic_version: int
) -> IncidentHeader:
    """`start_state` is as `core.state.encode_state` gives it; the header holds it compressed."""
    compressed = zstandard.ZstdCompressor(level=3).compress(start_state) if start_state else b""
    return IncidentHeader(
        cluster=cluster,
        start_index=start_index,
        coord_version=coord_version,
        logic_version=logic_version,
        start_state=compressed,
    )


class IncidentEncoder:
    """The bytes of a file, piece by piece: `begin`, `record` as often as need be, `end`."""

    def __init__(self, header: IncidentHeader, file_format: IncidentFormat) -> None:
        self._header = header
        self._binary = file_format == IncidentFormat.BINARY
        self._count = 0
        self._last_index = header.start_index - 1
        self._digest = ""

    def begin(self) -> bytes:
        if self._binary:
            return MAGIC + _frame(_HEADER, encode_incident_header(self._header))
        return msgspec.json.encode(self._header) + b"\n"

    def record(self, record: Recorded) -> bytes:
        """Raises ValueError for an entry that does not follow on the one before."""
        if record.entry.index != self._last_index + 1:
            raise ValueError(f"entry {record.entry.index} cannot follow on {self._last_index}")
        self._count += 1
        self._last_index = record.entry.index
        self._digest = record.digest
        if self._binary:
            return _frame(_RECORD, encode_recorded(record))
        return msgspec.json.encode(record) + b"\n"

    def end(self) -> bytes:
        footer = IncidentFooter(self._count, self._last_index, self._digest)
        if self._binary:
            return _frame(_FOOTER, encode_incident_footer(footer)) + END_MARK
        return msgspec.json.encode(footer) + b"\n"


class IncidentWriter:
    """Writes a file. Left by an exception, it leaves the file without its end, as cut off."""

    def __init__(
        self,
        file: IO[bytes],
        header: IncidentHeader,
        file_format: IncidentFormat = IncidentFormat.BINARY,
    ) -> None:
        self._file = file
        self._encoder = IncidentEncoder(header, file_format)

    def __enter__(self) -> IncidentWriter:
        self._file.write(self._encoder.begin())
        return self

    def write(self, record: Recorded) -> None:
        self._file.write(self._encoder.record(record))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._file.write(self._encoder.end())
        self._file.flush()


class IncidentReader:
    """Reads a file of either format, front to back, in constant memory.

    The header is there at once. Iterating yields every good entry and then raises
    IncidentTruncated if the file was cut off, or IncidentCorrupt at the first damaged place.
    `file` is buffered and need not be seekable; `name` is for messages.
    """

    def __init__(self, file: IO[bytes], name: str = "incident.log") -> None:
        self._file = file
        self._name = name
        self._offset = 0
        self._line = 0
        self.footer: IncidentFooter | None = None
        """Known once the iteration has ended; JSON lines may have none."""
        self.last_index = 0
        """Of the last good entry; 0 before the first."""
        beginning = file.read(1)
        self.format = IncidentFormat.JSON_LINES
        if beginning == MAGIC[:1] or not beginning:
            self.format = IncidentFormat.BINARY
            self.header = self._read_header(beginning)
        elif beginning in b"{# \t\r\n":
            self._lines = LineDecoder(name)
            self.header = self._read_header_line(beginning)
        else:
            raise self._corrupt(0, "is no incident file: it begins neither as one nor as JSON")
        if self.header.format > INCIDENT_FORMAT:
            raise self._corrupt(
                0,
                f"has format {self.header.format}, this release reads up to {INCIDENT_FORMAT}; "
                "upgrade coord",
            )

    def start_state(self) -> bytes:
        """The encoded state before the first entry; empty for the state before index 1."""
        if not self.header.start_state:
            return b""
        try:
            return zstandard.ZstdDecompressor().decompress(self.header.start_state)
        except zstandard.ZstdError as error:
            raise self._corrupt(0, f"has a start state that cannot be unpacked: {error}") from error

    def __iter__(self) -> Iterator[Located]:
        read = self._frames if self.format == IncidentFormat.BINARY else self._json_lines
        expected = self.header.start_index
        digest = ""
        for located in read():
            entry = located.record.entry
            if entry.index != expected:
                self._offset, self._line = located.offset, located.line
                raise self._corrupt(
                    located.offset, f"has entry {entry.index} where {expected} must come"
                )
            self.last_index = entry.index
            digest = located.record.digest
            yield located
            expected += 1
        counted = IncidentFooter(expected - self.header.start_index, expected - 1, digest)
        if self.footer is not None and self.footer != counted:
            raise self._corrupt(
                self._offset, f"ends with {self.footer}, but what was read is {counted}"
            )

    # Binary

    def _read_header(self, beginning: bytes) -> IncidentHeader:
        magic = beginning + self._file.read(len(MAGIC) - len(beginning))
        if magic != MAGIC:
            if MAGIC.startswith(magic):
                raise self._truncated(0)
            raise self._corrupt(0, "is no incident file, or its first bytes are damaged")
        self._offset = len(MAGIC)
        kind, payload = self._next_frame()
        if kind != _HEADER:
            raise self._corrupt(len(MAGIC), "does not begin with a header")
        return self._decode(decode_incident_header, payload, len(MAGIC))

    def _frames(self) -> Iterator[Located]:
        while True:
            offset = self._offset
            kind, payload = self._next_frame()
            if kind == _RECORD:
                yield Located(self._decode(decode_recorded, payload, offset), offset)
            elif kind == _FOOTER:
                self.footer = self._decode(decode_incident_footer, payload, offset)
                self._read_end_mark()
                return
            else:
                raise self._corrupt(offset, f"has a frame of an unknown kind, {kind!r}")

    def _next_frame(self) -> tuple[bytes, bytes]:
        """Kind and payload. The CRC covers the length too, so that no flipped bit goes unseen."""
        offset = self._offset
        start = self._file.read(_FRAME.size)
        if len(start) < _FRAME.size:
            raise self._cut_off_or_damaged(offset, start)
        length, crc = _FRAME.unpack(start)
        if not 1 <= length <= FRAME_LIMIT_BYTES:
            raise self._corrupt(
                offset, f"has a frame of {length} bytes; it must be 1 to {FRAME_LIMIT_BYTES}"
            )
        payload = self._file.read(length)
        if len(payload) < length:
            raise self._cut_off_or_damaged(offset, payload)
        if zlib.crc32(payload, zlib.crc32(start[: _LENGTH.size])) != crc:
            raise self._corrupt(offset, "has a frame whose checksum does not match")
        self._offset += _FRAME.size + length
        return payload[:1], payload[1:]

    def _read_end_mark(self) -> None:
        rest = self._file.read(len(END_MARK) + 1)
        if rest == END_MARK:
            return
        if END_MARK.startswith(rest):
            raise self._truncated(self._offset)
        raise self._corrupt(self._offset, "goes on after its footer with what is no end mark")

    def _cut_off_or_damaged(self, offset: int, rest: bytes) -> IncidentError:
        """A frame that reaches beyond the file: with the end mark in place its length is wrong."""
        if rest.endswith(END_MARK):
            return self._corrupt(offset, "has a frame whose length is damaged")
        return self._truncated(offset)

    def _decode(self, decode: Callable[[bytes], Decoded], payload: bytes, offset: int) -> Decoded:
        try:
            return decode(payload)
        except MalformedMessage as error:
            raise self._corrupt(offset, f"has a frame that cannot be read: {error}") from error

    # JSON lines

    def _read_header_line(self, beginning: bytes) -> IncidentHeader:
        line = self._next_line(beginning)
        if line is None:
            raise self._truncated(self._offset)
        return self._parse(self._lines.header, line)

    def _json_lines(self) -> Iterator[Located]:
        while (line := self._next_line(b"")) is not None:
            offset = self._offset - len(line)
            if is_footer_line(line):
                self.footer = self._parse(self._lines.footer, line)
                if self._next_line(b"") is not None:
                    raise self._corrupt(self._offset, "goes on after its footer")
                return
            record = self._parse(self._lines.record, line)
            yield Located(record, offset, self._line)

    def _parse(self, parse: Callable[[bytes, int, int], Decoded], line: bytes) -> Decoded:
        """A line without its newline that cannot be read is the last one, cut off."""
        offset = self._offset - len(line)
        try:
            return parse(line, self._line, offset)
        except IncidentCorrupt:
            if line.endswith(b"\n"):
                raise
            raise self._truncated(offset) from None

    def _next_line(self, beginning: bytes) -> bytes | None:
        """The next line that is neither blank nor a comment; `beginning` was read already."""
        while True:
            line = beginning + (b"" if beginning == b"\n" else self._file.readline())
            beginning = b""
            if not line:
                return None
            self._offset += len(line)
            self._line += 1
            if line.strip() and not line.lstrip().startswith(b"#"):
                return line

    # Errors

    def _truncated(self, offset: int) -> IncidentTruncated:
        good = (
            f"entries up to {self.last_index} are good" if self.last_index else "no entry is whole"
        )
        return IncidentTruncated(
            f"{self._name} was cut off: what begins at byte {offset} is not whole; {good}",
            offset,
            self._line,
        )

    def _corrupt(self, offset: int, what: str) -> IncidentCorrupt:
        line = f", line {self._line}" if self._line else ""
        return IncidentCorrupt(f"{self._name} {what} (byte {offset}{line})", offset, self._line)


def _frame(kind: bytes, message: bytes) -> bytes:
    payload = kind + message
    if len(payload) > FRAME_LIMIT_BYTES:
        raise ValueError(f"a frame of {len(payload)} bytes; the limit is {FRAME_LIMIT_BYTES}")
    length = _LENGTH.pack(len(payload))
    return length + _LENGTH.pack(zlib.crc32(payload, zlib.crc32(length))) + payload
