"""Items of a timeline as text for a terminal or a file."""

from __future__ import annotations

import textwrap

import click

from coord.cli.timeline import PHASES, IncidentReport, Item, Line, Totals
from coord.cli.wording import clock_text, count_text, phase_text, time_of_day_text
from coord.model import decisions as d
from coord.model import events as e

TIME_WIDTH = 13
REF_WIDTH = 9
NAME_WIDTH = 21

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


def item_text(item: Item, colour: bool = False, wall: bool = False) -> str:
    """One item as one or more lines, without the last line's end.

    `wall`: with the time of day (UTC) instead of the log time since the start.
    """
    if isinstance(item, Line):
        return _line_text(item, colour, wall)
    return incident_text(item, colour)


def _line_text(line: Line, colour: bool, wall: bool) -> str:
    is_event = line.kind == "event"
    time = ""
    if is_event:
        time = time_of_day_text(line.wall_ms) if wall else f"+{clock_text(line.at_ms)}"
    name = line.what if is_event else f"  {line.what}"
    words = [word for word in (line.subject, line.text) if word]
    told = "  ".join(words)
    if line.rejection:
        told += f"  {_styled(f'refused: {line.rejection}', colour, 'red')}"
    if line.duplicate_of:
        told += f"  same request as {line.duplicate_of}"
    if line.causes:
        told += _styled(f"  <- {', '.join(line.causes)}", colour, "bright_black")
    padded = name.ljust(NAME_WIDTH)
    tint = TINTS.get(line.what, "")
    start = f"{time.rjust(TIME_WIDTH)} {line.ref.rjust(REF_WIDTH)}  "
    return f"{start}{_styled(padded, colour, tint) if tint else padded}  {told}".rstrip()


def _styled(text: str, colour: bool, tint: str) -> str:
    return click.style(text, fg=tint) if colour else text


def incident_text(report: IncidentReport, colour: bool = False) -> str:
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
    indent = " " * (TIME_WIDTH + REF_WIDTH + 3)
    return "\n".join(f"{indent}{bar} {line}" for line in lines)


def _outcome_text(report: IncidentReport) -> str:
    lost = f"{count_text(report.lost_steps, 'step')} lost"
    if report.next_generation:
        begin = "the beginning" if report.restored_step < 0 else f"step {report.restored_step}"
        again = f"generation {report.next_generation} from {begin}"
    else:
        again = "not placed again"
    opened = f"opened {report.opened}" if report.opened else "opened before this file"
    if not report.ref:
        return f"{again}; {opened}, still open"
    how = "resolved" if report.resolved else "not resolved"
    return f"{lost}, {again}; {how}; {opened}, closed {report.ref}"


def totals_text(totals: Totals) -> str:
    """How much there was, in two or three lines."""
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
        f"{entries}{span} over {clock_text(totals.lasted_ms)}: {', '.join(counts)}",
        *textwrap.wrap(f"events: {kinds or 'none'}", 100, subsequent_indent="  "),
    ]
    return "\n".join(lines)
