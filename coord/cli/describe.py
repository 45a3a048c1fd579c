"""Every event and decision in one line: whom it is about, and what it says beyond its name.

Pure. A new event or decision needs a line here; a test names the one that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from coord.cli.wording import (
    age_text,
    clock_text,
    count_text,
    listed,
    resources_text,
    signal_text,
    size_text,
    telling_line,
)
from coord.model import care_decisions as c
from coord.model import decisions as d
from coord.model import events as e
from coord.model import roster as r
from coord.model import standby_decisions as s
from coord.model.entities import QueueReason
from coord.model.faults import fault_of
from coord.model.health import HealthOutcome
from coord.model.rollback_decisions import GangRolledBack


class Said(msgspec.Struct, frozen=True):
    """`subject` is the task, gang, job, host or cluster spoken of; `job` and `hosts` are what
    `--job` and `--host` compare with; `tasks` lets the reader add the hosts that tasks are on."""

    subject: str
    text: str = ""
    job: str = ""
    hosts: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


def job_of_task(task: str) -> str:
    """`digits` of `digits/trainer/0#3`; names of jobs hold no slash."""
    return task.partition("/")[0]


def said_of_event(event: e.Event) -> Said:
    """An event in words. One unknown here keeps its name and nothing else."""
    teller = EVENTS.get(type(event))
    return teller(event) if teller else Said("")


def said_of_decision(decision: d.Decision, now_ms: int) -> Said:
    """A decision taken at `now_ms` of log time in words, as `said_of_event`."""
    timed = TIMED.get(type(decision))
    if timed:
        return timed(decision, now_ms)
    teller = DECISIONS.get(type(decision))
    return teller(decision) if teller else Said("")


# Events


def _configured(event: e.ClusterConfigured) -> Said:
    settings = event.settings
    return Said(
        event.cluster,
        f"lease {clock_text(settings.lease_ms)}, suspicion after {clock_text(settings.suspect_ms)}",
    )


def _registered(event: e.HostRegistered) -> Said:
    offer = resources_text(event.devices, event.cpu_millis, event.memory_mib)
    found = f", found {listed([task.task for task in event.tasks])}" if event.tasks else ""
    return Said(
        event.host,
        f"at {event.address or 'no address'}, offers {offer}{found}",
        hosts=(event.host,),
        tasks=tuple(task.task for task in event.tasks),
    )


def _asked(event: Any, text: str = "") -> Said:
    said = f"{text}, {_by(event.actor, event.reason)}" if text else _by(event.actor, event.reason)
    return Said(event.host, said, hosts=(event.host,))


def _maintenance(event: e.MaintenanceRequested) -> Said:
    least = f"at most {event.limit} out at a time"
    within = f", each drained within {clock_text(event.within_ms)}" if event.within_ms else ""
    safe = ", no running gang without a place" if event.safe else ""
    asked = _by(event.actor, event.reason)
    return Said(f"{event.level} {event.domain}", f"{least}{within}{safe}, {asked}")


def _by(actor: str, reason: str) -> str:
    return f"by {actor or 'nobody named'}{f': {reason}' if reason else ''}"


def _submitted(event: e.JobSubmitted) -> Said:
    roles = ", ".join(f"{role.replicas} x {role.name}" for role in event.spec.roles)
    return Said(event.spec.name, f"{roles}, {_by(event.actor, '')}", event.spec.name)


def _report(event: Any, text: str = "") -> Said:
    where = f"on {event.host}"
    return Said(
        event.task,
        f"{where}, {text}" if text else where,
        job_of_task(event.task),
        (event.host,),
        (event.task,),
    )


def _exited(event: e.TaskExited) -> Said:
    if not event.observed:
        how = "how it ended is not known"
    elif event.signal:
        how = signal_text(event.signal)
    else:
        how = f"exit code {event.exit_code}"
    if event.oom:
        how += ", out of memory"
    if event.expected:
        how += ", on a plan"
    told = telling_line(event.error) or telling_line(event.stderr_tail)
    return _report(event, f"{how}: {told}" if told and not event.expected else how)


def _shard(event: e.ShardSaved) -> Said:
    return _report(event, f"step {event.step}, {event.shard}, {size_text(event.size_bytes)}")


def _queue_configured(event: e.QueueConfigured) -> Said:
    quota = count_text(event.spec.quota, "device")
    return Said(event.spec.name, f"quota {quota}, {_by(event.actor, event.reason)}")


def _fault(event: e.DeviceFaultSeen) -> Said:
    fault = fault_of(event.kind, event.code, event.text)
    code = f" {event.code}" if event.code else ""
    device = f" of {event.device}" if event.device else ""
    recovery = fault.recovery.replace("_", " ")
    text = f"{event.kind}{code}{device}: {fault.name} ({fault.fault_class}, {recovery})"
    return Said(event.host, text, hosts=(event.host,))


def _back_to(event: e.RollbackRequested) -> str:
    if event.step >= 0:
        return f"back to the checkpoint of step {event.step}"
    return f"back by {count_text(event.back, 'checkpoint')}"


def _timed_out(event: e.CollectiveTimedOut) -> Said:
    what = f"{event.op or 'a collective'}{f' of {event.group}' if event.group else ''}"
    missing = f", without {listed([f'rank {rank}' for rank in event.missing])}"
    said = f"{what} timed out{missing if event.missing else ''}"
    if event.host:
        return _report(event, said)
    by = _by(event.actor, "")
    return Said(event.task, f"{said}, {by}", job_of_task(event.task), tasks=(event.task,))


def _roster_changed(event: r.RosterChanged) -> Said:
    joined = count_text(len(event.joined_slots), "host")
    said = f"anew, {joined}" if event.replaces else f"{joined} joined, {len(event.left_slots)} left"
    return Said(f"roster {event.number}", said)


def _roster_heard(event: r.RosterHeard) -> Said:
    silent = event.except_ages.count(0)
    said = f"all of phases {event.from_phase} to {event.to_phase - 1}"
    return Said(f"roster {event.number}", f"{said}, but for {silent}" if silent else said)


def _health(event: e.HealthChecked) -> Said:
    how = event.outcome.replace("_", " ")
    if event.outcome == HealthOutcome.FAILED:
        how += f" with exit code {event.exit_code}"
    occasion = event.occasion.replace("_", " ")
    return Said(event.host, f"{event.check} {how}, {occasion}", hosts=(event.host,))


EVENTS: dict[type[e.Event], Callable[[Any], Said]] = {
    e.ClusterConfigured: _configured,
    e.LeaderElected: lambda event: Said(f"node {event.node}", f"term {event.term}"),
    e.ClockAdvanced: lambda event: Said("clock"),
    e.LogicVersionRaised: lambda event: Said("cluster", f"logic version {event.version}"),
    e.NoteAdded: lambda event: Said(
        event.subject,
        f"{event.actor or 'somebody'}: {event.text}",
        job_of_task(event.subject),
        (event.subject,),
    ),
    e.EvictionsAllowed: lambda event: Said("fleet", _by(event.actor, event.reason)),
    e.HostRegistered: _registered,
    e.HeartbeatsSeen: lambda event: Said(event.source, count_text(len(event.slots), "heartbeat")),
    r.RosterChanged: _roster_changed,
    r.RosterHeard: _roster_heard,
    e.PreemptionNoticed: lambda event: Said(
        event.host,
        f"goes away in {clock_text(event.grace_ms)}{f': {event.reason}' if event.reason else ''}",
        hosts=(event.host,),
    ),
    e.DrainRequested: lambda event: _asked(
        event, f"within {clock_text(event.within_ms)}" if event.within_ms else ""
    ),
    e.UndrainRequested: _asked,
    e.HostRemovalRequested: _asked,
    e.HostQuarantineRequested: _asked,
    e.QuarantineAnswered: lambda event: _asked(
        event, f"{'yes' if event.approved else 'no'} to the proposal of index {event.version}"
    ),
    e.HostReleaseRequested: lambda event: _asked(event, "repaired" if event.repaired else ""),
    e.MaintenanceRequested: _maintenance,
    e.MaintenanceCancelled: lambda event: Said(
        f"maintenance {event.maintenance}", _by(event.actor, event.reason)
    ),
    e.TopologyImported: lambda event: Said(
        event.source,
        f"{count_text(len(event.hosts), 'host')}, "
        f"{count_text(len(event.switches), 'switch', 'switches')}"
        f"{', added to what is known' if event.merge else ''}, {_by(event.actor, '')}",
    ),
    e.JobSubmitted: _submitted,
    e.JobCancelRequested: lambda event: Said(event.job, _by(event.actor, event.reason), event.job),
    e.JobResizeRequested: lambda event: Said(
        f"{event.job}/{event.role}",
        f"to {count_text(event.replicas, 'replica')}, {_by(event.actor, event.reason)}",
        event.job,
    ),
    e.RollbackRequested: lambda event: Said(
        f"{event.job}/{event.role}" if event.role else event.job,
        f"{_back_to(event)}, {_by(event.actor, event.reason)}",
        event.job,
    ),
    e.QueueConfigured: _queue_configured,
    e.QueueRemoved: lambda event: Said(event.queue, _by(event.actor, event.reason)),
    e.TaskStarted: lambda event: _report(event, f"pid {event.pid}"),
    e.LaunchFailed: lambda event: _report(event, telling_line(event.error)),
    e.TaskExited: _exited,
    e.TaskReaped: _report,
    e.TaskUnkillable: lambda event: _report(event, f"pid {event.pid} survived SIGKILL"),
    e.ProgressReported: lambda event: _report(event, f"step {event.step}"),
    e.CheckpointBegun: lambda event: _report(event, f"step {event.step} into {event.path}"),
    e.ShardSaved: _shard,
    e.DeviceFaultSeen: _fault,
    e.CollectiveTimedOut: _timed_out,
    e.HealthChecked: _health,
    e.WeightsPublished: lambda event: _report(
        event, f"version {event.version} of step {event.step} at {event.uri}"
    ),
    e.WeightsLoaded: lambda event: _report(event, f"version {event.version}"),
}


# Decisions


def _host(decision: Any, text: str = "") -> Said:
    return Said(decision.host, text, hosts=(decision.host,))


def _gang(
    decision: Any, text: str = "", hosts: Iterable[str] = (), tasks: tuple[str, ...] = ()
) -> Said:
    generation = getattr(decision, "generation", 0)
    subject = f"{decision.gang}#{generation}" if generation else decision.gang
    return Said(subject, text, decision.job, tuple(hosts), tasks)


def _job(decision: Any, text: str = "") -> Said:
    return Said(decision.job, text, decision.job)


def _waits(decision: d.JobQueued) -> str:
    # How long a back-off takes stands in RestartScheduled, as a duration.
    known = decision.detail and decision.reason != QueueReason.BACKOFF
    return f"{decision.reason}: {decision.detail}" if known else decision.reason


def _joined(decision: d.HostJoined) -> Said:
    adopted = f", goes on with {listed(decision.adopted)}" if decision.adopted else ""
    return Said(
        decision.host,
        f"slot {decision.slot}, incarnation {decision.incarnation}{adopted}",
        hosts=(decision.host,),
        tasks=decision.adopted,
    )


def _placed(decision: d.TasksPlaced) -> Said:
    hosts = tuple(dict.fromkeys(place.host for place in decision.placements))
    start = f"from step {decision.restore_step}" if decision.restore else "from the beginning"
    count = count_text(len(decision.placements), "task")
    tasks = tuple(place.task for place in decision.placements)
    return _gang(decision, f"{count} on {listed(hosts)}, {start}", hosts, tasks)


def _stopping(decision: d.TasksStopping) -> Said:
    why = f"{decision.cause}, {decision.reason}" if decision.reason else decision.cause
    count = count_text(len(decision.tasks), "task")
    return _gang(decision, f"{count}: {why}", tasks=decision.tasks)


def _restart(decision: d.RestartScheduled, now_ms: int) -> Said:
    wait_ms = decision.not_before_ms - now_ms
    when = f"in {clock_text(wait_ms)} or later" if wait_ms > 0 else "at once"
    of = f" of {decision.limit}" if decision.limit else ""
    return _gang(decision, f"{decision.cause} restart {decision.attempt}{of}, {when}")


def _draining(decision: d.HostDraining, now_ms: int) -> Said:
    left_ms = decision.deadline_ms - now_ms
    return _host(decision, f"to be empty in {clock_text(left_ms)}" if decision.deadline_ms else "")


def _probation(decision: c.HostOnProbation, now_ms: int) -> Said:
    left = clock_text(decision.until_ms - now_ms)
    return _host(decision, f"at most {count_text(decision.tasks, 'task')} for {left}")


def _proposed(decision: c.QuarantineProposed) -> Said:
    where = f"{decision.level} {decision.domain}" if decision.level else "the fleet"
    return _host(
        decision,
        f"{decision.reason}; {decision.quarantined} of {where} are out and "
        f"{decision.allowed} may be without approval",
    )


def _domain(decision: Any, text: str, hosts: tuple[str, ...]) -> Said:
    return Said(f"{decision.level} {decision.domain}", text, hosts=hosts)


def _domain_silent(decision: c.DomainSilent, now_ms: int) -> Said:
    text = (
        f"{len(decision.hosts)} of {count_text(decision.members, 'host')} silent, lost together "
        f"in {clock_text(decision.until_ms - now_ms)} unless heard"
    )
    return _domain(decision, text, decision.hosts)


def _kept(decision: Any, host: str = "", text: str = "") -> Said:
    said = f"{host}: {text}" if host and text else host or text
    return Said(f"maintenance {decision.maintenance}", said, hosts=(host,) if host else ())


def _silence(decision: d.EvictionsFrozen | d.EvictionsResumed) -> Said:
    return Said("fleet", f"{decision.silent} of {count_text(decision.fleet, 'host')} silent")


def _opened(decision: d.IncidentOpened | d.CauseRevised) -> Said:
    detail = f": {decision.detail}" if decision.detail else ""
    text = f"incident {decision.incident}, {decision.cause}, {decision.subject}{detail}"
    return _gang(decision, text, *hosts_and_tasks(decision.subject))


def hosts_and_tasks(subject: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """An incident's subject as a host or as a task; as neither when it is a gang."""
    if "#" in subject:
        return (), (subject,)
    if " " in subject:
        return (), ()  # A failure domain, such as `switch leaf1`.
    return () if "/" in subject else (subject,), ()


def _closed(decision: d.IncidentClosed) -> Said:
    how = "resolved" if decision.resolved else "not resolved"
    lost_ms = decision.cost.lost.total_ms
    cost = f", {clock_text(lost_ms)} of device time, {decision.cause} pays" if lost_ms else ""
    return _gang(decision, f"incident {decision.incident}, {how}{cost}")


DECISIONS: dict[type[d.Decision], Callable[[Any], Said]] = {
    d.HostJoined: _joined,
    d.HostSuspected: lambda it: _host(it, f"silent for {clock_text(it.silent_ms)}"),
    d.HostCleared: _host,
    d.HostLost: lambda it: _host(
        it, f"incarnation {it.incarnation}, silent for {clock_text(it.silent_ms)}"
    ),
    d.HostFenced: _host,
    d.HostDrained: _host,
    d.HostReturned: _host,
    d.HostQuarantined: lambda it: _host(it, it.reason),
    d.HostRemoved: _host,
    c.QuarantineProposed: _proposed,
    c.QuarantineDropped: lambda it: _host(it, it.why),
    c.HostTesting: _host,
    c.HostReleased: lambda it: _host(it, "nothing is held against it" if it.clean else ""),
    c.HostOutForRepair: lambda it: _host(it, it.reason),
    c.DomainHeard: lambda it: _domain(
        it, f"still silent: {listed(it.silent)}" if it.silent else "", it.silent
    ),
    c.DomainLost: lambda it: _domain(it, count_text(len(it.hosts), "host"), it.hosts),
    c.MovesDue: _host,
    c.MaintenanceStarted: lambda it: _kept(
        it,
        "",
        f"{count_text(len(it.hosts), 'host')} of {it.level} {it.domain}, "
        f"at most {it.limit} at a time",
    ),
    c.MaintenanceHostOut: lambda it: _kept(it, it.host),
    c.MaintenanceHostBack: lambda it: _kept(it, it.host, it.why),
    c.MaintenanceStalled: lambda it: _kept(it, it.host, it.why),
    c.MaintenanceEnded: lambda it: _kept(it, "", it.ending),
    d.EvictionsFrozen: _silence,
    d.EvictionsResumed: _silence,
    d.JobQueued: lambda it: _gang(it, _waits(it)),
    d.TasksPlaced: _placed,
    d.SpareActivated: lambda it: _gang(it, f"on {it.host}", (it.host,)),
    d.GenerationStarted: _gang,
    d.TasksStopping: _stopping,
    d.HangDetected: lambda it: _gang(
        it,
        f"no progress for {age_text(it.silent_ms)}, furthest behind {listed(it.tasks)}",
        tasks=it.tasks,
    ),
    d.TaskAbandoned: lambda it: Said(
        it.task, f"on {it.host}", job_of_task(it.task), (it.host,), (it.task,)
    ),
    d.GangSucceeded: _gang,
    d.GangStopped: _gang,
    d.JobCompleted: _job,
    d.JobFailed: lambda it: _job(it, f"{it.reason}{f': {it.detail}' if it.detail else ''}"),
    d.JobCancelled: _job,
    d.JobResized: lambda it: Said(
        f"{it.job}/{it.role}", f"to {count_text(it.replicas, 'replica')}", it.job
    ),
    GangRolledBack: lambda it: _gang(
        it,
        f"to step {it.step} in {it.path}"
        f"{f', set aside: {listed([str(step) for step in it.aside])}' if it.aside else ''}",
    ),
    d.GangPreempted: lambda it: _gang(
        it, f"gives way to {it.by}, {clock_text(it.notice_ms)} of notice"
    ),
    d.ScopeStopping: lambda it: _gang(it, f"takes along {listed(it.gangs)}"),
    d.SpareKept: lambda it: _gang(it, f"on {it.host}", (it.host,)),
    s.StandbyPlaced: lambda it: _gang(it, f"{it.task} on {it.host}", (it.host,), (it.task,)),
    s.StandbyPromoted: lambda it: _gang(
        it, f"{it.task} on {it.host} is rank {it.index}", (it.host,), (it.task,)
    ),
    s.StandbyEnded: lambda it: _gang(
        it, f"{it.task} on {it.host}: {it.reason}", (it.host,), (it.task,)
    ),
    d.GangGrowing: lambda it: _gang(
        it,
        f"from {it.before} to {count_text(it.after, 'task')}, at the checkpoint of step {it.step}",
    ),
    d.WeightsAdvanced: lambda it: _gang(it, f"version {it.version} of step {it.step} at {it.uri}"),
    d.RoomReserved: lambda it: _gang(it, "the first that lacks room: none goes to others"),
    d.CheckpointCommitted: lambda it: _gang(it, f"step {it.step} in {it.path}"),
    d.IncidentOpened: _opened,
    d.CauseRevised: _opened,
    d.IncidentClosed: _closed,
    d.RosterCut: lambda it: Said(
        f"relay {it.relay}", f"no more for {count_text(len(it.slots), 'host')}"
    ),
    d.SlowRankSuspected: lambda it: _gang(
        it,
        f"{it.task} takes {it.pace_us // 1000} ms for a step, {it.usual_us // 1000} are usual",
        (it.host,),
        (it.task,),
    ),
    d.HostBlamed: lambda it: _host(
        it,
        f"first in {it.first} of {count_text(it.incidents, 'incident')} of "
        f"{count_text(it.jobs, 'job')}; by chance once in {it.one_in}",
    ),
}

TIMED: dict[type[d.Decision], Callable[[Any, int], Said]] = {
    d.RestartScheduled: _restart,
    d.HostDraining: _draining,
    c.HostOnProbation: _probation,
    c.DomainSilent: _domain_silent,
}
"""Those that speak of a time to come, and so need to know when they were taken."""
