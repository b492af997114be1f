#!/usr/bin/python3
"""Prepare the container for slurmd and become it: slurmd-start [ARGUMENT OF slurmd]...

Linux 6.18 numbers namespaces from per-CPU batches of 4,096 and refuses (EINVAL) to bind a mount namespace to a file
when its number is lower than that of the mount namespace around it. Slurm's namespace plugins do exactly that for each
job, so about one launch in three fails: when this container was made on one CPU and the job's namespace on another,
whose batch is older. Using up what is left of each CPU's batch once makes every later number higher than ours.
"""

import os
import re
import sys

FIRST_KERNEL = (6, 18)
BATCH = 4096  # numbers that a CPU takes at a time
MARGIN = 100


def kernel() -> tuple[int, int]:
    """Return the running kernel's version, as (6, 18); (0, 0) if it says something else."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def use_up_batch(cpu: int) -> None:
    """Make and drop as many namespaces on this CPU as one batch has numbers: UTS ones, which cost least."""
    if (child := os.fork()) == 0:
        try:
            os.sched_setaffinity(0, {cpu})
            for _ in range(BATCH + MARGIN):
                os.unshare(os.CLONE_NEWUTS)
        except OSError as error:
            sys.stderr.write(f"slurmd-start: CPU {cpu}: cannot use up its namespace numbers: {error.strerror}\n")
        finally:
            os._exit(0)  # jobs that need no mount namespace run all the same
    os.waitpid(child, 0)


if __name__ == "__main__":
    if kernel() >= FIRST_KERNEL:
        for number in sorted(os.sched_getaffinity(0)):
            use_up_batch(number)
    # -D: in the foreground, below the pod's init, which reaps what its jobs leave.
    os.execv("/usr/sbin/slurmd", ["slurmd", "-D", *sys.argv[1:]])  # noqa: S606 - to become it is the point
