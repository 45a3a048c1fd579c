"""The ways in which a replay tells: text, one JSON document, or JSON lines.

Each writes as it goes and keeps nothing but, for the document, its incidents in a temporary file.
"""

from __future__ import annotations

import tempfile
from typing import IO, Any, Protocol

import msgspec

from coord.cli.timeline import IncidentReport, Item, Totals
from coord.cli.timeline_text import item_text, totals_text
from coord.cli.verify import Difference, Verdict
from coord.cli.wording import count_text

SPOOL_BYTES = 1 << 20


class Opening(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the file says of itself."""

    file: str
    format: str
    cluster: str
    start_index: int
    coord_version: str
    logic_version: int


class Summary(msgspec.Struct, frozen=True):
    """How a replay ended. `message` says what did not match, or where the file ends."""

    verdict: Verdict
    message: str
    totals: Totals
    verified: int
    unverified: int
    final_digest: str
    incidents_open: int
    whole: bool
    """The file's own count of its entries was read and is right."""
    exit_code: int
    violations: tuple[str, ...] = ()
    difference: Difference | None = None


class Telling(Protocol):
    """`begin`, `tell` as often as there is something, `end`; all of it to the stream given."""

    def begin(self, opening: Opening) -> None: ...

    def tell(self, items: list[Item]) -> None: ...

    def end(self, still_open: list[IncidentReport], summary: Summary) -> None: ...


class TextTelling:
    """For people."""

    def __init__(self, stream: IO[str], colour: bool, width: int = 0) -> None:
        """`width` is that of the terminal, 0 for lines of any length."""
        self._stream = stream
        self._colour = colour
        self._width = width
        self._told = False

    @property
    def told(self) -> bool:
        """Whether there was anything to tell."""
        return self._told

    def begin(self, opening: Opening) -> None:
        if not opening.format:
            return  # nothing of the file could be read, which the message will say
        version = f"coord {opening.coord_version}, " if opening.coord_version else ""
        cluster = f"cluster {opening.cluster}, " if opening.cluster else ""
        self._write(f"{opening.file}: {cluster}{version}entries from {opening.start_index} on\n")

    def tell(self, items: list[Item]) -> None:
        if items and not self._told:
            self._told = True
            self._write("\n")
        self._write(
            "".join(f"{item_text(item, self._colour, False, self._width)}\n" for item in items)
        )

    def end(self, still_open: list[IncidentReport], summary: Summary) -> None:
        self.tell([*still_open])
        totals = summary.totals
        if not totals.entries and summary.message:
            return
        incidents = count_text(totals.incidents, "incident")
        lines = [
            "",
            totals_text(totals, self._width),
            f"{incidents}, {summary.incidents_open} still open",
            f"digests: {summary.verified:,} of {totals.entries:,} verified; "
            f"final digest {summary.final_digest}",
            *(f"broken invariant: {violation}" for violation in summary.violations),
        ]
        if not summary.message:
            lines.append("replay matches the record")
        self._write("\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)


class LinesTelling:
    """For programs that read on while the replay goes on: one item a line, the summary last."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def begin(self, opening: Opening) -> None:
        self._write({"kind": "opening", **msgspec.to_builtins(opening)})

    def tell(self, items: list[Item]) -> None:
        for item in items:
            self._write(item)

    def end(self, still_open: list[IncidentReport], summary: Summary) -> None:
        self.tell([*still_open])
        self._write({"kind": "summary", **msgspec.to_builtins(summary)})

    def _write(self, value: Any) -> None:
        self._stream.write(f"{_json(value)}\n")


class DocumentTelling:
    """For programs: {"opening", "timeline": [...], "incidents": [...], "summary"}."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines = 0
        self._incidents = tempfile.SpooledTemporaryFile(  # noqa: SIM115  closed by `end`
            SPOOL_BYTES, "w+", encoding="utf-8"
        )
        self._incident_count = 0

    def begin(self, opening: Opening) -> None:
        self._stream.write(f'{{"opening":{_json(opening)},\n"timeline":[')

    def tell(self, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, IncidentReport):
                self._incidents.write(f"{',' if self._incident_count else ''}\n{_json(item)}")
                self._incident_count += 1
            else:
                self._stream.write(f"{',' if self._lines else ''}\n{_json(item)}")
                self._lines += 1

    def end(self, still_open: list[IncidentReport], summary: Summary) -> None:
        self.tell([*still_open])
        self._stream.write('],\n"incidents":[')
        self._incidents.seek(0)
        for line in self._incidents:
            self._stream.write(line)
        self._incidents.close()
        self._stream.write(f'],\n"summary":{_json(summary)}}}\n')


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
