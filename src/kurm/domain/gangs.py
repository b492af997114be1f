"""Which pods belong together. Pure.

A pod alone is a gang of one. A scheduler uses it so::

    if job_of(pod): job = ...                          # the Job with that UID; not known yet: look again later
    owner = owner_of(pod, job)                         # RefusedError: annotations that make no gang
    gathered = gather(owner, [(pod, rules.ask(pod)), ...])  # RefusedError: pod x-3 asks another thing than x-0
    if gathered.waits_for: ...                         # GangIncomplete, with these words

Which slot each of them gets is a part of an allocation's life (`allocation`).
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from kurm.domain.asks import GANG, GANG_SIZE, Ask, RefusedError
from kurm.domain.podspec import JobSpec, JobStatus, Pod

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of an Indexed Job's pod: its rank (Kubernetes, "Jobs")."""
_GANG = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", re.ASCII)
_SIZE = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_DIGITS = re.compile(r"([0-9]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom an allocation is for. Equal for all pods of a gang, also for those that come in the place of others."""

    id: str
    """A pod's UID, an Indexed Job's UID, or `NAMESPACE/GANG`: how jobs of Slurm's say whose they are."""
    namespace: str
    name: str
    """Of the pod, the Job or the gang."""
    size: int = 1
    indexed: bool = False
    """Whether each pod has its rank: then it gets no other slot."""

    @property
    def job_name(self) -> str:
        """`namespace/name.uid8`. A gang that annotations make has no UID; its own eight letters are of its id."""
        annotated = self.id == f"{self.namespace}/{self.name}"
        letters = blake2b(self.id.encode(), digest_size=4).hexdigest() if annotated else self.id[:8]
        return f"{self.namespace}/{self.name}.{letters}"

    def signature(self, cluster_uid: str) -> str:
        """Return what its jobs bear as admin_comment."""
        return f"kurm:{cluster_uid}:{self.id}"


UNKNOWN = 100_000
"""Size of an owner of which nobody can say it any more: more than any gang that annotations can make."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The pods of an owner that are there."""

    ask: Ask
    """What each of them asks."""
    waits_for: str = ""
    """What an incomplete gang waits for: "2 of 8 pods are there"; empty if it is complete."""


def job_of(pod: Pod) -> str:
    """Return the UID of the Job that the pod has a rank of; empty for none. Only then `owner_of` needs the Job."""
    if GANG in pod.metadata.annotations or COMPLETION_INDEX not in pod.metadata.annotations:
        return ""
    return next((owner.uid for owner in pod.metadata.owner_references if owner.kind == "Job"), "")


def owner_of(pod: Pod, job: JobSpec | None = None) -> Owner:
    """Return whom the pod's allocation is for: the gang of its annotations, else its Indexed Job, else itself.

    An Indexed Job is a gang if all of its pods are to run at once: parallelism and completions are equal, and above 1.
    Raises RefusedError for annotations that make no gang.
    """
    meta = pod.metadata
    if GANG in meta.annotations or GANG_SIZE in meta.annotations:
        name, size = _annotated(meta.annotations)
        return Owner(f"{meta.namespace}/{name}", meta.namespace, name, size)
    if job is not None and starts_at_once(job) and (uid := job_of(pod)) and rank(pod) is not None:
        name = next(owner.name for owner in meta.owner_references if owner.uid == uid)
        return Owner(uid, meta.namespace, name, job.parallelism, indexed=True)
    return Owner(meta.uid, meta.namespace, meta.name)


def starts_at_once(job: JobSpec) -> bool:
    """Whether all pods of a Job are to run at once, each with its rank."""
    return job.completion_mode == "Indexed" and job.parallelism == job.completions and job.parallelism > 1


def owner_was(pod: Pod, id: str) -> Owner:  # noqa: A002 - what it is in Owner
    """Return the owner by which a bound pod says that it was bound.

    Its Job may have been deleted, or its annotations changed, since: then only the name and a part of its pods are left
    to tell of it.
    """
    meta = pod.metadata
    if id == meta.uid:
        return Owner(id, meta.namespace, meta.name)
    job = next((owner.name for owner in meta.owner_references if owner.uid == id), "")
    name = job or id.removeprefix(f"{meta.namespace}/")
    return Owner(id, meta.namespace, name, UNKNOWN, indexed=rank(pod) is not None and "/" not in id)


def rank(pod: Pod) -> int | None:
    """Return the rank that an Indexed Job has given to the pod; None for none."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def finished(status: JobStatus) -> frozenset[int]:
    """Return the ranks of an Indexed Job for which no pod is made any more: they have succeeded, or failed for good."""
    found = set[int]()
    for text in (status.completed_indexes, status.failed_indexes):
        for interval in text.split(",") if text else ():
            first, _, last = interval.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def gather(owner: Owner, pods: Sequence[tuple[Pod, Ask]], ended: Collection[int] = ()) -> Gathered:
    """Return what the pods of an owner ask together, and whether all are there but those of the ranks in `ended`.

    `pods`: at least one; none that has ended or is on its way out. Those beyond the size of the gang get no slot.
    Raises RefusedError, which names the pod that asks otherwise, and in what.
    """
    named = sorted(pods, key=lambda one: natural(one[0].metadata.name))
    ask = named[0][1]
    if owner.size == 1 and len(pods) == 1:
        return Gathered(ask)
    _same_size(owner, [pod for pod, _ in named])
    usual = Counter(one for _, one in named).most_common(1)[0][0] if any(one is not ask for _, one in named) else ask
    for pod, one in named:
        if one != usual:
            model = next(name.metadata.name for name, other in named if other == usual)
            clause = _difference(pod.metadata.name, one, model, usual)
            raise RefusedError(f"gang {owner.name}: {clause}: the pods of a gang must ask the same")
    there = len({rank(pod) for pod, _ in named} - set(ended)) if owner.indexed else len(named)
    if there < owner.size - len(ended):
        return Gathered(usual, f"{there} of {owner.size - len(ended)} pods of gang {owner.name} are there")
    return Gathered(usual)


def natural(name: str) -> tuple[str | int, ...]:
    """Return what names are sorted by: their numbers count as numbers. n2 comes before n10."""
    return tuple(int(part) if odd % 2 else part for odd, part in enumerate(_DIGITS.split(name)))


def _annotated(annotations: Mapping[str, str]) -> tuple[str, int]:
    name, size = annotations.get(GANG), annotations.get(GANG_SIZE)
    if name is None or size is None:
        here, missing = (GANG_SIZE, GANG) if name is None else (GANG, GANG_SIZE)
        raise RefusedError(f"annotation {missing} is missing: a gang needs it beside {here}")
    if not _GANG.fullmatch(name):
        raise RefusedError(f"annotation {GANG}: {name!r} must be a-z, 0-9, . and -, at most 63, as trainer")
    if not _SIZE.fullmatch(size):
        raise RefusedError(f"annotation {GANG_SIZE}: {size!r} must be a number of pods above zero, as 8")
    return name, int(size)


def _same_size(owner: Owner, pods: Sequence[Pod]) -> None:
    sizes = {pod.metadata.annotations.get(GANG_SIZE): pod.metadata.name for pod in pods}
    if len(sizes) > 1:
        (one, pod), (other, second) = list(sizes.items())[:2]
        raise RefusedError(
            f"gang {owner.name}: annotation {GANG_SIZE} is {one} on pod {pod} and {other} on pod {second}: "
            "the pods of a gang must say the same"
        )


_FIELDS: Mapping[str, str] = {
    "cpus": "{} CPUs",
    "memory": "{} MiB",
    "partition": "partition {!r}",
    "account": "account {!r}",
    "qos": "QOS {!r}",
    "time_limit": "a time limit of {} minutes",
    "features": "constraint {!r}",
    "reservation": "reservation {!r}",
    "licenses": "licences {!r}",
    "comment": "comment {!r}",
    "exclusive": "exclusive {}",
}
"""What asks can differ in, the plainest first, and how it is told."""
_WIDER: Mapping[str, str] = {
    "selector": "another node selector",
    "required": "another required node affinity",
    "tolerations": "other tolerations",
    "wishes": "other GRES",
}
"""What constraints can differ in."""


def _difference(pod: str, one: Ask, model: str, other: Ask) -> str:
    """Return in what one pod's ask differs from another's, in a clause."""
    for field, words in _FIELDS.items():
        mine, theirs = getattr(one, field), getattr(other, field)
        if mine != theirs:
            return f"pod {pod} asks {words.format(mine)}, pod {model} {words.format(theirs)}"
    fields = (field for field in _WIDER if getattr(one.constraint, field) != getattr(other.constraint, field))
    what = _WIDER.get(next(fields, ""), "") or ("other host ports" if one.ports != other.ports else "other resources")
    return f"pod {pod} asks for {what} than pod {model}"
