"""What Kubernetes and Slurm each say of the compute nodes, and what is to be done until they agree. Pure.

`decide(world)` is told both sides as they are now and answers with what to do next. It may be asked again at any moment
and from any state: what is done already is not asked for again, and what was cut off in the middle is taken up where it
stands. It knows no events and no history, and each node is decided by itself: a world of one node is a world.

Kubernetes says which nodes belong to the cluster: a claim is made before a record exists and given up after it has gone
out of use. Slurm says what runs on them. We act on a record only if it is ours: it bears our mark with the UID of a
Kubernetes node, or it has no `extra` and the feature of a NodeSet, which it gets as it is made. A drain is lifted only
if its reason is ours, and what an administrator has resumed stays so until the cause is another one.

A slurmd registers once, with the record that it finds at its start. When Slurm has lost that record and a new one is
made, slurmctld has to ask: it asks the slurmd of a FUTURE record that is resumed, and of no record that waits to be
powered up. So a record whose slurmd runs already is made FUTURE, told where slurmd is, and resumed (`Register`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kurm.domain.causes import DEAD, OURS, POD, RELEASED, Cause, Memory, of_pod, released, strongest_first
from kurm.domain.world import Claim, Pod, Record, World, mark

UNHEARD = "Not responding"
"""The reason that slurmctld 26.05 gives of itself to a node that it sets DOWN because its slurmd does not answer."""
GONE_FROM_POOL = f"{OURS}no longer in a NodeSet"
ANOTHER_NODE = f"{OURS}another node has its name"


@dataclass(frozen=True, order=True)
class Create:
    """Make the record of a claimed node, marked with its UID."""

    node: str
    slurmd: str = ""
    """Address of a slurmd that runs already and is to be asked to register; empty if one will come by itself."""


@dataclass(frozen=True, order=True)
class Mark:
    """Put the mark on a record that has none, or another node's: making a record and marking it are two calls."""

    node: str
    uid: str
    comment: str | None = None
    """As with `Drain`: what was remembered of another node is not of this one."""
    address: str | None = None
    """Where its slurmd is to be asked to register; None leaves it."""


@dataclass(frozen=True, order=True)
class Recall:
    """Make a record FUTURE whose slurmd runs and does not come to it; it has no jobs."""

    node: str
    comment: str | None = None
    """As with `Drain`: its flags go, the drain with them."""


@dataclass(frozen=True, order=True)
class Register:
    """Resume a FUTURE record: slurmctld asks its slurmd to register, and ends what it does not know to run there."""

    node: str


@dataclass(frozen=True, order=True)
class Describe:
    """Give a record the features and the weight that its NodeSet wants now. Its size stays, as slurmd's does."""

    node: str


@dataclass(frozen=True, order=True)
class Place:
    """Give a record its place in the topology, none if it is empty. Slurm may not know it yet: then it has none."""

    node: str
    place: str


@dataclass(frozen=True, order=True)
class Drain:
    """Let it take no new jobs, for a reason that begins with ours."""

    node: str
    reason: str
    cause: str
    """Key of the cause in `kurm.domain.causes`, or a word for a record that is to go."""
    comment: str | None = None
    """What the record's comment is to be, by the same call; None leaves it."""


@dataclass(frozen=True, order=True)
class Undrain:
    """Lift a drain of ours."""

    node: str
    comment: str | None = None
    """As with `Drain`."""
    down: bool = False
    """It is DOWN, too, by us: no slurmd that answers has ended that yet."""


@dataclass(frozen=True, order=True)
class Retract:
    """Take back from a pod that it may go, and wait until nobody can evict it: only then may jobs come to its node.

    It is no call of Slurm's: what the pod is to be told (`kurm.domain.report`) is it.
    """

    node: str


@dataclass(frozen=True, order=True)
class Down:
    """Have Slurm requeue what still runs on a node that is draining; what cannot be requeued ends. The reason stays."""

    node: str


@dataclass(frozen=True, order=True)
class Remember:
    """Change what the comment of a record remembers."""

    node: str
    comment: str


@dataclass(frozen=True, order=True)
class Delete:
    """Delete a record of ours on which nothing runs."""

    node: str


Instruction: TypeAlias = (
    Create | Mark | Recall | Register | Describe | Place | Drain | Undrain | Retract | Down | Remember | Delete
)


def decide(world: World) -> list[Instruction]:
    """Return what to do next, by node; nothing when both sides agree, or when one of them is not known."""
    if world.claims is None or world.pods is None or world.records is None:
        return []
    instructions: list[Instruction] = []
    for node in sorted({*world.claims, *world.records}):
        claim, pod, record = world.claims.get(node), world.pods.get(node), world.records.get(node)
        instructions += _of_node(node, claim, pod, record)
    return instructions


def _of_node(node: str, claim: Claim | None, pod: Pod | None, record: Record | None) -> Iterator[Instruction]:
    if record is None:
        if claim is not None and claim.record is not None:
            # Also for a pod that shall go: without a record nobody can say that nothing runs there. A new record takes
            # jobs at once: where Slurm has lost its state the pod may have been told that its node was drained.
            if pod is not None and not pod.held:
                yield Retract(node)
            else:
                yield Create(node, pod.address if pod is not None and pod.running else "")
    elif not record.ours:
        return
    elif claim is None:
        yield from _unclaimed(node, pod, record)
    elif record.extra == "":
        yield Mark(node, claim.uid)
    elif record.extra != mark(claim.uid):
        yield from _of_another(node, claim, pod, record)
    else:
        yield from _of_its_own(node, claim, pod, record)


def _of_its_own(node: str, claim: Claim, pod: Pod | None, record: Record) -> Iterator[Instruction]:
    if record.future:
        yield _of_future(node, claim, pod, record)
        return
    if _is_waited_for(pod, record):
        # What stands against the node counts anew: without its drain the memory would mean an administrator.
        forgotten = Memory().beside(record.comment)
        yield Recall(node, forgotten if forgotten != record.comment else None)
        return
    if not _described(claim, record):
        yield Describe(node)
    yield from _placed(node, claim, record)
    keys = {cause.key for cause in standing(claim, pod, record)}
    if record.draining and record.busy and not record.down and _is_over(keys - overridden(record), pod):
        yield Down(node)
    before = Memory.of(record.comment)
    if _of_others(record):
        # Whoever drained first keeps the drain.
        if (after := before.only(keys)) != before:
            yield Remember(node, after.beside(record.comment))
        return
    strongest = _strongest(claim, pod, record)
    after = Memory(strongest.key if strongest else "", overridden(record) & keys)
    comment = after.beside(record.comment) if after != before else None
    if strongest is not None and not (record.draining and strongest.stands_in(record.reason)):
        yield Drain(node, strongest.reason, strongest.key, comment)
    elif strongest is None and record.drained_by_us:
        yield Undrain(node, comment, record.down) if pod is None or pod.held else Retract(node)
    elif comment is not None:
        yield Remember(node, comment)


def _is_waited_for(pod: Pod | None, record: Record) -> bool:
    """Whether a record waits in vain for a slurmd that runs. An administrator's drain, and jobs that wait, keep it."""
    free = record.vacant and not record.busy and (not record.draining or record.drained_by_us)
    return free and pod is not None and pod.running and pod.told


def _of_future(node: str, claim: Claim, pod: Pod | None, record: Record) -> Instruction:
    if pod is None or not pod.running:
        return Delete(node)  # a slurmd that starts waits for a record that it can see
    if record.address != pod.address:
        return Mark(node, claim.uid, address=pod.address)
    return Register(node) if pod.held else Retract(node)


def _of_others(record: Record) -> bool:
    """Whether somebody else keeps it out of service. Of a node that is only not heard of nobody has said anything."""
    by_somebody = record.draining or (record.down and record.reason not in {"", UNHEARD})
    return by_somebody and not record.reason.startswith(OURS)


def _is_over(keys: Collection[str], pod: Pod | None) -> bool:
    """Whether the jobs of a draining node are not to be waited for."""
    return DEAD in keys or (RELEASED in keys and pod is not None and pod.overdue)


def _strongest(claim: Claim, pod: Pod | None, record: Record) -> Cause | None:
    """Return the cause that is to stand in our drain, None if there is to be no drain of ours."""
    ignored = overridden(record)
    return next((cause for cause in standing(claim, pod, record) if cause.key not in ignored), None)


def lifts(claim: Claim, pod: Pod | None, record: Record) -> bool:
    """Whether our drain is to be lifted, as soon as the pod can be evicted no more."""
    return record.drained_by_us and record.extra == mark(claim.uid) and _strongest(claim, pod, record) is None


def standing(claim: Claim, pod: Pod | None, record: Record) -> list[Cause]:
    """Return why a node shall take no jobs, the strongest cause first."""
    causes = [*claim.causes, *_of_pod(pod, record)]
    if pod is not None and pod.release:
        causes.append(released(pod.release))
    return strongest_first(causes)


def _of_pod(pod: Pod | None, record: Record) -> Iterator[Cause]:
    """Return what slurmd's pod gives as a cause.

    Nothing before a first slurmd has come to the record: it takes jobs then that wait for one, and a drain would end
    them. A drain of ours is lifted only with a slurmd that answers: where one has just gone Slurm still sends it jobs.
    """
    if not record.attached and Memory.of(record.comment).drained_for != POD:
        return  # a slurmctld that was started again does not know of a slurmd that has gone, and remembers our drain
    if pod is None:
        yield of_pod("is gone")
    elif pod.terminating:
        yield of_pod("is terminating")
    elif record.drained_by_us and not pod.ready:
        yield of_pod("is not ready")


def overridden(record: Record) -> frozenset[str]:
    """Return the causes against which an administrator has resumed a node, by their keys.

    A release is none of them: the operator waits for its answer, and has promised nobody to go on without one.
    """
    memory = Memory.of(record.comment)
    lifted = {memory.drained_for} - {""} if not record.draining else frozenset[str]()
    return (memory.overridden | lifted) - {RELEASED}


def _described(claim: Claim, record: Record) -> bool:
    wanted = claim.record
    return wanted is None or (set(wanted.features), wanted.weight) == (set(record.features), record.weight)


def _placed(node: str, claim: Claim | None, record: Record) -> Iterator[Instruction]:
    wanted = "" if claim is None else record.topology if claim.record is None else claim.record.topology
    if wanted != record.topology:
        yield Place(node, wanted)


def _unclaimed(node: str, pod: Pod | None, record: Record) -> Iterator[Instruction]:
    """Delete the record of a node that is in no NodeSet any more, once nothing runs on it.

    Its place is taken from it at once: as long as a record has it, Slurm takes no configuration without that block.
    """
    yield from _placed(node, None, record)
    if not record.draining:
        yield Drain(node, GONE_FROM_POOL, "unclaimed")
    elif not record.busy and pod is None:
        yield Delete(node)


def _of_another(node: str, claim: Claim, pod: Pod | None, record: Record) -> Iterator[Instruction]:
    """Let the jobs of the node that had the name end, then make the record anew.

    If there is a pod by then its slurmd has the record, and would not come back to another one by itself: so the record
    is marked for the new node instead. Slurm sets it aside if it has become smaller.
    """
    yield from _placed(node, claim, record)
    if not record.draining:
        yield Drain(node, ANOTHER_NODE, "replaced")
    elif not record.busy:
        if pod is None:
            yield Delete(node)
        else:
            forgotten = Memory().beside(record.comment)
            yield Mark(node, claim.uid, forgotten if forgotten != record.comment else None)
