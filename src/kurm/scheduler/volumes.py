"""The volumes of pods that wait: where bound ones can be reached, and the node for those that wait for a consumer.

Few pods have claims, so nothing is watched: a claim is read when its pod is looked at, and a volume once.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kurm.domain.owner import Making
from kurm.domain.podspec import NodeSelector, Term, claims
from kurm.kube.cache import Change
from kurm.kube.errors import NotFound
from kurm.kube.resources import Key, Narrow, Object, Resource
from kurm.kube.session import Session
from kurm.scheduler.objects import Pod

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
    _making: dict[str, Making] = field(default_factory=dict)

    def needs(self, pod: Pod) -> Needs:
        """Return what a pod needs, as it was read last."""
        return self._known.get(pod.metadata.uid, NOTHING) if pod.spec.volumes else NOTHING

    def making(self, pod: Pod) -> Making | None:
        """Return what is being made for a pod; None if nothing was begun since the start of this process."""
        return self._making.get(pod.metadata.uid) if pod.spec.volumes else None

    async def read(self, pods: Iterable[Pod]) -> None:
        """Read the claims of pods that wait. Raises KubeError."""
        for pod in pods:
            if pod.spec.volumes and not pod.spec.node_name and (names := claims(pod)):
                self._known[pod.metadata.uid] = await self._needs(pod, names)

    def heed(self, change: Change[Pod]) -> None:
        """Drop what is known of a pod that is gone."""
        if change.new is None and change.old is not None:
            self._known.pop(change.old.metadata.uid, None)
            self._making.pop(change.old.metadata.uid, None)

    async def make(self, pod: Pod, job: int, node: str) -> bool:
        """Have the volumes made on a node for which claims have waited; `needs` tells when they are there.

        Raises KubeError.
        """
        for name in self.needs(pod).waiting:
            body = {"metadata": {"annotations": {SELECTED_NODE: node}}}
            await self.kube.patch(CLAIMS, Key(pod.metadata.namespace, name), body)
        self._making[pod.metadata.uid] = Making(job, node, asyncio.get_running_loop().time())
        return True

    async def _needs(self, pod: Pod, names: Iterable[str]) -> Needs:
        terms, waiting = [], []
        making = self._making.get(pod.metadata.uid)
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
            elif making is not None:
                waiting.append(name)
                if not claim.spec.volume_name and claim.metadata.annotations.get(SELECTED_NODE) != making.node:
                    # So a provisioner says that it makes none there, and another node is to be chosen.
                    self._making[pod.metadata.uid] = replace(making, refused=True)
            elif not claim.spec.volume_name and (of := await self._waits(claim)) is not None:
                if of.provisioner == NO_PROVISIONER:
                    return Needs(problem=NOBODY_BINDS.format(name, of.metadata.name))
                waiting.append(name)
            else:
                return Needs(problem=f"claim {name} is not bound yet")
        return Needs(tuple(one for one in terms if one), tuple(waiting))

    async def _reach(self, volume: str) -> tuple[Term, ...]:
        required = (await self.kube.get(VOLUMES, Key("", volume))).spec.node_affinity.required
        return required.node_selector_terms if required is not None else ()

    async def _waits(self, claim: Claim) -> StorageClass | None:
        """Return the class of a claim that waits for its first consumer."""
        if not claim.spec.storage_class_name:
            return None
        try:
            found = await self.kube.get(CLASSES, Key("", claim.spec.storage_class_name))
        except NotFound:
            return None
        return found if found.volume_binding_mode == WAIT_FOR_CONSUMER else None
