"""What operators ask for, and what it does to real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coord.client.errors import Rejected
from coord.model.decisions import HostDrained, IncidentOpened, JobQueued
from coord.model.entities import FailureCause, JobStatus, QueueReason
from tests.integration.cluster import Fleet, digits_job


def test_a_cancelled_job_leaves_no_process(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """Cancelled is said only when every process is gone, and the devices are free again."""
    fleet = start_fleet(nodes=1, agents=2)
    fleet.client.submit_job(digits_job(tmp_path, ranks=2))
    fleet.wait_in_full_swing()
    assert len(fleet.processes_of_tasks()) >= 2
    fleet.client.cancel_job("digits", reason="enough")
    fleet.wait_for("the end", lambda: fleet.job().status == JobStatus.CANCELLED)
    assert fleet.processes_of_tasks() == []
    assert [host.free.devices for host in fleet.client.hosts()] == [1, 1]
    with pytest.raises(Rejected) as refused:
        fleet.client.cancel_job("digits", reason="again")
    assert refused.value.rejection == "job_finished"


def test_a_drained_host_is_emptied_and_gets_no_work(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """Its gang goes on elsewhere from the last checkpoint, and no budget pays for that."""
    fleet = start_fleet(nodes=1, agents=3)
    fleet.client.submit_job(digits_job(tmp_path, ranks=2))
    fleet.wait_in_full_swing()
    host = fleet.running_tasks()[0].host
    fleet.client.drain(host, reason="new memory")
    fleet.wait_for(
        "the host to be empty",
        lambda: host in [one.host for one in fleet.log.decisions(HostDrained)],
    )
    fleet.wait_for("the next generation", lambda: len(fleet.running_tasks()) == 2)
    assert host not in [task.host for task in fleet.running_tasks()]
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"
    assert [one.cause for one in fleet.log.decisions(IncidentOpened)] == [FailureCause.DRAIN]
    gang = fleet.gang()
    assert gang.restarts == 1
    assert (gang.restarts_user, gang.restarts_infrastructure, gang.restarts_unknown) == (0, 0, 0)
    fleet.client.undrain(host, reason="done")
    fleet.client.submit_job(digits_job(tmp_path, name="again", ranks=3, steps=20, step_ms=0))
    fleet.wait_for("it to be used", lambda: fleet.job("again").status == JobStatus.COMPLETED)


def test_a_resized_gang_goes_on_with_more_ranks(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """The next generation has the new size and begins at the last checkpoint."""
    fleet = start_fleet(nodes=1, agents=3)
    spec = digits_job(tmp_path, ranks=2, min_replicas=1, max_replicas=3)
    fleet.client.submit_job(spec)
    fleet.wait_in_full_swing()
    fleet.client.resize_job("digits", "trainer", 3, reason="more room")
    fleet.wait_for("three ranks", lambda: len(fleet.running_tasks()) == 3)
    assert fleet.gang().restore_step >= 10
    with pytest.raises(Rejected) as refused:
        fleet.client.resize_job("digits", "trainer", 4, reason="too many")
    assert refused.value.rejection == "out_of_range"
    fleet.wait_for("the end of training", lambda: fleet.log.ended)
    assert fleet.log.ended == "completed"


def test_what_fits_nowhere_waits_and_says_why(
    start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    """A job larger than the fleet is queued with its reason, and disturbs no other."""
    fleet = start_fleet(nodes=1, agents=2)
    fleet.client.submit_job(digits_job(tmp_path, name="large", ranks=16))
    queued = fleet.wait_for(
        "a reason", lambda: [one for one in fleet.log.decisions(JobQueued) if one.job == "large"]
    )
    assert queued[0].reason == QueueReason.DEVICES
    assert fleet.job("large").status == JobStatus.QUEUED
    fleet.client.submit_job(digits_job(tmp_path, name="small", ranks=2, steps=20, step_ms=0))
    fleet.wait_for("the other", lambda: fleet.job("small").status == JobStatus.COMPLETED)
    assert fleet.job("large").status == JobStatus.QUEUED
    with pytest.raises(Rejected) as refused:
        fleet.client.submit_job(digits_job(tmp_path, name="large", ranks=1))
    assert refused.value.rejection == "duplicate_job"
