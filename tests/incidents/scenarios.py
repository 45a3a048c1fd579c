"""Ten incidents of published training runs, told to the core. `python -m tests.incidents.scenarios`
writes them anew. Fewer machines than there were, in the same proportions where these matter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.incidents.story import HOUR_MS, MINUTE_MS, Story, write

HERE = Path(__file__).parent
GANG = "train/ranks"


def crash_before_a_save() -> Story:
    """I01"""
    story = Story(
        "I01: a rank dies two steps before the next save",
        ("48 nodes of 8; here 6. One local rank fails in the clean-up thread of NCCL.",
         "More than seven hours of work were lost; the interval between saves was cut after it."),
    )  # fmt: skip
    story.hosts([f"n{at}" for at in range(7)])
    story.do("submit train: ranks x6 devices=8 spares=1 | checkpoint_dir=/c")
    story.train(GANG, 1)
    story.save(GANG, 1)
    for step in (60, 120, 180, 248):
        story.wait(2 * HOUR_MS)
        story.train(GANG, step)
    story.note("local rank 3 of one node; its peers lose their connections and say so")
    story.do(
        f'exited {GANG}/3#1 signal=6 stderr_tail="NCCL WARN Cuda failure, unknown error in '
        'ProcessGroupNCCL workCleanupLoop"',
        f'exited {GANG}/1#1 code=1 error="NCCL communicator was aborted: remote process exited"',
    )
    story.gone(GANG)
    story.resume(GANG, 2)
    return story


def one_slow_node() -> Story:
    """I02"""
    story = Story(
        "I02: a training run slows by a twentieth and stays slow",
        ("All steps take longer from one iteration on; nothing fails. Benchmarks of the network",
         "were equal everywhere; bisection by excluding groups of nodes found one."),
        "policy.evidence.slow_permille=1040 policy.evidence.slow_steps=4",
    )  # fmt: skip
    story.hosts([f"iam{at:02}" for at in range(8)])
    story.do("submit train: ranks x8 devices=8")
    story.train(GANG, 0)
    for step in range(1, 30):
        story.wait(105_000)
        for rank in range(8):
            busy_us = 110_000_000 if rank == 5 and step > 12 else 104_000_000
            story.do(f"progress {GANG}/{rank}#1 step={step} busy_us={busy_us}")
    return story


def stuck_evaluation() -> Story:
    """I03"""
    story = Story(
        "I03: an evaluation never comes back, again and again",
        ("The job counts as running and its devices as busy; no collective times out. A restart",
         "by hand hangs at the same place. Later a trace of all ranks shows one data loader."),
    )  # fmt: skip
    story.hosts([f"iam{at:02}" for at in range(6)])
    story.do("submit train: ranks x6 devices=8 | hang_floor_ms=300000 no_progress_limit=1")
    for step in range(1, 12):
        story.train(GANG, step)
        story.wait(105_000)
    story.save(GANG, 11)
    for attempt in range(3):
        story.note("the heartbeats go on, the steps do not")
        for _ in range(40):
            story.wait(MINUTE_MS)
            if story.state.gangs[GANG].phase != "running":
                break
        if attempt == 2:
            story.note("who traced the ranks: one of them waits for its loader")
            story.do(f"timed-out {GANG}/0#{story.gang(GANG)} missing=4 by=ann op=barrier")
        story.gone(GANG)
        if attempt < 2:
            story.resume(GANG, 11)
    return story


def half_the_nodes_leave() -> Story:
    """I05"""
    story = Story(
        "I05: the allocation of half of the nodes ends",
        ("52 nodes, of which 24 remain; here 12 and 6. The last save of the large run is loaded",
         "by the small one."),
    )  # fmt: skip
    story.hosts([f"n{at:02}" for at in range(12)])
    story.do("submit train: ranks x12 min_replicas=6 devices=8 | checkpoint_dir=/c")
    story.train(GANG, 94_700)
    story.note("six of twelve hosts have to be given back by then")
    for at in range(6, 12):
        story.do(f"drain n{at:02} within_ms={HOUR_MS}")
    story.wait(20 * MINUTE_MS)
    story.train(GANG, 94_767)
    story.save(GANG, 94_767)
    story.gone(GANG)
    story.resume(GANG, 94_768)
    story.wait(HOUR_MS)
    return story


def nobody_queued_the_next() -> Story:
    """I07"""
    story = Story(
        "I07: a planned end, and nothing is scheduled after it",
        ("The time of the allocation is over a few seconds after a save. For hours a watchdog says",
         "that the job neither runs nor waits; the queue promises a start in three days."),
    )  # fmt: skip
    names = [f"r{at}" for at in range(4)]
    story.hosts(names)
    story.do("submit train: ranks x4 devices=8 grace_ms=120000 | checkpoint_dir=/c")
    story.train(GANG, 33_241)
    story.save(GANG, 33_241)
    story.note("all machines go away within two minutes")
    for name in names:
        story.do(f'preempt {name} grace_ms=120000 reason="end of the allocation"')
    story.gone(GANG)
    for _ in range(3):
        story.wait(HOUR_MS, names)
    story.note("three days later there are machines again")
    story.wait(24 * HOUR_MS, names)
    story.hosts([f"s{at}" for at in range(4)])
    story.train(GANG, 33_242)
    return story


def weeks_of_failing_nodes() -> Story:
    """I08"""
    story = Story(
        "I08: ten node failures in seven weeks, one of two at once",
        ("96 nodes; here 8 and the spares. A node suspected for a twentieth less throughput was",
         "excluded, and nothing changed: it had not been the reason."),
        "policy.evidence.slow_steps=4 policy.evidence.on_blame=2",
    )  # fmt: skip
    story.hosts([f"n{at:02}" for at in range(8)] + [f"x{at:02}" for at in range(12)])
    story.do(
        "submit train: ranks x8 devices=8 spares=2 | infrastructure_limit=50 checkpoint_dir=/c"
    )
    step = 1
    story.train(GANG, step)
    for failure in range(10):
        for _ in range(6):
            step += 1
            story.wait(4 * HOUR_MS)
            busy_us = 110_000_000 if failure == 4 else 104_000_000
            story.do(f"progress {GANG}/*#{story.gang(GANG)} step={step} busy_us={busy_us}")
        story.save(GANG, step)
        placed = story.state.gangs[GANG].hosts
        lost = placed[:2] if failure == 0 else (placed[(3 * failure) % 8],)
        story.note(f"lost: {', '.join(lost)}")
        story.silent(lost)
        story.gone(GANG)
        step += 1
        story.resume(GANG, step, lost)
        story.note("repaired, and back")
        for name in lost:
            story.do(f"host {name} boot=after-{failure}")
    return story


def unreadable_corpus() -> Story:
    """I09, its storage"""
    story = Story(
        "I09: the file system with the corpus cannot be read",
        ("All ranks fail at the same place; the data come back from a backup after days.",),
    )
    story.hosts([f"n{at}" for at in range(6)])
    story.do(
        "submit train: ranks x6 devices=8 | user_limit=3 no_progress_limit=9 checkpoint_dir=/c"
    )
    story.train(GANG, 100)
    story.save(GANG, 100)
    error = "OSError: [Errno 5] Input/output error: /lustre/corpus/part-0001"
    for rank in (2, 0, 1, 3, 4, 5):
        story.do(f'exited {GANG}/{rank}#1 code=1 error="{error}"')
    story.gone(GANG)
    story.wait(2_000)
    return story


def diverged() -> Story:
    """I09, its losses"""
    story = Story(
        "I09: the loss diverges, and the run goes back to a checkpoint before the newest",
        ("Four times; each time from a few hundred steps before, some data left out.",),
    )
    story.hosts([f"n{at}" for at in range(4)])
    story.do("submit train: ranks x4 devices=8 | checkpoint_dir=/c")
    for step in (33_600, 33_700):
        story.train(GANG, step)
        story.save(GANG, step)
    story.note("the loss rises; a person decides to go back to step 33,600")
    story.train(GANG, 33_750)
    story.do(f"rollback {GANG.partition('/')[0]} step=33600 reason=diverged")
    story.gone(GANG)
    story.note("the same steps again, without some of the data")
    story.resume(GANG, 33_601)
    story.train(GANG, 33_700)
    story.save(GANG, 33_700)
    return story


def a_deleted_cluster() -> Story:
    """I10"""
    story = Story(
        "I10: the provider deletes the whole cluster while topping up its pool",
        ("Sixteen of the machines that come back fail the checks of the infrastructure; the run",
         "goes on with the fewest possible. Later eight failures are survived without a person."),
        "policy.quarantine.share_permille=400",
    )  # fmt: skip
    names = [f"m{at:02}" for at in range(24)]
    story.hosts(names)
    story.do(
        "submit train: ranks x16 devices=8 min_replicas=8 spares=2 | "
        "infrastructure_limit=50 checkpoint_dir=/c"
    )
    story.train(GANG, 500)
    story.save(GANG, 500)
    story.note("everything is gone at once; a person looks, and lets the hosts be lost")
    story.silent(names, 8_000)
    story.do("allow-evictions")
    story.silent(names, 2_000)
    story.note("the cluster is restored; some of its machines fail their checks")
    for name in names:
        story.do(f"host {name} boot=restored")
        if int(name[1:]) < 5:
            story.do(f"health {name} outcome=failed occasion=before_launch exit_code=1")
    story.resume(GANG, 501)
    for failure in range(8):
        story.wait(12 * HOUR_MS)
        step = 510 + 10 * failure
        story.train(GANG, step)
        story.save(GANG, step)
        lost = story.state.gangs[GANG].hosts[(5 * failure + 1) % 8]
        story.silent([lost])
        story.gone(GANG)
        story.resume(GANG, step + 1, [lost])
        story.do(f"host {lost} boot=after-{failure}")
    return story


def contained_error() -> Story:
    """I11"""
    story = Story(
        "I11: a contained error over NVLink takes half of the gang along",
        ("176 nodes in 11 racks of one NVLink domain each; here 11 of 4. One rank of one node, its",
         "neighbours in the domain half a second later, then two other racks, then everybody by",
         "fate. The error counters of the domain did not move."),
        "policy.evidence.on_blame=2",
    )  # fmt: skip
    for rack in range(11):
        for at in range(4):
            story.do(f"host r{rack:02}h{at} devices=4 place=z1/p1/r{rack:02}/n{rack:02}")
    story.do("submit train: ranks x44 devices=4 | checkpoint_dir=/c")
    story.train(GANG, 64_944)
    story.save(GANG, 64_944)
    for step in (65_000, 65_069):
        story.wait(10 * MINUTE_MS)
        story.train(GANG, step)
    story.wait(15 * MINUTE_MS)
    error = (
        "CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory over nvlink or a hardware error"
    )
    order = [38, 36, 37, 39, 5, 6, 20, 21]
    for at, rank in enumerate(order):
        at_ms = 1_788_600_876_549 + 500 * min(at, 1) + 300 * max(at - 3, 0)
        story.do(f'exited {GANG}/{rank}#1 code=1 failed_at_ms={at_ms} error="{error}"')
    for rank in (0, 1, 2):
        story.do(f'exited {GANG}/{rank}#1 code=1 error="Connection reset by peer"')
    story.gone(GANG)
    story.resume(GANG, 64_945)
    return story


def silent_stall() -> Story:
    """I13"""
    story = Story(
        "I13: all ranks stand in the same step, and every sign but the step goes on",
        ("The time-out of NCCL does not fire, the devices are busy, heartbeats arrive from all",
         "tasks. It was ended by hand after 33 minutes."),
    )  # fmt: skip
    story.hosts([f"t{at:02}" for at in range(16)])
    story.do("submit train: ranks x16 devices=4 | hang_floor_ms=60000 checkpoint_dir=/c")
    for step in range(150, 184):
        story.train(GANG, step)
        if step == 180:
            story.save(GANG, step)
        story.wait(9_500)
    for _ in range(66):
        story.wait(30_000)
        if story.state.gangs[GANG].phase != "running":
            break
    story.gone(GANG)
    story.resume(GANG, 181)
    return story


SCENARIOS: dict[str, Callable[[], Story]] = {
    "i01-crash-before-a-save": crash_before_a_save,
    "i02-one-slow-node": one_slow_node,
    "i03-stuck-evaluation": stuck_evaluation,
    "i05-half-the-nodes-leave": half_the_nodes_leave,
    "i07-nobody-queued-the-next": nobody_queued_the_next,
    "i08-weeks-of-failing-nodes": weeks_of_failing_nodes,
    "i09-unreadable-corpus": unreadable_corpus,
    "i09-diverged": diverged,
    "i10-a-deleted-cluster": a_deleted_cluster,
    "i11-contained-error": contained_error,
    "i13-silent-stall": silent_stall,
}


def main() -> int:
    for name, tell in SCENARIOS.items():
        write(tell(), HERE / f"{name}.jsonl")
    return 0


if __name__ == "__main__":
    sys.exit(main())
