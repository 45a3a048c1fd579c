"""Incidents and their cost as rows, bars and paragraphs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coord.cli.output import Column
from coord.cli.wording import age_text, clock_text, count_text, phase_text
from coord.model.cost import NO_COST, PHASES, IncidentTotal, added
from coord.model.entities import Incident

TOTAL_COLUMNS = (
    Column("CAUSE"),
    Column("INCIDENTS", right=True),
    Column("RESOLVED", right=True),
    Column("LASTED", right=True),
    Column("STEPS LOST", right=True),
    Column("DEVICE TIME", right=True),
    Column("OF WHICH IDLE", right=True),
)
COST_COLUMNS = (
    Column("PHASE"),
    Column("TOOK", right=True),
    Column("DEVICE TIME", right=True),
    Column("SHARE", right=True),
    Column(""),
)
BAR_WIDTH = 30


def totals_of(incidents: Iterable[Incident]) -> list[IncidentTotal]:
    """What those cost that are closed, by cause."""
    found: dict[str, IncidentTotal] = {}
    for one in incidents:
        if one.closed_ms < 0:
            continue
        before = found.get(one.cause, IncidentTotal(one.cause))
        found[one.cause] = IncidentTotal(
            one.cause,
            before.incidents + 1,
            before.resolved + one.resolved,
            before.lost_steps + one.lost_steps,
            before.lasted_ms + one.closed_ms - one.last_sign_ms,
            added(before.lost, one.cost.lost),
        )
    return [found[cause] for cause in sorted(found)]


def total_rows(totals: Sequence[IncidentTotal]) -> list[tuple[str, ...]]:
    """One for each cause, and one for all."""
    rows = [_total_row(total) for total in totals]
    if len(totals) > 1:
        everything = IncidentTotal("all")
        for total in totals:
            everything = IncidentTotal(
                "all",
                everything.incidents + total.incidents,
                everything.resolved + total.resolved,
                everything.lost_steps + total.lost_steps,
                everything.lasted_ms + total.lasted_ms,
                added(everything.lost, total.lost),
            )
        rows.append(_total_row(everything))
    return rows


def _total_row(total: IncidentTotal) -> tuple[str, ...]:
    return (
        total.cause,
        f"{total.incidents:,}",
        f"{total.resolved:,}",
        age_text(total.lasted_ms),
        f"{total.lost_steps:,}",
        age_text(total.lost.total_ms),
        age_text(total.lost.idle_ms),
    )


def durations_of(incident: Incident) -> dict[str, int]:
    """Milliseconds of each phase of `PHASES` but the work done again; -1: not reached."""
    evidence_ms = incident.evidence_ms if incident.evidence_ms >= 0 else incident.opened_ms
    marks = {
        "detection": evidence_ms,
        "decision": incident.opened_ms,
        "stop": incident.stopped_ms,
        "placement": incident.placed_ms,
        "launch": incident.started_ms,
        "progress": incident.closed_ms if incident.resolved else -1,
    }
    durations = {}
    before_ms = incident.last_sign_ms
    for phase, mark_ms in marks.items():
        durations[phase] = mark_ms - before_ms if mark_ms >= 0 else -1
        before_ms = mark_ms if mark_ms >= 0 else before_ms
    return durations


def cost_rows(incident: Incident) -> list[tuple[str, ...]]:
    """The cost of each phase with a bar for its share: of device time where it is known, else of
    time."""
    durations = durations_of(incident)
    lost = incident.cost.lost
    priced = incident.cost != NO_COST
    weights = {
        phase: getattr(lost, f"{phase}_ms") if priced else max(durations.get(phase, 0), 0)
        for phase in PHASES
    }
    whole = sum(weights.values())
    rows: list[tuple[str, ...]] = []
    for phase, weight in weights.items():
        took = "-" if phase == "work" else phase_text(durations[phase])
        share = f"{weight * 100 // whole}%" if whole else "-"
        bar = "#" * (weight * BAR_WIDTH // whole) if whole else ""
        device_time = clock_text(weight) if priced else "-"
        rows.append((_named(phase), took, device_time, share, bar or ("." if weight else "")))
    return rows


def _named(phase: str) -> str:
    return {"work": "work done again", "progress": "first progress"}.get(phase, phase)


def incident_pairs(incident: Incident, hosts: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The head of `incident show`. `hosts`: those that its evidence names."""
    ended = "resolved" if incident.resolved else "ended without progress"
    detail = f": {incident.detail}" if incident.detail else ""
    named = list(dict.fromkeys([*([incident.host] if incident.host else []), *hosts]))
    cost = incident.cost
    lost = []
    if incident.closed_ms >= 0:
        lost.append(count_text(incident.lost_steps, "step"))
    if cost != NO_COST:
        lost.append(
            f"{clock_text(cost.lost.total_ms)} of device time on {_devices(cost.device_millis)}"
        )
        if cost.lost.idle_ms:
            lost.append(f"{clock_text(cost.lost.idle_ms)} of it idle in places kept for the gang")
    return [
        ("incident", str(incident.incident)),
        ("status", "open" if incident.closed_ms < 0 else ended),
        ("gang", f"{incident.gang}, generation {incident.generation}"),
        ("about", f"{incident.subject}{detail}"),
        ("pays", incident.cause.value),
        ("hosts", ", ".join(named) or "none to be named"),
        ("lost", ", ".join(lost)),
    ]


def _devices(device_millis: int) -> str:
    whole, part = divmod(device_millis, 1_000)
    return f"{device_millis / 1_000:g} devices" if part else count_text(whole, "device")
