"""What must hold after every entry. Declared once; checked in tests, in simulation, on fetched
state by the black-box suite, and on a sample in the live server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from coord.core.queueing.claims import charge_of
from coord.core.queueing.queues import limit_of
from coord.core.state import LIVE_HOST, State
from coord.model.care import OUT_OF_FLEET, QuarantineState
from coord.model.entities import (
    ENDED_GANG,
    FINISHED_JOB,
    Gang,
    GangPhase,
    Hold,
    HostStatus,
    Task,
    TaskStatus,
)

WHOLE = 1_000
"""Thousandths of a device: several tasks may share one up to that."""

Check = Callable[[State], Iterator[str]]
INVARIANTS: dict[str, Check] = {}


def invariant(sentence: str) -> Callable[[Check], Check]:
    """Declare one; the check yields what violates it, naming the offending ids."""

    def register(check: Check) -> Check:
        INVARIANTS[sentence] = check
        return check

    return register


def violations(state: State) -> list[str]:
    """Every violation as `sentence: offender`; empty when all hold."""
    return [
        f"{sentence}: {offender}"
        for sentence, check in INVARIANTS.items()
        for offender in check(state)
    ]


@invariant("no device serves two tasks or is kept for one while another has it")
def _devices(state: State) -> Iterator[str]:
    takers: Counter[tuple[str, int]] = Counter()
    millis: Counter[tuple[str, int]] = Counter()
    for task in state.tasks.values():
        _count_devices(task, takers, millis)
    for gang in state.gangs.values():
        for hold in gang.holds:
            _count_devices(hold, takers, millis)
    for (host, device), count in sorted(takers.items()):
        if millis[host, device] > WHOLE:
            shared = millis[host, device] - WHOLE * count
            of = f", {millis[host, device]} thousandths of it" if shared else ""
            yield f"device {device} of {host} is taken {count} times{of}"


def _count_devices(
    taker: Task | Hold, takers: Counter[tuple[str, int]], millis: Counter[tuple[str, int]]
) -> None:
    for device in taker.devices:
        takers[taker.host, device] += 1
        millis[taker.host, device] += taker.device_millis or WHOLE


@invariant("a host that never registered anew is not given more than it has")
def _capacity(state: State) -> Iterator[str]:
    for name, host in sorted(state.hosts.items()):
        if host.incarnation > 1:
            continue  # It may have come back smaller than what runs on it.
        tasks = [state.tasks[key] for key in host.tasks if key in state.tasks]
        holds = [hold for gang in state.gangs.values() for hold in gang.holds if hold.host == name]
        takers: tuple[Task | Hold, ...] = (*tasks, *holds)
        cpu_millis = sum(taker.cpu_millis for taker in takers)
        memory_mib = sum(taker.memory_mib for taker in takers)
        if cpu_millis > host.cpu_millis or memory_mib > host.memory_mib:
            yield f"{name}: {cpu_millis} of {host.cpu_millis} and {memory_mib} of {host.memory_mib}"


@invariant("a host lists exactly the tasks that take something of it")
def _host_tasks(state: State) -> Iterator[str]:
    listed = Counter((name, key) for name, host in state.hosts.items() for key in host.tasks)
    taken = Counter((task.host, key) for key, task in state.tasks.items())
    for name, key in sorted(listed - taken):
        yield f"{name} lists {key}"
    for name, key in sorted(taken - listed):
        yield f"{name} does not list {key}"


@invariant("a host that is not live runs nothing that counts")
def _dead_hosts(state: State) -> Iterator[str]:
    for name, host in sorted(state.hosts.items()):
        if host.status in LIVE_HOST:
            continue
        for key in host.tasks:
            task = state.tasks.get(key)
            if task is not None and task.status != TaskStatus.LOST:
                yield f"{key} is {task.status} on {name}, which is {host.status}"


@invariant("a gang counts only tasks of its current generation that were not given up")
def _live_tasks(state: State) -> Iterator[str]:
    given_up = (TaskStatus.LOST, TaskStatus.UNKILLABLE, TaskStatus.ORPHANED)
    for name, gang in sorted(state.gangs.items()):
        for key in gang.live:
            task = state.tasks.get(key)
            if task is None:
                yield f"{name} counts {key}, which is gone"
            elif task.generation != gang.generation or task.status in given_up:
                yield f"{name} of generation {gang.generation} counts {key}, {task.status}"


@invariant("a task that runs on a plan belongs to the current generation of an active gang")
def _planned_tasks(state: State) -> Iterator[str]:
    for key, task in sorted(state.tasks.items()):
        if task.status not in (TaskStatus.PLACED, TaskStatus.RUNNING):
            continue
        gang = state.gangs.get(task.gang)
        active = gang is not None and (
            gang.phase in (GangPhase.STARTING, GangPhase.RUNNING)
            # A standby waits also while its gang is between two generations.
            or (task.standby and gang.phase not in ENDED_GANG)
        )
        if gang is None or not active:
            yield f"{key} is {task.status}, its gang {gang.phase if gang else 'gone'}"
        elif gang.generation != task.generation and not task.standby:
            yield f"{key} is {task.status}, its gang at generation {gang.generation}"


@invariant("a gang is started whole or not at all")
def _whole_gangs(state: State) -> Iterator[str]:
    for name, gang in sorted(state.gangs.items()):
        if gang.phase in (GangPhase.WAITING, *ENDED_GANG) and gang.live:
            yield f"{name} is {gang.phase} with {len(gang.live)} tasks"
        if gang.phase in (GangPhase.STARTING, GangPhase.RUNNING):
            live = [state.tasks[key] for key in gang.live if key in state.tasks]
            placed = [task for task in live if task.status != TaskStatus.EXITED]
            if len(placed) + gang.succeeded != gang.size:
                yield f"{name} has {len(placed)} running, {gang.succeeded} done of {gang.size}"


@invariant("an exclusive task runs once")
def _exclusive(state: State) -> Iterator[str]:
    runs: Counter[tuple[str, str, int]] = Counter()
    for key, task in state.tasks.items():
        job = state.jobs.get(task.job)
        role = job.spec.role(task.role) if job else None
        gang = state.gangs.get(task.gang)
        ended = task.status in (TaskStatus.EXITED, TaskStatus.ORPHANED)
        if task.status in (TaskStatus.LOST, TaskStatus.UNKILLABLE):
            # Fenced now, or by an earlier fence of the same host.
            host = state.hosts.get(task.host)
            fenced = host is None or host.fenced
            ended = fenced or not gang or key not in gang.awaits_fence
        if role is not None and role.exclusive and not ended and not task.standby:
            runs[task.job, task.role, task.index] += 1
    for (job_name, role_name, index), count in sorted(runs.items()):
        if count > 1:
            yield f"{job_name}/{role_name}/{index} may run {count} times"


@invariant("generations come from the job's counter")
def _generations(state: State) -> Iterator[str]:
    for name, gang in sorted(state.gangs.items()):
        job = state.jobs.get(gang.job)
        if job is None:
            yield f"{name} has no job"
        elif gang.generation > job.generation:
            yield f"{name} is at {gang.generation}, its job at {job.generation}"


@invariant("a job lists exactly its gangs")
def _job_gangs(state: State) -> Iterator[str]:
    listed = Counter((name, key) for name, job in state.jobs.items() for key in job.gangs)
    there = Counter((gang.job, key) for key, gang in state.gangs.items())
    for name, key in sorted(listed - there):
        yield f"{name} lists {key}"
    for name, key in sorted(there - listed):
        yield f"{name} does not list {key}"


@invariant("a job that has ended has nothing left to run")
def _ended_jobs(state: State) -> Iterator[str]:
    for name, job in sorted(state.jobs.items()):
        if job.status in FINISHED_JOB:
            for key in job.gangs:
                gang = state.gangs.get(key)
                if gang is not None and gang.phase not in ENDED_GANG:
                    yield f"{name} is {job.status}, {key} is {gang.phase}"


@invariant("a gang restarts from its newest committed checkpoint, and never from an older one")
def _restores(state: State) -> Iterator[str]:
    newest: dict[str, int] = {}
    for checkpoint in state.checkpoints.values():
        if checkpoint.committed:
            newest[checkpoint.gang] = max(checkpoint.step, newest.get(checkpoint.gang, -1))
    for name, gang in sorted(state.gangs.items()):
        if gang.restore_step > newest.get(name, -1):
            yield f"{name} restored step {gang.restore_step}, none so new is committed"


@invariant("a committed checkpoint has every shard, all of one generation")
def _checkpoints(state: State) -> Iterator[str]:
    for key, checkpoint in sorted(state.checkpoints.items()):
        if checkpoint.committed and not all(checkpoint.shards):
            yield f"{key} lacks shards"
        if checkpoint.gang not in state.gangs:
            yield f"{key} has no gang"


@invariant("only hosts that take work keep places for gangs")
def _holds(state: State) -> Iterator[str]:
    for name, gang in sorted(state.gangs.items()):
        for hold in gang.holds:
            host = state.hosts.get(hold.host)
            closed = host is None or host.drain or host.quarantine or host.withheld
            if host is None or host.status not in LIVE_HOST or closed:
                yield f"{name} holds a place on {hold.host}"


@invariant("slots are dense, and each host keeps its own")
def _slots(state: State) -> Iterator[str]:
    if len(state.slots) != len(state.hosts) or len(state.last_seen_ms) != len(state.slots):
        yield f"{len(state.slots)} slots, {len(state.hosts)} hosts"
    for slot, name in enumerate(state.slots):
        host = state.hosts.get(name)
        if host is None or host.slot != slot:
            yield f"{name} at {slot} says {host.slot if host else 'nothing'}"


@invariant("what is derived agrees with the rows")
def _derived(state: State) -> Iterator[str]:
    for name, gang in sorted(state.gangs.items()):
        if (gang.phase == GangPhase.WAITING) != (name in state.waiting):
            yield f"{name} is {gang.phase}"
    for name, host in sorted(state.hosts.items()):
        expected = [host.incarnation if host.status in LIVE_HOST else 0]
        if state.live_incarnations[host.slot : host.slot + 1] != expected:
            yield f"{name}: beats of {state.live_incarnations[host.slot : host.slot + 1]} count"
    for name in sorted(state.finished):
        if name not in state.jobs:
            yield f"{name} is forgotten"
    kept = Counter(key for keys in state.checkpoints_by_gang.values() for key in keys)
    there = Counter(state.checkpoints.keys())
    for key in sorted((kept - there) + (there - kept)):
        yield f"checkpoint {key} is listed {kept[key]} times"


@invariant("a roster names each host once, live in the incarnation that beats, in order of phases")
def _rosters(state: State) -> Iterator[str]:
    stands: Counter[int] = Counter()
    for relay, roster in sorted(state.rosters.items()):
        stands.update(roster.slots)
        order = list(zip(roster.phases, roster.slots, strict=True))
        if order != sorted(order) or not order:
            yield f"roster of {relay} is out of order or empty"
        for slot, incarnation in zip(roster.slots, roster.incarnations, strict=True):
            if state.live_incarnations[slot : slot + 1] != [incarnation] or not incarnation:
                yield f"{relay} has slot {slot} in incarnation {incarnation}, which does not beat"
            if state.relay_of.get(slot) != relay:
                yield f"slot {slot} of {relay} is taken for one of {state.relay_of.get(slot)}"
    for slot, times in sorted(stands.items()):
        if times > 1:
            yield f"slot {slot} stands in rosters {times} times"
    for slot in sorted(state.relay_of):
        if slot not in stands:
            yield f"slot {slot} stands in no roster"


@invariant("no host was heard in the future, but for the spread of an election's new leases")
def _last_seen(state: State) -> Iterator[str]:
    latest_ms = state.meta.now_ms + max(state.meta.settings.heartbeat_ms, 1)
    for slot, seen_ms in enumerate(state.last_seen_ms):
        if seen_ms > latest_ms:
            yield f"slot {slot} at {seen_ms}, and it is {state.meta.now_ms}"


@invariant("an incident is open only while its gang goes on")
def _incidents(state: State) -> Iterator[str]:
    for name, gang in sorted(state.gangs.items()):
        if gang.incident and gang.phase in ENDED_GANG:
            yield f"{name} has ended with incident {gang.incident} open"
        if gang.incident and str(gang.incident) not in state.incidents:
            yield f"{name} has incident {gang.incident}, which is forgotten"


@invariant("a drained host is empty")
def _drained(state: State) -> Iterator[str]:
    for name, host in sorted(state.hosts.items()):
        if host.drain == "drained" and host.tasks and host.status != HostStatus.REMOVED:
            yield f"{name} has {len(host.tasks)} tasks"


@invariant("no more hosts are in quarantine without approval than were allowed")
def _quarantine_share(state: State) -> Iterator[str]:
    out = [row for row in state.quarantines.values() if row.state in OUT_OF_FLEET and row.allowed]
    allowed = max((row.allowed for row in out), default=0)
    if len(out) > allowed:
        yield f"{len(out)} of {allowed}: {', '.join(sorted(row.host for row in out))}"


@invariant("a host is used as far as its quarantine allows")
def _quarantine_kept(state: State) -> Iterator[str]:
    for name, row in sorted(state.quarantines.items()):
        host = state.hosts.get(name)
        if host is None or host.status == HostStatus.REMOVED:
            yield f"{name} is {row.state or 'remembered'} and gone"
            continue
        if bool(host.quarantine) != (row.state in OUT_OF_FLEET):
            yield f"{name} is {row.state or 'remembered'}, marked {host.quarantine!r}"
        if bool(host.test) != (row.state == QuarantineState.TESTING):
            yield f"{name} is {row.state or 'remembered'}, its test asked at {host.test}"
        tasks = [state.tasks[key] for key in host.tasks if key in state.tasks]
        given = [task for task in tasks if task.status in (TaskStatus.PLACED, TaskStatus.RUNNING)]
        if host.probation and len(given) > host.probation:
            yield f"{name} has {len(given)} tasks on probation with {host.probation}"
        if row.state == QuarantineState.TESTING and given:
            yield f"{name} has {len(given)} tasks while it is tested"
    for key, task in sorted(state.tasks.items()) if state.meta.logic_version > 1 else ():
        host = state.hosts.get(task.host)
        marked = host is None or host.quarantine or host.withheld
        if task.status == TaskStatus.UNKILLABLE and not marked:
            yield f"{task.host} takes work beside {key}, which cannot be killed"


@invariant("a maintenance has no more hosts out than its limit")
def _maintenance_limit(state: State) -> Iterator[str]:
    for key, row in sorted(state.maintenances.items()):
        if len(row.out) > row.limit:
            yield f"{key}: {len(row.out)} of {row.limit}"
        for out in row.out if not row.ending else ():
            host = state.hosts.get(out.host)
            if host is None or not host.drain:
                yield f"{key}: {out.host} counts as out and takes work"


@invariant("a host is silent with one domain at most")
def _silences(state: State) -> Iterator[str]:
    silent = Counter(name for row in state.silences.values() for name in row.hosts)
    for name, count in sorted(silent.items()):
        if count > 1:
            yield f"{name} with {count}"


@invariant("no queue uses more than its quota and what it may borrow")
def _quotas(state: State) -> Iterator[str]:
    used: Counter[str] = Counter()
    for gang in state.gangs.values():
        if gang.claim and gang.job in state.jobs:
            job = state.jobs[gang.job]
            used[job.spec.queue] += charge_of(gang, job)
    for name, queue in sorted(state.queues.items()):
        limit = limit_of(queue.spec)
        if used[name] > max(limit, queue.overdrawn) and limit >= 0:
            yield f"{name} uses {used[name]} of {limit} thousandths of devices"
    for name in sorted({**dict(used), **state.claims.queues}):
        noted = state.claims.queues.get(name, 0)
        if noted != used[name]:
            yield f"{name or 'no queue'} uses {used[name]} and is charged with {noted}"


@invariant("a gang that gives way stops for one that waits, runs or has ended, and is not charged")
def _giving_way(state: State) -> Iterator[str]:
    for key, gang in sorted(state.gangs.items()):
        if gang.yields_to and (gang.phase != GangPhase.STOPPING or gang.claim or gang.holds):
            yield f"{key} is {gang.phase}, claims {gang.claim} and gives way to {gang.yields_to}"
        for victim in gang.victims:
            found = state.gangs.get(victim)
            if found is None or found.yields_to != key:
                yield f"{victim} does not give way to {key}"
        if gang.victims and gang.phase != GangPhase.WAITING:
            yield f"{key} is {gang.phase} and has others stopping for it"


@invariant("at most one gang has room kept from those behind it, and it waits")
def _reserving(state: State) -> Iterator[str]:
    reserving = [gang for gang in state.gangs.values() if gang.reserving]
    for gang in reserving:
        if len(reserving) > 1 or gang.phase != GangPhase.WAITING:
            yield f"{gang.key} is {gang.phase}"


@invariant("a queue is charged with what runs, and with nothing that has ended")
def _claims(state: State) -> Iterator[str]:
    for key, gang in sorted(state.gangs.items()):
        if (key in state.claims.of) != bool(gang.claim):
            yield f"{key} claims {gang.claim}"
        if gang.claim and gang.phase in ENDED_GANG:
            yield f"{key} is {gang.phase} and claims {gang.claim}"
        active = gang.phase in (GangPhase.STARTING, GangPhase.RUNNING)
        if gang.claim and active and gang.claim != gang.size:
            yield f"{key} claims {gang.claim} of {gang.size}"


@invariant("no more spares are kept for a gang than its role has")
def _spares(state: State) -> Iterator[str]:
    for name, gang in sorted(state.gangs.items()):
        role = state.jobs[gang.job].spec.role(gang.role) if gang.job in state.jobs else None
        kept = sum(hold.spare for hold in gang.holds) + len(gang.standbys)
        if role is not None and kept > role.spares:
            yield f"{name} keeps {kept} of {role.spares}"


@invariant("a rank has one process, and a standby takes none")
def _standbys(state: State) -> Iterator[str]:
    listed = Counter(key for gang in state.gangs.values() for key in gang.standbys)
    for key, count in sorted(listed.items()):
        task = state.tasks.get(key)
        if task is None or count > 1:
            yield f"{key} is listed {count} times, {task.status if task else 'gone'}"
        elif not task.standby or task.status not in (TaskStatus.PLACED, TaskStatus.RUNNING):
            yield f"{key} is {task.status} and listed{'' if task.standby else ', a rank'}"
    for key, task in sorted(state.tasks.items()):
        waits = task.standby and task.status in (TaskStatus.PLACED, TaskStatus.RUNNING)
        if waits and key not in listed:
            yield f"{key} waits for nobody"
    for name, gang in sorted(state.gangs.items()):
        yield from _ranks(state, gang)
        if bool(gang.standbys) != (name in state.recovering.standing):
            yield f"{name} has {len(gang.standbys)}, listed {name in state.recovering.standing}"
        if gang.standbys and gang.phase in ENDED_GANG:
            yield f"{name} is {gang.phase} and has {', '.join(gang.standbys)}"


def _ranks(state: State, gang: Gang) -> Iterator[str]:
    tasks = [state.tasks[key] for key in gang.live if key in state.tasks]
    for index, count in sorted(Counter(task.index for task in tasks).items()):
        if count > 1:
            yield f"rank {index} of {gang.key} has {count}"
    for task in tasks:
        if task.standby:
            yield f"{gang.key} counts {task.key}, which waits"


@invariant("nobody works with weights that were not published")
def _weights(state: State) -> Iterator[str]:
    for key, task in sorted(state.tasks.items()):
        known = state.weights.get(task.job)
        if (
            task.weights
            and task.job in state.jobs
            and (known is None or task.weights > known.version)
        ):
            yield f"{key} works with {task.weights} of {known.version if known else 'none'}"


@invariant("of gangs that restart together none runs before all have stopped")
def _together(state: State) -> Iterator[str]:
    for name, gang in sorted(state.gangs.items()):
        stopping = gang.phase == GangPhase.STOPPING and bool(gang.together)
        listed = name in state.recovering.leaving.get(gang.together, {})
        if stopping != listed:
            yield f"{name} is {gang.phase} with {gang.together}, listed {listed}"
        if gang.together and gang.phase in (GangPhase.STARTING, GangPhase.RUNNING):
            yield f"{name} is {gang.phase} and waits for those of incident {gang.together}"
