"""Results of the fleet model as tables, as one JSON document, and as a page."""

from __future__ import annotations

from importlib import resources
from typing import Any

import click

from coord.cli.output import Column, print_table
from coord_sim.fleet.checking import TOLERANCE, Checked
from coord_sim.fleet.comparing import Comparison, Measure, measures
from coord_sim.fleet.results import CauseLine


def document(comparison: Comparison) -> dict[str, Any]:
    """For `-o json`: of the seed and the policies alone, without a time of this machine."""
    return {
        "fleet": comparison.fleet,
        "interrupted": comparison.interrupted,
        "measures": [_measure_document(one) for one in measures(comparison)],
        "runs": comparison.runs,
    }


def _measure_document(measure: Measure) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": measure.name,
        "title": measure.title,
        "means": [round(mean, 6) for mean in measure.means()],
    }
    difference = measure.difference()
    if difference is not None:
        told["difference"] = round(difference[0], 6)
        told["standard_error"] = round(difference[1], 6)
    return told


def print_comparison(comparison: Comparison) -> None:
    """The measures of each policy beside each other, then what each cause cost."""
    names = [runs.policy for runs in comparison.runs if runs.results]
    several = len(comparison.fleet.seeds) > 1
    columns = [Column("MEASURE"), *(Column(name, right=True) for name in names)]
    if len(names) == 2:
        columns.append(Column("DIFFERENCE", right=True))
    elif several:
        columns.append(Column("RANGE", right=True))
    rows = [_measure_row(measure, len(names), several) for measure in told_measures(comparison)]
    print_table(columns, rows)
    for runs in comparison.runs:
        if runs.results:
            click.echo()
            _print_causes(runs.policy, _mean_lines([one.causes for one in runs.results]))
    for runs in comparison.runs:
        for result in runs.results:
            if result.job_failed:
                click.echo(
                    f"\n{runs.policy}, seed {result.seed}: the job failed, {result.job_failed}"
                )


def told_measures(comparison: Comparison) -> list[Measure]:
    """Without what never happened under any policy, but for verdicts: none is worth saying."""
    always = ("ettr", "goodput", "restarts", "spares_used", "false_verdicts")
    found = []
    for measure in measures(comparison):
        if measure.name in always or any(value for values in measure.values for value in values):
            found.append(measure)
    return found


def value_text(measure: Measure, value: float, *, signed: bool = False) -> str:
    if measure.share:
        return f"{value:+.4f}" if signed else f"{value:.4f}"
    text = _count_text(value)
    return f"+{text}" if signed and value > 0 else text


def _count_text(value: float) -> str:
    """A mean over seeds need not be whole."""
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def difference_text(measure: Measure) -> str:
    difference = measure.difference()
    if difference is None:
        return ""
    mean, error = difference
    text = value_text(measure, mean, signed=True)
    return f"{text} ± {value_text(measure, error)}" if error else text


def _measure_row(measure: Measure, policies: int, several: bool) -> list[str]:
    row = [measure.title, *(value_text(measure, mean) for mean in measure.means())]
    if policies == 2:
        row.append(difference_text(measure))
    elif several:
        values = measure.values[0]
        least, most = value_text(measure, min(values)), value_text(measure, max(values))
        row.append(f"{least} to {most}")
    return row


def _mean_lines(by_seed: list[tuple[CauseLine, ...]]) -> list[dict[str, Any]]:
    """The causes' lines, means over seeds, costliest first."""
    lines: dict[str, dict[str, Any]] = {}
    for causes in by_seed:
        for one in causes:
            line = lines.setdefault(one.cause, {"cause": one.title})
            for name in ("faults", "restarts", *_HOURS, "lost_h"):
                line[name] = line.get(name, 0.0) + getattr(one, name) / len(by_seed)
    return sorted(lines.values(), key=lambda line: (-line["lost_h"], line["cause"]))


_HOURS = ("detect_h", "restart_h", "waiting_h", "redone_h")


def _print_causes(policy: str, lines: list[dict[str, Any]]) -> None:
    columns = [
        Column(f"CAUSE ({policy})"),
        Column("STRUCK", right=True),
        Column("RESTARTS", right=True),
        Column("DETECT h", right=True),
        Column("RESTART h", right=True),
        Column("WAITING h", right=True),
        Column("REDONE h", right=True),
        Column("LOST h", right=True),
    ]
    rows = []
    for line in lines:
        counts = [_count_text(line[name]) for name in ("faults", "restarts")]
        rows.append(
            [line["cause"], *counts, *(f"{line[name]:.1f}" for name in (*_HOURS, "lost_h"))]
        )
    print_table(columns, rows)


def page(comparison: Comparison) -> str:
    """All of it as a page that stands alone."""
    from jinja2 import Environment

    template = resources.files("coord_sim.fleet").joinpath("fleet.html").read_text("utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    names = [runs.policy for runs in comparison.runs if runs.results]
    told = told_measures(comparison)
    rows = [_measure_row(measure, len(names), len(comparison.fleet.seeds) > 1) for measure in told]
    parts = [one for one in told if one.name == "ettr" or one.name.startswith("lost_")]
    bars = [
        [(one.title.removeprefix("lost: "), one.name, one.means()[at]) for one in parts]
        for at in range(len(names))
    ]
    causes = [
        (runs.policy, _mean_lines([one.causes for one in runs.results]))
        for runs in comparison.runs
        if runs.results
    ]
    return environment.from_string(template).render(
        fleet=comparison.fleet,
        interrupted=comparison.interrupted,
        names=names,
        rows=rows,
        bars=list(zip(names, bars, strict=True)),
        causes=causes,
        hours=_HOURS,
        count_text=_count_text,
    )


def print_checked(points: list[Checked]) -> None:
    """Model and closed form beside each other."""
    columns = [
        Column("GPUS", right=True),
        Column("RUN AS", right=True),
        Column("RESTART", right=True),
        Column("INTERVAL", right=True),
        Column("WRITE", right=True),
        Column("FORMULA", right=True),
        Column("RENEWAL", right=True),
        Column("MODEL", right=True),
        Column("OFF BY", right=True),
        Column("VERDICT", status=True),
    ]
    rows = []
    for one in points:
        point = one.point
        rows.append(
            [
                f"{point.nodes * 8:,}",
                f"{one.hosts:,} hosts",
                f"{point.restart_min:g} min",
                f"{point.checkpoint_interval_min:g} min",
                f"{point.checkpoint_write_min:g} min",
                f"{one.expected:.3f}",
                f"{one.renewal:.3f}",
                f"{one.mean:.3f}",
                f"{one.deviation:+.1%}",
                "agrees" if one.agrees else f"differs by more than {TOLERANCE:.0%}",
            ]
        )
    print_table(columns, rows)
