"""Judging once more: what is in a run's folder, a history alone, or a history of others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jepsen_lite.history.foreign import read_etcd_log, read_text_log
from jepsen_lite.history.journal import History, HistoryError, read_history
from jepsen_lite.history.operation import Operation
from jepsen_lite.judge.exported import judge_order
from jepsen_lite.judge.findings import with_subjects
from jepsen_lite.judge.models import Model, Register, Replicas, Switch, TextByKey
from jepsen_lite.judge.verdict import Judgement, judge_history
from jepsen_lite.run.artefacts import HISTORY, is_judgeable, read_evidence
from jepsen_lite.workloads.catalogue import workloads_named
from jepsen_lite.workloads.judging import ALWAYS
from jepsen_lite.workloads.members import KEY as MEMBERS
from jepsen_lite.workloads.members import judge_members
from jepsen_lite.workloads.port import Evidence

FORMATS: dict[str, tuple[Callable[[Path], list[Operation]], Callable[[], Model[Any]]]] = {
    "jepsen-etcd": (read_etcd_log, Register),
    "porcupine-kv": (read_text_log, TextByKey),
}
BY_KEY: dict[str, Callable[[], Model[Any]]] = {
    "register-": lambda: Replicas(first=1),
    "switch-": Switch,
}
"""Operations that a model judges without a log, by how their keys begin."""


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
    """A run's folder, a history.jsonl, or with `form` (of FORMATS) a history of others.

    `budget_s` is for the search, where no log decides. Raises HistoryError, ArtefactsDamaged,
    IncidentError, TruthDamaged.
    """
    began_s = time.monotonic()
    if form:
        read, model = FORMATS[form]
        history = History({}, read(path))
        judgements = judge_history(history.operations, model(), budget_s=budget_s)
        return Again(history, judgements, time.monotonic() - began_s)
    if path.is_dir() and is_judgeable(path):
        evidence, said = read_evidence(path)
        workload = evidence.history.facts.get("workload", "")
        try:
            judgements = [*said, *judge_evidence(workload, evidence)]
        except ValueError as error:
            raise HistoryError(f"{path / HISTORY}: line 1: {error}") from error
        return Again(evidence.history, judgements, time.monotonic() - began_s)
    history = read_history(path / HISTORY if path.is_dir() else path)
    judgements, note = _without_log(history, budget_s)
    return Again(history, judgements, time.monotonic() - began_s, note)


def _without_log(history: History, budget_s: float) -> tuple[list[Judgement], str]:
    operations = history.operations
    judgements: list[Judgement] = []
    judged = 0
    for prefix, model in BY_KEY.items():
        found = [each for each in operations if each.key.startswith(prefix)]
        if found:
            judgements += judge_history(found, model(), budget_s=budget_s)
            judged += len(found)
    members = [each for each in operations if each.key == MEMBERS]
    if members:
        judgements.append(judge_members(operations))
        judged += len(members)
    if not judged:
        judgements += judge_history([], Register())
    judgements.append(judge_order(operations))
    note = (
        f"judged without the log: {judged} of {len(operations)} operations have a model, of the "
        "others the order of their indexes is all that can be judged"
    )
    return judgements, note
