"""The volumes of pods that wait: where bound ones can be reached, and the node for those that wait for a consumer.

Few pods have claims, so nothing is watched: a claim is read when its pod is looked at, and a volume once.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from kurm.domain.podspec import NodeSelector, Term, claims
from kurm.kube.cache import Change
from kurm.kube.errors import NotFound
from kurm.kube.resources import Key, Narrow, Object, Resource
from kurm.kube.session import Session
from kurm.scheduler.objects import Pod

log = structlog.get_logger("kurm.scheduler")

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim that waits for its first consumer: where its volume is to be made."""
WAIT_FOR_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""Of a class whose volumes people make beforehand. With WaitForFirstConsumer the volume controller leaves it to
kube-scheduler to choose one of them."""
NOBODY_BINDS = (
    "claim {} waits for its pod, and its class {} has no provisioner: set the claim's spec.volumeName, or claim from a "
    "class with volumeBindingMode Immediate"
)
MADE_WITHIN = 40.0
"""Seconds in which a volume must be there once its node is chosen; then the node is given up, and it begins anew."""
LOOK = 0.5
"""Seconds between looks at a claim whose volume is being made."""


class ClaimSpec(Narrow):
    """Which volume a claim has."""

    volume_name: str = ""
    storage_class_name: str = ""


class ClaimStatus(Narrow):
    """How a claim is."""

    phase: str = ""


class Claim(Object):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeAffinity(Narrow):
    """Where a volume can be reached."""

    required: NodeSelector | None = None


class VolumeSpec(Narrow):
    """What of a volume decides where its pods can be."""

    node_affinity: VolumeAffinity = VolumeAffinity()


class Volume(Object):
    """A PersistentVolume."""

    spec: VolumeSpec = VolumeSpec()


class StorageClass(Object):
    """How volumes are made. Its fields stand beside the metadata."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"


CLAIMS = Resource(Claim, version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
VOLUMES = Resource(Volume, version="v1", kind="PersistentVolume", plural="persistentvolumes", namespaced=False)
CLASSES = Resource(
    StorageClass,
    group="storage.k8s.io",
    version="v1",
    kind="StorageClass",
    plural="storageclasses",
    namespaced=False,
)


@dataclass(frozen=True)
class Needs:
    """What the claims of a pod come to."""

    terms: tuple[tuple[Term, ...], ...] = ()
    """Of each bound volume, the terms of its node affinity."""
    waiting: tuple[str, ...] = ()
    """Names of the claims that wait for their first consumer."""
    problem: str = ""
    """Why the pod cannot be placed yet, in words."""


NOTHING = Needs()


@dataclass
class Volumes:
    """Reads, and chooses nodes."""

    kube: Session
    _known: dict[str, Needs] = field(default_factory=dict)
    _terms: dict[str, tuple[Term, ...]] = field(default_factory=dict)

    def needs(self, pod: Pod) -> Needs:
        """Return what a pod needs, as it was read last."""
        return self._known.get(pod.metadata.uid, NOTHING) if pod.spec.volumes else NOTHING

    async def read(self, pods: Iterable[Pod]) -> None:
        """Read the claims of pods that wait. Raises KubeError."""
        for pod in pods:
            if pod.spec.volumes and not pod.spec.node_name and (names := claims(pod)):
                self._known[pod.metadata.uid] = await self._needs(pod, names)

    def heed(self, change: Change[Pod]) -> None:
        """Drop what is known of a pod that is gone."""
        if change.new is None and change.old is not None:
            self._known.pop(change.old.metadata.uid, None)

    async def make(self, pod: Pod, node: str) -> bool:
        """Have the volumes made on a node for which claims have waited; return whether they are there in time.

        `needs` tells afterwards from where they can be reached. Raises KubeError.
        """
        waiting = self.needs(pod).waiting
        for name in waiting:
            body = {"metadata": {"annotations": {SELECTED_NODE: node}}}
            await self.kube.patch(CLAIMS, Key(pod.metadata.namespace, name), body)
        end = asyncio.get_running_loop().time() + MADE_WITHIN
        for name in waiting:
            while (await self.kube.get(CLAIMS, Key(pod.metadata.namespace, name))).status.phase != "Bound":
                if asyncio.get_running_loop().time() > end:
                    log.warning(
                        "a volume was not made in time", claim=name, namespace=pod.metadata.namespace, node=node
                    )
                    return False
                await asyncio.sleep(LOOK)
        await self.read([pod])
        return True

    async def _needs(self, pod: Pod, names: Iterable[str]) -> Needs:
        terms, waiting = [], []
        for name in names:
            try:
                claim = await self.kube.get(CLAIMS, Key(pod.metadata.namespace, name))
            except NotFound:
                return Needs(problem=f"claim {name} is not there")
            if claim.metadata.deletion_timestamp is not None:
                return Needs(problem=f"claim {name} is being deleted")
            if claim.status.phase == "Bound":
                terms.append(await self._reach(claim.spec.volume_name))
            elif claim.status.phase == "Lost":
                return Needs(problem=f"claim {name} has lost its volume {claim.spec.volume_name}")
            elif not claim.spec.volume_name and (of := await self._waits(claim)) is not None:
                if of.provisioner == NO_PROVISIONER:
                    return Needs(problem=NOBODY_BINDS.format(name, of.metadata.name))
                waiting.append(name)
            else:
                return Needs(problem=f"claim {name} is not bound yet")
        return Needs(tuple(one for one in terms if one), tuple(waiting))

    async def _reach(self, volume: str) -> tuple[Term, ...]:
        if volume not in self._terms:
            found = await self.kube.get(VOLUMES, Key("", volume))
            required = found.spec.node_affinity.required
            self._terms[volume] = required.node_selector_terms if required is not None else ()
        return self._terms[volume]

    async def _waits(self, claim: Claim) -> StorageClass | None:
        """Return the class of a claim that waits for its first consumer."""
        if not claim.spec.storage_class_name:
            return None
        try:
            found = await self.kube.get(CLASSES, Key("", claim.spec.storage_class_name))
        except NotFound:
            return None
        return found if found.volume_binding_mode == WAIT_FOR_CONSUMER else None
