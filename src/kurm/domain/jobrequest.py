"""JobRequest: what an allocation asks of Slurm. Pure; `kurm.slurm.allocations` says it in Slurm's words."""

from dataclasses import dataclass

UNLIMITED = 0xFFFFFFFF
"""Minutes of a job without any limit: Slurm's INFINITE (slurm.h)."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One Slurm job with `slots`, of which each holds one pod; a single pod is one slot on one node."""

    name: str
    """`namespace/name.uid8`: with Slurm's singleton dependency no second one of that name lives beside it."""
    signature: str
    """What the job bears as `admin_comment`, which users cannot write: `kurm:CLUSTER_UID:OWNER`."""
    slots: int
    cpus: int
    """Of each slot; whole ones, as Slurm counts."""
    memory: int
    """MiB of each slot."""
    gres: tuple[str, ...] = ()
    """Of each node, in Slurm's words with counts: `gpu:h100:8`. A pod with GRES holds the node's whole share of it."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: int | None = None
    """Minutes; None for the partition's own, UNLIMITED for none."""
    constraint: str = ""
    reservation: str = ""
    licenses: str = ""
    comment: str = ""
    exclusive: bool = False
    """Whether nothing else is to run on its nodes."""
    slots_per_node: int = 0
    """Most slots on a node, as far as Slurm can be told: it is asked for nodes enough. 0 for as many as fit. CPUs and
    memory do not tell that a node has GPUs for two pods only, or that a host port can be taken once."""

    @property
    def named(self) -> str:
        """What it names of Slurm's own, in words: `partition batch, account web`. Slurm's refusals say neither."""
        found = {
            "partition": self.partition,
            "account": self.account,
            "QOS": self.qos,
            "constraint": self.constraint,
            "reservation": self.reservation,
            "licenses": self.licenses,
            "GRES": ",".join(self.gres),
        }
        return ", ".join(f"{name} {value}" for name, value in found.items() if value)
