"""Images from a checkout into the nodes of a local cluster, under names that change with their content."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kurm.local import images
from kurm.local.cluster import Cluster
from kurm.local.progress import Steps


def ship(
    cluster: Cluster, repository: Path, steps: Steps, *, control: Sequence[str], compute: Sequence[str]
) -> Mapping[str, str]:
    """Build what is not in the cache, load what the nodes lack, and return the reference of each target's image.

    `control` are the targets that run on the first node, `compute` those that run on the others. Raises ImageError.
    """
    targets = (*control, *compute)
    # Read once: a file that is edited meanwhile must not make a manifest name an image that was not built.
    named = {target: images.reference(target, images.tag(repository, target)) for target in targets}
    with steps.step("Images"):
        archives = images.build(repository, targets, steps.note)
    with steps.step("Images into the nodes"):
        first, *others = cluster.layout.nodes
        held = {node.name: cluster.images(node) for node in cluster.layout.nodes}
        for target in targets:
            nodes = [first] if target in control else others
            lacking = [node for node in nodes if named[target] not in held[node.name]]
            cluster.load(archives[images.reference(target)], lacking)
    return named
