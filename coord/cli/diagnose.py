"""`coordctl diagnose`: read what failed ranks left behind."""

from __future__ import annotations

import io
import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from coord.cli.exits import BadInput
from coord.cli.output import print_pairs
from coord.cli.session import Session, session_options
from coord.cli.wording import clock_text, count_text

if TYPE_CHECKING:
    from coord.client.views import JobView
    from coord.core.causes.flight_recorder import Diagnosis, Dump
    from coord.model.events import CollectiveTimedOut

FILE_LIMIT_BYTES = 256 << 20
_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle))?$")


@click.group()
def diagnose() -> None:
    """Read what failed ranks left behind."""


@diagnose.command("flight-recorder")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--send", metavar="JOB/ROLE", help="Record it for the generation that runs now.")
@session_options
def flight_recorder(session: Session, files: tuple[Path, ...], send: str | None) -> None:
    """Which ranks did not join a collective, from the dumps of the others.

    FILES are dumps of PyTorch's NCCL flight recorder, one a rank, as pickles or JSON; a file's name
    ends with its rank.
    """
    from coord.core.causes.flight_recorder import DumpError
    from coord.core.causes.flight_recorder import diagnose as diagnose_dumps

    try:
        found = diagnose_dumps(_read(path) for path in files)
    except DumpError as error:
        raise BadInput(str(error)) from error
    sent: dict[str, Any] = {}
    if send:
        event = _event(session, found, send)
        decided = session.ask(lambda client: client.record_collective_timeout(event))
        sent = {"index": decided.index, "task": event.task}
    session.show(
        msgspec.structs.asdict(found) | ({"recorded": sent} if sent else {}),
        lambda _: print_pairs([*_pairs(found, len(files)), *_sent_pairs(sent)]),
    )


def _sent_pairs(sent: dict[str, Any]) -> list[tuple[str, str]]:
    return [("recorded", f"at index {sent['index']}, told by {sent['task']}")] if sent else []


def _pairs(found: Diagnosis, count: int) -> list[tuple[str, str]]:
    read = count_text(count, "dump")
    if found.without_dump:
        read += f"; none of rank {_ranks(found.without_dump)}"
    pairs = [("read", read)]
    if found.circle:
        return [
            *pairs,
            ("missing", "nobody"),
            (
                "waiting",
                f"ranks {_ranks(found.circle)} wait for each other in different collectives",
            ),
        ]
    if not found.missing:
        return [*pairs, ("missing", "nobody: every rank joined what others were waiting in")]
    timeout = f", time-out {clock_text(found.timeout_ms)}" if found.timeout_ms else ""
    return [
        *pairs,
        ("missing", f"rank {_ranks(found.missing)}"),
        ("operation", f"{found.op or 'unnamed'}, number {found.seq}{timeout}"),
        ("group", found.group),
        ("waiting", f"rank {_ranks(found.waiting)}"),
    ]


def _ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(str(rank) for rank in ranks)


def _event(session: Session, found: Diagnosis, where: str) -> CollectiveTimedOut:
    """As somebody who read the dumps says it."""
    from coord.model.events import CollectiveTimedOut

    job, slash, role = where.partition("/")
    if not job or not slash or not role or "/" in role:
        raise BadInput(f"--send {where!r} is not of the form JOB/ROLE")
    if not found.missing:
        raise BadInput("no rank is known to be missing; there is nothing to record")
    view: JobView = session.ask(lambda client: client.job(job))
    running = [task for gang in view.gangs for task in gang.tasks if task.role == role]
    waiting = [task for task in running if task.index in found.waiting] or running
    if not waiting:
        raise BadInput(f"no task of {where} is there now; see `coordctl job show {job}`")
    return CollectiveTimedOut(
        waiting[0].key, found.op, found.seq, found.group, found.timeout_ms, found.missing
    )


def _read(path: Path) -> Dump:
    from coord.core.causes.flight_recorder import DumpError, read_dump

    named = _RANK.search(path.name)
    if named is None:
        raise DumpError(f"{path}: its name does not end with a rank, such as `nccl_trace_rank_3`")
    if path.stat().st_size > FILE_LIMIT_BYTES:
        raise DumpError(f"{path} is larger than {FILE_LIMIT_BYTES >> 20} MiB; it is no such dump")
    try:
        return read_dump(int(named[1]), _decoded(path.read_bytes()))
    except DumpError as error:
        raise DumpError(f"{path}: {error}") from error
    except OSError as error:
        raise DumpError(f"{path} cannot be read: {error.strerror}") from error


def _decoded(content: bytes) -> Any:
    from coord.core.causes.flight_recorder import DumpError

    if content[:1] in (b"{", b"[", b" ", b"\n"):
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DumpError(f"is no JSON: {error}") from error
    try:
        return _PlainUnpickler(io.BytesIO(content)).load()
    except Exception as error:  # A damaged pickle raises whatever it stumbles over.
        raise DumpError(f"is neither JSON nor a pickle of plain values: {error}") from error


class _PlainUnpickler(pickle.Unpickler):
    """Dumps are dicts, lists, numbers and text: a pickle that names anything else is refused, for
    it could run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")
