"""Run chaos, and prove the promises on what was recorded.

    PYTHONPATH=tests python -m chaos [--kills 50] [--seed N] [--keep FOLDER] [--history FILE]

With --history an earlier record is checked again, and nothing is run.
"""

import argparse
import asyncio
import logging
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import structlog

from chaos.checker import Breach, check
from chaos.history import Event, Fault, PodSeen, SlurmTold, ordered, read
from chaos.report import report
from chaos.run import Plan, run
from integration import ram

SHOWN = 5
"""Breaches whose slices are printed; of all others there is a line."""


def main() -> int:
    """Run, check and tell; return the exit status."""
    given = arguments()
    # What the clients say of each death would bury what is found.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if given.history:
        events = read(given.history)
        return tell(check(events), events, f"--history {given.history}")
    seed = given.seed if given.seed is not None else secrets.randbelow(1 << 32)
    again = f"make chaos KILLS={given.kills} SEED={seed}"
    print(f"chaos: {again}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kurm-chaos-", dir=ram.folder()) as made:
        folder = given.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        plan = Plan(kills=given.kills, seed=seed, first_only=given.first)
        result = asyncio.run(run(folder, plan))
        events = ordered(result.events)
        print(summary(events, time.monotonic() - begun))
        status = tell(check(events), events, again)
        if status and not given.keep:
            kept = Path(tempfile.mkdtemp(prefix="kurm-chaos-history-")) / "history.jsonl"
            shutil.copy(folder / "history.jsonl", kept)
            print(f"To check it again: PYTHONPATH=tests .venv/bin/python -m chaos --history {kept}")
        return status or crashed(result.crashes, (folder / "scheduler.log").read_text(errors="replace"))


def crashed(exits: list[int], log: str) -> int:
    """Tell of schedulers that ended by themselves; return 1 if one did so by an error that nobody had thought of."""
    if exits:
        print(
            f"the scheduler ended by itself {len(exits)} times, with status {sorted(set(exits))}, and was started again"
        )
    _, traceback, rest = log.partition("Traceback (most recent call last)")
    if traceback:
        print(f"The first error that it did not expect:\n{traceback}{rest[:3000]}")
    return int(bool(traceback))


def tell(breaches: list[Breach], events: list[Event], again: str) -> int:
    """Print what was found, and how to see it again; return the exit status."""
    for breach in breaches[:SHOWN]:
        print(f"\n{report(breach, events)}")
    for breach in breaches[SHOWN:]:
        print(f"\n{breach}")
    if not breaches:
        print("P1 to P4 hold.")
        return 0
    counted = Counter(breach.promise for breach in breaches)
    found = ", ".join(f"{promise}: {count}" for promise, count in sorted(counted.items()))
    print(f"\nBROKEN ({found}). To see it again: {again}")
    return 1


def summary(events: list[Event], seconds: float) -> str:
    """Return what happened, in numbers."""
    begun = (event for event in events if isinstance(event, Fault) and not (event.done or event.over))
    faults = Counter(f"{event.kind} {event.target}" for event in begun)
    pods = {event.uid for event in events if isinstance(event, PodSeen)}
    bound = {event.uid for event in events if isinstance(event, PodSeen) and event.node}
    samples = sum(isinstance(event, SlurmTold) for event in events)
    done = ", ".join(f"{count} {what}" for what, count in sorted(faults.items()))
    return (
        f"{seconds:.0f} s, {len(events)} events: {len(pods)} pods, {len(bound)} of them bound, slurmctld answered "
        f"{samples} times. Faults: {done}"
    )


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="cycles, each with a fault; a quiet 15 s after every ten")
    parser.add_argument("--seed", type=int, help="of the dice; another one each time if absent")
    parser.add_argument("--keep", type=Path, help="an empty folder for the history and all logs, which stays")
    parser.add_argument("--history", type=Path, help="check this history.jsonl; run nothing")
    parser.add_argument("--first", action="store_true", help="end with the first breach")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
