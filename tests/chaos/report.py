"""A breach for people: the slice of the history around it, of those whom it concerns, in a line each."""

from collections.abc import Iterator, Sequence

from chaos.checker import Breach
from chaos.history import Deed, Event, Fault, Job, Line, NodeSeen, PodSeen, Quiet, Request, SlurmSilent, SlurmTold

BEFORE, AFTER = 8.0, 1.0
"""Seconds of the history that are shown around a breach."""
MOST = 150
"""Lines of a slice; those in the middle are left out."""
LONGEST = 360
"""Characters of a line."""


def report(breach: Breach, events: Sequence[Event]) -> str:
    """Return the breach and its slice."""
    lines = list(cut(breach, events))
    if len(lines) > MOST:
        half = MOST // 2
        lines = [*lines[:half], f"      ... {len(lines) - MOST} lines ...", *lines[-half:]]
    return "\n".join([str(breach), *lines])


def cut(breach: Breach, events: Sequence[Event]) -> Iterator[str]:
    """Yield the lines of a breach's slice."""
    names = _names(breach, events)
    first, last = min(breach.begun, breach.at) - BEFORE, breach.at + AFTER
    jobs_before = ""
    for event in events:
        if not first <= event.at <= last:
            continue
        if isinstance(event, SlurmTold):
            jobs = "; ".join(_job(job) for job in event.jobs if _concerns_job(job, breach.subjects, names))
            if jobs != jobs_before:
                yield _line(
                    event.at, f"slurm (asked {event.asked:.2f}, gate {event.gate or 'unknown'}): {jobs or 'no job'}"
                )
                jobs_before = jobs
        elif text := _text(event, breach.subjects, names):
            yield _line(event.at, text)


def _line(at: float, text: str) -> str:
    return f"{at:9.3f} {text[:LONGEST]}"


def _names(breach: Breach, events: Sequence[Event]) -> set[str]:
    """Return further words by which those concerned are known: names of pods, ids of their jobs."""
    found: set[str] = set()
    for event in events:
        if isinstance(event, PodSeen) and {event.uid, event.owner} & breach.subjects:
            found |= {f"/pods/{event.name}/", f"/pods/{event.name}?", f'"{event.namespace}/{event.name}.'}
        elif isinstance(event, SlurmTold) and breach.begun - BEFORE <= event.at <= breach.at + AFTER:
            for job in event.jobs:
                if job.owner in breach.subjects or job.name in breach.subjects:
                    found |= {f"JobId={job.id} ", f"/job/{job.id}", f'"job_id":{job.id},', f"job={job.id} "}
    return found


def _text(event: Event, subjects: frozenset[str], names: set[str]) -> str:
    """Return an event as a line; empty if it does not concern them."""
    text = ""
    match event:
        case PodSeen() if {event.uid, event.owner, event.node} & subjects:
            marks = "gone " * event.gone + "terminating " * event.terminating
            why = f" {event.reason}: {event.message}" if event.reason else ""
            place = f"on {event.node} by job {event.job} slot {event.slot or '-'}" if event.node else "waits"
            text = f"pod {event.title} {event.uid[:8]} {marks}{event.phase} {place}{why}"
        case NodeSeen() if event.name in subjects:
            text = f"node {event.name} {'ready' if event.ready else 'not ready'}{', cordoned' * event.cordoned}"
        case Deed() if event.subject in subjects or event.detail in subjects:
            text = f"load: {event.kind} {event.subject} {event.detail}{' (done)' * event.done}"
        case Fault():
            text = f"FAULT {event.kind} {event.target} {event.detail}{' is done' * event.done}{' is over' * event.over}"
        case Quiet():
            text = "QUIET is over" if event.over else "QUIET begins"
        case SlurmSilent():
            text = f"slurmctld does not answer since {event.asked:.2f}: {event.why}"
        case Request() if _mentioned(f"{event.path}{event.body}{event.answer}", subjects, names):
            words = f" -> {event.status} {event.answer}" if event.status else " -> no answer"
            text = f"scheduler to {event.to} ({event.asked:.3f}): {event.method} {event.path} {event.body}{words}"
        case Line() if _mentioned(f"{event.text} ", subjects, names):
            text = f"{event.who}: {event.text}"
        case _:
            pass
    return text


def _mentioned(text: str, subjects: frozenset[str], names: set[str]) -> bool:
    return any(word in text for word in (*subjects, *names))


def _concerns_job(job: Job, subjects: frozenset[str], names: set[str]) -> bool:
    return bool({job.owner, job.name, *job.holds} & subjects) or f"JobId={job.id} " in names


def _job(job: Job) -> str:
    places = ",".join(f"{node}:{share.cpus}cpu/{share.memory}M" for node, share in job.holds.items())
    return f"job {job.id} {job.name} {job.state} {places or job.reason}"
