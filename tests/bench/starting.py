"""What the benchmark's ranks run: say when it is running, then step until told to end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from coord import worker

BEGAN_NS = time.time_ns()


def main() -> None:
    directory = Path(sys.argv[1])
    name = f"start-{worker.generation()}-{worker.rank()}"
    (directory / f"{name}.partial").write_text(f"{BEGAN_NS} {os.getpid()}")
    (directory / f"{name}.partial").rename(directory / name)
    step = 0
    while not (directory / "end").exists():
        step += 1
        worker.progress(step)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
