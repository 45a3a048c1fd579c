"""The page of a test that failed, beside its history and logs."""

from __future__ import annotations

from pathlib import Path

from jepsen_lite.history.journal import History
from jepsen_lite.report.run_page import PageInput, kept_in, page_html
from jepsen_lite.run.artefacts import PAGE
from jepsen_lite.testing.verdicts import Violated


def write_failure(
    directory: Path, history: History, *, test: str, repeat: str, error: BaseException
) -> Path:
    """What was recorded and why the test failed. What a judge found is kept when the test's end
    fails after it, for another reason."""
    page = directory / PAGE
    judgements = error.judgements if isinstance(error, Violated) else []
    if judgements or not page.exists():
        given = PageInput(
            title=test,
            history=history,
            judgements=judgements,
            repeat=repeat,
            links=kept_in(directory),
            note="" if judgements else f"the test failed: {type(error).__name__}: {error}",
        )
        page.write_text(page_html(given), encoding="utf-8")
    return page
