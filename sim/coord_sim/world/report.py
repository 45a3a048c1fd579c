"""The page that tells a person how a simulated cluster broke."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import jinja2

from coord.cli.wording import clock_text
from coord_sim.world.outcome import Outcome

if TYPE_CHECKING:
    from coord_sim.world.artefacts import Happening

TEMPLATE = "failure.html"


class ReportInput(NamedTuple):
    """Everything the page shows. `incident` is the log's file beside it, empty without one."""

    outcome: Outcome
    repeat: str
    happenings: Sequence[Happening]
    entries: Sequence[str]
    trace: Sequence[str]
    incident: str


def report_html(given: ReportInput) -> str:
    """One page that needs nothing beside it: no script, no style sheet, no network."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["clock"] = clock_text
    return environment.get_template(TEMPLATE).render(given._asdict())


def _template(name: str) -> str:
    return resources.files("coord_sim.world").joinpath("templates", name).read_text()
