"""The operations around a violation, as bars over time: for a terminal, and as SVG for a page.

Time is drawn by the order of its edges and not to scale, for what matters is who overlaps whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

import msgspec

from jepsen_lite.history.operation import Operation, Outcome
from jepsen_lite.judge.models import UNKNOWN, Model, brief
from jepsen_lite.judge.prefix import Prefix

WIDTH = 100
"""Columns of a terminal."""

BEFORE = 6
"""How many of those placed last are shown, beside those that overlap."""

ROWS = 20
"""More are left out, and counted."""


class Row(msgspec.Struct):
    """One operation as a bar from `left` to `right`, which are edges counted from 0."""

    client: str
    told: str
    left: int
    right: int
    place: int
    """In the order that got furthest, from 1 among those shown; 0: not in it."""
    open_end: bool
    """It may still happen later."""
    culprit: bool
    when: str


class Picture(msgspec.Struct):
    """What is drawn, whatever it is drawn on."""

    title: str
    rows: list[Row]
    edges: int
    left_out: int
    explanation: str


def seconds(nanoseconds: int) -> str:
    """`0.012345 s`, for histories with a clock."""
    return f"{nanoseconds / 1e9:.6f} s" if nanoseconds >= 1_000 else f"{nanoseconds} ns"


Moment = Callable[[int], str]
"""How a moment of a history is told."""


def draw(key: str, prefix: Prefix, model: Model[Any], moment: Moment = seconds) -> Picture:
    """Choose the operations that show why the prefix cannot be, and lay them out."""
    shown, left_out = _choose(prefix, model)
    moments = sorted({moment for each in shown for moment in _moments(each)})
    edge_of = {moment: edge for edge, moment in enumerate(moments)}
    numbers = {each.number for each in shown}
    placed = [each.number for each in prefix.order.placed if each.number in numbers]
    rows = [
        Row(
            client=each.client,
            told=model.tell(each),
            left=edge_of[(each.invoked_ns, 0)],
            right=edge_of.get((each.completed_ns, 1), len(moments)),
            place=placed.index(each.number) + 1 if each.number in placed else 0,
            open_end=each.outcome is Outcome.INFO,
            culprit=each.number == prefix.culprit.number,
            when=f"{moment(each.invoked_ns)} to {_end(each, moment)}",
        )
        for each in shown
    ]
    return Picture(
        title=f"{model.name} {key}: no order explains these answers",
        rows=rows,
        edges=len(moments),
        left_out=left_out,
        explanation=_explain(prefix, model, moment),
    )


def as_text(picture: Picture, width: int = WIDTH) -> str:
    """The picture for a terminal. The numbers are the order that explains most; "x" is what it
    cannot explain, and a bar without an end may have happened later or not at all."""
    clients = min(max(len(row.client) for row in picture.rows), 20)
    told = min(max(len(row.told) for row in picture.rows), 34)
    room = width - clients - told - 8
    scale = min(3.0, (room - 2) / max(picture.edges, 1))
    lines = [picture.title, ""]
    for row in picture.rows:
        left = int(row.left * scale)
        right = max(int(row.right * scale), left + 1)
        body = ("\u2504" if row.open_end else "\u2500") * (right - left - 1)
        end = "" if row.open_end else "\u2524"
        place = "x" if row.culprit else str(row.place or "")
        lines.append(
            f"  {_fit(row.client, clients)} {_fit(row.told, told)} {place:>2} "
            f"{' ' * left}\u251c{body}{end}".rstrip()
        )
    if picture.left_out:
        lines.append(f"  ({picture.left_out} more overlap and are not shown)")
    return "\n".join([*lines, "", picture.explanation])


_LEFT, _LINE, _EDGE = 330, 26, 26

_STYLE = """\
.jl text{font:13px ui-monospace,monospace;fill:#1d2733}
.jl .told{font-weight:600}.jl .faint{fill:#6b7785}
.jl .ok{fill:#9cc5e8;stroke:#2f6ea5}.jl .open{fill:#eceff2;stroke:#8a96a3;stroke-dasharray:4 3}
.jl .culprit{fill:#f3a6a0;stroke:#b3261e;stroke-width:2}
.jl .grid{stroke:#e3e7eb}"""


def as_svg(picture: Picture) -> str:
    """The picture as one SVG element that needs nothing else; pointing at a bar tells its times."""
    width = _LEFT + (picture.edges + 1) * _EDGE + 20
    wrapped = _wrap(picture.explanation, max(width // 8, 60))
    width = max(width, 8 * max(len(line) for line in [picture.title, *wrapped]) + 20)
    bottom = 40 + len(picture.rows) * _LINE
    height = bottom + 24 + 18 * (len(wrapped) + bool(picture.left_out))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="jl" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img"><title>{escape(picture.title)}</title>',
        f"<style>{_STYLE}</style>",
        f'<text x="10" y="20" class="told">{escape(picture.title)}</text>',
    ]
    for edge in range(picture.edges + 1):
        x = _LEFT + edge * _EDGE
        parts.append(f'<line class="grid" x1="{x}" y1="34" x2="{x}" y2="{bottom}"/>')
    for at, row in enumerate(picture.rows):
        parts.extend(_bar(row, 40 + at * _LINE))
    notes = [f"({picture.left_out} more overlap and are not shown)"] if picture.left_out else []
    for at, line in enumerate([*notes, *wrapped]):
        parts.append(f'<text x="10" y="{bottom + 24 + 18 * at}">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>"])


def _bar(row: Row, y: int) -> Iterable[str]:
    kind = "culprit" if row.culprit else "open" if row.open_end else "ok"
    x = _LEFT + row.left * _EDGE
    width = max((row.right - row.left) * _EDGE, 10)
    place = "\u2717" if row.culprit else str(row.place or "")
    yield f'<text x="10" y="{y + 14}" class="faint">{escape(_fit(row.client, 15))}</text>'
    yield f'<text x="135" y="{y + 14}">{escape(_fit(row.told, 24))}</text>'
    yield (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="18" rx="4">'
        f"<title>{escape(f'{row.client}: {row.told}, {row.when}')}</title></rect>"
    )
    yield f'<text x="{x + 5}" y="{y + 14}" class="told">{place}</text>'


def _choose(prefix: Prefix, model: Model[Any]) -> tuple[list[Operation], int]:
    """The culprit, what overlaps it, what was placed last, and who wrote what it saw; in order of
    invocation, and how many that overlap were left out."""
    culprit = prefix.culprit
    chosen = {each.number: each for each in (*prefix.order.placed[-BEFORE:], culprit)}
    sources = [
        each
        for each in prefix.operations
        if culprit.result is not None and _writes(each) == culprit.result
    ]
    chosen.update((each.number, each) for each in sources[-1:])
    overlapping = [
        each
        for each in prefix.operations
        if each.number not in chosen
        and (
            each.completed_ns >= culprit.invoked_ns
            if each.outcome is Outcome.OK
            else not model.only_looks(each.action, UNKNOWN)
        )
    ]
    # The latest, for what is open since long ago says least.
    left_out = max(len(overlapping) + len(chosen) - ROWS, 0)
    chosen.update((each.number, each) for each in overlapping[left_out:])
    shown = sorted(chosen.values(), key=lambda each: (each.invoked_ns, each.number))
    return shown, left_out


def _writes(operation: Operation) -> Any:
    argument = operation.argument
    return argument[-1] if isinstance(argument, list) and argument else argument


def _moments(operation: Operation) -> list[tuple[int, int]]:
    moments = [(operation.invoked_ns, 0)]
    if operation.outcome is Outcome.OK:
        moments.append((operation.completed_ns, 1))
    return moments


def _explain(prefix: Prefix, model: Model[Any], moment: Moment) -> str:
    culprit = prefix.culprit
    asked = (
        f"`{model.tell(culprit)}` of {culprit.client}, which was over at"
        f" {moment(culprit.completed_ns)}"
    )
    state = brief(prefix.order.state)
    if prefix.exact:
        return (
            f"Until then the answers have an order, numbered here, which leaves the state {state}."
            f" With {asked}, they have none."
        )
    return (
        f"The answers until {asked}, have no order; the one numbered here came furthest, to the"
        f" state {state}. A shorter history may show it too: the time to look for it was over."
    )


def _end(operation: Operation, moment: Moment) -> str:
    return moment(operation.completed_ns) if operation.outcome is Outcome.OK else "never known"


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "\u2026"


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
