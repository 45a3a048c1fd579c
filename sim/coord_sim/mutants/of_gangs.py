"""Guards of the core that concern gangs, their restarts, budgets, places, checkpoints and ends."""

from __future__ import annotations

from coord_sim.mutants.mutant import Edit, Mutant
from coord_sim.mutants.of_hosts import CORE

_GANGS = "coord.core.gangs:"
_FAILURES = "coord.core.failures:"
_ATTRIBUTION = "coord.core.causes.attribution:"
_SCHEDULING = "coord.core.queueing.scheduling:"
_STARTING = "coord.core.queueing.starting:"
_PLACEMENT = "coord.core.placement."
_CHECKPOINTS = "coord.core.checkpoints:"
_ENDING = "coord.core.ending:"
_JOBS = "coord.core.jobs:"
_DROP_UNFINISHED = Edit(f"{_STARTING}start", "drop_unfinished(step, gang)", "drop_unfinished")
_IS_TO_END = "if gang.stop_final in _WANTED or gang.fail_reason == FailureReason.DO_NOT_RESTART:"

FAILURES = (
    Mutant(
        name="one-failure-one-restart",
        guard="the first evidence stops a generation; the rest of the same crash changes nothing",
        breaks="one crash is charged once for every rank and host that tells of it",
        races=(3,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}weigh_against",
                "if not goes_on(gang):",
                "if gang.phase not in (*ACTIVE, GangPhase.STOPPING) or "
                "gang.succeeded == gang.size:",
            ),
        ),
    ),
    Mutant(
        name="success-stays",
        guard="a gang whose tasks have all succeeded does not fail any more",
        breaks="work that is done is done again, because a host died while it was tidied up",
        races=(6,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}weigh_against",
                "if not goes_on(gang):",
                "if gang.phase not in ACTIVE:",
            ),
        ),
    ),
    Mutant(
        name="restart-after-all",
        guard="a generation restarts only when nothing of it is left",
        breaks="two generations of a gang run at once",
        races=(1, 10),
        reach=CORE,
        edits=(Edit(f"{_GANGS}settle", "if gang is None or gang.live:", "if gang is None:"),),
    ),
    Mutant(
        name="budget",
        guard="a gang that has used up its restarts is not started again",
        breaks="a program that cannot work is restarted for ever",
        races=(3,),
        reach=CORE,
        edits=(Edit(f"{_FAILURES}next_try", "if attempt > limit:", "if False:"),),
    ),
    Mutant(
        name="planned-is-free",
        guard="preemptions, drains and resizes cost no restart",
        breaks="a job fails because its machines were taken away",
        races=(35,),
        reach=CORE,
        edits=(Edit(f"{_FAILURES}next_try", "if cause in FREE_CAUSES:", "if False:"),),
    ),
    Mutant(
        name="planned-is-not-barren",
        guard="planned interruptions say nothing about a program's progress",
        breaks="a job fails for want of progress, because it was moved too often",
        races=(35,),
        reach=CORE,
        edits=(
            Edit(
                f"{_GANGS}weigh_against",
                "elif cause not in failures.FREE_CAUSES:",
                "else:",
            ),
        ),
    ),
    Mutant(
        name="do-not-restart",
        guard="a program that asks not to be started again is not",
        breaks="a program that has said it is hopeless is restarted",
        races=(6,),
        reach=CORE,
        edits=(
            Edit(f"{_GANGS}weigh_against", "if found.final:", "if False:"),
            Edit(f"{_ATTRIBUTION}_count_anew", "if found.final:", "if False:"),
        ),
    ),
    Mutant(
        name="back-off",
        guard="a restart without progress waits",
        breaks="a crash loop runs as fast as the machine",
        races=(3,),
        reach=CORE,
        edits=(
            Edit(f"{_SCHEDULING}_backs_off", "if gang.not_before_ms <= step.now_ms:", "if True:"),
        ),
    ),
    Mutant(
        name="revision-of-the-unwanted",
        guard="evidence that comes late revives nothing that is to end",
        breaks="a job that was cancelled is restarted, because a host was to blame",
        races=(6,),
        reach=CORE,
        edits=(
            Edit(f"{_ATTRIBUTION}_take_over", _IS_TO_END, "if False:"),
            Edit(f"{_ATTRIBUTION}_revise_to_better", _IS_TO_END, "if False:"),
        ),
    ),
    Mutant(
        name="revision-charges-once",
        guard="a failure that is charged anew is taken from the account that had it",
        breaks="one failure is charged twice",
        races=(3,),
        reach=CORE,
        edits=(
            Edit(
                f"{_ATTRIBUTION}_count_anew",
                "gang = failures.uncount_restart(gang, before)",
                "gang = gang",
            ),
        ),
    ),
)

PLACES = (
    Mutant(
        name="all-or-nothing",
        guard="a gang is placed whole or not at all",
        breaks="a gang starts with fewer tasks than it can work with",
        races=(29,),
        reach=CORE,
        edits=(
            Edit(
                f"{_PLACEMENT}plain:place_plainly",
                "if rooms.replicas(need) < smallest:",
                "if not rooms.replicas(need):",
            ),
        ),
    ),
    Mutant(
        name="holds-are-taken",
        guard="a place that is kept for a gang is free for nobody else",
        breaks="a device is given to one gang and kept for another",
        races=(30, 33),
        reach=CORE,
        edits=(Edit(f"{_PLACEMENT}free:rooms_of", "if gang.holds:", "if False:"),),
    ),
    Mutant(
        name="stopping-is-not-free",
        guard="what a task takes is free only when it is gone",
        breaks="a device is given away while its task is being stopped",
        races=(10, 33),
        reach=CORE,
        edits=(
            Edit(
                f"{_PLACEMENT}free:room_beside_tasks",
                "tasks = [state.tasks[key] for key in host.tasks]",
                "tasks = [state.tasks[key] for key in host.tasks "
                "if state.tasks[key].stop_deadline_ms == 0]",
            ),
        ),
    ),
    Mutant(
        name="spare-once",
        guard="a spare that a gang uses is its spare no more",
        breaks="one place serves a task and is kept for another",
        races=(30, 31),
        reach=CORE,
        edits=(
            Edit(f"{_STARTING}start", "holds=plan.spares,", "holds=(*plan.spares, *gang.holds),"),
        ),
    ),
    Mutant(
        name="ended-gangs-keep-nothing",
        guard="a gang that has ended keeps no places",
        breaks="places stay empty for a gang that will never come",
        races=(30,),
        reach=CORE,
        edits=(Edit(f"{_GANGS}_end", "holds=(),", ""),),
    ),
    Mutant(
        name="generation-of-the-job",
        guard="generations come from the job's counter in the log",
        breaks="two gangs of a job run under one generation",
        races=(7,),
        reach=CORE,
        edits=(
            Edit(
                f"{_STARTING}start",
                "generation = job.generation + 1",
                "generation = gang.generation + 1",
            ),
        ),
    ),
)

CHECKPOINTS = (
    Mutant(
        name="steps-never-back",
        guard="a save at or below a committed step is refused",
        breaks="a late commit becomes the newest one",
        races=(23,),
        reach=CORE,
        edits=(
            Edit(
                f"{_CHECKPOINTS}_saving",
                "if newest is not None and event.step <= newest.step:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="newest-is-furthest",
        guard="a restart begins at the committed checkpoint with the highest step",
        breaks="a restart begins at whichever was listed last",
        races=(23, 26),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.state:State.newest_checkpoint",
                "if checkpoint.committed and (newest is None or checkpoint.step > newest.step):",
                "if checkpoint.committed:",
            ),
        ),
    ),
    Mutant(
        name="restore-the-committed",
        guard="only what is committed is restored",
        breaks="a restart begins at a save that was never finished",
        races=(24, 26),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.state:State.newest_checkpoint",
                "if checkpoint.committed and (newest is None or checkpoint.step > newest.step):",
                "if newest is None or checkpoint.step > newest.step:",
            ),
            _DROP_UNFINISHED,
        ),
    ),
    Mutant(
        name="checkpoint-of-one-generation",
        guard="shards of different generations never make one checkpoint",
        breaks="a checkpoint holds shards of two runs that have parted",
        races=(22,),
        reach=CORE,
        edits=(
            Edit(
                f"{_CHECKPOINTS}checkpoint_key",
                "{gang.key}#{gang.generation}@{step_number}",
                "{gang.key}@{step_number}",
            ),
            _DROP_UNFINISHED,
        ),
    ),
    Mutant(
        name="fenced-saves-nothing",
        guard="a generation that was given up adds to no checkpoint",
        breaks="a late shard of the old generation is committed with the new one's",
        races=(21, 22),
        reach=CORE,
        edits=(
            Edit(
                f"{_CHECKPOINTS}_saving",
                "if isinstance(found, Rejection):",
                "task = step.state.tasks.get(event.task)\n"
                "    if found == Rejection.STALE_GENERATION and task.gang in step.state.gangs:\n"
                "        found = (task, step.state.gangs[task.gang])\n"
                "    if isinstance(found, Rejection):",
            ),
        ),
    ),
    Mutant(
        name="commit-when-whole",
        guard="a checkpoint is committed when every shard is there",
        breaks="a restart begins at a checkpoint with holes",
        races=(24,),
        reach=CORE,
        edits=(Edit(f"{_CHECKPOINTS}_saved", "if all(shards):", "if any(shards):"),),
    ),
    Mutant(
        name="commit-leaves-later-saves",
        guard="a commit drops only saves of earlier steps",
        breaks="a save that one rank has begun already can never be finished",
        races=(24, 25),
        reach=CORE,
        edits=(Edit(f"{_CHECKPOINTS}_commit", "elif saved.step <= checkpoint.step:", "else:"),),
    ),
)

ENDS = (
    Mutant(
        name="finished-stays",
        guard="a job ends once",
        breaks="a job that has ended ends again",
        races=(6,),
        reach=CORE,
        edits=(
            Edit(
                f"{_ENDING}_finish",
                "if not job.ending or job.status in FINISHED_JOB:",
                "if not job.ending:",
            ),
        ),
    ),
    Mutant(
        name="first-ending-wins",
        guard="a job that is ending keeps the end it was given first",
        breaks="a job that was cancelled fails",
        races=(6,),
        reach=CORE,
        edits=(
            Edit(
                f"{_ENDING}gang_ended",
                'if gang.stop_final == "fail" and not job.ending:',
                'if gang.stop_final == "fail":',
            ),
            Edit(
                f"{_GANGS}end_gang",
                'gang.stop_final in ("", "fail", "give_up")',
                'gang.stop_final == ""',
            ),
        ),
    ),
    Mutant(
        name="finished-is-not-cancelled",
        guard="a job that has ended is not cancelled",
        breaks="a completed job becomes a cancelled one",
        races=(6,),
        reach=CORE,
        edits=(
            Edit(
                f"{_JOBS}_cancel_requested",
                "if job.status in FINISHED_JOB:",
                "if False:",
            ),
            Edit(f"{_JOBS}_cancel_requested", "if job.ending:", "if False:"),
        ),
    ),
    Mutant(
        name="ending-is-not-resized",
        guard="a job that ends or has ended is not resized",
        breaks="a job that is to end gets new tasks",
        races=(6,),
        reach=CORE,
        edits=(
            Edit(
                f"{_JOBS}_resize_requested",
                "if job.status in FINISHED_JOB or job.ending:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="wanted-again",
        guard="a task that was on its way out stays when it is wanted again",
        breaks="a job that was made larger again stays smaller than asked",
        races=(33,),
        reach=CORE,
        edits=(
            Edit(
                f"{_JOBS}_resize_tasks",
                'elif gang.index < replicas and gang.stop_final == "remove":',
                "elif False:",
            ),
        ),
    ),
    Mutant(
        name="job-names",
        guard="a job's name is free only when it is forgotten",
        breaks="a second job of the name takes the first one's tasks over",
        races=(7, 36),
        reach=CORE,
        edits=(Edit(f"{_JOBS}_submitted", "if spec.name in step.state.jobs:", "if False:"),),
    ),
    Mutant(
        name="remembered-while-it-runs",
        guard="a job is remembered for as long as something of it may run",
        breaks="names of tasks that still run are given to a new job",
        races=(7,),
        reach=CORE,
        edits=(
            Edit(
                f"{_ENDING}_finish",
                "{name: None, **{task.job: None for task in state.tasks.values()}}",
                "{name: None}",
            ),
        ),
    ),
)

GANG_MUTANTS = FAILURES + PLACES + CHECKPOINTS + ENDS
