"""The pods of compute nodes: pinned, found by their NodeSet, outdated only by what concerns them; and all names."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kurm.operator.render import names, slurmd
from kurm.operator.render.scripts import PROLOG_TIMEOUT
from unit.operator.render.demo import Json, cluster, configured, node_set

HASH = configured(cluster()).slurmd_hash


def _pod(node: str = "n1", *, hash_: str = HASH, **changes: Any) -> Json:
    return slurmd.pod(cluster(), node_set(**changes), node, hash_)


def test_a_pod_is_pinned_and_called_as_its_node() -> None:
    """The node's name is Slurm's name of it; `hostname` says it up to the first dot."""
    pod = _pod("n1.example")
    assert pod["spec"]["nodeName"] == "n1.example"
    assert pod["spec"]["hostname"] == "n1"
    container = pod["spec"]["containers"][0]
    assert container["args"] == ["-b", "-Z", "-N", "$(NODE)", "--conf-server", "demo-controller:6817"]
    assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_a_pod_has_nothing_that_drain_refuses() -> None:
    """`kubectl drain` refuses pods with an emptyDir, and pods without a controller."""
    pod = _pod()
    assert not [volume for volume in pod["spec"]["volumes"] if "emptyDir" in volume]
    assert [(ref["kind"], ref["controller"]) for ref in pod["metadata"]["ownerReferences"]] == [("NodeSet", True)]


def test_a_pod_survives_what_a_daemon_survives() -> None:
    """A silent kubelet, pressure, a cordon and the pool's own taint do not evict it."""
    tolerated = {(item.get("key"), item.get("effect")) for item in _pod()["spec"]["tolerations"]}
    assert tolerated == {
        ("kurm.dev/pool", None),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    }
    assert _pod()["spec"]["priorityClassName"] == "system-node-critical"


def test_a_prolog_may_hold_up_a_reconfigure_without_a_restart() -> None:
    """A slurmd answers nobody while it waits for a prolog; its restart would end all jobs of the node."""
    probe = _pod()["spec"]["containers"][0]["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > PROLOG_TIMEOUT


def test_the_template_hash_is_of_all_but_the_node() -> None:
    """So a pod is out of date when its NodeSet's pods would be made otherwise, and only then."""

    def hashed(pod: Json) -> object:
        return pod["metadata"]["annotations"][names.TEMPLATE_HASH]

    ours = hashed(_pod())
    assert ours == slurmd.template_hash(cluster(), node_set(), HASH)
    assert ours == hashed(_pod("n2"))
    assert ours == hashed(_pod(replicas=3))
    assert ours == hashed(_pod(nodeSelector={"disk": "fast"}))
    assert ours != hashed(_pod(resources={"limits": {"cpu": "1"}}))
    assert ours != hashed(_pod(hash_="another"))


def test_the_selector_of_the_scale_subresource_finds_the_pods() -> None:
    """It is what an autoscaler goes by."""
    wanted = dict(part.split("=") for part in slurmd.selector("workers").split(","))
    assert wanted.items() <= _pod()["metadata"]["labels"].items()


LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True)
NODE = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?){0,4}", fullmatch=True)


@given(st.lists(st.tuples(LABEL, NODE), min_size=2, max_size=6, unique=True))
def test_names_of_pods_are_labels_and_never_meet(pairs: list[tuple[str, str]]) -> None:
    """Two NodeSets never want the same pod, and a name is never too long for a label."""
    found = [names.slurmd_pod(node_set_name, node) for node_set_name, node in pairs]
    assert len(set(found)) == len(found)
    for name in found:
        assert len(name) <= names.LABEL_LENGTH
        assert name.strip("-.") == name
        assert "." not in name


def test_node_sets_whose_names_begin_alike_have_pods_of_their_own() -> None:
    """`gpu` on `a-1` and `gpu-a` on `1`; the common case stays readable."""
    assert names.slurmd_pod("workers", "n1") == "workers-n1"
    assert names.slurmd_pod("gpu", "a-1") == "gpu-a-1"
    assert names.slurmd_pod("gpu-a", "1") != "gpu-a-1"


@given(NODE)
def test_host_names_are_labels(node: str) -> None:
    """Kubernetes refuses a host name with a dot or with more than 63 letters."""
    host = names.host_name(node)
    assert 0 < len(host) <= names.LABEL_LENGTH
    assert node.startswith(host)


@given(LABEL)
def test_names_of_components_leave_room_for_a_stateful_sets_hash(cluster_name: str) -> None:
    """The label controller-revision-hash holds the name and eleven letters more."""
    assert all(len(names.component(cluster_name, part)) + 11 <= names.LABEL_LENGTH for part in names.Part)
