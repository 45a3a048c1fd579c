"""`coordctl replay`: apply a recorded log anew, compare, and tell what happened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import click
import msgspec

from coord.cli.exits import BadInput, Exit
from coord.cli.progress import ProgressLine
from coord.cli.replay_telling import (
    DocumentTelling,
    LinesTelling,
    Opening,
    Summary,
    Telling,
    TextTelling,
)
from coord.cli.timeline import Narrowing, Timeline
from coord.cli.verify import Difference, Replayer, Verdict, difference_text
from coord.cli.why import Causes
from coord.cli.wrapping import colour_wanted, terminal_width
from coord.core.invariants import violations
from coord.core.state import State, decode_state
from coord.model.entry import Recorded
from coord.store.incident import (
    IncidentCorrupt,
    IncidentError,
    IncidentReader,
    IncidentTruncated,
)

PROGRESS_EVERY = 1_024
"""Entries between two looks at the clock."""

EXIT_CODES = {
    Verdict.MATCHES: Exit.OK,
    Verdict.NOT_VERIFIED: Exit.OK,
    Verdict.INCOMPLETE: Exit.INCOMPLETE,
    Verdict.CORRUPT: Exit.FAILED,
    Verdict.DIFFERS: Exit.FAILED,
}


@click.command(
    epilog="""\b
Exit codes:
  0  the replay reproduced the record
  1  it did not, or the file is damaged; the message says where
  2  usage
  5  the file is cut off; what is there reproduced the record
"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option("--from", "first", type=click.IntRange(min=1), help="Tell from this index on.")
@click.option("--until", "last", type=click.IntRange(min=1), help="Tell up to this index.")
@click.option("--job", default="", help="Tell only what is about this job.")
@click.option("--host", default="", help="Tell only what is about this host.")
@click.option("--why", default="", metavar="INDEX", help="Tell what led to 17, or to 17.0.")
@click.option("--all", "everything", is_flag=True, help="Heartbeats, ticks and progress too.")
@click.option("--summary", "only_summary", is_flag=True, help="Only the end, not the timeline.")
@click.option("--stream", is_flag=True, help="With -o json: one item a line, as it goes.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    file: str,
    first: int | None,
    last: int | None,
    job: str,
    host: str,
    why: str,
    everything: bool,
    only_summary: bool,
    stream: bool,
    output: str,
) -> None:
    """Replay an incident FILE, binary or JSON lines; no server is needed.

    Every entry is applied anew and compared with what was recorded, whatever part of it is told.
    Times are log time since the start of the file; `<- 17, 12.0` names causes: the event at index
    17, the first decision at 12. Heartbeats, clock ticks, progress and shards are counted, and
    listed only when something was refused or decided upon them.
    """
    if stream and output != "json":
        raise click.UsageError("--stream needs -o json")
    narrowing = Narrowing(job, host, first or 0, last or 0, everything, nothing=only_summary)
    if why:
        refs = _refs_behind(file, why)
        narrowing = Narrowing(everything=True, refs=refs, nothing=only_summary)
    telling: Telling = TextTelling(sys.stdout, colour_wanted(), terminal_width())
    if output == "json":
        telling = LinesTelling(sys.stdout) if stream else DocumentTelling(sys.stdout)
    summary = replay_file(file, narrowing, telling)
    sys.stdout.flush()
    wanted = " and ".join(f"{kind} {name}" for kind, name in (("job", job), ("host", host)) if name)
    if wanted and isinstance(telling, TextTelling) and not telling.told:
        click.echo(f"nothing in it is about {wanted}", err=True)
    if summary.message:
        click.echo(f"coordctl: {summary.message}", err=True)
    ctx.exit(summary.exit_code)


def replay_file(path: str, narrowing: Narrowing, telling: Telling) -> Summary:
    """Replay the whole file, telling as it goes, and say how it ended."""
    with open(path, "rb", buffering=1 << 20) as file:
        try:
            reader = IncidentReader(file, path)
            state = _start_state(reader)
        except IncidentError as error:
            return _told_nothing(path, error, telling)
        header = reader.header
        opening = Opening(
            path,
            reader.format,
            header.cluster,
            header.start_index,
            header.coord_version,
            header.logic_version,
        )
        telling.begin(opening)
        replayer = Replayer(state)
        timeline = _timeline(narrowing, state)
        progress = ProgressLine(sys.stderr, Path(path).stat().st_size)

        def tell(recorded: Recorded) -> None:
            items = timeline.add(recorded)
            if items:
                progress.clear()
                telling.tell(items)

        trouble = _run(reader, replayer, tell, progress)
        progress.clear()
        summary = _summary(reader, replayer, timeline, trouble)
        telling.end([] if narrowing.nothing else timeline.still_open(), summary)
        return summary


Trouble = IncidentError | Difference | None


def _run(
    reader: IncidentReader,
    replayer: Replayer,
    tell: Callable[[Recorded], None],
    progress: ProgressLine,
) -> Trouble:
    """Replay to the end, or to what is wrong."""
    apply = replayer.apply
    until_look = PROGRESS_EVERY
    try:
        for located in reader:
            derived = apply(located.record, located.offset)
            if isinstance(derived, Difference):
                return derived
            tell(derived)
            until_look -= 1
            if not until_look:
                until_look = PROGRESS_EVERY
                progress.update(located.offset, replayer.verified + replayer.unverified)
    except IncidentError as error:
        return error
    return None


def _start_state(reader: IncidentReader) -> State:
    encoded = reader.start_state()
    try:
        state = decode_state(encoded)
    except msgspec.MsgspecError as error:
        raise IncidentCorrupt(f"the start state cannot be read: {error}", 0) from error
    if state.meta.applied_index != reader.header.start_index - 1:
        raise IncidentCorrupt(
            f"the start state is as of index {state.meta.applied_index}, but the file begins with "
            f"{reader.header.start_index}",
            0,
        )
    return state


def _timeline(narrowing: Narrowing, state: State) -> Timeline:
    return Timeline(
        narrowing,
        start_ms=state.meta.now_ms,
        task_hosts={key: task.host for key, task in state.tasks.items()},
        open_incidents=[found for found in state.incidents.values() if found.closed_ms < 0],
    )


def _told_nothing(path: str, error: IncidentError, telling: Telling) -> Summary:
    """The end of a replay that could not begin."""
    telling.begin(Opening(path, "", "", 0, "", 0))
    cut_off = isinstance(error, IncidentTruncated)
    verdict = Verdict.INCOMPLETE if cut_off else Verdict.CORRUPT
    timeline = Timeline()
    summary = Summary(
        verdict, str(error), timeline.finish(), 0, 0, "", 0, False, EXIT_CODES[verdict]
    )
    telling.end([], summary)
    return summary


def _summary(
    reader: IncidentReader,
    replayer: Replayer,
    timeline: Timeline,
    trouble: Trouble,
) -> Summary:
    verdict, message = _verdict(reader, replayer, trouble)
    broken = tuple(violations(replayer.state))
    if broken and verdict in (Verdict.MATCHES, Verdict.NOT_VERIFIED, Verdict.INCOMPLETE):
        verdict = Verdict.DIFFERS
        message = f"the state after the last entry breaks {len(broken)} invariants: {broken[0]}"
    return Summary(
        verdict,
        message,
        timeline.finish(),
        replayer.verified,
        replayer.unverified,
        replayer.final_digest(),
        timeline.open_count,
        reader.footer is not None and not trouble,
        int(EXIT_CODES[verdict]),
        broken,
        trouble if isinstance(trouble, Difference) else None,
    )


def _verdict(reader: IncidentReader, replayer: Replayer, trouble: Trouble) -> tuple[Verdict, str]:
    if isinstance(trouble, Difference):
        return Verdict.DIFFERS, difference_text(trouble)
    if isinstance(trouble, IncidentTruncated):
        return Verdict.INCOMPLETE, f"{trouble}; what is there reproduced the record"
    if trouble is not None:
        return Verdict.CORRUPT, f"{trouble}; what stands before reproduced the record"
    if replayer.unverified:
        without = replayer.unverified
        if not replayer.verified:
            return Verdict.NOT_VERIFIED, "not verified: no digests recorded"
        return Verdict.NOT_VERIFIED, f"not verified: {without} entries have no digest recorded"
    return Verdict.MATCHES, ""


def _refs_behind(path: str, ref: str) -> frozenset[str]:
    """A first pass that only gathers causes."""
    index, dot, ordinal = ref.partition(".")
    if not index.isdigit() or (dot and not ordinal.isdigit()):
        raise BadInput(f"--why is {ref!r}; write an index such as 17, or a decision such as 17.0")
    causes = Causes()
    with open(path, "rb", buffering=1 << 20) as file:
        for recorded in _derived(file, path):
            causes.add(recorded)
            if recorded.entry.index >= int(index):
                return causes.behind(ref)
    raise BadInput(f"--why is {ref}, but the file has no entry {index}")


def _derived(file: IO[bytes], path: str) -> Iterator[Recorded]:
    """Entries with their decisions derived anew, up to the first trouble, which the pass that
    tells will speak of."""
    with suppress(IncidentError):
        reader = IncidentReader(file, path)
        replayer = Replayer(_start_state(reader))
        for located in reader:
            derived = replayer.apply(located.record, located.offset)
            if isinstance(derived, Difference):
                return
            yield derived
