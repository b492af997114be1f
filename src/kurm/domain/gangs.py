"""Which pods belong together, and which of an allocation's slots each of them gets. Pure.

A pod alone is a gang of one. So is the scheduler to use it::

    owner = owner_of(pod, job)              # RefusedError: bad annotations. Job: that of the pod's owner reference
    gathered = gather(owner, [(pod, rules.ask(pod)), ...])      # RefusedError: pod x-3 asks another thing than x-0
    if gathered.waits_for: the condition GangIncomplete with these words
    ...
    slots = slots_of(layout)                # of a granted job: slots[3] is the node of slot 3
    for pod, slot in fill(owner, slots, held={0: uid}, pods=[...]): bind pod to slots[slot], with kurm.dev/slot: slot
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kurm.domain.asks import Ask
from kurm.domain.podspec import JobSpec, Pod

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of an Indexed Job's pod: its rank."""


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
        """`namespace/name.uid8`."""
        raise NotImplementedError

    def signature(self, cluster_uid: str) -> str:
        """What its jobs bear as admin_comment."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Gathered:
    """The pods of an owner that are there."""

    ask: Ask
    """What each of them asks."""
    missing: int = 0
    waits_for: str = ""
    """What an incomplete gang waits for: "2 of 8 pods are there"; empty if it is complete."""


def job_of(pod: Pod) -> str:
    """Return the UID of the Job that the pod belongs to, and has its rank of; empty for none.

    Only then is the Job to be looked up for `owner_of`.
    """
    raise NotImplementedError


def owner_of(pod: Pod, job: JobSpec | None = None) -> Owner:
    """Return whom the pod's allocation is for: the gang of its annotations, else its Indexed Job, else itself.

    Raises RefusedError for annotations that make no gang.
    """
    raise NotImplementedError


def gather(owner: Owner, pods: Sequence[tuple[Pod, Ask]]) -> Gathered:
    """Return what the pods of an owner ask together, and whether all are there.

    Raises RefusedError, which names the pod that asks otherwise, and in what; also if there are more than its size.
    """
    raise NotImplementedError


def slots_of(layout: Mapping[str, int]) -> tuple[str, ...]:
    """Return the node of each slot, in the order of the nodes' names: n2 before n10. Ranks are slots."""
    raise NotImplementedError


def fill(
    owner: Owner, slots: Sequence[str], held: Mapping[int, str], pods: Sequence[Pod]
) -> tuple[tuple[Pod, int], ...]:
    """Return which pod gets which slot. `held`: by slot the UID of the pod that has it, until that is gone for good.

    A pod that holds one gets none anew. One with a rank gets its own slot or none; others take free ones in the order
    of their names.
    """
    raise NotImplementedError
