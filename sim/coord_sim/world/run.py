"""One seed, from its climate to its outcome."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from coord import sites
from coord.raft.rules import ALL_RULES
from coord_sim.kernel import Deadlock, Livelock, Trace
from coord_sim.world.artefacts import Recording
from coord_sim.world.faults import DRAWN
from coord_sim.world.options import WorldOptions
from coord_sim.world.outcome import Outcome, Violation
from coord_sim.world.quiet import quiet_logs
from coord_sim.world.scratch import scratch_directory
from coord_sim.world.swarm import Climate, draw_climate
from coord_sim.world.world import World

RULES = tuple(sorted(ALL_RULES))
KEPT_LINES = 200
RAFT_LIBRARY = "pysyncobj"
UNEXPECTED = "nothing raises what nobody expects"
GOES_ON = "virtual time goes on"
TOLD_FRAMES = 12
DISKS = "disks"
"""What is told in place of the scratch directory, whose name no second run has."""


def run_seed(seed: int, options: WorldOptions) -> Outcome:
    """Whatever happens in the simulated cluster, this returns how it ended."""
    return _run(seed, options, Trace(keep=KEPT_LINES)).outcome


def record_seed(seed: int, options: WorldOptions) -> Recording:
    """The same run with its whole trace, its log, and what the processes logged."""
    trace = RecordingTrace()
    return _run(seed, options, trace)


class RecordingTrace(Trace):
    """Keeps every line, and between them remarks that are no part of the digest."""

    def __init__(self) -> None:
        super().__init__(keep=None)

    def remark(self, text: str) -> None:
        """For a reader only."""
        now_s, process = self._where()
        self._lines.append(f"{now_s * 1000:.3f} {process or '-'} # {text}")


def climate_of(seed: int, options: WorldOptions) -> Climate:
    """What the seed draws."""
    return draw_climate(seed, options, DRAWN, tuple(sites.SITES))


def _run(seed: int, options: WorldOptions, trace: Trace) -> Recording:
    climate = climate_of(seed, options)
    broken = detail = ""
    with scratch_directory(seed) as directory, logs_to(trace, directory), no_collector():
        world = World(seed, options, climate, directory, trace)
        try:
            world.live()
        except Violation as found:
            broken, detail = found.property, found.detail
        except (Deadlock, Livelock) as error:
            broken, detail = GOES_ON, str(error)
        except Exception as error:
            broken, detail = UNEXPECTED, _told(error)
        finally:
            digest = trace.digest
            history = world.history()
            world.close()
    outcome = Outcome(
        seed=seed,
        options=options,
        climate=climate.line(),
        digest=digest,
        state_digest=world.state_digest(),
        virtual_ms=world.lived_ms(),
        entries=world.entries(),
        broken=broken,
        detail=detail.replace(directory, DISKS),
        faults=dict(sorted(world.happened.items())),
        counts=dict(sorted(world.counts().items())),
    )
    return Recording(outcome, trace.lines(), world.happenings, history)


def _told(error: BaseException) -> str:
    """An error with where it was raised, without addresses or paths of this machine."""
    frames = traceback.extract_tb(error.__traceback__)[-TOLD_FRAMES:]
    where = [
        f"  {os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames
    ]
    notes = getattr(error, "__notes__", [])
    return "\n".join([f"{type(error).__name__}: {error}", *notes, *where])


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """What the collector finds, and when, depends on all that this process did before: finalizers
    that run in the middle of a simulation would make it differ from its repetition."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def logs_to(trace: Trace, directory: str) -> Iterator[None]:
    """What servers and agents log becomes remarks in a recording, and nothing elsewhere; so does
    what the raft library logs. `directory` is the scratch directory."""
    if not isinstance(trace, RecordingTrace):
        with quiet_logs():
            yield
        return
    before, was_configured = structlog.get_config(), structlog.is_configured()
    remark = _remarking(trace, directory)
    structlog.configure(processors=[_telling(remark)], cache_logger_on_first_use=False)
    library, below = logging.getLogger(RAFT_LIBRARY), _Telling(remark)
    library.addHandler(below)
    passed_on, library.propagate = library.propagate, False
    try:
        yield
    finally:
        library.removeHandler(below)
        library.propagate = passed_on
        structlog.reset_defaults()
        if was_configured:
            structlog.configure(**before)


def _remarking(trace: RecordingTrace, directory: str) -> Callable[[str], None]:
    def remark(text: str) -> None:
        trace.remark(text.replace(directory, DISKS))

    return remark


def _telling(remark: Callable[[str], None]) -> Any:
    def processor(logger: Any, method: str, event: dict[str, Any]) -> Any:
        told = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        remark(f"{method} {event.get('event', '')} {told}".rstrip())
        raise structlog.DropEvent

    return processor


class _Telling(logging.Handler):
    """A library's log, which goes where the product's goes."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        super().__init__()
        self._remark = remark

    def emit(self, record: logging.LogRecord) -> None:
        self._remark(f"{record.levelname.lower()} {record.name}: {record.getMessage()}")
