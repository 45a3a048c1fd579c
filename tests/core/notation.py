"""The language of transcripts: one line, one event (or one for each task that a `*` matches).

    leader 1                              LeaderElected of the next term; `term=5` for a certain one
    configure lease_ms=3000 logic=2       ClusterConfigured; what is not given is as in `QUICK`
    host h1 devices=1 found=d/t/0#1:100   HostRegistered; `found=KEY:PID:exited`, comma-separated
      ... place=z1/p1/r1/n1 rails=a:leaf1,b    where it stands; rails with their switches
    topology h1=z1/p1 h2=z1/p2:a@l1,b@l2 h3=:@l1 switch l1=s1*4,s2 s1 s2 | merge
                                          TopologyImported; after `:` rails, `@l1` alone a leaf
    beat h1 h2 | beat all | beat all but h3
    tick                                  ClockAdvanced
    submit d: t x4 devices=1 spares=1; s x2 independent | user_limit=1 checkpoint_dir=/c
    submit d: t x4 within=rack whole_hosts; s x2 near=t near_required apart_from=t,job/e
    submit d: t x4; s x2 after=t             s gets no place before t has started
    submit d: t x4 scope=job shrink_after_ms=5000 grow_every_ms=0; s x2 independent optional
                                          how roles recover; `optional`: not required
    submit d: t x4 spares=2 hot_spares=1  a spare whose process is up, and one whose place is kept
    started, exited, reaped, unkillable, launch-failed, progress, begin, shard TASK key=value ...
    publish TASK version=1 step=3 uri=u, load TASK version=1
    preempt h1 grace_ms=500, drain h1, undrain h1, remove h1
    drain h1 within_ms=60000              moves at checkpoints, the last by then
    quarantine h1 reason=x, release h1 [repaired], approve h1 [version=9], decline h1 [version=9]
    health h1 outcome=passed occasion=on_request
    fault h1 kind=xid code=79 numbers=0,1, timed-out TASK missing=1,3 (by me: `by=me`)
    maintenance rack z1/p1/r1 limit=2 within_ms=60000 [safe], cancel-maintenance 1
    set-queue q quota=8 quotas.h100=4 borrowing_limit=2 may_preempt=true, remove-queue q
    submit d: t x4 devices=1 | queue=q priority=2 owner=ann preemptible=false
    cancel d, resize d t 3, rollback d step=100, rollback d back=2, note, allow-evictions, version 2

A task is `d/t/0#1`; `d/t/*#1` is each of that generation which the state knows, by index. Its host
and incarnation are those of the state unless `host=` and `incarnation=` say otherwise. Any line may
end with `as=client:me/5` (who sent it, as its how-manieth) and `term=3`.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from coord.core.state import State
from coord.model import events
from coord.model.entry import Origin
from coord.model.events import AnyEvent
from coord.model.place import Located, Place, Rail, Switch, Uplink
from coord.model.queue import QueueSpec
from coord.model.recovery import RoleRecovery
from coord.model.settings import Settings, with_numbers
from coord.model.spec import JobSpec, Placing, Resources, RestartPolicy, RoleSpec

QUICK = {"lease_ms": 3_000, "suspect_ms": 1_500, "heartbeat_ms": 500, "fence_ms": 1_000}
"""Short leases keep transcripts short."""

QUEUEING = ("queue", "priority", "owner", "preemptible")
"""Of a job, where it waits."""


class Line(msgspec.Struct):
    """What a line says: events, and how they are sent."""

    events: list[AnyEvent]
    origin: Origin | None = None
    term: int | None = None


class Unreadable(ValueError):
    """The line is not in the language."""


def parse(text: str, state: State) -> Line:
    verb, *words = shlex.split(text)
    if verb == "topology":
        words, tail = _split_sender(words)
        return _line([_topology(words)], tail, 0)
    if verb == "submit":
        words, tail = _split_sender(words)
        return _line([_submit(words)], tail, 0)
    plain = [word for word in words if "=" not in word]
    options: dict[str, Any] = dict(word.split("=", 1) for word in words if "=" in word)
    sender = {
        name: options.pop(name) for name in ("as", "term") if name in options and verb != "leader"
    }
    incarnation = int(options.get("incarnation", 0))
    reader = VERBS.get(verb)
    if reader is None:
        raise Unreadable(f"no verb {verb!r} in {text!r}; there are {', '.join(VERBS)}")
    return _line(reader(state, plain, options), sender, incarnation)


def _split_sender(words: list[str]) -> tuple[list[str], dict[str, str]]:
    ours = [word for word in words if not word.startswith(("as=", "term="))]
    tail = dict(word.split("=", 1) for word in words if word.startswith(("as=", "term=")))
    return ours, tail


def _line(found: list[AnyEvent], sender: dict[str, str], incarnation: int) -> Line:
    origin = None
    if "as" in sender:
        actor, _, seq = sender["as"].rpartition("/")
        if actor.startswith("host:"):
            incarnation = incarnation or getattr(found[0], "incarnation", 0)
        else:
            incarnation = 0
        origin = Origin(actor, incarnation, int(seq))
    return Line(found, origin, int(sender["term"]) if "term" in sender else None)


def _leader(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    term = int(options.get("term", state.meta.term + 1))
    return [events.LeaderElected(int(plain[0]), term)]


def _configure(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    cluster = plain[0] if plain else "c"
    logic_version = int(options.pop("logic", 1))
    numbers = {name: int(value) for name, value in options.items()}
    settings = with_numbers(Settings(), {**QUICK, **numbers})
    return [events.ClusterConfigured(cluster, settings, logic_version)]


def _host(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    name = plain[0]
    found = []
    for item in filter(None, options.pop("found", "").split(",")):
        key, pid, *exited = item.split(":")
        found.append(events.TaskFound(key, int(pid), not exited))
    ports = tuple(int(port) for port in filter(None, options.pop("ports", "").split(",")))
    known = state.hosts.get(name)
    said = known.announced if known and known.announced else Located(name)
    where = options.pop("place", None)
    place = said.place if where is None else Place(*where.split("/"))
    cables = options.pop("rails", None)
    rails = said.rails
    if cables is not None:
        rails = tuple(_rail(word) for word in filter(None, cables.split(",")))
    given = {
        "host": name,
        "agent": known.agent if known else f"agent-{name}",
        "boot": known.boot if known else "boot-1",
        "address": known.address if known else f"{name}.lan",
        "devices": known.devices if known else 0,
        "cpu_millis": known.cpu_millis if known else 0,
        "memory_mib": known.memory_mib if known else 0,
        **options,
    }
    event = _convert(given, events.HostRegistered)
    stands = {"place": place, "rails": rails}
    return [msgspec.structs.replace(event, tasks=tuple(found), ports=ports, **stands)]


def _rail(word: str) -> Rail:
    rail, _, switch = word.replace(":", "@").partition("@")
    return Rail(rail, switch)


def _topology(words: list[str]) -> AnyEvent:
    merge = words[-2:] == ["|", "merge"]
    words = words[:-2] if merge else words
    at = words.index("switch") if "switch" in words else len(words)
    hosts = tuple(_located(word) for word in words[:at])
    switches = tuple(_switch(word) for word in words[at + 1 :])
    return events.TopologyImported(hosts, switches, "fleet.conf", "me", merge)


def _located(word: str) -> Located:
    host, _, where = word.partition("=")
    place, _, rails_text = where.partition(":")
    rails = [_rail(rail) for rail in filter(None, rails_text.split(","))]
    leaf = next((rail.switch for rail in rails if not rail.rail), "")
    kept = tuple(rail for rail in rails if rail.rail)
    return Located(host, Place(*place.split("/")), kept, leaf)


def _switch(word: str) -> Switch:
    name, _, above = word.partition("=")
    uplinks = []
    for up in filter(None, above.split(",")):
        switch, _, links = up.partition("*")
        uplinks.append(Uplink(switch, int(links or 1)))
    return Switch(name, tuple(uplinks))


def _beat(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    names = plain
    if plain[0] == "all":
        absent = plain[2:]
        names = [name for name in state.slots if name not in absent]
    pairs = sorted((state.hosts[name].slot, state.hosts[name].incarnation) for name in names)
    if "incarnation" in options:
        pairs = [(slot, int(options["incarnation"])) for slot, _ in pairs]
    slots, incarnations = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    return [events.HeartbeatsSeen("node:1", slots, incarnations)]


def _submit(words: list[str]) -> AnyEvent:
    text = " ".join(words)
    roles_text, _, rest = text.partition("|")
    name, _, roles_text = roles_text.partition(":")
    policy: dict[str, Any] = dict(word.split("=", 1) for word in rest.split())
    checkpoint_dir = policy.pop("checkpoint_dir", "")
    hang_floor_ms = int(policy.pop("hang_floor_ms", 0))
    queueing = {name: policy.pop(name) for name in QUEUEING if name in policy}
    parts = [part.split() for part in roles_text.split(";") if part.strip()]
    roles = tuple(_role([word for word in part if not _recovers(word)]) for part in parts)
    recovery = tuple(found for part in parts for found in _recovery(part))
    spec = JobSpec(name.strip(), roles, _convert(policy, RestartPolicy), checkpoint_dir)
    queued = _convert({"name": spec.name, "roles": (), **queueing}, JobSpec)
    queueing = {name: getattr(queued, name) for name in queueing}
    spec = msgspec.structs.replace(spec, hang_floor_ms=hang_floor_ms, recovery=recovery, **queueing)
    return events.JobSubmitted(spec, "me")


def _recovers(word: str) -> bool:
    return word == "optional" or word.partition("=")[0] in RoleRecovery.__struct_fields__


def _recovery(words: list[str]) -> list[RoleRecovery]:
    given: dict[str, Any] = {}
    for word in filter(_recovers, words[1:]):
        key, _, value = word.partition("=")
        given[key] = value
    if "optional" in given:
        del given["optional"]
        given["required"] = False
    return [_convert({**given, "role": words[0]}, RoleRecovery)] if given else []


def _role(words: list[str]) -> RoleSpec:
    name, *rest = words
    given: dict[str, Any] = {"name": name, "command": ("train",)}
    resources: dict[str, Any] = {}
    placing: dict[str, Any] = {}
    env: dict[str, str] = {}
    for word in rest:
        key, _, value = word.partition("=")
        if word[0] == "x" and word[1:].lstrip("-").isdigit():
            given["replicas"] = word[1:]
        elif word == "independent":
            given["gang"] = False
        elif word in ("exclusive", "service"):
            given[word] = True
        elif word in ("whole_hosts", "near_required"):
            placing[word] = True
        elif key in ("apart_from", "after"):
            placing[key] = tuple(value.split(","))
        elif key in Placing.__struct_fields__:
            placing[key] = value
        elif key == "device_types":
            resources[key] = tuple(value.split(","))
        elif key in Resources.__struct_fields__:
            resources[key] = value
        elif key.startswith("env."):
            env[key[4:]] = value
        elif key in RoleSpec.__struct_fields__:
            given[key] = value
        else:
            raise Unreadable(f"no word {word!r} of a role")
    role = _convert({**given, "env": env}, RoleSpec)
    return msgspec.structs.replace(
        role, resources=_convert(resources, Resources), placement=_convert(placing, Placing)
    )


def _about_tasks(event_type: type[Any], flags: tuple[str, ...] = ()) -> Any:
    def read(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
        given = dict(options)
        for word in plain[1:]:
            if word == "unobserved":
                given["observed"] = False
            elif word in flags:
                given[word] = True
            else:
                raise Unreadable(f"no word {word!r} of {event_type.__name__}")
        if "code" in given:
            given["exit_code"] = given.pop("code")
        return [_report(event_type, state, key, dict(given)) for key in _tasks(state, plain[0])]

    return read


def _tasks(state: State, pattern: str) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    before, _, after = pattern.partition("*")
    found = [
        task for key, task in state.tasks.items() if key.startswith(before) and key.endswith(after)
    ]
    if not found:
        raise Unreadable(f"no task is like {pattern}")
    return [task.key for task in sorted(found, key=lambda task: (task.role, task.index))]


def _report(event_type: type[Any], state: State, key: str, given: dict[str, Any]) -> AnyEvent:
    task = state.tasks.get(key)
    host = given.setdefault("host", task.host if task else "h1")
    known = state.hosts.get(host)
    given.setdefault("incarnation", known.incarnation if known else 1)
    given["task"] = key
    if "pid" in event_type.__struct_fields__:
        given.setdefault("pid", 100 + (task.index if task else 0))
    if event_type in (events.CheckpointBegun, events.ShardSaved):
        generation = key.rpartition("#")[2]
        given.setdefault("path", f"/c/step-{given['step']}-gen-{generation}")
    if event_type is events.ShardSaved:
        given.setdefault("shard", f"rank-{task.index if task else 0}.bin")
        given.setdefault("digest", f"d{task.index if task else 0}")
    return _convert(given, event_type)


def _fault(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    numbers = tuple(int(one) for one in filter(None, options.pop("numbers", "").split(",")))
    (event,) = _about_host(events.DeviceFaultSeen, kind="xid")(state, plain, options)
    return [msgspec.structs.replace(event, numbers=numbers)]


def _about_host(event_type: type[Any], **defaults: str) -> Any:
    def read(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
        given = {"host": plain[0], **defaults, **options}
        if "incarnation" in event_type.__struct_fields__:
            known = state.hosts.get(plain[0])
            given.setdefault("incarnation", known.incarnation if known else 1)
            if given.get("occasion") == "on_request":
                given.setdefault("test", known.test if known else 0)
        else:
            given.setdefault("actor", "me")
        return [_convert(given, event_type)]

    return read


def _answer(approved: bool) -> Any:
    def read(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
        row = state.quarantines.get(plain[0])
        version = int(options.get("version", row.version if row else 0))
        reason = options.get("reason", "")
        return [events.QuarantineAnswered(plain[0], version, approved, "me", reason)]

    return read


def _release(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    reason = options.get("reason", "")
    return [events.HostReleaseRequested(plain[0], "me", reason, "repaired" in plain)]


def _maintenance(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    given = {"level": plain[0], "domain": plain[1], "actor": "me", **options}
    return [_convert({**given, "safe": "safe" in plain}, events.MaintenanceRequested)]


def _queue(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    quotas = {name[7:]: options.pop(name) for name in list(options) if name.startswith("quotas.")}
    spec = _convert({"name": plain[0], "quotas": quotas, **options}, QueueSpec)
    return [events.QueueConfigured(spec, "me")]


def _cancel(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    return [events.JobCancelRequested(plain[0], "me", options.get("reason", ""))]


def _resize(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    return [events.JobResizeRequested(plain[0], plain[1], int(plain[2]), "me")]


def _rollback(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    return [_convert({"job": plain[0], "actor": "me", **options}, events.RollbackRequested)]


def _convert(given: dict[str, Any], kind: type[Any]) -> Any:
    return msgspec.convert(given, kind, strict=False)


def _timed_out(state: State, plain: list[str], options: dict[str, Any]) -> list[AnyEvent]:
    given = {"op": "all_reduce", **options}
    given["missing"] = [rank for rank in str(given.get("missing", "")).split(",") if rank]
    if "by" in given:
        given["actor"] = given.pop("by")
        return [_convert({**given, "task": plain[0]}, events.CollectiveTimedOut)]
    return [_report(events.CollectiveTimedOut, state, plain[0], given)]


VERBS: dict[str, Any] = {
    "leader": _leader,
    "configure": _configure,
    "host": _host,
    "beat": _beat,
    "tick": lambda *_: [events.ClockAdvanced()],
    "version": lambda _, plain, __: [events.LogicVersionRaised(int(plain[0]))],
    "note": lambda _, plain, __: [events.NoteAdded("me", plain[0], " ".join(plain[1:]))],
    "allow-evictions": lambda *_: [events.EvictionsAllowed("me", "looked at it")],
    "started": _about_tasks(events.TaskStarted),
    "exited": _about_tasks(events.TaskExited, ("expected", "oom")),
    "reaped": _about_tasks(events.TaskReaped),
    "unkillable": _about_tasks(events.TaskUnkillable),
    "launch-failed": _about_tasks(events.LaunchFailed, ("user_error",)),
    "progress": _about_tasks(events.ProgressReported),
    "begin": _about_tasks(events.CheckpointBegun),
    "shard": _about_tasks(events.ShardSaved),
    "publish": _about_tasks(events.WeightsPublished),
    "load": _about_tasks(events.WeightsLoaded),
    "preempt": _about_host(events.PreemptionNoticed),
    "drain": _about_host(events.DrainRequested),
    "undrain": _about_host(events.UndrainRequested),
    "quarantine": _about_host(events.HostQuarantineRequested),
    "release": _release,
    "approve": _answer(True),
    "decline": _answer(False),
    "maintenance": _maintenance,
    "cancel-maintenance": lambda _, plain, __: [events.MaintenanceCancelled(int(plain[0]), "me")],
    "remove": _about_host(events.HostRemovalRequested),
    "fault": _fault,
    "timed-out": _timed_out,
    "health": _about_host(events.HealthChecked, check="gpu", occasion="periodic"),
    "set-queue": _queue,
    "remove-queue": lambda _, plain, __: [events.QueueRemoved(plain[0], "me")],
    "cancel": _cancel,
    "resize": _resize,
    "rollback": _rollback,
}
