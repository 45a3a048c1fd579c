"""What single failures do to a small fleet, and what is told of it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from coord_sim.fleet.ledger import Loss
from coord_sim.fleet.model import FleetModel
from coord_sim.fleet.policy import Budgets, CoreSettings, JobPolicy, Operations, Policy
from coord_sim.fleet.results import FleetResult
from coord_sim.fleet.schedule import Fault, Schedule, Strike
from msgspec.structs import replace

from coord.core.invariants import violations
from coord.model.decisions import Decision, HostQuarantined

HOUR_MS = 3_600_000
PATIENT = Operations(health_catches=1.0, repair_median_s=3_600.0, repair_mean_s=3_600.0)
POLICY = Policy(
    job=JobPolicy(spares=1, checkpoint_interval_s=1_800.0, checkpoint_write_s=30.0),
    operations=PATIENT,
)
SURE = (0.0, 0.0)
NEVER = (0.999, 0.999)


def model_of(policy: Policy, *faults: Fault, hosts: int = 6, days: float = 0.25) -> FleetModel:
    schedule = Schedule(tuple(faults), {})
    return FleetModel(policy, hosts=hosts, gpus=8, days=days, seed=1, schedule=schedule)


def run(policy: Policy, *faults: Fault, hosts: int = 6, days: float = 0.25) -> FleetResult:
    model = model_of(policy, *faults, hosts=hosts, days=days)
    model.run()
    result = model.result()
    assert model.job.ledger.total_ms() == model.until_ms, "every millisecond is in one account"
    assert violations(model.leader.state) == []
    assert dict.fromkeys(result.rejections, 0) in ({}, {"task_stopping": 0})
    return result


def hours(result: FleetResult, loss: Loss) -> float:
    return result.lost[loss.value] * result.days * 24


def fault(strike: Strike, cause: str = "device", **more: Any) -> Fault:
    made = Fault(2 * HOUR_MS, cause, strike, 2, True, 0, 0.0, SURE)
    return replace(made, **more)


def test_without_failures_only_the_start_and_the_checkpoints_are_lost() -> None:
    result = run(POLICY)
    start_h = (200 + 20_000 + 180_000) / HOUR_MS
    assert hours(result, Loss.RESTART) < start_h
    assert hours(result, Loss.WRITING) == pytest.approx(11 * 30 / 3_600, abs=0.01)
    assert result.ettr == pytest.approx(1 - result.lost["restart"] - result.lost["writing"])
    assert result.restarts == 0
    assert result.goodput == pytest.approx(result.ettr * 5 / 6, abs=1e-6)


def test_a_dead_rank_restarts_the_gang_on_a_spare() -> None:
    """It is seen at once, its host is taken for repair, and half an hour at most is redone."""
    result = run(POLICY, fault(Strike.EXIT))
    assert result.tally.restarts == {"device": 1}
    assert result.tally.charged == {"user": 1}
    assert result.tally.spares_used == 1
    assert hours(result, Loss.DETECT) == 0
    assert 0 < hours(result, Loss.REDONE) <= 0.5
    assert result.tally.repairs == 1
    assert result.tally.cascades == 0, "all others were stopped long before they gave up"


def test_a_silent_host_is_noticed_within_its_lease() -> None:
    result = run(POLICY, fault(Strike.SILENT, "host_parts"))
    assert result.tally.restarts == {"host_parts": 1}
    assert result.tally.hosts_lost == 1
    assert result.false_verdicts == 0
    assert 25 <= round(hours(result, Loss.DETECT) * 3_600) <= 30


def test_a_hang_is_noticed_by_the_missing_step() -> None:
    result = run(POLICY, fault(Strike.HANG, "nic", luck=(0.0, 0.9)))
    assert result.tally.hangs == 1
    assert result.tally.hangs_falsely == 0
    assert 160 / 3_600 <= hours(result, Loss.DETECT) <= 180 / 3_600
    assert result.tally.charged == {"unknown": 1}


def test_without_a_hang_limit_every_rank_gives_up_after_the_time_out() -> None:
    """The cascade: the first that reports decides, whatever the others say afterwards."""
    policy = replace(POLICY, job=replace(POLICY.job, hang_s=0.0))
    result = run(policy, fault(Strike.HANG, "nic", luck=(0.0, 0.9)))
    assert result.tally.cascades == 1
    assert result.tally.cascade_exits >= 1
    assert 600 / 3_600 <= hours(result, Loss.DETECT) <= 660 / 3_600
    assert result.tally.charged == {"user": 1}


def test_a_lease_longer_than_the_time_out_makes_every_rank_report_one() -> None:
    """Nobody hears of the dead host for so long that the cascade comes first."""
    core = CoreSettings(lease_ms=1_200_000, suspect_ms=1_000_000)
    policy = replace(POLICY, core=core, job=replace(POLICY.job, hang_s=0.0))
    result = run(policy, fault(Strike.SILENT, "host_parts", repair=2.0))
    assert result.tally.cascades >= 1
    assert hours(result, Loss.DETECT) >= 600 / 3_600


def test_a_rank_that_cannot_be_killed_quarantines_its_host() -> None:
    """Rightly; the gang goes on elsewhere, and the host comes back after a reboot."""
    seen: list[Decision] = []
    model = model_of(POLICY, fault(Strike.HANG, "system_processor"))
    model._watch = lambda now_ms, decision: seen.append(decision)
    model.run()
    result = model.result()
    assert [one.host for one in seen if isinstance(one, HostQuarantined)] == ["n00002"]
    assert result.tally.quarantined_rightly == 1
    assert result.tally.quarantined_wrongly == 0
    assert result.tally.restarts == {"system_processor": 1}
    assert model.leader.state.hosts["n00002"].quarantine == ""


def test_a_flap_longer_than_the_lease_is_a_false_verdict() -> None:
    """The host works, and its processes with it; the training was only waiting for it."""
    flap = fault(Strike.FLAP, "link_flap", bad_host=False, lasts_ms=45_000)
    result = run(POLICY, flap)
    assert result.tally.hosts_lost_falsely == 1
    assert result.false_verdicts == 1
    assert result.tally.restarts == {"false_verdict": 1}


def test_a_short_flap_only_stalls() -> None:
    flap = fault(Strike.FLAP, "link_flap", bad_host=False, lasts_ms=9_000)
    result = run(POLICY, flap)
    assert hours(result, Loss.STALLED) == pytest.approx(9 / 3_600, abs=1e-4)
    assert result.restarts == 0
    assert result.tally.hosts_suspected == 0


def test_a_switch_takes_its_hosts_and_gives_them_back() -> None:
    """Their ranks run on where nobody can reach them, and end when the hosts are heard again."""
    failures = replace(Policy().failures, switch_hosts=2)
    policy = replace(POLICY, failures=failures, job=replace(POLICY.job, spares=2))
    model = model_of(policy, fault(Strike.CUT, "switch"), hosts=9)
    model.run()
    result = model.result()
    assert result.tally.hosts_lost == 2
    assert result.tally.hosts_lost_falsely == 0
    assert result.tally.restarts == {"switch": 1}
    assert [host.name for host in model.leader.state.hosts.values() if host.status != "up"] == []
    assert all(len(host.processes) <= 1 for host in model.agents.hosts.values())


def test_maintenance_with_notice_redoes_nothing() -> None:
    """Ranks save before they end, if their grace allows; else half an interval is redone."""
    planned = fault(Strike.PLANNED, "planned", bad_host=False)
    result = run(POLICY, planned)
    assert result.tally.restarts == {"planned": 1}
    assert result.tally.charged == {"drain": 1}
    assert hours(result, Loss.REDONE) < 11 / 3_600
    unsaved = replace(POLICY, job=replace(POLICY.job, checkpoint_on_notice=False))
    assert hours(run(unsaved, planned), Loss.REDONE) > 0.1


def test_a_bad_host_that_nobody_found_fails_again() -> None:
    policy = replace(POLICY, operations=replace(PATIENT, health_catches=0.5))
    result = run(policy, fault(Strike.EXIT, luck=NEVER), days=0.5)
    assert result.tally.relapses >= 1
    assert result.tally.restarts["device"] == 1 + result.tally.relapses


def test_without_a_spare_the_job_waits_for_the_repair() -> None:
    policy = replace(POLICY, job=replace(POLICY.job, spares=0))
    result = run(policy, fault(Strike.EXIT))
    assert hours(result, Loss.WAITING) == pytest.approx(1.0, abs=0.1)


def test_a_smaller_gang_does_not_wait() -> None:
    """It trains on with what there is, and is told as smaller."""
    policy = replace(POLICY, job=replace(POLICY.job, spares=0, min_replicas=4))
    result = run(policy, fault(Strike.EXIT))
    assert hours(result, Loss.WAITING) == 0
    assert hours(result, Loss.SMALLER) > 0.1


def test_a_budget_that_is_used_up_ends_the_job() -> None:
    policy = replace(POLICY, budgets=Budgets(user_limit=0))
    result = run(policy, fault(Strike.EXIT))
    assert result.job_failed.startswith("budget: ")
    assert hours(result, Loss.ENDED) == pytest.approx(4.0, abs=0.1)


def test_a_launch_limit_shorter_than_launches_is_a_false_verdict() -> None:
    core = CoreSettings(launch_timeout_ms=15_000)
    result = run(replace(POLICY, core=core), days=0.05)
    assert result.tally.launches_given_up_falsely > 0
    assert result.false_verdicts == result.tally.launches_given_up_falsely


def test_retired_hosts_are_told_by_whether_they_were_lemons() -> None:
    policy = replace(POLICY, operations=replace(PATIENT, retire_after=1))
    faults = (fault(Strike.EXIT), fault(Strike.EXIT, host=3, at_ms=4 * HOUR_MS))
    policy = replace(policy, job=replace(policy.job, spares=3))
    schedule = Schedule(faults, {3: None})
    model = FleetModel(policy, hosts=9, gpus=8, days=0.5, seed=1, schedule=schedule)
    model.run()
    tally = model.result().tally
    assert (tally.retired_rightly, tally.retired_wrongly) == (1, 1)


def test_a_mass_silence_holds_verdicts_back() -> None:
    """Half of the fleet behind one switch: the network is likelier than their death."""
    failures = replace(Policy().failures, switch_hosts=4)
    policy = replace(POLICY, failures=failures, job=replace(POLICY.job, hang_s=0.0))
    result = run(policy, fault(Strike.CUT, "switch"), hosts=6)
    assert result.tally.frozen == 1


def test_a_run_may_be_left_at_any_moment() -> None:
    model = model_of(POLICY, fault(Strike.EXIT), days=2.0)
    for passed in model.days_passed():
        if passed > 1.0:
            break
    result = model.result()
    assert 1.0 < result.days < 1.1
    assert result.days_asked == 2.0
    assert model.job.ledger.total_ms() == model.agenda.now_ms


def test_more_spares_than_hosts_are_refused() -> None:
    with pytest.raises(ValueError, match="6 hosts less 6 spares leave 0 for the job"):
        model_of(replace(POLICY, job=replace(POLICY.job, spares=6)))


def test_a_seed_gives_the_same_digest_under_any_hash_seed() -> None:
    code = (
        "from coord_sim.fleet.model import FleetModel\n"
        "from coord_sim.fleet.policy import Policy\n"
        "m = FleetModel(Policy(), hosts=24, gpus=8, days=6, seed=5)\n"
        "m.run()\n"
        "r = m.result()\n"
        "print(r.digest, r.ettr, r.entries)\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    ]
    assert told[0]
    assert told == [told[0]] * 3
