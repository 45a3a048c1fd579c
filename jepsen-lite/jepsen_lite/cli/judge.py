"""`coordctl faults judge`: verdicts on what was recorded, without any cluster."""

from __future__ import annotations

import math
from pathlib import Path

import click
import msgspec

from coord.cli.exits import BadInput, Exit
from coord.cli.output import print_json, print_lines
from jepsen_lite.cli.telling import figures_text, print_verdicts
from jepsen_lite.history.journal import HistoryError
from jepsen_lite.judge.lives import TruthDamaged
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.report.run_page import PageInput, page_html
from jepsen_lite.report.wording import verdict_of
from jepsen_lite.run.again import FORMATS, Again, judge_again
from jepsen_lite.run.artefacts import ArtefactsDamaged
from jepsen_lite.run.figures import Figures, figures_of

DEFAULT_BUDGET_S = 60.0


class Document(msgspec.Struct, frozen=True):
    """What `-o json` prints."""

    verdict: str
    figures: Figures
    judgements: list[Judgement]
    note: str
    seconds: float


@click.command(
    epilog="""\b
Exit codes:
  0  everything that was judged holds
  1  a violation, or a verdict that is not known
  2  usage, or a file that cannot be read
"""
)
@click.argument("path", type=click.Path(exists=True, readable=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["run", *FORMATS]),
    default="run",
    show_default=True,
    help="How it was recorded: by `coordctl faults run`, or by others.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_BUDGET_S,
    show_default=True,
    help="Seconds of searching where no log decides; what is then open is unknown.",
)
@click.option("--html", type=click.Path(dir_okay=False, writable=True), help="Write a page.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def judge(
    ctx: click.Context, *, path: str, form: str, budget: float, html: str | None, output: str
) -> None:
    """Judge again what is in PATH: the folder of a run, a history.jsonl, or somebody's history.

    A history alone is judged by search, as far as that goes; with the log beside it, by the log.
    Nothing in the folder is changed.
    """
    if not math.isfinite(budget):
        raise BadInput(f"--budget is {budget}; it must be a number of seconds")
    if html is not None and not Path(html).parent.is_dir():
        raise BadInput(f"--html {html}: there is no folder {Path(html).parent}; make it first")
    if form != "run" and Path(path).is_dir():
        raise BadInput(f"{path} is a folder; --format {form} wants the file of a history")
    try:
        again = judge_again(Path(path), form="" if form == "run" else form, budget_s=budget)
    except (HistoryError, ArtefactsDamaged, TruthDamaged) as error:
        raise BadInput(str(error)) from error
    if html is not None:
        given = PageInput(f"{path}, judged again", again.history, again.judgements, note=again.note)
        _write(Path(html), page_html(given))
    _tell(again, output)
    ctx.exit(Exit.OK if verdict_of(again.judgements) == "holds" else Exit.FAILED)


def _write(page: Path, text: str) -> None:
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"--html {page}: {error.strerror}; name a file that you may write"
        ) from error


def _tell(again: Again, output: str) -> None:
    figures = figures_of(again.history)
    if output == "json":
        verdict = verdict_of(again.judgements)
        print_json(Document(verdict, figures, again.judgements, again.note, again.seconds))
        return
    print_verdicts(again.judgements)
    click.echo()
    told = [figures_text(figures)] if again.history.facts else []
    print_lines([*told, *(note for note in (again.note, again.history.cut_off) if note)])
    click.echo(f"judged in {again.seconds:.1f} s", err=True)
