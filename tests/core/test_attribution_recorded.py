"""Seven faults of recorded PyTorch runs, and two of flight recorders: the true rank is found."""

from __future__ import annotations

import io
import itertools
import json
import lzma
import re
import tarfile
from pathlib import Path

import msgspec
import pytest
from coord_sim.core_world.driver import Driver

from coord.core.causes.flight_recorder import Dump, DumpError, diagnose, read_dump
from coord.model import events
from coord.model.entities import FailureCause, Incident
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec

TELEMETRY = Path(__file__).parents[3] / "shared" / "data" / "telemetry"
TORCHRUN = TELEMETRY / "torchrun_elastic"
RECORDER = TELEMETRY / "nccl_flight_recorder" / "fr_dumps_json.tar.xz"
WORLD = 4
PER_NODE = 2
TRUE_RANK = WORLD - 1
"""In every run it was the last rank that failed, and the whole second node in `nodeloss`."""

SCENARIOS = {
    "raise": FailureCause.INFRASTRUCTURE,
    "raise_norestart": FailureCause.INFRASTRUCTURE,
    "kill": FailureCause.INFRASTRUCTURE,
    "segv": FailureCause.USER,
    "exit": FailureCause.USER,
    "hang": FailureCause.UNKNOWN,
    "nodeloss": FailureCause.INFRASTRUCTURE,
}
"""Who pays. The exception that was raised speaks of an uncorrectable memory error."""


def archive(path: Path) -> tarfile.TarFile:
    if not path.exists():
        pytest.skip(f"{path} is not there: recorded runs are not part of this repository")
    with lzma.open(path) as packed:
        return tarfile.open(fileobj=io.BytesIO(packed.read()))


def error_files(scenario: str) -> dict[int, tuple[str, int]]:
    """(message, time in milliseconds) of each rank that left an error file in its first attempt."""
    found = {}
    pattern = re.compile(rf"(?:\./)?{scenario}/node(\d)/[^/]+/attempt_0/(\d)/error\.json")
    with archive(TORCHRUN / "worker_dirs.tar.xz") as packed:
        for member in packed.getmembers():
            match = pattern.fullmatch(member.name)
            if match is not None:
                file = packed.extractfile(member)
                assert file is not None
                said = json.load(file)["message"]
                rank = int(match[1]) * PER_NODE + int(match[2])
                stamp = int(said["extraInfo"]["timestamp"])
                found[rank] = (said["message"], stamp * 1_000)
    return found


def exits(scenario: str) -> dict[int, dict[str, object]]:
    """What the agents of that run saw of each rank: its error file where it left one, and for the
    others what was done to them (SOURCE.txt, and the reports in the agents' logs)."""
    said = error_files(scenario)
    seen: dict[int, dict[str, object]] = {
        rank: {"exit_code": 1, "error": message, "failed_at_ms": at_ms}
        for rank, (message, at_ms) in said.items()
    }
    log = (TORCHRUN / f"{scenario}_agent_node1.log").read_text()
    own = {
        "kill": {"signal": 9},
        "segv": {"signal": 11},
        "exit": {"exit_code": 124},
        "hang": {"signal": 15, "expected": True},
    }
    if scenario in own:
        assert TRUE_RANK not in said
        seen[TRUE_RANK] = own[scenario]
    if scenario == "segv":
        assert "SIGSEGV" in log
    if scenario == "exit":
        assert re.search(r"exitcode\s+: 124", log)
    return seen


class Job:
    """A gang of four on two hosts, as in the recorded runs."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.send(events.LeaderElected(1, 1))
        self.send(events.ClusterConfigured("c", Settings(), 2))
        for host in ("node0", "node1"):
            self.send(events.HostRegistered(host, f"agent-{host}", "boot", host, devices=PER_NODE))
        role = RoleSpec("t", ("train",), replicas=WORLD, resources=Resources(devices=1))
        self.send(events.JobSubmitted(JobSpec("j", (role,), RestartPolicy())))
        for rank in range(WORLD):
            self.send(events.TaskStarted(self.host(rank), 1, self.task(rank), 100 + rank))

    def send(self, event: events.AnyEvent) -> None:
        self.driver.wall_ms += 10
        self.driver.send(event)

    def task(self, rank: int) -> str:
        return f"j/t/{rank}#1"

    def host(self, rank: int) -> str:
        return f"node{rank // PER_NODE}"

    def exited(self, rank: int, facts: dict[str, object]) -> None:
        event = {"type": "TaskExited", "host": self.host(rank), "incarnation": 1}
        self.send(_event({**event, "task": self.task(rank), **facts}))

    def reap_all(self) -> Incident:
        for rank in range(WORLD):
            if self.task(rank) in self.driver.state.tasks:
                self.send(events.TaskReaped(self.host(rank), 1, self.task(rank)))
        return self.driver.state.incidents["1"]


def _event(fields: dict[str, object]) -> events.AnyEvent:
    found: events.AnyEvent = msgspec.convert(fields, events.AnyEvent)
    return found


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "nodeloss"])
def test_the_true_rank_is_found_in_whatever_order_exits_are_told(scenario: str) -> None:
    """In all 24 orders. A rank that was ended by its agent is told of after the first failure."""
    seen = exits(scenario)
    assert sorted(seen) == list(range(WORLD))
    for order in itertools.permutations(range(WORLD)):
        if seen[order[0]].get("expected"):
            continue
        job = Job()
        for rank in order:
            job.exited(rank, seen[rank])
        incident = job.reap_all()
        assert (incident.subject, incident.cause) == (job.task(TRUE_RANK), SCENARIOS[scenario]), (
            order
        )


def test_a_lost_node_is_the_root_of_what_its_peers_report() -> None:
    """The ranks of the first node lose their connections; the second node is never heard again."""
    seen = exits("nodeloss")
    assert sorted(seen) == [0, 1]
    job = Job()
    for rank in (1, 0):
        job.exited(rank, seen[rank])
    state = job.driver.state
    while state.hosts["node1"].status != "lost":
        job.driver.wall_ms += 490
        slot = state.hosts["node0"].slot
        job.send(events.HeartbeatsSeen("node:1", (slot,), (1,)))
        job.send(events.ClockAdvanced())
        assert state.meta.now_ms < 60_000
    incident = state.incidents["1"]
    assert (incident.subject, incident.cause) == ("node1", FailureCause.INFRASTRUCTURE)


def dumps(scenario: str) -> list[Dump]:
    found = []
    with archive(RECORDER) as packed:
        for member in packed.getmembers():
            match = re.search(rf"{scenario}/_dump_(\d+)\.json$", member.name)
            if match is not None:
                file = packed.extractfile(member)
                assert file is not None
                found.append(read_dump(int(match[1]), json.load(file)))
    return found


@pytest.mark.parametrize(
    ("scenario", "injected", "missing"),
    [("gpu_error_1st", (12, 14), (12,)), ("lock_gil_1st", (9, 14), (9, 14))],
)
def test_flight_recorders_name_the_ranks_that_did_not_join(
    scenario: str, injected: tuple[int, ...], missing: tuple[int, ...]
) -> None:
    """As the recorder's own analyser found, and all of them ranks that a fault was injected into.
    (Of the two with a device error, the second waits for the first.)"""
    found = diagnose(dumps(scenario))
    assert found.missing == missing
    assert [rank for rank in found.missing if rank not in injected] == []
    assert (found.op, found.group.split()[1]) == ("all_to_all", "EXPERT_MODEL_PARALLEL_GROUP")
    assert [rank for rank in found.waiting if rank in missing] == []


@pytest.mark.parametrize(
    ("scenario", "missing"), [("gpu_error_1st", (12,)), ("lock_gil_1st", (9, 14))]
)
def test_a_rank_that_left_no_dump_is_missing_as_well(
    scenario: str, missing: tuple[int, ...]
) -> None:
    """A process that died cannot dump."""
    for gone in missing:
        found = diagnose(dump for dump in dumps(scenario) if dump.rank != gone)
        assert found.missing == missing
        assert found.without_dump == (gone,)


def entry(seq: int, state: str = "scheduled", group: str = "g") -> dict[str, object]:
    return {
        "process_group": [group, "kind"], "pg_id": 0, "collective_seq_id": seq, "state": state,
        "profiling_name": "nccl:all_reduce", "time_created_ns": seq,
    }  # fmt: skip


def dump(rank: int, *entries: dict[str, object], members: str = "[0, 1, 2]") -> Dump:
    config = {"g": {"name": "g", "desc": "kind", "ranks": members}}
    return read_dump(rank, {"entries": list(entries), "pg_config": config})


def test_nobody_is_missing_where_everybody_joined() -> None:
    """A slow collective is nobody's fault that a recorder could show."""
    assert diagnose([dump(rank, entry(5)) for rank in range(3)]).missing == ()


def test_a_circle_of_waits_names_no_root() -> None:
    """Ranks that call collectives in different orders wait for each other."""
    config = {name: {"name": name, "desc": name, "ranks": [0, 1]} for name in ("a", "b")}
    one = read_dump(0, {"entries": [entry(1, group="a")], "pg_config": config})
    other = read_dump(1, {"entries": [entry(1, group="b")], "pg_config": config})
    found = diagnose([one, other])
    assert (found.missing, found.circle) == ((), (0, 1))


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"entries": {}},
        {"entries": [{}]},
        {"entries": [None]},
        {"entries": [entry(1) | {"process_group": "g"}]},
        {"entries": [entry(1) | {"time_created_ns": "soon"}]},
        {"entries": [], "pg_config": {"g": {}}},
        {"entries": [], "pg_config": {"g": {"ranks": "[0, "}}},
        {"entries": [], "pg_status": {"0": {}}},
        {"entries": [], "pg_status": []},
    ],
)
def test_what_is_no_dump_is_refused(content: object) -> None:
    """With what is wrong, and never with another exception."""
    if content == {"entries": [], "pg_status": []}:
        assert read_dump(0, content).enqueued == {}
        return
    with pytest.raises(DumpError):
        read_dump(0, content)


def test_two_dumps_of_one_rank_are_refused() -> None:
    with pytest.raises(DumpError, match="rank 1"):
        diagnose([dump(1, entry(1)), dump(1, entry(2))])
