"""Pass a message round a ring of MPI processes, and let each say where it runs and how long it took.

Rank 0 starts the message; every rank receives it from its left neighbour, adds one to it and sends it to its right one.
After ROUNDS rounds the message has counted every hop there was, and rank 0 checks that.

    mpirun python3 mpi-ping-pong.py
"""

import sys
import time

from mpi4py import MPI

ROUNDS = 300


def main() -> int:
    """Take part in the ring as this process's rank; return 1 if the message came back with a wrong count."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    left, right = (rank - 1) % size, (rank + 1) % size

    world.Barrier()  # the time below is the ring's, not the slowest process's start
    begun = time.perf_counter()
    hops = 0
    for _ in range(ROUNDS):
        if rank == 0:
            # A ring of one sends to itself, so the receive has to be there first.
            request = world.irecv(source=left)
            world.send(hops + 1, dest=right)
            hops = request.wait()
        else:
            hops = world.recv(source=left)
            world.send(hops + 1, dest=right)
    seconds = time.perf_counter() - begun

    node = MPI.Get_processor_name()
    print(f"rank {rank} of {size} on node {node}: {ROUNDS} rounds in {seconds:.3f} s", flush=True)
    if rank == 0 and hops != ROUNDS * size:
        print(f"rank 0: the message counted {hops} hops instead of {ROUNDS * size}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
