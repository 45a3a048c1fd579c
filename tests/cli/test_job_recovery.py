"""`job show` tells how roles recover and which weights are where."""

from __future__ import annotations

import msgspec

from coord.api.views import job_view
from coord.cli.job_text import gang_lines, job_pairs
from coord.client.views import JobView
from coord.model.events import JobSubmitted, WeightsLoaded, WeightsPublished
from coord.model.recovery import RoleRecovery
from coord.model.spec import JobSpec, RoleSpec
from tests.fleet_story import Story

ROLES = (
    RoleSpec("trainer", ("train",)),
    RoleSpec("sampler", ("sample",), gang=False, service=True),
    RoleSpec("environment", ("serve",), gang=False, service=True),
)
RECOVERY = (RoleRecovery("trainer", scope="job"), RoleRecovery("environment", required=False))


def shown(story: Story) -> JobView:
    """As a client has it from a server."""
    view = job_view(story.state, story.state.jobs["rl"])
    return msgspec.json.decode(msgspec.json.encode(view), type=JobView)


def test_a_job_tells_of_its_weights_and_of_how_it_recovers() -> None:
    """The newest version with who made it, and which one each task works with."""
    story = Story(hosts=1, devices=0)
    story.by_client(JobSubmitted(JobSpec("rl", ROLES, recovery=RECOVERY), "me"))
    story.obey()
    pairs = dict(job_pairs(shown(story), -1))
    assert pairs["weights"] == ""
    assert pairs["role trainer"] == "1 replica, gang, restarts with its job: train"
    assert pairs["role environment"].startswith("1 replica, independent, service, not required")
    trainer, sampler = "rl/trainer/0#1", "rl/sampler/0#2"
    story.by_host("host-0000", WeightsPublished("host-0000", 1, trainer, 3, 11, "file:/w/3"))
    story.by_host("host-0000", WeightsLoaded("host-0000", 1, sampler, 3))
    job = shown(story)
    said = "version 3 of step 11 by rl/trainer#1, file:/w/3"
    assert dict(job_pairs(job, -1))["weights"] == said
    lines = {gang.key: gang_lines(gang, -1) for gang in job.gangs}
    assert "  works with weights of version 3" in lines["rl/sampler/0"]
    assert not [line for line in lines["rl/trainer"] if "weights" in line]
