"""What a run of the fleet model came to, as plain values: told, compared, written as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coord_sim.fleet.causes import TITLES
from coord_sim.fleet.ledger import Loss, Tally
from coord_sim.fleet.schedule import MS_PER_DAY

if TYPE_CHECKING:
    from coord_sim.fleet.model import FleetModel

MS_PER_HOUR = 3_600_000


class CauseLine(msgspec.Struct, frozen=True):
    """What one cause cost. Hours of the whole job."""

    cause: str
    title: str
    faults: int
    """That found something to break."""
    restarts: int
    detect_h: float
    restart_h: float
    waiting_h: float
    redone_h: float

    @property
    def lost_h(self) -> float:
        return self.detect_h + self.restart_h + self.waiting_h + self.redone_h


class FleetResult(msgspec.Struct, frozen=True):
    """One run. `lost` holds, for each account of lost time, its share of all time; with `ettr` they
    add up to 1."""

    hosts: int
    gpus: int
    seed: int
    days: float
    """That were run."""
    days_asked: float
    ettr: float
    """Effective training time: at full size, kept, as a share of all time."""
    goodput: float
    """The same, times the share of the fleet's devices that the job was to have."""
    lost: dict[str, float]
    causes: tuple[CauseLine, ...]
    tally: Tally
    job_failed: str
    """Why, if it did."""
    entries: int
    """Applied by the core."""
    rejections: dict[str, int]
    digest: str
    """The core's running digest: equal for equal runs."""

    @property
    def restarts(self) -> int:
        return sum(self.tally.restarts.values())

    @property
    def false_verdicts(self) -> int:
        """Working hosts declared lost, training jobs called hung, launches given up too soon."""
        tally = self.tally
        hosts = tally.hosts_lost_falsely + tally.quarantined_wrongly
        return hosts + tally.hangs_falsely + tally.launches_given_up_falsely


def result_of(model: FleetModel) -> FleetResult:
    """Of the time that the model has run."""
    ledger, tally = model.job.ledger, model.job.tally
    now_ms = max(model.agenda.now_ms, 1)
    ettr = ledger.effective_ms / now_ms
    job_hosts = model.hosts - model.policy.job.spares
    return FleetResult(
        hosts=model.hosts,
        gpus=model.gpus,
        seed=model.seed,
        days=round(now_ms / MS_PER_DAY, 6),
        days_asked=model.days,
        ettr=round(ettr, 6),
        goodput=round(ettr * job_hosts / model.hosts, 6),
        lost={loss.value: round(ledger.of(loss) / now_ms, 6) for loss in Loss},
        causes=tuple(_cause_lines(model)),
        tally=tally,
        job_failed=model.job.over,
        entries=model.leader.entries,
        rejections=dict(sorted(model.leader.rejections.items())),
        digest=model.leader.state.meta.digest,
    )


def _cause_lines(model: FleetModel) -> list[CauseLine]:
    ledger, tally = model.job.ledger, model.job.tally
    lines = []
    for cause, title in TITLES.items():
        hours = {loss: round(ledger.lost.get((loss, cause), 0) / MS_PER_HOUR, 4) for loss in Loss}
        line = CauseLine(
            cause,
            title,
            tally.faults.get(cause, 0),
            tally.restarts.get(cause, 0),
            hours[Loss.DETECT],
            hours[Loss.RESTART],
            hours[Loss.WAITING],
            hours[Loss.REDONE],
        )
        if line.faults or line.restarts or line.lost_h:
            lines.append(line)
    return lines
