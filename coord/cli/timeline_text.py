"""Items of a timeline as text for a terminal or a file."""

from __future__ import annotations

import click

from coord.cli.timeline import PHASES, IncidentReport, Item, Line, Totals
from coord.cli.wording import clock_text, count_text, phase_text, time_of_day_text
from coord.cli.wrapping import Piece, wrapped, wrapped_line
from coord.model import decisions as d
from coord.model import events as e

TIME_WIDTH = 13
REF_WIDTH = 9
NAME_WIDTH = 21
CONTINUED = " " * (TIME_WIDTH + REF_WIDTH + 7)
"""Before what goes on from the line above: further in than a decision's name."""
INCIDENT_INDENT = " " * (TIME_WIDTH + REF_WIDTH + 3)
LINE_WIDTH = 100
"""Of lists that would be long lines even in a file."""

RED = (
    d.HostLost,
    d.HostQuarantined,
    d.EvictionsFrozen,
    d.JobFailed,
    d.TaskAbandoned,
    d.HangDetected,
    d.IncidentOpened,
    d.CauseRevised,
    e.TaskUnkillable,
    e.LaunchFailed,
)
YELLOW = (
    d.HostSuspected,
    d.TasksStopping,
    d.RestartScheduled,
    d.JobQueued,
    d.HostDraining,
    e.PreemptionNoticed,
)
GREEN = (
    d.GenerationStarted,
    d.CheckpointCommitted,
    d.GangSucceeded,
    d.JobCompleted,
    d.HostJoined,
    d.HostCleared,
    d.IncidentClosed,
    d.HostReturned,
    d.EvictionsResumed,
)
TINTS: dict[str, str] = {
    kind.__name__: tint
    for tint, kinds in (("red", RED), ("yellow", YELLOW), ("green", GREEN))
    for kind in kinds
}


def item_text(item: Item, colour: bool = False, wall: bool = False, width: int = 0) -> str:
    """One item as one or more lines, without the last line's end.

    `wall`: with the time of day (UTC) instead of the log time since the start. `width`: of the
    terminal, 0 for lines of any length.
    """
    if isinstance(item, Line):
        return _line_text(item, colour, wall, width)
    return incident_text(item, colour, width)


def _line_text(line: Line, colour: bool, wall: bool, width: int) -> str:
    is_event = line.kind == "event"
    time = ""
    if is_event:
        log_time = f"{'' if line.at_ms < 0 else '+'}{clock_text(line.at_ms)}"
        time = time_of_day_text(line.wall_ms) if wall else log_time
    name = line.what if is_event else f"  {line.what}"
    told = [Piece(" " + "  ".join(word for word in (line.subject, line.text) if word))]
    if line.rejection:
        told.append(Piece(f" refused: {line.rejection}", "red" if colour else ""))
    if line.duplicate_of:
        told.append(Piece(f" same request as {line.duplicate_of}"))
    if line.causes:
        told.append(Piece(f" <- {', '.join(line.causes)}", "bright_black" if colour else ""))
    padded = name.ljust(NAME_WIDTH)
    tint = TINTS.get(line.what, "")
    start = f"{time.rjust(TIME_WIDTH)} {line.ref.rjust(REF_WIDTH)}  "
    named = f"{start}{_styled(padded, colour, tint) if tint else padded}"
    return f"{named} {wrapped(told, width, CONTINUED, len(start) + len(padded) + 1)}".rstrip()


def _styled(text: str, colour: bool, tint: str) -> str:
    return click.style(text, fg=tint) if colour else text


def incident_text(report: IncidentReport, colour: bool = False, width: int = 0) -> str:
    """What an incident was about, its phases, and what it cost."""
    about = " ".join(word for word in (report.cause, report.subject) if word)
    detail = f": {report.detail}" if report.detail else ""
    on = f" (hosts {', '.join(report.hosts)})" if report.hosts else ""
    lines = [f"incident {report.incident}  {report.gang}#{report.generation}  {about}{detail}{on}"]
    if report.ref:
        phases = ", ".join(
            f"{phase} {phase_text(getattr(report, f'{phase}_ms'))}" for phase in PHASES
        )
        lines.append(f"{phases}; {clock_text(report.total_ms)} in all")
    lines.append(_outcome_text(report))
    bar = _styled("|", colour, "green" if report.resolved else "red")
    told = [part for line in lines for part in _broken(line, width).splitlines()]
    return "\n".join(f"{INCIDENT_INDENT}{bar} {line}" for line in told)


def _broken(line: str, width: int) -> str:
    return wrapped_line(line, max(width - len(INCIDENT_INDENT) - 2, 0), "  ")


def _outcome_text(report: IncidentReport) -> str:
    lost = f"{count_text(report.lost_steps, 'step')} lost"
    if not report.opened:
        # What became of it meanwhile was not told here.
        how = "resolved" if report.resolved else "not resolved"
        return f"{lost}; {how}; opened earlier, closed {report.ref}"
    if report.next_generation:
        begin = "the beginning" if report.restored_step < 0 else f"step {report.restored_step}"
        again = f"generation {report.next_generation} from {begin}"
    else:
        again = "not placed again"
    opened = f"opened {report.opened}"
    if not report.ref:
        return f"{again}; {opened}, still open"
    how = "resolved" if report.resolved else "not resolved"
    return f"{lost}, {again}; {how}; {opened}, closed {report.ref}"


def totals_text(totals: Totals, width: int = 0) -> str:
    """How much there was, in two or three lines or, on a narrow terminal, some more."""
    span = f" ({totals.first_index} to {totals.last_index})" if totals.entries else ""
    counts = [
        count_text(totals.heartbeats, "heartbeat"),
        count_text(totals.decisions, "decision"),
        f"{totals.refused:,} refused",
        count_text(totals.duplicates, "duplicate"),
    ]
    kinds = ", ".join(f"{name} {count:,}" for name, count in totals.events.items())
    entries = count_text(totals.entries, "entry", "entries")
    lines = [
        wrapped_line(
            f"{entries}{span} over {clock_text(totals.lasted_ms)}: {', '.join(counts)}", width, "  "
        ),
        wrapped_line(f"events: {kinds or 'none'}", min(width or LINE_WIDTH, LINE_WIDTH), "  "),
    ]
    return "\n".join(lines)
