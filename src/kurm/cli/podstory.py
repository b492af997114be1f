"""What is known of one pod that goes through Slurm's queue, and how it is told to a person. Reads nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from kurm.cli.queuedjob import PENDING, QueuedJob
from kurm.cli.text import ago, line, plain
from kurm.domain.nodeset import Infeasible
from kurm.domain.signals import JOB, SLOT
from kurm.domain.slurmreasons import in_words
from kurm.kube.resources import Condition
from kurm.scheduler.objects import DISRUPTED, SCHEDULED, Pod


@dataclass(frozen=True)
class Wanted:
    """What the pod asks of Slurm."""

    cpus: int
    memory: int
    """MiB."""
    gres: tuple[str, ...] = ()
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: int | None = None
    """Minutes."""


@dataclass(frozen=True)
class Gang:
    """The gang that a pod belongs to."""

    name: str
    size: int
    there: tuple[str, ...]
    """Names of its pods that are there."""
    missing: str = ""
    """Which pods are missing, in words; empty if none is."""


@dataclass(frozen=True)
class Nodes:
    """The Kubernetes nodes, as the pod meets them."""

    total: int
    feasible: int
    """How many it could be on, if they were free."""
    ruled_out: Sequence[Infeasible] = ()


@dataclass(frozen=True)
class Story:
    """All of it, at about one moment."""

    pod: Pod
    cluster: str = ""
    """The SlurmCluster whose scheduler places it, `slurm/demo`; empty for none."""
    schedulers: Mapping[str, str] = field(default_factory=dict)
    """The names of all schedulers that can be seen, each with its cluster."""
    refused: str = ""
    """Why it cannot be placed until somebody changes it, or the cluster."""
    wanted: Wanted | None = None
    gang: Gang | None = None
    jobs: Sequence[QueuedJob] = ()
    nodes: Nodes | None = None
    unknown: Sequence[str] = ()
    """What could not be found out, in sentences."""


def show(out: Console, story: Story) -> None:
    """Print what is known of a pod."""
    meta = story.pod.metadata
    age = f"{ago(meta.creation_timestamp)} old" if meta.creation_timestamp else "of unknown age"
    whose = f"placed by SlurmCluster {story.cluster}" if story.cluster else "placed by no SlurmCluster"
    line(out, f"Pod {story.pod.key}, {age}, {whose}", "bold")
    for words in _state(story):
        line(out, f"  {words}")
    parts = (("Slurm", _slurm(story)), ("Gang", _gang(story.gang)), ("Nodes", _nodes(story)))
    for title, words_of in parts:
        if found := list(words_of):
            line(out, f"\n{title}", "bold")
            for words in found:
                line(out, f"  {words}")
    for words in story.unknown:
        line(out, f"\n{words}", "yellow")


def waits(pod: Pod) -> Condition | None:
    """Return the condition that says why a pod is not bound yet; None if it is, or if nobody has said it."""
    found = pod.condition(SCHEDULED)
    return found if not pod.spec.node_name and found is not None and found.status == "False" else None


def _state(story: Story) -> Iterator[str]:
    pod = story.pod
    job = pod.metadata.annotations.get(JOB, "")
    by = f" by job {job}" if job else ""
    slot = f", slot {pod.metadata.annotations[SLOT]}" if SLOT in pod.metadata.annotations else ""
    if pod.over:
        yield f"It has ended ({pod.status.phase})" + (f"; it was bound to {pod.spec.node_name}{by}." if by else ".")
    elif pod.spec.node_name:
        yield f"It is bound to {pod.spec.node_name}{by}{slot}" + (", and is ending." if pod.leaving else ".")
    elif not story.cluster:
        yield _stranger(story)
    elif (said := waits(pod)) is not None:
        yield f"It waits{_for(said)}: {said.reason}: {plain(said.message)}"
    else:
        namespace, _, name = story.cluster.partition("/")
        labels = f"app.kubernetes.io/component=scheduler,app.kubernetes.io/instance={name}"
        yield "It waits, and nobody has said why. Is the scheduler there?"
        yield f"  kubectl -n {namespace} get pods -l {labels}"
    if (ended := pod.condition(DISRUPTED)) is not None and ended.status == "True":
        yield f"It was told to end{_for(ended)}: {plain(ended.message or ended.reason)}"
    if pod.spec.scheduling_gates:
        yield f"It waits for its scheduling gates: {', '.join(gate.name for gate in pod.spec.scheduling_gates)}."


def _stranger(story: Story) -> str:
    known = ", ".join(f"{name} ({cluster})" for name, cluster in sorted(story.schedulers.items()))
    has = f"Its spec.schedulerName is {story.pod.spec.scheduler_name or 'not set'}"
    return f"{has}; " + (f"SlurmClusters place those of {known}." if known else "no SlurmCluster places pods here.")


def _slurm(story: Story) -> Iterator[str]:
    if story.refused:
        yield f"It cannot be placed as it is: {plain(story.refused)}"
    if (wanted := story.wanted) is not None:
        yield _wanted(wanted)
    for job in story.jobs:
        yield _job(job)
    if story.cluster and not story.jobs and not story.pod.over and not story.unknown:
        yield "Slurm has no job for it."
        if node := story.pod.spec.node_name:
            yield f"It gets one as soon as Slurm starts jobs on {node}. How that node is:"
            yield f"  kurm explain node {node}"


def _wanted(wanted: Wanted) -> str:
    what = f"{wanted.cpus} CPU{'s' * (wanted.cpus != 1)}, {wanted.memory} MiB"
    what += "".join(f", {gres}" for gres in wanted.gres)
    where = f"partition {wanted.partition}" if wanted.partition else "Slurm's default partition"
    more = [f"account {wanted.account}"] if wanted.account else []
    more += [f"QOS {wanted.qos}"] if wanted.qos else []
    more += [f"at most {wanted.time_limit} min"] if wanted.time_limit is not None else []
    return f"It asks for {what} in {', '.join((where, *more))}."


def _job(job: QueuedJob) -> str:
    account = f", account {job.account}" if job.account else ""
    what = f"Its job {job.id} in partition {job.partition}{account}"
    if job.state != PENDING:
        return f"{what} is {job.state} on {job.nodes}." if job.nodes else f"{what} is {job.state}."
    why = f"{job.reason} ({words})" if (words := in_words(job.reason)) else job.reason
    place = f" It has place {job.place} of {job.waiting} in partition {job.partition}." if job.place else ""
    start = f" Slurm expects to start it at {job.start}." if job.start else ""
    return f"{what} waits: {plain(why)}.{place}{start}"


def _gang(gang: Gang | None) -> Iterator[str]:
    if gang is None:
        return
    whole = "all of its pods are there" if not gang.missing else f"{len(gang.there)} of its pods are there"
    yield f"It is one of {gang.size} of {gang.name}, which are bound all or none; {whole}."
    if gang.there:
        yield f"There: {', '.join(gang.there)}"
    if gang.missing:
        yield f"Missing: {gang.missing}"


def _nodes(story: Story) -> Iterator[str]:
    nodes = story.nodes
    if nodes is None or story.pod.spec.node_name:
        return
    yield f"{nodes.feasible} of {nodes.total} could be used, if they were free."
    for one in nodes.ruled_out:
        some = ", ".join(one.examples) + (", ..." if one.nodes > len(one.examples) else "")
        yield f"{one.nodes} cannot: {one.reason} ({some})"


def _for(found: Condition) -> str:
    return f" for {ago(found.last_transition_time)}" if found.last_transition_time else ""
