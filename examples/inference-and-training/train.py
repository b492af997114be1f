"""Train a small model on all nodes of a job, and go on where an earlier run of the same job was stopped.

The model is a line, fitted by gradient descent in plain Python: each rank has its own part of the data, the gradients
are averaged over all ranks by MPI, and rank 0 writes a checkpoint after every step of about a second. Whoever kills it,
and whenever, costs it one step.

    mpirun python3 train.py CHECKPOINT STEPS
"""

import json
import os
import random
import sys
import time
from pathlib import Path

from mpi4py import MPI

SAMPLES = 2000
"""Of each rank."""
SLOPE, OFFSET = 3.0, -1.0
"""What is to be found out."""
RATE = 0.05
SECONDS = 1.0
"""Of one step: a real one has more to do."""


def samples(rank: int) -> list[tuple[float, float]]:
    """Return a rank's part of the data: points of the line, each a little off."""
    made = random.Random(rank)  # noqa: S311 - it is to be the same again after a restart
    xs = [made.uniform(-1, 1) for _ in range(SAMPLES)]
    return [(x, SLOPE * x + OFFSET + made.gauss(0, 0.1)) for x in xs]


def gradient(data: list[tuple[float, float]], slope: float, offset: float) -> tuple[float, float, float]:
    """Return the derivatives of the mean squared error by slope and offset, and the error itself."""
    off = [(x, slope * x + offset - y) for x, y in data]
    number = len(data)
    by_slope, by_offset = sum(2 * x * e for x, e in off) / number, sum(2 * e for _, e in off) / number
    return by_slope, by_offset, sum(e * e for _, e in off) / number


def restored(checkpoint: Path) -> tuple[int, float, float]:
    """Return the steps that are done, slope and offset: zeros where there is no checkpoint."""
    if not checkpoint.exists():
        return 0, 0.0, 0.0
    said = json.loads(checkpoint.read_text())
    return said["step"], said["slope"], said["offset"]


def save(checkpoint: Path, step: int, slope: float, offset: float) -> None:
    """Write a checkpoint so that a kill at any moment leaves a whole one."""
    new = checkpoint.with_suffix(".new")
    with new.open("w") as file:
        json.dump({"step": step, "slope": slope, "offset": offset}, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(checkpoint)


def main(checkpoint: Path, steps: int) -> None:
    """Train until `steps` are done; rank 0 says how far it is."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    done, slope, offset = world.bcast(restored(checkpoint) if rank == 0 else None)
    nodes = world.gather(MPI.Get_processor_name())
    if rank == 0:
        print(f"{'resumed at' if done else 'begun with'} step {done} on {', '.join(sorted(nodes))}", flush=True)
    data = samples(rank)
    for step in range(done + 1, steps + 1):
        until = time.monotonic() + SECONDS
        found = [sum(each) / size for each in zip(*world.allgather(gradient(data, slope, offset)), strict=True)]
        slope, offset = slope - RATE * found[0], offset - RATE * found[1]
        if rank == 0:
            save(checkpoint, step, slope, offset)
            print(f"step {step} of {steps}: error {found[2]:.4f}", flush=True)
        time.sleep(max(until - time.monotonic(), 0))
    if rank == 0:
        print(f"y = {slope:.2f} x + {offset:.2f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
