"""Judging once more: what is in a run's folder, a history alone, or a history of others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from jepsen_lite.history.foreign import read_etcd_log, read_text_log
from jepsen_lite.history.journal import History, HistoryError, read_history
from jepsen_lite.history.operation import Modelled, Operation
from jepsen_lite.judge.exported import ExportedLog, judge_order
from jepsen_lite.judge.findings import with_subjects
from jepsen_lite.judge.models import Model, Register, TextByKey, model_named
from jepsen_lite.judge.verdict import Judgement, judge_history
from jepsen_lite.run.artefacts import HISTORY, is_judgeable, read_evidence
from jepsen_lite.workloads.catalogue import workloads_named
from jepsen_lite.workloads.judging import ALWAYS, judge_common
from jepsen_lite.workloads.members import KEY as MEMBERS
from jepsen_lite.workloads.members import judge_members
from jepsen_lite.workloads.port import Evidence

FORMATS: dict[str, tuple[Callable[[Path], list[Operation]], Callable[[], Model[Any]]]] = {
    "jepsen-etcd": (read_etcd_log, Register),
    "porcupine-kv": (read_text_log, TextByKey),
}
TEST = "test"
"""The fact that tells the history of a test from that of a run: the test's name."""
OF_WORKLOADS = (
    Modelled("register-", "", "replicas", 1),
    Modelled("switch-", "", "switch"),
)
"""Operations of runs that a model judges."""


class Again(msgspec.Struct):
    """What was judged, and how."""

    history: History
    judgements: list[Judgement]
    seconds: float
    note: str = ""
    """What could not be judged, and why."""


def judge_evidence(workload: str, evidence: Evidence) -> list[Judgement]:
    """By each workload of `registers+jobs`; checks that several share are made once. A check that
    had nothing to look at, though one of the workloads makes it something, is unknown."""
    judgements: dict[tuple[str, str], Judgement] = {}
    workloads = workloads_named(workload)
    for one in workloads:
        for judgement in one.judge(evidence):
            judgements.setdefault((judgement.check, judgement.detail), judgement)
    due = ALWAYS.union(*(one.makes for one in workloads))
    return with_subjects(judgements.values(), due)


def judge_again(path: Path, *, form: str = "", budget_s: float = 60.0) -> Again:
    """The folder of a run or of a test, a history.jsonl, or with `form` (of FORMATS) a history of
    others.

    `budget_s` is for the search, where no log decides. Raises HistoryError, ArtefactsDamaged,
    TruthDamaged.
    """
    began_s = time.monotonic()
    note = ""
    if form:
        read, model = FORMATS[form]
        history = History({}, read(path))
        judgements = judge_history(history.operations, model(), budget_s=budget_s, moment=line)
    elif path.is_dir() and is_judgeable(path):
        evidence, told = read_evidence(path)
        history = evidence.history
        judgements, note = _with_log(evidence, budget_s, path / HISTORY)
        judgements = [*told, *judgements]
    else:
        history = read_history(path / HISTORY if path.is_dir() else path)
        judgements, note = _without_log(history, budget_s)
    return Again(history, judgements, time.monotonic() - began_s, note)


def line(number: int) -> str:
    """A moment of a history without a clock."""
    return f"line {number}"


def _with_log(evidence: Evidence, budget_s: float, path: Path) -> tuple[list[Judgement], str]:
    history = evidence.history
    if TEST in history.facts:
        judgements, note, _ = _by_models(history.models, history.operations, budget_s, evidence.log)
        return [*judgements, *judge_common(evidence)], note
    try:
        return judge_evidence(history.facts.get("workload", ""), evidence), ""
    except ValueError as error:
        raise HistoryError(f"{path}: line 1: {error}") from error


def _without_log(history: History, budget_s: float) -> tuple[list[Judgement], str]:
    operations = history.operations
    models = history.models if TEST in history.facts else OF_WORKLOADS
    judgements, note, judged = _by_models(models, operations, budget_s)
    members = [each for each in operations if each.key == MEMBERS]
    if members and TEST not in history.facts:
        judgements.append(judge_members(operations))
        judged += len(members)
    if not judged:
        judgements += judge_history([], Register())
    judgements.append(judge_order(operations))
    told = (
        f"judged without the log: {judged} of {len(operations)} operations have a model, of the "
        "others the order of their indexes is all that can be judged"
    )
    return judgements, "; ".join(filter(None, (told, note)))


def _by_models(
    models: Iterable[Modelled],
    operations: list[Operation],
    budget_s: float,
    log: ExportedLog | None = None,
) -> tuple[list[Judgement], str, int]:
    """Judgements, a word about models that cannot be had here, and how many operations were
    judged."""
    judgements: list[Judgement] = []
    judged: set[int] = set()
    elsewhere: list[str] = []
    for modelled in models:
        model = model_named(modelled.model, modelled.first)
        found = [
            each
            for each in operations
            if each.key.startswith(modelled.keys) and modelled.workload in ("", each.workload)
        ]
        if model is None:
            elsewhere.append(modelled.model)
        elif found:
            judgements += judge_history(found, model, budget_s=budget_s, log=log)
            judged.update(each.number for each in found)
    note = ""
    if elsewhere:
        note = f"only the test itself can judge by its own model {', '.join(elsewhere)}"
    return judgements, note, len(judged)
