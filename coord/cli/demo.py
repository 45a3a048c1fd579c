"""`coordctl demo`: a training job, three kill -9, and what the log says of them afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coord.cli.demo_log import JobLog, cost_text
from coord.cli.exits import BadInput, Exit, Failure
from coord.cli.local import LocalCluster
from coord.cli.processes import marked
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RoleSpec

if TYPE_CHECKING:
    from coord.client.sync import SyncClient

NODES = 3
AGENTS = 5
RANKS = 4
JOB = "digits"
CHECKPOINT_EVERY = 20
STEP_MS = 40
SETTINGS = Settings(lease_ms=5_000, suspect_ms=2_500, heartbeat_ms=500, fence_ms=1_500)
PATIENCE_S = 60.0
"""For any one thing to happen. Only a machine that is far too slow, or a defect, needs more."""
FETCH_S = 0.1


@click.command(short_help="Watch a training job survive three failures.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything goes.  [default: a new folder for temporary files]",
)
@click.option(
    "--script",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The training script.  [default: examples/digits.py of the checkout]",
)
@click.option(
    "--steps",
    type=click.IntRange(min=200),
    default=500,
    show_default=True,
    help="Training steps, of which each takes 40 ms.",
)
def demo(output: Path | None, script: Path | None, steps: int) -> int:
    """Run three servers, five agents and a training job of four ranks, and kill parts of it.

    First a rank, then an agent with all its processes, then the leading server. The job has to end
    by itself with the weights of a run that nobody disturbed, and the exported incident.log has to
    replay to the same decisions.
    """
    # Not shipped in the wheel: it needs numpy and scikit-learn, which coord itself does not.
    script = (script or Path(__file__).resolve().parents[2] / "examples" / "digits.py").resolve()
    if not script.is_file():
        raise BadInput(
            f"the demo trains with {script}, which is not there: run `make demo` in a checkout, or "
            "pass its examples/digits.py with --script"
        )
    if output is not None and (output / "layout.json").exists():
        raise Failure(f"{output} holds an earlier demo: remove it, or pass another --output")
    output = (output or Path(tempfile.mkdtemp(prefix="coord-demo-"))).resolve()
    output.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    screen = Screen()
    cluster = LocalCluster(output, nodes=NODES, agents=AGENTS, settings=SETTINGS)
    with cluster:
        from coord.client.sync import SyncClient

        screen.say(f"starting {NODES} servers and {AGENTS} agents in {output} ...")
        cluster.start()
        cluster.wait_ready()
        with SyncClient(cluster.urls, actor="demo") as client:
            problems = Demo(cluster, client, screen, script, steps).run()
    for problem in problems:
        screen.say(f"demo: {problem}")
    if problems:
        screen.say(
            f"demo: failed; the logs are in {output / 'logs'}, and tasks' output in {output}"
        )
        return Exit.FAILED
    screen.say(f"({time.monotonic() - began:.0f} s; everything is in {output})")
    screen.say("demo: 3 incidents recovered, weights identical, replay matches")
    return Exit.OK


class Screen:
    """Lines that stay, and one that the next replaces where somebody watches."""

    def __init__(self) -> None:
        self._passing = ""

    def say(self, text: str) -> None:
        if self._passing:
            click.echo(f"\r{'':{len(self._passing)}}\r", nl=False)
            self._passing = ""
        click.echo(text)

    def passing(self, text: str) -> None:
        if sys.stdout.isatty():
            click.echo(f"\r{text:{len(self._passing)}}", nl=False)
            self._passing = text


class Demo:
    """One run, on a cluster that is ready."""

    def __init__(
        self, cluster: LocalCluster, client: SyncClient, screen: Screen, script: Path, steps: int
    ) -> None:
        self.cluster = cluster
        self.client = client
        self.screen = screen
        self.script = script
        self.steps = steps
        self.log = JobLog()
        self.weights = cluster.directory / "weights"
        self.undisturbed = cluster.directory / "undisturbed"
        self.incident_log = cluster.directory / "incident.log"

    def run(self) -> list[str]:
        """All of it. What was not as it should be, as sentences; empty when all went well."""
        self.compute_reference()
        self.client.submit_job(self.spec())
        self.screen.say(
            f"job {JOB!r}: {RANKS} ranks, {self.steps} steps, a checkpoint every {CHECKPOINT_EVERY}"
        )
        self.kill_rank(1)
        lost_host = self.kill_agent(2)
        self.kill_leader()
        self.wait_for("the end of training", lambda: bool(self.log.ended))
        if self.log.ended != "completed":
            return [f"the job {self.log.ended}"]
        self.screen.say(f"training ended by itself after {self.steps} steps")
        problems = self.log.problems(incidents=2, lost_hosts=[lost_host])
        return problems + self.compare_weights() + self.replay()

    def spec(self) -> JobSpec:
        command = (
            sys.executable, str(self.script), "--steps", str(self.steps),
            "--checkpoint-every", str(CHECKPOINT_EVERY), "--step-ms", str(STEP_MS),
            "--output", str(self.weights),
        )  # fmt: skip
        trainer = RoleSpec(
            name="trainer",
            command=command,
            replicas=RANKS,
            spares=1,
            resources=Resources(devices=1),
            grace_ms=2_000,
        )
        checkpoints = str(self.cluster.directory / "checkpoints")
        return JobSpec(name=JOB, roles=(trainer,), checkpoint_dir=checkpoints)

    def compute_reference(self) -> None:
        """The weights that nobody disturbed, all ranks in one process without the waiting."""
        done = subprocess.run(
            [
                sys.executable,
                str(self.script),
                "--local",
                "--ranks",
                str(RANKS),
                "--steps",
                str(self.steps),
                "--output",
                str(self.undisturbed),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failure(f"the undisturbed run failed:\n{done.stderr.strip()}")

    def kill_rank(self, index: int) -> None:
        self.wait_for("training to be in full swing", lambda: self.log.in_full_swing)
        host, pid = self.task(index)
        if pid not in [process.pid for process in marked(self.cluster.mark)]:
            raise Failure(f"rank {index} should be process {pid} of {host}, which is none of ours")
        os.kill(pid, signal.SIGKILL)
        self.screen.say(f"killed rank {index} (process {pid} on {host}) at step {self.log.step}")
        self.wait_recovered(1)

    def kill_agent(self, index: int) -> str:
        """Kills the agent that runs this rank, and all its processes; the host's name."""
        self.wait_for("training to be in full swing", lambda: self.log.in_full_swing)
        host, _ = self.task(index)
        step = self.log.step
        pids = self.cluster.kill_host(host)
        self.screen.say(f"killed agent {host} with rank {index} (processes {pids}) at step {step}")
        self.wait_recovered(2)
        return host

    def kill_leader(self) -> None:
        self.wait_for("training to be in full swing", lambda: self.log.in_full_swing)
        leader, step = self.log.leader, self.log.step
        self.cluster.servers[leader].kill()
        killed = time.monotonic()
        self.screen.say(f"killed server {leader}, the leader, at step {step}")
        self.write_note()
        took_s = time.monotonic() - killed
        self.wait_for("its election in the log", lambda: self.log.leader != leader)
        self.wait_for("the next step", lambda: self.log.step > step or bool(self.log.ended))
        self.screen.say(
            f"  incident 3: server {self.log.leader} leads and takes writes after {took_s:.2f} s; "
            "no rank restarted"
        )

    def wait_recovered(self, number: int) -> None:
        self.wait_for("training to go on", lambda: len(self.log.closed) >= number)
        self.screen.say(f"  incident {number}: {cost_text(self.log.closed[number - 1])}")

    def task(self, index: int) -> tuple[str, int]:
        """(host, pid) of a rank, as the coordinator knows it."""
        for gang in self.client.job(JOB).gangs:
            for task in gang.tasks:
                if task.index == index and task.generation == self.log.generation:
                    return task.host, task.pid
        raise Failure(f"job {JOB!r} has no rank {index} in generation {self.log.generation}")

    def write_note(self) -> None:
        """Returns once a write is acknowledged, which takes a leader."""
        from coord.client.errors import OutcomeUnknown, Unavailable

        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.client.note("cluster", "the demo killed the leader")
                return
            except (OutcomeUnknown, Unavailable) as error:
                if time.monotonic() > deadline:
                    raise Failure(f"no server took a write for {PATIENCE_S:.0f} s") from error

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Follow the log until the condition holds, showing how far training is.

        Failure when that takes too long, and when the job ends before.
        """
        from coord.client.errors import Unavailable

        deadline = time.monotonic() + PATIENCE_S + self.steps * STEP_MS / 1000
        while True:
            try:
                self.log.fetch(self.client)
            except Unavailable as error:
                if time.monotonic() > deadline:
                    raise Failure(f"waited in vain for {what}: {error}") from error
            if condition():
                return
            if self.log.ended:
                raise Failure(f"the job {self.log.ended} while the demo waited for {what}")
            if time.monotonic() > deadline:
                raise Failure(f"waited in vain for {what}, at step {self.log.step}")
            self.screen.passing(f"step {max(self.log.step, 0)} of {self.steps}, waiting for {what}")
            time.sleep(FETCH_S)

    def compare_weights(self) -> list[str]:
        """Bit for bit; what differs."""
        paths = (self.weights / "weights.npy", self.undisturbed / "weights.npy")
        missing = [str(path) for path in paths if not path.exists()]
        if missing:
            return [f"there are no weights in {' and '.join(missing)}"]
        trained, undisturbed = (path.read_bytes() for path in paths)
        if trained != undisturbed:
            return [
                f"the weights in {paths[0]} differ from those of the undisturbed run {paths[1]}"
            ]
        self.screen.say(
            f"the weights are those of an undisturbed run, bit for bit ({len(trained)} bytes)"
        )
        return []

    def replay(self) -> list[str]:
        """Export the log and reproduce it with `coordctl replay`, which needs no server."""
        with self.incident_log.open("wb") as file:
            self.client.export_incident(file)
        done = subprocess.run(
            [sys.executable, "-m", "coord.cli.main", "replay", str(self.incident_log)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            end = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
            return [f"the replay of {self.incident_log} ended with {done.returncode}:\n{end}"]
        self.screen.say(
            f"replayed {self.incident_log}; read it with: coordctl replay {self.incident_log}"
        )
        return []
