"""What a pod asks of Slurm, by its spec, its annotations and the cluster's rules; or why it cannot be placed. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.feasibility import Constraint
from kurm.domain.jobrequest import JobRequest
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.partition import Partition
from kurm.domain.podresources import Resources
from kurm.domain.podspec import Pod, Port
from kurm.domain.schedulerspec import Scheduler


class RefusedError(ValueError):
    """A pod asks for what it cannot have; its words are one sentence that names the field, the value, what is allowed.

    Nothing but a change of the pod, the SlurmCluster or a NodeSet helps.
    """


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod asks. Pods of one template in one namespace share the same object."""

    constraint: Constraint
    resources: Resources
    ports: tuple[Port, ...] = ()
    cpus: int = 1
    memory: int = 1
    """MiB."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: int | None = None
    """Minutes."""
    features: str = ""
    """Slurm's constraint."""
    reservation: str = ""
    licenses: str = ""
    comment: str = ""
    exclusive: bool = False

    def request(self, name: str, signature: str, *, slots: int = 1, gres: tuple[str, ...] = ()) -> JobRequest:
        """Return the request to Slurm; `gres` is what `Placing.prospect` has chosen."""
        raise NotImplementedError


class Rules:
    """What pods may ask of one SlurmCluster. It remembers templates: make a new one when what it is made of changes."""

    def __init__(
        self, scheduler: Scheduler, partitions: Iterable[Partition], node_sets: Mapping[str, NodeSetSpec]
    ) -> None:
        """`node_sets` are those of the cluster, by name."""
        raise NotImplementedError

    def ask(self, pod: Pod) -> Ask:
        """Return what the pod asks. Raises RefusedError."""
        raise NotImplementedError
