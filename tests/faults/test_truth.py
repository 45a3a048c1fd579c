"""The ground truth of ranks against the log: each planted fault is found, and only it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jepsen_lite.judge import replay as replaying
from jepsen_lite.judge import truth
from jepsen_lite.judge.exported import ExportedLog
from jepsen_lite.judge.lives import Life, Shard, Thaw, TruthDamaged, read_lives
from jepsen_lite.judge.replay import replay
from jepsen_lite.judge.story import every_job_with
from jepsen_lite.judge.truth import judge_ends, judge_truth
from jepsen_lite.judge.verdict import Verdict
from msgspec.structs import replace

from coord.core.state import encode_state
from coord.model.decisions import GangSucceeded, HostLost, TasksPlaced
from coord.model.events import (
    CheckpointBegun,
    HostRegistered,
    NoteAdded,
    ShardSaved,
    TaskExited,
    TaskReaped,
)
from tests.faults.made_logs import STEP_MS, MadeLog, verdicts

VIOLATION, UNKNOWN = Verdict.VIOLATION, Verdict.UNKNOWN
MS = 1_000_000
PATH = "/saved/step-0000000010-gen-1"


class Story:
    """Two hosts of two devices, a gang of two ranks, a checkpoint, a crash, a restart from it; and
    what its processes wrote down."""

    def __init__(self, *, exclusive: bool = False) -> None:
        self.made = made = MadeLog()
        self.lives: list[Life] = []
        made.host("h1")
        made.host("h2")
        made.submit("job", 2, exclusive=exclusive)
        self.start()
        self.save(10)
        self.committed_at = made.records[-1].entry.index
        self.end(1, exit_code=1)
        self.start()

    def start(self) -> None:
        """Processes for all that is placed."""
        placed = [task for task in self.made.state.tasks.values() if task.status == "placed"]
        self.made.start_all()
        for task in placed:
            gang = self.made.state.gangs[task.gang]
            life = Life(
                task=task.key,
                generation=task.generation,
                host=task.host,
                devices=task.devices,
                pid=100 + task.index,
                boot="boot",
                first_ns=self.now_ms * MS,
                last_ns=self.now_ms * MS,
                last_wall_ns=self.now_ms * MS,
                restore=gang.restore,
                restore_step=gang.restore_step,
            )
            if gang.restore:
                digest = self.digest(f"{task.key.partition('#')[0]}#1")
                life.restored = Shard(gang.restore, gang.restore_step, digest)
            self.lives.append(life)

    def save(self, step: int) -> None:
        """Every rank of the newest generation saves."""
        generation = self.made.state.gangs["job/trainer"].generation
        for life in self.of(generation):
            incarnation = self.made.state.hosts[life.host].incarnation
            digest = self.digest(life.task)
            told = (life.host, incarnation, life.task, step, PATH)
            self.made.report(CheckpointBegun(*told))
            life.written.append(Shard(PATH, step, digest))
            self.made.report(ShardSaved(*told, f"rank-{life.task}.bin", digest, 10))
            life.recorded.append(Shard(PATH, step, digest))
            self.live_on(life)

    def end(self, generation: int, *, exit_code: int) -> None:
        """All processes of it end."""
        lives = self.of(generation)
        for life in lives:
            life.code, life.done = exit_code, not exit_code
            self.live_on(life)
        for life in lives:
            told = (life.host, self.made.state.hosts[life.host].incarnation, life.task)
            self.made.report(TaskExited(*told, exit_code))
            self.made.report(TaskReaped(*told))

    @property
    def now_ms(self) -> int:
        return self.made.records[-1].entry.wall_ms

    def live_on(self, life: Life) -> None:
        life.last_ns = life.last_wall_ns = self.now_ms * MS

    def of(self, generation: int) -> list[Life]:
        return [life for life in self.lives if life.generation == generation]

    @staticmethod
    def digest(task: str) -> str:
        return f"digest of {task}"

    def judge(self, **options: bool) -> dict[str, Verdict]:
        return verdicts(judge_truth(self.lives, self.made.log(), **options))


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_restart_from_a_checkpoint_is_fine(story: Story) -> None:
    """To the end, with true clocks, and with those alive that the state says run."""
    assert {life.generation for life in story.lives} == {1, 2}
    assert story.of(2)[0].restore == PATH
    alive = story.of(2)
    state = story.made.state
    judgements = judge_truth(story.lives, story.made.log(), state, true_clocks=True, alive=alive)
    assert verdicts(judgements) == {}
    story.end(2, exit_code=0)
    assert any(
        isinstance(decision, GangSucceeded)
        for record in story.made.records
        for decision in record.decisions
    )
    assert story.judge(true_clocks=True) == {}
    assert verdicts([judge_ends(story.made.state, "job")]) == {}


def test_two_owners_of_a_device_are_found(story: Story) -> None:
    """An old rank still ran when a new one had its device."""
    old, new = story.of(1)[0], story.of(2)[0]
    assert (old.host, old.devices) == (new.host, new.devices)
    old.last_ns = new.first_ns
    assert story.judge() == {truth.ONE_OWNER: VIOLATION}


def test_clocks_of_different_boots_are_not_compared(story: Story) -> None:
    """CLOCK_MONOTONIC begins anew with each."""
    story.of(1)[0].boot = "another"
    story.of(1)[0].last_ns = story.of(2)[0].last_ns
    assert story.judge() == {}


def test_two_live_processes_of_one_task_are_found(story: Story) -> None:
    """On another device, so that nothing else is wrong."""
    life = story.of(2)[0]
    story.lives.append(replace(life, pid=999, devices=(7,)))
    assert story.judge() == {truth.ONE_RUN: VIOLATION}


def test_a_task_that_was_started_twice_is_found(story: Story) -> None:
    """One after the other: one run is one process."""
    life = story.of(2)[0]
    later = life.last_ns + MS
    story.lives.append(replace(life, pid=999, first_ns=later, last_ns=later))
    assert story.judge() == {truth.ONE_RUN: VIOLATION}


def test_an_exclusive_task_that_lives_beside_its_successor_is_found() -> None:
    """On another host, where its devices are its own."""
    story = Story(exclusive=True)
    assert story.judge(true_clocks=True) == {}
    old = story.of(1)[0]
    old.host, old.last_ns = "h9", story.of(2)[0].first_ns
    assert truth.EXCLUSIVE in story.judge()


def test_an_exclusive_task_that_outlives_the_placement_of_its_successor_is_found() -> None:
    """Though it was gone before the successor had a process; told by clocks that are true."""
    story = Story(exclusive=True)
    (placed_ms,) = [
        record.entry.wall_ms
        for record in story.made.records
        for decision in record.decisions
        if isinstance(decision, TasksPlaced) and decision.generation == 2
    ]
    old = story.of(1)[0]
    old.last_wall_ns = (placed_ms + STEP_MS // 2) * MS
    assert story.judge(true_clocks=False) == {}
    found = story.judge(true_clocks=True)
    assert found == {truth.EXCLUSIVE: VIOLATION, truth.REAPED: VIOLATION}


def test_an_exclusive_task_on_a_machine_that_stood_still_is_given_a_moment() -> None:
    """It stood still before its successor began, and was ended soon after it went on: nobody there
    could do better. What lives on is found, and what stood still on a machine that did not."""
    story = Story(exclusive=True)
    old, new = story.of(1)[0], story.of(2)[0]
    thaw = Thaw(new.first_ns + 3_000 * MS, 4_000 * MS)
    old.thaws.append(thaw)
    old.devices = ()
    old.last_ns = old.last_wall_ns = thaw.at_ns + 100 * MS
    new.last_ns = old.last_ns + MS

    def found(*frozen_hosts: str) -> bool:
        judgements = judge_truth(
            story.lives, story.made.log(), true_clocks=True, frozen_hosts=frozen_hosts
        )
        return truth.EXCLUSIVE in verdicts(judgements)

    assert found()
    assert not found(old.host)
    old.last_ns = old.last_wall_ns = thaw.at_ns + truth.THAW_NS + MS
    new.last_ns = old.last_ns + MS
    assert found(old.host)


def test_a_task_that_is_not_exclusive_may_outlive_its_replacement(story: Story) -> None:
    """On a host that is cut off nobody can end it."""
    old = story.of(1)[0]
    old.host = "h9"
    old.last_ns = old.last_wall_ns = story.of(2)[0].first_ns
    assert truth.EXCLUSIVE not in story.judge(true_clocks=True)


def test_a_start_that_did_not_happen_is_found(story: Story) -> None:
    """The log has another process than there was."""
    story.of(2)[0].pid = 555
    assert story.judge() == {truth.STARTED: VIOLATION}


def test_a_process_that_outlives_its_reaping_is_found(story: Story) -> None:
    """Its devices were given away as free. Clocks that were skewed say nothing of it."""
    old = story.of(1)[0]
    old.last_wall_ns += 4 * STEP_MS * MS
    assert story.judge(true_clocks=True) == {truth.REAPED: VIOLATION}
    assert story.judge(true_clocks=False) == {}


def test_a_shard_that_nobody_wrote_is_found(story: Story) -> None:
    """The log has another digest than what the rank wrote."""
    old = story.of(1)[0]
    old.written = [replace(old.written[0], digest="other")]
    old.recorded = []
    assert story.judge() == {truth.SAVED: VIOLATION}


def test_a_lost_report_of_a_shard_is_found(story: Story) -> None:
    """The rank was told that it is recorded."""
    life = story.of(2)[0]
    shard = Shard("/saved/step-0000000020-gen-2", 20, "digest")
    life.written.append(shard)
    life.recorded.append(shard)
    assert story.judge() == {truth.KEPT: VIOLATION}


def test_a_commit_of_an_old_generation_is_found(story: Story) -> None:
    """Its shards count although the next generation was placed: what a build would log that takes
    reports of an old generation."""
    records = story.made.records
    at = next(
        at
        for at, record in enumerate(records)
        if any(isinstance(each, TasksPlaced) and each.generation == 2 for each in record.decisions)
    )
    (commit,) = records[story.committed_at - 1].decisions
    late = replace(commit, step=20, path="/saved/step-0000000020-gen-1")
    records[at + 1] = replace(records[at + 1], decisions=(late,))
    (found,) = [
        each
        for each in judge_truth(story.lives, story.made.log())
        if each.verdict in (Verdict.VIOLATION, Verdict.UNKNOWN)
    ]
    assert found.check == truth.COMMITTED
    assert "generation 2 was placed last" in found.detail
    assert verdicts(replay(story.made.log()).judgements) == {replaying.FOLLOWS: VIOLATION}


def late_shard(story: Story, made: MadeLog, life: Life) -> ExportedLog:
    """The log with an entry more: a rank of generation 1 saves step 20, and a build that takes
    reports of what was given up lets it count."""
    path = "/saved/step-0000000020-gen-1"
    digest = story.digest(f"{life.task} at 20")
    life.written.append(Shard(path, 20, digest))
    incarnation = made.state.hosts[life.host].incarnation
    event = ShardSaved(life.host, incarnation, life.task, 20, path, "rank-late.bin", digest, 10)
    refused = made.say(event)
    assert refused.rejection
    made.records[-1] = replace(refused, rejection="")
    return made.log()


def test_a_shard_of_a_generation_that_was_followed_by_another_is_found(story: Story) -> None:
    """Whether or not a checkpoint comes of it."""
    log = late_shard(story, story.made, story.of(1)[0])
    judgements = judge_truth(story.lives, log)
    assert verdicts(judgements) == {truth.FENCED: VIOLATION}
    (found,) = [each for each in judgements if each.check == truth.FENCED]
    assert "generation 1 of job/trainer was given up at index" in found.detail


def test_a_shard_saved_late_on_a_host_that_was_lost_is_found() -> None:
    """No other generation has been placed by then, so nothing but the loss tells that it must not
    count."""
    story = Story()
    made, lost = story.made, story.of(2)[0]
    assert story.judge() == {}
    host = made.state.hosts[lost.host]
    decision = HostLost((), host.host, host.incarnation, 9_000)
    made.records[-1] = replace(made.records[-1], decisions=(decision,))
    path = "/saved/step-0000000020-gen-2"
    for life in story.of(2):
        digest = story.digest(f"{life.task} at 20")
        told = (life.host, made.state.hosts[life.host].incarnation, life.task, 20, path)
        life.written.append(Shard(path, 20, digest))
        assert made.report(ShardSaved(*told, f"rank-{life.task}.bin", digest, 10)).accepted
    judgements = judge_truth(story.lives, made.log())
    (found,) = [each for each in judgements if each.check == truth.FENCED]
    assert found.verdict is VIOLATION
    on_lost = [life for life in story.of(2) if life.host == lost.host]
    assert found.detail.count("was taken as lost at index") == len(on_lost)


def test_an_old_generation_that_writes_into_a_committed_checkpoint_is_found(story: Story) -> None:
    """The files of one checkpoint are of one generation."""
    life = story.of(2)[0]
    life.written.append(Shard(PATH, 10, "digest"))
    assert story.judge() == {truth.COMMITTED: VIOLATION}


def test_a_commit_without_the_shard_of_a_rank_is_found(story: Story) -> None:
    """One of its ranks has written nothing."""
    story.of(1)[1].written.clear()
    found = story.judge()
    assert found == {truth.COMMITTED: VIOLATION, truth.SAVED: VIOLATION}


@pytest.mark.parametrize(
    "change",
    [
        {"restore": "/saved/never"},
        {"restore": "", "restore_step": -1},
        {"trouble": "FileNotFoundError"},
        {"restored": Shard(PATH, 10, "other")},
    ],
)
def test_a_wrong_restore_is_found(story: Story, change: dict[str, object]) -> None:
    """From what was not committed; from nothing; from what is not there; from other content."""
    at = story.lives.index(story.of(2)[0])
    story.lives[at] = replace(story.lives[at], **change)
    assert story.judge() == {truth.RESTORED: VIOLATION}


@pytest.mark.parametrize("change", [{"code": None}, {"done": False}, {"code": 1}])
def test_a_success_that_did_not_happen_is_found(story: Story, change: dict[str, object]) -> None:
    """A rank was killed, or left early, or failed, and the gang succeeded."""
    story.end(2, exit_code=0)
    at = story.lives.index(story.of(2)[0])
    story.lives[at] = replace(story.lives[at], **change)
    assert story.judge() == {truth.SUCCEEDED: VIOLATION}


def test_jobs_without_diaries_are_not_judged_by_them(story: Story) -> None:
    """Nobody knows what their processes did."""
    story.end(2, exit_code=0)
    story.lives.clear()
    assert set(story.judge()) == {truth.SUCCEEDED, truth.COMMITTED, truth.SAVED}
    log = story.made.log()
    assert verdicts(judge_truth([], log, traced=every_job_with("elsewhere", log))) == {}
    assert every_job_with("truth", log)("job")


def test_who_lives_on_when_all_is_quiet_is_found(story: Story) -> None:
    """A rank that the state knows nothing of any more, and one that it takes for running."""
    log, state = story.made.log(), story.made.state
    one, other = story.of(2)
    for alive in ([one], [one, other, *story.of(1)]):
        judgements = judge_truth(story.lives, log, state, alive=alive)
        assert verdicts(judgements) == {truth.AGREED: VIOLATION}


def test_a_job_that_does_not_end_leaves_it_open(story: Story) -> None:
    """It may have lacked time."""
    assert verdicts([judge_ends(story.made.state, "job")]) == {truth.ENDED: UNKNOWN}
    assert verdicts([judge_ends(story.made.state, "other")]) == {}


def test_what_the_end_of_a_log_would_decide_is_left_open_without_it(story: Story) -> None:
    """A restore point that is named later, and who runs in the end."""
    cut = ExportedLog(story.made.records[: story.committed_at - 1], cut_off="by a crash")
    state = replay(cut).state
    found = verdicts(judge_truth(story.lives, cut, state, alive=story.of(2)))
    assert found == dict.fromkeys((truth.KEPT, truth.RESTORED, truth.AGREED), UNKNOWN)


# The replay


def test_an_outcome_that_does_not_follow_from_the_log_is_found(story: Story) -> None:
    """As of a server that broke the rules: it refused what must count."""
    records = story.made.records
    records[-1] = replace(records[-1], rejection="stale_incarnation")
    judgements = replay(story.made.log()).judgements
    assert verdicts(judgements) == {replaying.FOLLOWS: VIOLATION}
    assert "rejection recorded as 'stale_incarnation'" in judgements[0].detail


def test_a_broken_invariant_is_found(story: Story) -> None:
    """In the state from which the log begins: a device taken twice."""
    state = story.made.state
    task = next(iter(state.tasks.values()))
    state.tasks.put("twin", replace(task, key="twin"))
    encoded = encode_state(state)
    begin = len(story.made.records)
    story.made.say(HostRegistered("h3", "agent-h3", "boot", "127.0.0.1"))
    log = ExportedLog(story.made.records[begin:], start_state=encoded, start_index=begin + 1)
    judgements = replay(log).judgements
    assert verdicts(judgements) == {replaying.INVARIANTS: VIOLATION}
    assert f"after index {begin + 1}" in judgements[1].detail


def test_invariants_are_looked_at_less_often_when_time_is_up(story: Story) -> None:
    """And the judgement says so."""
    for number in range(3):
        story.made.host(f"more-{number}")
    hurried = replay(story.made.log(), budget_s=0.0).judgements[1].detail
    looked, changes = (
        replay(story.made.log()).judgements[1].detail.removesuffix(" states").split(" of ")
    )
    assert looked == changes
    assert hurried == f"0 of {changes} states"


def test_a_start_state_that_cannot_be_read_is_found(story: Story) -> None:
    """Nothing is replayed then."""
    log = ExportedLog(story.made.records, start_state=b"\xc1")
    assert verdicts(replay(log).judgements) == {replaying.FOLLOWS: VIOLATION}


def test_an_entry_out_of_place_is_found(story: Story) -> None:
    """The rest is not replayed."""
    del story.made.records[5]
    assert verdicts(replay(story.made.log()).judgements) == {replaying.FOLLOWS: VIOLATION}


# The files


def line(what: str, at_ns: int, **more: object) -> bytes:
    identity = {
        "what": what, "at_ns": at_ns, "wall_ns": at_ns, "pid": 7, "boot": "boot", "host": "h1",
        "task": "job/trainer/0#3", "generation": 3, "devices": [1],
    }  # fmt: skip
    return json.dumps({**identity, **more}).encode() + b"\n"


def test_a_diary_is_read_up_to_where_a_kill_cut_it_off(tmp_path: Path) -> None:
    """One life: its span, what it wrote and what it was told."""
    about = {"step": 10, "path": PATH, "digest": "d"}
    content = [
        line("began", 5, restore="/r", restore_step=4, rank=0, world_size=2),
        line("restored", 6, step=4, path="/r", digest="r"),
        line("saving", 7, **about),
        line("saved", 8, **about),
        line("thawed", 8, silent_ns=4),
        line("alive", 9, step=11),
        line("ending", 10, code=0, step=11, done=True)[:-9],
    ]
    (tmp_path / "1.jsonl").write_bytes(b"".join(content))
    (tmp_path / "2.jsonl").write_bytes(line("began", 2))
    (tmp_path / "3.jsonl").write_bytes(b"")
    _, life = read_lives(tmp_path)
    assert (life.first_ns, life.last_ns, life.code, life.devices) == (5, 9, None, (1,))
    assert life.restored == Shard("/r", 4, "r")
    assert life.written == life.recorded == [Shard(PATH, 10, "d")]
    assert life.thaws == [Thaw(8, 4)]
    assert (life.seat, life.job, life.restore_step) == ("job/trainer/0", "job", 4)


def test_a_damaged_diary_is_refused(tmp_path: Path) -> None:
    """The message names file and line."""
    (tmp_path / "1.jsonl").write_bytes(line("began", 5) + b"{}\n" + line("alive", 6))
    with pytest.raises(TruthDamaged, match=r"1\.jsonl, line 2: "):
        read_lives(tmp_path)


def test_notes_change_no_state_that_invariants_speak_of(story: Story) -> None:
    """So they cost no look."""
    before = replay(story.made.log()).judgements[1].detail
    story.made.say(NoteAdded("c/1", "k", "t"))
    assert replay(story.made.log()).judgements[1].detail == before
