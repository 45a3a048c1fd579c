"""A small network on scikit-learn's digits with torch DistributedDataParallel over gloo.

The same job as `digits.py`, as somebody who uses torch would write it. What `torchrun` sets in the
environment `coord` sets as well, so `init_process_group("gloo")` needs nothing else, and
`torchrun --nproc-per-node 2 examples/ddp.py` runs this file unchanged, without recovery. With two
ranks the weights are the same bits however often training was interrupted.

A lost peer raises in the next collective, and the rank exits with code 1; SIGTERM keeps its default
action. `pip install 'coord[examples,torch]'` brings what is needed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from digits import BATCH, FEATURES, batch_at, load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from coord import worker

PEER_TIMEOUT = timedelta(seconds=60)


class Training:
    """The network, its optimizer, and the position in the data."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        pixels, classes = load_digits()
        self.pixels = torch.from_numpy(pixels[:, :FEATURES]).float()
        self.classes = torch.from_numpy(classes)
        self.network = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 10))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9)
        self.step = 0
        self.position = 0

    def take_step(self, model: nn.Module, rank: int, ranks: int) -> float:
        """One step on this rank's part of the batch; backward() averages the gradients."""
        rows = np.array_split(batch_at(self.position, len(self.pixels)), ranks)[rank]
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(self.pixels[rows]), self.classes[rows])
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.position += BATCH
        return loss.item()

    def save_shard(self, path: str, rank: int) -> None:
        """Every rank saves where it is; the replicated weights are saved by rank 0 alone."""
        shard: dict[str, object] = {"step": self.step, "position": self.position}
        if rank == 0:
            shard["network"] = self.network.state_dict()
            shard["optimizer"] = self.optimizer.state_dict()
        torch.save(shard, path)

    def restore(self, directory: str) -> None:
        shard = torch.load(Path(directory) / "rank-00000.bin", weights_only=True)
        self.network.load_state_dict(shard["network"])
        self.optimizer.load_state_dict(shard["optimizer"])
        self.step = shard["step"]
        self.position = shard["position"]

    def write_weights(self, directory: Path) -> str:
        """Leave `weights.pt` and the SHA-256 of the weights' bytes; the digest."""
        directory.mkdir(parents=True, exist_ok=True)
        state = self.network.state_dict()
        digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values()))
        torch.save(state, directory / "weights.partial")
        (directory / "weights.partial").replace(directory / "weights.pt")
        (directory / "weights.sha256").write_text(digest.hexdigest() + "\n")
        return digest.hexdigest()


def train(training: Training, options: argparse.Namespace) -> bool:
    """Take part until the last step; false when a stop was asked for before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(training.network)
    while training.step < options.steps:
        due = time.monotonic() + options.step_ms / 1000
        loss = training.take_step(model, rank, ranks)
        # All ranks leave after the same step, or the others would wait for the one that left.
        stop = torch.tensor([float(worker.should_stop())])
        dist.all_reduce(stop)
        time.sleep(max(0.0, due - time.monotonic()))
        worker.progress(training.step, loss=loss)
        if training.step % options.checkpoint_every == 0 or stop.item() > 0:
            with worker.checkpoint(training.step) as shard:
                training.save_shard(shard.path, rank)
        if stop.item() > 0:
            return False
    return True


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--step-ms", type=int, default=0, help="let each step take this long")
    parser.add_argument("--output", type=Path, help="where rank 0 leaves weights.pt")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    torch.set_num_threads(1)
    training = Training()
    restore = worker.restore_path()
    if restore:
        training.restore(restore)
    dist.init_process_group("gloo", timeout=PEER_TIMEOUT)
    rank = dist.get_rank()
    print(
        f"rank {rank}, generation {worker.generation()}, from step {training.step}",
        flush=True,
    )
    try:
        finished = train(training, options)
    except RuntimeError as error:  # what gloo raises when a peer is gone
        print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
        # Not sys.exit: tearing gloo down waits for peers that are dead.
        os._exit(1)
    if finished and rank == 0 and options.output:
        print(f"weights {training.write_weights(options.output)}", flush=True)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
