"""The folder of a run: what is kept in it, and how it is read again.

history.jsonl   what every client asked and was told, and every fault, as it happened
incident.log    the whole log, for `coordctl replay` and `coordctl sim explore`
evidence.json   what servers said of themselves, and what else a judge cannot read elsewhere
verdict.json    the judgements, once there are any: a folder with it holds a whole run
report.html     the same for people
logs/           of servers, agents and proxy
truth/, watches/, checkpoints/   what ranks and watchers wrote down, where there were any
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from coord.store.incident_errors import IncidentError
from jepsen_lite.disks import capped
from jepsen_lite.history.journal import History, read_history
from jepsen_lite.judge.agreement import Sighting
from jepsen_lite.judge.exported import ExportedLog, read_exported
from jepsen_lite.judge.lives import Life, read_lives
from jepsen_lite.judge.verdict import Judgement
from jepsen_lite.judge.watches import Watched, read_watched
from jepsen_lite.workloads.port import Evidence

HISTORY = "history.jsonl"
INCIDENT = "incident.log"
EVIDENCE = "evidence.json"
VERDICT = "verdict.json"
PAGE = "report.html"
TROUBLE = "trouble.txt"
"""Why a run broke off, where one did."""
_DISKS = "disks"


class ArtefactsDamaged(Exception):
    """A file of a run's folder that cannot be read; the message names it and says what to do."""


class Kept(msgspec.Struct):
    """What is known of a run beside its other files."""

    sightings: list[Sighting]
    nodes: list[int]
    quiet_index: int
    truth: str
    """As the commands of jobs name it, wherever the folder is now."""
    alive: list[Life] | None
    frozen_hosts: frozenset[str]
    true_clocks: bool
    said: list[Judgement]
    """By the run itself: whether clients worked to the end, whether it healed."""


def keep(evidence: Evidence, said: list[Judgement], directory: Path) -> None:
    """Write down what judging it again needs."""
    kept = Kept(
        sightings=list(evidence.sightings),
        nodes=list(evidence.nodes),
        quiet_index=evidence.quiet_index,
        truth=evidence.truth,
        alive=None if evidence.alive is None else list(evidence.alive),
        frozen_hosts=evidence.frozen_hosts,
        true_clocks=evidence.true_clocks,
        said=said,
    )
    (directory / EVIDENCE).write_bytes(msgspec.json.encode(kept) + b"\n")


def is_judgeable(directory: Path) -> bool:
    """Whether all is there; where it is not, there may still be a history."""
    return (directory / EVIDENCE).exists() and (directory / INCIDENT).exists()


def read_evidence(directory: Path) -> tuple[Evidence, list[Judgement]]:
    """What `keep` and the run left, and what the run itself said. Raises ArtefactsDamaged,
    HistoryError, TruthDamaged."""
    kept = _kept(directory / EVIDENCE)
    evidence = Evidence(
        history=read_history(directory / HISTORY),
        log=_log(directory / INCIDENT),
        sightings=kept.sightings,
        nodes=kept.nodes,
        quiet_index=kept.quiet_index,
        truth=kept.truth,
        lives=read_lives(directory / "truth"),
        alive=kept.alive,
        watched=[_watched(each) for each in sorted(directory.glob("watches/*.jsonl"))],
        frozen_hosts=kept.frozen_hosts,
        true_clocks=kept.true_clocks,
    )
    return evidence, kept.said


def history_in(directory: Path) -> History | None:
    """What was recorded there; None when nothing was."""
    path = directory / HISTORY
    return read_history(path) if path.exists() and path.stat().st_size else None


def tidy(directory: Path) -> None:
    """Take away what is left of disks that are gone. What is still mounted is left alone."""
    disks = (directory / _DISKS).resolve()
    if not any(where.is_relative_to(disks) for where in capped.mounted()):
        shutil.rmtree(disks, ignore_errors=True)


def set_aside(directory: Path) -> Path | None:
    """Rename a folder that is in the way, so that nothing recorded is lost; its new name."""
    if not directory.exists():
        return None
    number = 1
    while (aside := directory.with_name(f"{directory.name}.before-{number}")).exists():
        number += 1
    return directory.rename(aside)


def _kept(path: Path) -> Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except OSError as error:
        raise ArtefactsDamaged(f"{path}: {error.strerror}; give the folder of a run") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArtefactsDamaged(_without(path, error)) from error


def _log(path: Path) -> ExportedLog:
    try:
        return read_exported(path)
    except IncidentError as error:
        raise ArtefactsDamaged(_without(path, error)) from error


def _without(path: Path, error: Exception) -> str:
    return (
        f"{path}: {error}; it was changed or cut off. `coordctl faults judge "
        f"{path.with_name(HISTORY)}` judges what clients saw without it"
    )


def _watched(path: Path) -> Watched:
    try:
        return read_watched(path)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ArtefactsDamaged(
            f"{path}: {error}; it was changed or damaged. Take it away to judge the rest"
        ) from error
