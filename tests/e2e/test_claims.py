"""Pods with claims, by the real volume controller and a real provisioner: on nodes that reach their volumes."""

import json
from collections.abc import Iterator

import pytest

from e2e.demo import Demo, within
from e2e.tenant import Json, Tenant, on, pod

pytestmark = pytest.mark.usefixtures("mended")

PROVISIONER = "kurm.dev/local"
NOBODY = "kubernetes.io/no-provisioner"
WHERE = "/var/lib/kurm/volumes/made-beforehand"
"""Below what all nodes of a local cluster see, and what goes with it."""
ONCE, SIZE = ["ReadWriteOnce"], {"storage": "1Gi"}


def storage_class(name: str, provisioner: str) -> Json:
    """Return a class whose claims wait until it is known where their pod will be."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "reclaimPolicy": "Delete" if provisioner != NOBODY else "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim(name: str, of: str) -> Json:
    """Return a claim of a class."""
    spec = {"storageClassName": of, "accessModes": ONCE, "resources": {"requests": SIZE}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(name: str, of: str, node: str) -> Json:
    """Return a volume that was made beforehand, and that one node alone can reach."""
    spec = {
        "storageClassName": of,
        "accessModes": ONCE,
        "capacity": SIZE,
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": WHERE, "type": "DirectoryOrCreate"},
        "nodeAffinity": {"required": on([node])["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def classes(demo: Demo, owner: Tenant) -> Iterator[tuple[str, str]]:
    """Have two classes: one whose volumes are made on demand, one whose volumes somebody makes beforehand."""
    made, kept = "made-on-demand", "made-beforehand"
    owner.apply(storage_class(made, PROVISIONER), storage_class(kept, NOBODY))
    yield made, kept
    owner.kubectl("delete", "pods,persistentvolumeclaims", "--all", "--grace-period=5")
    owner.kubectl("delete", "storageclass", made, kept)
    demo.kubectl("delete", "persistentvolume", "--ignore-not-found", kept)


def test_a_volume_is_made_once_slurm_has_granted_a_node(owner: Tenant, demo: Demo, classes: tuple[str, str]) -> None:
    """The claim waits for its pod; then it is told the node, and its pod writes to it."""
    made, _ = classes
    owner.apply(claim("data", made))
    assert owner.kubectl("get", "pvc", "data", "-o", "jsonpath={.status.phase}") == "Pending"
    owner.apply(with_claim(demo, "writer"))
    within(40, owner.running, 1)
    selected = r"jsonpath={.metadata.annotations.volume\.kubernetes\.io/selected-node}"
    assert owner.kubectl("get", "pvc", "data", "-o", selected) == owner.node("writer")
    within(10, lambda: owner.kubectl("logs", "writer").strip(), "written")


def test_a_pod_goes_to_the_node_of_a_volume_that_was_made_beforehand(
    owner: Tenant, demo: Demo, classes: tuple[str, str]
) -> None:
    """Nobody chooses it for the claim: the pod says what to do, and runs once that is done."""
    _, kept = classes
    owner.apply(volume(kept, kept, "n4"), claim("data", kept))
    owner.apply(with_claim(demo, "writer"))
    within(15, lambda: owner.waits("writer"), "Infeasible")
    assert "set the claim's spec.volumeName" in owner.condition("writer")["message"]
    owner.kubectl("patch", "pvc", "data", "--patch", json.dumps({"spec": {"volumeName": kept}}))
    within(40, owner.running, 1)
    assert owner.node("writer") == "n4"
    assert [(state, nodes) for _, state, nodes in owner.jobs().values()] == [("RUNNING", "n4")]
    within(10, lambda: owner.kubectl("logs", "writer").strip(), "written")


def with_claim(demo: Demo, name: str) -> Json:
    """Return a pod that writes to the claim `data`."""
    made = pod(demo, name, "touch /data/here && echo written; trap 'exit 0' TERM; sleep 3600 & wait")
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made
