"""Softmax regression on scikit-learn's digits; the ranks add their gradients over TCP.

Under `coord` each rank is one task of a gang: it finds its place in the environment, restores from
`COORD_RESTORE`, reports progress and saves its shard through `coord.worker`. Every sum is taken in
rank order in float64, so the weights depend on the number of ranks and on nothing else: not on
timing, and not on how often training was interrupted. `--local` computes the same bits in one
process, to compare with.

    python examples/digits.py --local --ranks 4 --output /tmp/reference

A rank whose peer is gone exits with code 1 at once. SIGTERM keeps its default action, so a rank
that waits in a socket dies of it too; what it loses is the work since the last checkpoint.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import socket
import struct
import sys
import time
from pathlib import Path

# More threads would add up in another order. Set before numpy loads its linear algebra.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np

from coord import worker

FEATURES = 64
CLASSES = 10
BATCH = 256
LEARNING_RATE = 0.05
MOMENTUM = 0.9
PEER_TIMEOUT_S = 60.0
"""A peer that is silent for so long counts as gone. A dead one is noticed at once."""
GREETING = struct.Struct("!III")
"""Generation, rank, number of ranks: a rank of an older generation is not let in."""


class PeerGone(Exception):
    """Another rank died or was never reached; this one cannot go on."""


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images as rows of 64 pixels from 0 to 1 and a constant 1, and their classes.

    Reads the file that scikit-learn ships without importing scikit-learn, which takes a second on
    every start of every rank.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("digits: scikit-learn is not installed; pip install 'coord[examples]'")
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    pixels = np.ones((len(table), FEATURES + 1))
    pixels[:, :FEATURES] = table[:, :FEATURES] / 16.0
    return pixels, table[:, FEATURES].astype(np.int64)


def batch_at(position: int, size: int) -> np.ndarray:
    """The rows of the batch after `position` samples, over shuffled passes of `size` each."""
    wanted = np.arange(position, position + BATCH)
    rows = np.empty(BATCH, dtype=np.int64)
    for epoch in range(position // size, (position + BATCH - 1) // size + 1):
        order = np.random.default_rng(epoch).permutation(size)
        here = wanted // size == epoch
        rows[here] = order[wanted[here] % size]
    return rows


def gradient(weights: np.ndarray, pixels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The sum over these samples, flat, and their summed loss as one more element."""
    scores = pixels @ weights
    scores -= scores.max(axis=1, keepdims=True)
    likelihood = np.exp(scores)
    likelihood /= likelihood.sum(axis=1, keepdims=True)
    rows = np.arange(len(classes))
    loss = -np.log(likelihood[rows, classes]).sum()
    likelihood[rows, classes] -= 1.0
    return np.append((pixels.T @ likelihood).ravel(), loss)


class Training:
    """Weights, their velocity, and how many steps are done; the same on every rank."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.pixels, self.classes = load_digits()
        self.weights = np.zeros((FEATURES + 1, CLASSES))
        self.velocity = np.zeros((FEATURES + 1, CLASSES))
        self.step = 0
        self.position = 0
        """Samples consumed so far."""
        self.loss = float("nan")

    def part(self, rank: int) -> np.ndarray:
        """What this rank adds to the sum of the current step."""
        rows = np.array_split(batch_at(self.position, len(self.pixels)), self.ranks)[rank]
        return gradient(self.weights, self.pixels[rows], self.classes[rows])

    def update(self, total: np.ndarray) -> None:
        """Take the step that the sum of all parts says."""
        self.loss = total[-1] / BATCH
        self.velocity = MOMENTUM * self.velocity - total[:-1].reshape(self.weights.shape) / BATCH
        self.weights = self.weights + LEARNING_RATE * self.velocity
        self.step += 1
        self.position += BATCH

    def save_shard(self, path: str, rank: int) -> None:
        """This rank's rows of weights and velocity, and the position in the data."""
        rows = np.array_split(np.arange(FEATURES + 1), self.ranks)[rank]
        with open(path, "wb") as file:
            np.savez(
                file,
                rows=rows,
                weights=self.weights[rows],
                velocity=self.velocity[rows],
                step=self.step,
                position=self.position,
            )

    def restore(self, directory: str) -> None:
        """Put the shards of all ranks together, whatever their number was."""
        covered = 0
        for path in sorted(Path(directory).glob("rank-*.bin")):
            with np.load(path) as shard:
                self.weights[shard["rows"]] = shard["weights"]
                self.velocity[shard["rows"]] = shard["velocity"]
                self.step = int(shard["step"])
                self.position = int(shard["position"])
                covered += len(shard["rows"])
        if covered != FEATURES + 1:
            raise SystemExit(f"digits: {directory} holds {covered} of {FEATURES + 1} rows")

    def accuracy(self) -> float:
        return float(np.mean((self.pixels @ self.weights).argmax(axis=1) == self.classes))

    def write_weights(self, directory: Path) -> str:
        """Leave `weights.npy` and its SHA-256 there, complete or not at all; the digest."""
        directory.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(self.weights.tobytes()).hexdigest()
        with open(directory / "weights.partial", "wb") as file:
            np.save(file, self.weights)
            file.flush()
            os.fsync(file.fileno())
        (directory / "weights.partial").replace(directory / "weights.npy")
        (directory / "weights.sha256").write_text(digest + "\n")
        return digest


class Star:
    """All ranks around rank 0, which adds up in rank order and sends the total to everybody."""

    def __init__(self, rank: int, ranks: int, generation: int, address: tuple[str, int]) -> None:
        self.rank = rank
        self.peers: list[socket.socket] = []
        if rank == 0:
            self.peers = self._accept(ranks, generation, address)
        else:
            self.peers = [self._connect(GREETING.pack(generation, rank, ranks), address)]
        for peer in self.peers:
            peer.settimeout(PEER_TIMEOUT_S)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @staticmethod
    def _accept(ranks: int, generation: int, address: tuple[str, int]) -> list[socket.socket]:
        found: dict[int, socket.socket] = {}
        deadline = time.monotonic() + PEER_TIMEOUT_S
        with socket.create_server(address, backlog=ranks) as listener:
            while len(found) < ranks - 1:
                listener.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    peer, _ = listener.accept()
                    peer.settimeout(PEER_TIMEOUT_S)
                    greeting = GREETING.unpack(receive(peer, GREETING.size))
                except TimeoutError:
                    raise PeerGone(f"{len(found) + 1} of {ranks} ranks came") from None
                if (greeting[0], greeting[2]) == (generation, ranks):
                    found[greeting[1]] = peer
                else:
                    peer.close()
        return [found[rank] for rank in range(1, ranks)]

    @staticmethod
    def _connect(greeting: bytes, address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + PEER_TIMEOUT_S
        while True:
            try:
                peer = socket.create_connection(address, timeout=PEER_TIMEOUT_S)
            except OSError as error:  # rank 0 does not listen yet
                if time.monotonic() > deadline:
                    raise PeerGone(f"rank 0 at {address[0]}:{address[1]}: {error}") from error
                time.sleep(0.01)
                continue
            peer.sendall(greeting)
            return peer

    def total(self, part: np.ndarray) -> np.ndarray:
        """The sum of what all ranks gave, the same bits on each."""
        try:
            if self.rank != 0:
                self.peers[0].sendall(part.tobytes())
                return np.frombuffer(receive(self.peers[0], part.nbytes))
            total = part.copy()
            for peer in self.peers:
                total += np.frombuffer(receive(peer, part.nbytes))
            for peer in self.peers:
                peer.sendall(total.tobytes())
        except OSError as error:
            raise PeerGone(f"lost a peer: {error}") from error
        return total


def receive(peer: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes. PeerGone when the connection ends before."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = peer.recv_into(view)
        if not count:
            raise PeerGone("a peer closed its connection")
        view = view[count:]
    return bytes(buffer)


def train_locally(training: Training, steps: int) -> None:
    """What the ranks compute, one after the other, without an interruption."""
    while training.step < steps:
        total = training.part(0)
        for rank in range(1, training.ranks):
            total += training.part(rank)
        training.update(total)


def train_as_rank(training: Training, rank: int, options: argparse.Namespace) -> bool:
    """Take part until the last step; false when a stop was asked for before."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    star = Star(rank, training.ranks, worker.generation(), address)
    while training.step < options.steps:
        due = time.monotonic() + options.step_ms / 1000
        # The wish to stop travels with the gradients, so that all ranks leave after the same step.
        part = np.append(training.part(rank), float(worker.should_stop()))
        time.sleep(max(0.0, due - time.monotonic()))
        total = star.total(part)
        training.update(total[:-1])
        stop = total[-1] > 0
        worker.progress(training.step, loss=training.loss)
        if training.step % options.checkpoint_every == 0 or stop:
            with worker.checkpoint(training.step) as shard:
                training.save_shard(shard.path, rank)
        if rank == 0 and training.step % options.checkpoint_every == 0:
            print(f"step {training.step} loss {training.loss:.6f}", flush=True)
        if stop:
            return False
    return True


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--step-ms", type=int, default=0, help="let each step take this long")
    parser.add_argument("--output", type=Path, help="where rank 0 leaves weights.npy")
    parser.add_argument("--local", action="store_true", help="compute all ranks in this process")
    parser.add_argument("--ranks", type=int, default=4, help="with --local: how many ranks")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    if not options.local and not worker.stand_by():
        return 0  # A hot spare that was never needed.
    rank = 0 if options.local else worker.rank()
    training = Training(options.ranks if options.local else worker.world_size())
    if options.local:
        train_locally(training, options.steps)
    else:
        restore = worker.restore_path()
        if restore:
            training.restore(restore)
        print(
            f"rank {rank} of {training.ranks}, generation {worker.generation()}, "
            f"from step {training.step}",
            flush=True,
        )
        try:
            if not train_as_rank(training, rank, options):
                print(f"rank {rank}: asked to stop after step {training.step}", flush=True)
                return 0
        except PeerGone as error:
            print(f"rank {rank}: {error} at step {training.step}", file=sys.stderr, flush=True)
            return 1
    if rank == 0:
        print(f"step {training.step} loss {training.loss:.6f} accuracy {training.accuracy():.4f}")
        if options.output:
            print(f"weights {training.write_weights(options.output)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
