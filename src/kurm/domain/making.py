"""Volumes that are made where Slurm has granted a pod its node: bind nobody before they are there. Pure."""

from collections.abc import Iterable, Iterator

from kurm.domain.owner import Making, Snapshot
from kurm.domain.steps import Bind, Cancel, Instruction, Prepare, Report, Tell, Wait

VOLUMES_WITHIN = 40.0
"""Seconds in which volumes must be there once their node is chosen; then the node is given up."""
VOLUMES_LOOK = 0.5
"""Seconds between looks at claims whose volumes are being made."""


def ready(seen: Snapshot, binds: Iterable[Bind]) -> Iterator[Instruction]:
    """Bind pods, none before the volumes of all of them are there."""
    binds, pods = list(binds), {pod.uid: pod for pod in seen.pods}
    waiting = [(bind, pods[bind.pod]) for bind in binds if pods[bind.pod].claims]
    if not waiting:
        yield from binds
    for bind, pod in waiting:
        making = pod.making
        if making is None or (making.job, making.node) != (bind.job, bind.node):
            yield Prepare(bind.pod, bind.job, bind.node)
        elif making.refused or seen.now - making.since > VOLUMES_WITHIN:
            yield from _not_made(seen, bind, pod.claims, making)
        else:
            yield Tell("VolumeBinding", f"claim {pod.claims} waits for a volume that node {bind.node} can reach")
            yield Wait(VOLUMES_LOOK, "volumes are being made")


def _not_made(seen: Snapshot, bind: Bind, claims: str, making: Making) -> Iterator[Instruction]:
    """Give back a node for which no volume was made. A gang that runs in part keeps it, and tries again."""
    how = "its provisioner refuses that" if making.refused else f"not within {VOLUMES_WITHIN:g} s"
    why = f"claim {claims} has got no volume that node {bind.node} can reach: {how}"
    yield Report(bind.pod, "VolumeNotMade", why)
    yield Tell("VolumeNotMade", why)
    if not any(pod.node for pod in seen.pods):
        yield Cancel(bind.job, why, avoid=(bind.node,))
    elif (left := making.since + VOLUMES_WITHIN - seen.now) > 0:
        yield Wait(left, why)
    else:
        yield Prepare(bind.pod, bind.job, bind.node)
