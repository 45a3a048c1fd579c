"""Guards of the core that concern hosts: time, terms, leases, the breaker, incarnations, drains."""

from __future__ import annotations

from coord_sim.mutants.mutant import Edit, Mutant, Reach

CORE = (Reach.CORE, Reach.EXPLORE, Reach.CLUSTER)
_MACHINE = "coord.core.machine:apply"
_HOSTS = "coord.core.hosts:"
_BREAKER = "coord.core.care.breaker:"

TIME = (
    Mutant(
        name="clock-step-bound",
        guard="log time moves by at most max_step_ms from one entry to the next",
        breaks="a leader whose clock jumps an hour ahead expires every lease",
        races=(15,),
        reach=CORE,
        edits=(
            Edit(
                _MACHINE,
                "min(max(elapsed_ms, 0), meta.settings.max_step_ms)",
                "max(elapsed_ms, 0)",
            ),
        ),
    ),
    Mutant(
        name="clock-forward-only",
        guard="log time never goes back",
        breaks="a leader with an earlier clock puts off every deadline by the difference",
        races=(15,),
        reach=CORE,
        edits=(Edit(_MACHINE, "max(elapsed_ms, 0)", "elapsed_ms"),),
    ),
    Mutant(
        name="verdicts-in-term",
        guard="silence is judged only in the term whose leader was recorded",
        breaks="a leader judges before leases were renewed, or after it was replaced",
        races=(14, 40),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.cluster:_clock",
                "if step.entry.term != state.meta.term:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="terms-grow",
        guard="an election counts only in a term above the present one",
        breaks="an election told late sets the term back",
        races=(14,),
        reach=CORE,
        edits=(Edit("coord.core.cluster:_elected", "if event.term <= meta.term:", "if False:"),),
    ),
    Mutant(
        name="lease-grace-after-election",
        guard="after an election every live host gets its lease again",
        breaks="hosts that could not be heard for want of a leader are lost",
        races=(13,),
        reach=CORE,
        edits=(Edit("coord.core.cluster:_elected", "hosts.renew_leases(step)", "hosts.LIVE_HOST"),),
    ),
    Mutant(
        name="one-full-grace",
        guard="only who was heard under the leader before gets a full lease from the next election",
        breaks="elections in a row keep a dead host alive",
        races=(13,),
        reach=CORE,
        edits=(Edit(f"{_HOSTS}renew_leases", "if host.extensions == 0:", "if True:"),),
    ),
    Mutant(
        name="bounded-grace",
        guard="after a few elections in a row a lease is not stretched any more",
        breaks="elections that follow each other quickly keep a dead host alive for ever",
        races=(13,),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}renew_leases",
                "if host.status not in LIVE_HOST or host.extensions > EXTENSIONS_LIMIT:",
                "if host.status not in LIVE_HOST:",
            ),
        ),
    ),
)

SILENCE = (
    Mutant(
        name="breaker",
        guard="when much of the fleet falls silent at once, none of it is lost",
        breaks="a dead switch costs half the fleet its work",
        races=(20,),
        reach=CORE,
        edits=(
            Edit(
                f"{_BREAKER}_trips",
                "if gone < settings.breaker_min_hosts:",
                "if gone >= 0:",
            ),
        ),
    ),
    Mutant(
        name="breaker-counts-suspects",
        guard="hosts that are about to expire count before they do",
        breaks="the first hosts behind a dead switch are lost before the others are seen to follow",
        races=(20,),
        reach=CORE,
        edits=(
            Edit(
                f"{_BREAKER}_silent",
                "state.meta.settings.suspect_ms",
                "state.meta.settings.lease_ms",
            ),
        ),
    ),
    Mutant(
        name="breaker-counts-losses",
        guard="hosts lost a moment ago count as gone with the others",
        breaks="hosts behind a dead switch are lost in small portions",
        races=(20,),
        reach=CORE,
        edits=(
            Edit(
                f"{_BREAKER}judge",
                "(*meta.recent_losses_ms, step.now_ms)",
                "meta.recent_losses_ms",
            ),
        ),
    ),
    Mutant(
        name="whole-lease",
        guard="a host is lost after a whole lease of silence, not when it is suspected",
        breaks="a short silence takes a host's work away",
        races=(12, 17),
        reach=CORE,
        edits=(
            Edit(
                f"{_BREAKER}_expired",
                "lease_ms = state.meta.settings.lease_ms",
                "lease_ms = state.meta.settings.suspect_ms",
            ),
        ),
    ),
    Mutant(
        name="beats-clear-suspicion",
        guard="a host that is heard is suspected no more",
        breaks="a host that was silent for a moment gets no work ever again",
        races=(12, 17),
        reach=CORE,
        edits=(Edit(f"{_HOSTS}_heard", "if slot in state.attentive:", "if False:"),),
    ),
    Mutant(
        name="beats-of-this-incarnation",
        guard="a beat renews the lease of its own incarnation alone",
        breaks="what a replaced agent sent keeps its successor alive",
        races=(11, 16),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_heard",
                "live[slot] == incarnation and incarnation",
                "live[slot] and incarnation",
            ),
        ),
    ),
    Mutant(
        name="time-again-after-silence",
        guard="what was due of a task while its host was out of sight gets its full time again",
        breaks="a gang is restarted for what it did in time and could not say",
        races=(17,),
        reach=CORE,
        edits=(
            Edit("coord.core.hearing:hear_of_tasks", "for key in host.tasks:", "for key in ():"),
        ),
    ),
    Mutant(
        name="no-hang-out-of-sight",
        guard="a gang with a silent host is not judged for want of progress",
        breaks="silence of a host is taken for a hang of its job",
        races=(17,),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.causes.pace:look_for_hang",
                "if any(step.state.hosts[task.host].status != HostStatus.UP for task in running):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="no-timeout-out-of-sight",
        guard="a launch or a stop is not called late while its host is silent",
        breaks="silence of a host is taken for the failure of a launch",
        races=(17,),
        reach=CORE,
        edits=(Edit("coord.core.tasks:look_at", "elif status != HostStatus.UP:", "elif False:"),),
    ),
)

INCARNATIONS = (
    Mutant(
        name="incarnations-grow",
        guard="each registration is a new incarnation",
        breaks="reports and beats of the agent before are taken for those of the new one",
        races=(11, 16),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_host_of",
                "known.incarnation + 1 if known else 1",
                "known.incarnation if known else 1",
            ),
        ),
    ),
    Mutant(
        name="host-id-in-use",
        guard="a live host's id is refused to another agent",
        breaks="two machines take turns in being one host",
        races=(11,),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_registered",
                "if known and known.status in LIVE_HOST and known.agent != event.agent:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="vanished-tasks",
        guard="a task that a registering agent does not have any more is gone",
        breaks="a gang waits for ever for a member that a reboot took",
        races=(8, 16),
        reach=CORE,
        edits=(Edit(f"{_HOSTS}_sort_out", "if key in found or yet_to_start:", "if True:"),),
    ),
    Mutant(
        name="smaller-host-orders",
        guard="a task not yet started is given up when its host comes back without the device",
        breaks="a task is launched on a device that is not there",
        races=(10,),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_sort_out",
                "task.status == TaskStatus.PLACED and max(task.devices, default=-1) < devices",
                "task.status == TaskStatus.PLACED",
            ),
        ),
    ),
    Mutant(
        name="smaller-host-holds",
        guard="places kept on a host are given up when it comes back with less",
        breaks="a gang restarts on a device that is not there",
        races=(10, 33),
        reach=CORE,
        edits=(
            Edit(f"{_HOSTS}_registered", "if known and _offers_less(host, known):", "if False:"),
        ),
    ),
    Mutant(
        name="lost-host-holds",
        guard="nobody keeps a place on a lost host",
        breaks="a gang waits for the place it kept on a machine that is gone",
        races=(30,),
        reach=CORE,
        edits=(Edit(f"{_HOSTS}lose", "fleet.drop_holds(step, name)", "fleet.drop_holds"),),
    ),
    Mutant(
        name="kept-holes",
        guard="a host that comes back is kept for whoever was interrupted there",
        breaks="a waiting job takes the place of a gang that is about to restart",
        races=(32,),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.queueing.holes:keep_places_again",
                "if not usable(state.hosts[name]):",
                "if name:",
            ),
        ),
    ),
)

FENCES = (
    Mutant(
        name="fence-after-loss",
        guard="a lost host counts as fenced only when fence_ms have passed",
        breaks="an exclusive task is started elsewhere while the old one ends",
        races=(10,),
        reach=CORE,
        edits=(Edit(f"{_HOSTS}_look_at_fence", "if step.now_ms < due_ms:", "if False:"),),
    ),
    Mutant(
        name="fence-awaited-by-lost",
        guard="an exclusive gang waits for the fence of a lost host",
        breaks="an exclusive task runs on both sides of a cut",
        races=(10,),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.gangs:tasks_lost",
                "if role_of(step, gang).exclusive and not task.succeeded:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="fence-awaited-by-unkillable",
        guard="an exclusive gang waits for the end of a task that cannot be killed",
        breaks="an exclusive task is started beside one that SIGKILL did not end",
        races=(9,),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.gangs:task_abandoned", "if role_of(step, gang).exclusive:", "if False:"
            ),
        ),
    ),
    Mutant(
        name="fence-before-restart",
        guard="no restart while a task may still run behind a fence",
        breaks="an exclusive task runs twice",
        races=(9, 10),
        reach=CORE,
        edits=(Edit("coord.core.gangs:settle", "if gang.awaits_fence:", "if False:"),),
    ),
)

DRAINS = (
    Mutant(
        name="drain-takes-no-work",
        guard="a draining host gets no work",
        breaks="a host that is to be taken away gets new tasks",
        races=(27,),
        reach=CORE,
        edits=(Edit("coord.core.fleet:_takes_work", "not host.drain and ", ""),),
    ),
    Mutant(
        name="drain-outlives-registration",
        guard="a host stays drained over a new registration",
        breaks="restarting an agent ends the drain of its host",
        races=(27,),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_host_of",
                "drain=known.drain if known and drained else DrainState.NONE",
                "drain=DrainState.NONE",
            ),
        ),
    ),
    Mutant(
        name="quarantine-takes-no-work",
        guard="a host with a task that cannot be killed gets no work",
        breaks="new work lands where an old process may hold anything",
        races=(9,),
        reach=CORE,
        edits=(Edit("coord.core.fleet:_takes_work", " and not host.quarantine", ""),),
    ),
    Mutant(
        name="suspects-take-no-work",
        guard="a suspected host gets no work",
        breaks="a gang is started on a host that is probably dead",
        races=(8, 17),
        reach=CORE,
        edits=(
            Edit(
                "coord.core.fleet:usable",
                "host.status == HostStatus.UP",
                "host.status in (HostStatus.UP, HostStatus.SUSPECT)",
            ),
        ),
    ),
    Mutant(
        name="earliest-deadline",
        guard="of several notices for a host the earliest deadline wins",
        breaks="a later notice lets tasks run into the end of their machine",
        races=(35,),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_preempted",
                "if host.drain_deadline_ms and deadline_ms >= host.drain_deadline_ms:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="notice-of-this-incarnation",
        guard="a preemption notice counts in its incarnation alone",
        breaks="a notice of the machine's life before drains the new one",
        races=(16, 35),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_preempted",
                "if event.incarnation != host.incarnation:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="removal-of-the-empty",
        guard="a host that is live and has tasks is not removed",
        breaks="tasks are forgotten while their processes hold their devices",
        races=(10,),
        reach=CORE,
        edits=(
            Edit(
                f"{_HOSTS}_removal_requested",
                "if host.status != HostStatus.LOST and (host.tasks or not host.drain):",
                "if False:",
            ),
        ),
    ),
)

HOST_MUTANTS = TIME + SILENCE + INCARNATIONS + FENCES + DRAINS
