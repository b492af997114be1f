"""Hand-made histories: each line is one event, at the time that stands in front of it."""

from collections.abc import Sequence

from msgspec import structs

from chaos.checker import Breach, check
from chaos.history import (
    Deed,
    Event,
    Job,
    Machine,
    NodeSeen,
    PodSeen,
    Quiet,
    Share,
    SlurmSilent,
    SlurmTold,
    ordered,
)

LATE = 1000.0
"""When a job has started of which nothing is said: after slurmctld's last death."""
NODES = {"n1": Machine(8, 16_000), "n2": Machine(8, 16_000)}


def nodes() -> list[Event]:
    """Return two ready nodes of 8 CPUs."""
    return [NodeSeen(at=0.0, name=name) for name in NODES]


def pod(at: float, uid: str = "a", *, node: str = "", cpus: int = 2, **more: object) -> PodSeen:
    """Return a version of a pod: single and of its own owner, unless `more` says otherwise."""
    fields: dict[str, object] = {"owner": uid, "memory": 100 * cpus} | more
    return PodSeen(at=at, uid=uid, namespace="load", name=uid, node=node, cpus=cpus, **fields)  # type: ignore[arg-type]


def job(owner: str, node: str = "", *, id: int = 1, cpus: int = 2, name: str = "", **more: object) -> Job:  # noqa: A002
    """Return a job of an owner ("" for nobody's): it runs on a node, or waits if there is none."""
    holds = {node: Share(cpus=cpus, memory=100 * cpus)} if node else {}
    fields: dict[str, object] = {"state": "RUNNING" if node else "PENDING", "sluid": f"s{id}", "started": LATE} | more
    signature = f"kurm:c:{owner}" if owner else ""
    return Job(id=id, name=name or owner, signature=signature, cpus=cpus, holds=holds, **fields)  # type: ignore[arg-type]


def told(at: float, *jobs: Job, gate: str = "open", down: str = "") -> SlurmTold:
    """Return what slurmctld has told, asked 20 ms before; one node may be down."""
    nodes = {name: structs.replace(node, taking=name != down) for name, node in NODES.items()}
    return SlurmTold(at=at, asked=at - 0.02, jobs=jobs, nodes=nodes, gate=gate)


def always(first: float, last: float, *jobs: Job, gate: str = "open", down: str = "") -> list[Event]:
    """Return the same answer each half second."""
    return [told(first + step / 2, *jobs, gate=gate, down=down) for step in range(int((last - first) * 2) + 1)]


def silent(first: float, last: float) -> list[Event]:
    """Return that slurmctld did not answer each half second."""
    return [SlurmSilent(at=first + step / 2, asked=first + step / 2) for step in range(int((last - first) * 2) + 1)]


def deed(at: float, kind: str, subject: str = "a", **more: object) -> Deed:
    """Return a deed."""
    return Deed(at=at, kind=kind, subject=subject, **more)  # type: ignore[arg-type]


def quiet(first: float, last: float) -> list[Event]:
    """Return a quiet phase."""
    return [Quiet(at=first), Quiet(at=last, over=True)]


def found(*events: Event | Sequence[Event]) -> list[Breach]:
    """Return the breaches of a history in a world of two nodes."""
    flat = nodes()
    for one in events:
        flat += [one] if isinstance(one, Event) else one
    return check(ordered(flat))


def promises(*events: Event | Sequence[Event]) -> list[str]:
    """Return which promises were broken."""
    return [breach.promise for breach in found(*events)]
