"""What workers say, held against what the agent knows of their tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coord.agent.records import Phase, TaskRecord
from coord.agent.reporting import Reporter
from coord.agent.socket import CheckpointBegun, Recorded, Refusal, ShardSaved, WeightsPublished
from coord.client.errors import CoordError, Rejected
from coord.model import events
from coord.model.plans import STANDBY
from coord.model.rejections import Rejection

DECISION_S = 10.0
"""How long a worker waits for the coordinator to record what it says."""
OUTAGE_DECISION_S = 1.0
"""The same while nothing is heard of the coordinator: training need not stand still for that long
at each checkpoint. The report goes out all the same once somebody takes it."""


class Desk:
    """See `socket.WorkerDesk`. Only the run that goes on now is heard."""

    def __init__(
        self,
        host: str,
        records: Mapping[str, TaskRecord],
        reporter: Reporter,
        is_ending: Callable[[str], bool],
        is_outage: Callable[[], bool],
        environment: Callable[[str], dict[str, str]],
    ) -> None:
        self._environment = environment
        self._is_ending = is_ending
        self._is_outage = is_outage
        self._host = host
        self._records = records
        self._reporter = reporter

    def progress(self, task: str, step: int, busy_us: int = 0) -> bool:
        self._check_running(task)
        self._reporter.progress(task, step, busy_us)
        return self._is_ending(task)

    def should_stop(self, task: str) -> bool:
        self._check_running(task)
        return self._is_ending(task)

    def rank(self, task: str) -> dict[str, str]:
        self._check_running(task)
        if self._is_ending(task):
            return {}
        env = self._environment(task)
        return {} if STANDBY in env else env

    async def record(self, task: str, line: Recorded) -> None:
        self._check_running(task)

        def event(incarnation: int) -> events.AnyEvent:
            return _event(line, self._host, incarnation, task)

        patience_s = OUTAGE_DECISION_S if self._is_outage() else DECISION_S
        try:
            await self._reporter.request(event, patience_s)
        except TimeoutError:
            raise Refusal(
                f"the coordinator decided nothing within {patience_s:g} s; it may still be recorded"
            ) from None
        except Rejected as error:
            # Every rank says that the checkpoint has begun; the first was enough. The same of what
            # was said again, because the agent had gone before it answered.
            if error.rejection != Rejection.NOTHING_TO_DO:
                raise Refusal(str(error)) from None
        except CoordError as error:
            raise Refusal(str(error)) from None

    def _check_running(self, task: str) -> None:
        record = self._records.get(task)
        if record is not None and record.phase in (Phase.LAUNCHING, Phase.RUNNING):
            return
        run = task.rpartition("#")[0]
        newer = [key for key in self._records if key.rpartition("#")[0] == run and key != task]
        if newer:
            raise Refusal(f"{task} is not running here; {max(newer, key=_generation)} is")
        raise Refusal(f"{task} is not running on host {self._host}")


def _event(line: Recorded, host: str, incarnation: int, task: str) -> events.AnyEvent:
    if isinstance(line, ShardSaved):
        return events.ShardSaved(
            host, incarnation, task, line.step, line.path, line.shard, line.digest, line.size_bytes
        )
    if isinstance(line, CheckpointBegun):
        return events.CheckpointBegun(host, incarnation, task, line.step, line.path)
    if isinstance(line, WeightsPublished):
        return events.WeightsPublished(host, incarnation, task, line.version, line.step, line.uri)
    return events.WeightsLoaded(host, incarnation, task, line.version)


def _generation(task: str) -> int:
    number = task.rpartition("#")[2]
    return int(number) if number.isdigit() else 0
