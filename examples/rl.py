"""Reinforcement learning in three roles: which of five levers pays most?

    trainer       a gang; learns from what samplers saw, publishes the weights after each step
    sampler       pulls levers as the newest weights say, and writes down what came of it
    environment   the levers: answers each pull over TCP with what it pays

Each recovers by itself. A sampler that starts is told the newest weights; one that runs goes on
while the trainer restarts. A sampler whose environment died goes to another one. What a replaced
trainer publishes late is refused, and nobody works with it. `rl.yaml` is the job.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import socket
import socketserver
import sys
import time
from pathlib import Path
from typing import Any

from coord import worker

PAYS = (0.1, 0.3, 0.2, 0.9, 0.4)
LEARNING_RATE = 0.5
PULLS = 20
"""In one piece of experience."""
PEER_TIMEOUT_S = 30.0
PERIOD_S = 0.02


def write(path: Path, content: object) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content))
    part.replace(path)


def read(path: Path) -> Any:
    """None while it is not there."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def chances(preferences: list[float]) -> list[float]:
    weights = [math.exp(one - max(preferences)) for one in preferences]
    return [weight / sum(weights) for weight in weights]


# Environments


class Levers(socketserver.StreamRequestHandler):
    """A line with the number of a lever is answered by a line with what it pays."""

    def handle(self) -> None:
        for line in self.rfile:
            self.server.pulls += 1  # type: ignore[attr-defined]
            if 0 < self.server.fail_after < self.server.pulls:  # type: ignore[attr-defined]
                os._exit(1)
            paid = 1.0 if random.random() < PAYS[int(line)] else 0.0
            self.wfile.write(f"{paid}\n".encode())


class Environment(socketserver.ThreadingTCPServer):
    daemon_threads = True
    pulls = 0
    fail_after = 0


def serve(output: Path, fail_after: int) -> None:
    host = "127.0.0.1"
    with Environment((host, 0), Levers) as server:
        server.fail_after = fail_after
        address = [host, server.server_address[1]]
        write(output / "environments" / f"{os.environ.get('COORD_INDEX', '0')}.json", address)
        server.serve_forever()


# Samplers


def pull(output: Path, preferences: list[float]) -> list[tuple[int, float]]:
    """Levers and what they paid; empty when no environment answered."""
    known = sorted((output / "environments").glob("*.json"))
    random.shuffle(known)
    for path in known:
        address = read(path)
        try:
            with (
                socket.create_connection(tuple(address), timeout=1.0) as link,
                link.makefile("rwb") as file,
            ):
                seen = []
                for lever in random.choices(range(len(PAYS)), chances(preferences), k=PULLS):
                    file.write(f"{lever}\n".encode())
                    file.flush()
                    seen.append((lever, float(file.readline())))
                return seen
        except (OSError, ValueError):
            continue  # That one is gone; another one will do.
    return []


def sample(output: Path) -> None:
    """With the weights that were the newest at our start, then with whatever is published."""
    newest = worker.weights()
    pointer = output / "newest.json"
    loaded, preferences = 0, [0.0] * len(PAYS)
    name = os.environ.get("COORD_TASK", "local").replace("/", "-")
    done = 0
    while not worker.should_stop():
        told = read(pointer)
        if isinstance(told, list) and (newest is None or told[0] > newest.version):
            newest = worker.Weights(*told)
        if newest is not None and newest.version > loaded:
            preferences = read(Path(newest.uri))
            loaded = newest.version
            worker.weights_loaded(loaded)
        seen = pull(output, preferences)
        if seen:
            done += 1
            write(output / "experience" / f"{name}-{done:08d}.json", seen)
            worker.progress(done)
        time.sleep(PERIOD_S)


# Trainers


def gradient(preferences: list[float], seen: list[tuple[int, float]]) -> list[float]:
    """Of what is expected to be paid (REINFORCE, against the mean)."""
    likely = chances(preferences)
    mean = sum(paid for _, paid in seen) / max(len(seen), 1)
    found = [0.0] * len(PAYS)
    for lever, paid in seen:
        for other in range(len(PAYS)):
            found[other] += (paid - mean) * ((lever == other) - likely[other])
    return [one / max(len(seen), 1) for one in found]


def wait_for(path: Path) -> Any:
    deadline = time.monotonic() + PEER_TIMEOUT_S
    while (content := read(path)) is None:
        if time.monotonic() > deadline:
            sys.exit(f"rl: {path.name} did not come: another rank is gone")
        time.sleep(PERIOD_S / 4)
    return content


def gather(output: Path, rank: int, ranks: int) -> list[tuple[int, float]]:
    """This rank's share of what samplers wrote; waits until there is some."""
    while not worker.should_stop():
        files = sorted((output / "experience").glob("*.json"))
        mine = [path for path in files if sum(path.name.encode()) % ranks == rank][:8]
        seen: list[tuple[int, float]] = []
        for path in mine:
            seen += read(path)
            path.unlink()
        if seen:
            return seen
        time.sleep(PERIOD_S)
    return []


def train(output: Path, steps: int, save_every: int) -> None:
    rank, ranks, generation = worker.rank(), worker.world_size(), worker.generation()
    shard = worker.restore_shard(0)
    start, preferences = json.loads(Path(shard).read_text()) if shard else (0, [0.0] * len(PAYS))
    known = worker.weights()
    version = known.version if known else 0
    if rank == 0 and known is None:
        (output / "newest.json").unlink(missing_ok=True)  # Of an earlier job in this directory.
    for step in range(start + 1, steps + 1):
        sums = output / "sums" / f"{generation:06d}-{step:08d}"
        part = gradient(preferences, gather(output, rank, ranks))
        if worker.should_stop():
            return
        write(sums / f"{rank}.json", part)
        parts = [wait_for(sums / f"{other}.json") for other in range(ranks)]
        for lever in range(len(PAYS)):
            preferences[lever] += LEARNING_RATE * sum(one[lever] for one in parts)
        worker.progress(step)
        if rank == 0:
            version += 1
            publish(output, version, step, preferences)
        if step % save_every == 0 or step == steps:
            with worker.checkpoint(step) as saving:
                Path(saving.path).write_text(json.dumps([step, preferences]))
    if rank == 0:
        best = max(range(len(PAYS)), key=lambda lever: preferences[lever])
        write(output / "result.json", {"lever": best, "version": version})


def publish(output: Path, version: int, step: int, preferences: list[float]) -> None:
    """Samplers learn of weights only after they are recorded: what a replaced trainer publishes is
    refused, which ends it here."""
    path = (output / "weights" / f"{version:08d}-{worker.generation():06d}.json").absolute()
    write(path, preferences)
    worker.publish_weights(version, str(path), step=step, required=True)
    write(output / "newest.json", [version, str(path)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("trainer", "sampler", "environment"))
    parser.add_argument("--output", type=Path, required=True, help="a directory that all share")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--fail-after", type=int, default=0, help="pulls, then it dies; 0: never")
    given = parser.parse_args()
    if given.role == "trainer":
        train(given.output, given.steps, given.save_every)
    elif given.role == "sampler":
        sample(given.output)
    else:
        serve(given.output, given.fail_after)


if __name__ == "__main__":
    main()
