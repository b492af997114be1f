"""What holds of all that is rendered: rights, owners, names that meet, and the fields of a component."""

from collections.abc import Iterator

import msgspec
import pytest

from kurm.operator.render import names
from kurm.operator.render.errors import SpecError
from kurm.operator.render.names import Part
from kurm.operator.render.pods import EXCEPTIONS
from unit.operator.render.demo import IMAGES, SCHEDULER, Json, cluster, everything, node_set, one, pods

DEMO = everything(cluster(scheduler=SCHEDULER))
CLUSTER_WIDE = {kind for kind, _ in names.WIDE}


def _containers(of: Json) -> list[Json]:
    return [*of["spec"].get("initContainers", []), *of["spec"]["containers"]]


def _part(of: Json) -> Part:
    return Part(of["metadata"]["labels"]["app.kubernetes.io/component"])


def _excess(pod: Json, container: Json) -> list[str]:
    """Return what a container may do beyond the restricted profile."""
    whole, own = pod["spec"].get("securityContext", {}), container["securityContext"]
    capabilities = own.get("capabilities", {})
    found = {
        "privileged": own.get("privileged", False),
        "root": not own.get("runAsNonRoot", whole.get("runAsNonRoot", False)),
        "user 0": own.get("runAsUser", whole.get("runAsUser", 0)) == 0,
        "escalation": own.get("allowPrivilegeEscalation", True),
        "capabilities": capabilities.get("drop") != ["ALL"] or bool(capabilities.get("add")),
        "seccomp": (own.get("seccompProfile") or whole.get("seccompProfile")) != {"type": "RuntimeDefault"},
        "host": any(whole.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")),
    }
    return [what for what, has in found.items() if has]


def test_only_the_table_of_exceptions_has_powers() -> None:
    """Each container is restricted, or stands in the table with a reason; and nothing stands there for nothing."""
    powerful = {
        (_part(pod), container["name"])
        for pod in pods(DEMO)
        for container in _containers(pod)
        if _excess(pod, container)
    }
    assert powerful == set(EXCEPTIONS)


def test_only_slurmd_is_privileged() -> None:
    """Sshd has some of root's powers, and not all."""
    privileged = {
        (_part(pod), container["name"])
        for pod in pods(DEMO)
        for container in _containers(pod)
        if container["securityContext"].get("privileged")
    }
    assert privileged == {(Part.SLURMD, "slurmd")}


def test_no_pod_is_lent_kubernetes_but_the_syncer() -> None:
    """A token is in no container that has no use for it, slurmrestd beside the syncer included."""
    lent = set()
    for pod in pods(DEMO):
        assert pod["spec"]["automountServiceAccountToken"] is False
        tokens = {
            volume["name"]
            for volume in pod["spec"].get("volumes", [])
            if any("serviceAccountToken" in source for source in volume.get("projected", {}).get("sources", []))
        }
        for container in _containers(pod):
            if tokens & {mount["name"] for mount in container["volumeMounts"]}:
                lent.add((_part(pod), container["name"]))
    assert lent == {(Part.SYNCER, "syncer"), (Part.SCHEDULER, "scheduler")}


def test_all_belongs_to_the_cluster() -> None:
    """Kubernetes deletes what has an owner. Kept volumes have none by intent, cluster-wide objects cannot have one."""
    without = {(each["kind"], each["metadata"]["name"]) for each in DEMO if "ownerReferences" not in each["metadata"]}
    assert without == {
        ("PersistentVolumeClaim", "demo-controller"),
        ("PersistentVolumeClaim", "demo-database"),
    } | {(kind, names.wide(of, "slurm", "demo")) for kind, of in names.WIDE}


def test_a_volume_that_is_not_to_be_kept_goes_with_the_cluster() -> None:
    """`whenDeleted: Delete`."""
    found = everything(cluster(controller={"storage": {"whenDeleted": "Delete"}}))
    assert one(found, "PersistentVolumeClaim", "demo-controller")["metadata"]["ownerReferences"][0]["name"] == "demo"


def test_every_object_has_its_place_and_no_two_are_the_same() -> None:
    """Namespaced ones are in the cluster's namespace."""
    identities = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in DEMO]
    assert len(set(identities)) == len(identities)
    assert {namespace for kind, namespace, _ in identities if kind not in CLUSTER_WIDE} == {"slurm"}


def _mounted(pod: Json) -> Iterator[tuple[str, str]]:
    for volume in pod["spec"].get("volumes", []):
        sources = volume.get("projected", {}).get("sources", [volume])
        for source in sources:
            if "configMap" in source:
                yield "ConfigMap", source["configMap"]["name"]
            if "secret" in source:
                yield "Secret", source["secret"].get("secretName") or source["secret"]["name"]
            if "persistentVolumeClaim" in source:
                yield "PersistentVolumeClaim", source["persistentVolumeClaim"]["claimName"]


def test_what_is_mounted_is_rendered() -> None:
    """But for the users' shared claims, and what Kubernetes puts in every namespace."""
    there = {(each["kind"], each["metadata"]["name"]) for each in DEMO}
    wanted = {found for pod in pods(DEMO) for found in _mounted(pod)}
    assert wanted - there == {("PersistentVolumeClaim", "shared"), ("ConfigMap", "kube-root-ca.crt")}


def test_mounts_name_volumes_of_their_pod() -> None:
    """And each volume is mounted somewhere."""
    for pod in pods(DEMO):
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        mounts = {mount["name"] for container in _containers(pod) for mount in container["volumeMounts"]}
        assert mounts == volumes


def test_services_find_their_pods_and_ports() -> None:
    """A selector that matches no pod, or a port that none has, is a Service that refuses everybody."""
    for service in (each for each in DEMO if each["kind"] == "Service"):
        chosen = [pod for pod in pods(DEMO) if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()]
        assert len(chosen) == 1
        ports = {port["name"] for container in _containers(chosen[0]) for port in container.get("ports", [])}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_workloads_select_their_own_template() -> None:
    """The API server refuses another."""
    for each in DEMO:
        if each["kind"] in {"Deployment", "StatefulSet"}:
            wanted = each["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= each["spec"]["template"]["metadata"]["labels"].items()


def test_manifests_are_json() -> None:
    """What is applied is sent as JSON: no tuple, enum or struct is left in it."""
    assert msgspec.json.decode(msgspec.json.encode(DEMO)) == DEMO


def test_rendering_is_repeatable() -> None:
    """The same resource gives the same bytes: a re-apply changes nothing."""
    assert everything(cluster(scheduler=SCHEDULER)) == DEMO


SAID: Json = {
    "image": "registry.example/own:2",
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    "nodeSelector": {"disk": "fast"},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "tolerations": [{"key": "control", "operator": "Exists"}],
    "priorityClassName": "urgent",
    "volumes": [{"name": "own", "emptyDir": {}}],
    "volumeMounts": [{"name": "own", "mountPath": "/own"}],
    "env": [{"name": "OWN", "value": "1"}],
    "annotations": {"own": "yes"},
}


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        (Part.CONTROLLER, {"controller": SAID}),
        (Part.LOGIN, {"login": SAID}),
        (Part.ACCOUNTING, {"accounting": SAID}),
        (Part.DATABASE, {"accounting": {"companion": SAID}}),
        (Part.REST, {"rest": SAID | {"enabled": True}}),
        (Part.SYNCER, {"syncer": SAID}),
        (Part.SCHEDULER, {"scheduler": SAID}),
    ],
)
def test_a_component_is_what_the_resource_says(part: Part, changes: Json) -> None:
    """Each field of a component is found in its pod, and nowhere else."""
    found = everything(cluster(**changes))
    pod = next(pod for pod in pods(found) if _part(pod) is part)
    main, spec = pod["spec"]["containers"][0], pod["spec"]
    assert main["image"] == SAID["image"]
    assert main["resources"] == SAID["resources"]
    assert spec["nodeSelector"] == SAID["nodeSelector"]
    assert spec["affinity"] == SAID["affinity"]
    assert spec["tolerations"] == SAID["tolerations"]
    assert spec["priorityClassName"] == "urgent"
    assert SAID["volumes"][0] in spec["volumes"]
    assert SAID["volumeMounts"][0] in main["volumeMounts"]
    assert SAID["env"][0] in main["env"]
    assert pod["metadata"]["annotations"]["own"] == "yes"
    assert [_part(each) for each in pods(found) if "priorityClassName" in each["spec"]] == [
        *([part] if part is not Part.SLURMD else []),
        Part.SLURMD,
    ]


def test_slurmd_is_what_its_node_set_says() -> None:
    """All but what chooses a node: the pod is pinned, and a kubelet would end it for a label that has changed."""
    pod = pods(everything(cluster(), node_set(**SAID)))[-1]
    main, spec = pod["spec"]["containers"][0], pod["spec"]
    assert (main["image"], main["resources"]) == (SAID["image"], SAID["resources"])
    assert SAID["tolerations"][0] in spec["tolerations"]
    assert spec["priorityClassName"] == "urgent"
    assert SAID["env"][0] in main["env"]
    assert SAID["volumeMounts"][0] in main["volumeMounts"]
    assert pod["metadata"]["annotations"]["own"] == "yes"
    assert not {"nodeSelector", "affinity"} & spec.keys()


@pytest.mark.parametrize(
    ("field", "item", "why"),
    [
        ("volumes", {"name": "state", "emptyDir": {}}, "spec.controller.volumes: name 'state' is Kurm's own here"),
        (
            "volumeMounts",
            {"name": "x", "mountPath": "/etc/slurm"},
            "spec.controller.volumeMounts: mountPath '/etc/slurm'",
        ),
    ],
)
def test_what_is_kurms_own_in_a_pod_cannot_be_taken(field: str, item: Json, why: str) -> None:
    """A second volume of a name is refused by the API server, in words that nobody connects with the resource."""
    with pytest.raises(SpecError) as raised:
        everything(cluster(controller={field: [item]}))
    assert str(raised.value).startswith(why)


def test_images_are_those_of_the_release() -> None:
    """Where the resource names none, and with the release's pull policy."""
    images = {container["image"] for pod in pods(DEMO) for container in _containers(pod)}
    names = ("controller", "slurmd", "login", "slurmrestd", "dbd", "mariadb", "kurm")
    assert images == {getattr(IMAGES, name) for name in names}
    assert {container["imagePullPolicy"] for pod in pods(DEMO) for container in _containers(pod)} == {"IfNotPresent"}


def test_without_accounting_there_is_no_database() -> None:
    """Nor a slurmdbd, nor a line about it."""
    found = everything(cluster(accounting={"enabled": False}, scheduler=SCHEDULER))
    assert {_part(pod) for pod in pods(found)} == set(Part) - {Part.ACCOUNTING, Part.DATABASE}


def test_an_external_database_is_not_run() -> None:
    """Slurmdbd is told where it is."""
    external = {"host": "db.example", "user": "slurm", "password": {"name": "db", "key": "password"}}
    found = everything(cluster(accounting={"external": external}, scheduler=SCHEDULER))
    assert {_part(pod) for pod in pods(found)} == set(Part) - {Part.DATABASE}


def test_without_a_scheduler_there_is_none() -> None:
    """Nor anything of it: the cluster is what it was before Kurm had one."""
    found = everything(cluster())
    assert {_part(pod) for pod in pods(found)} == set(Part) - {Part.SCHEDULER}
    assert [each["metadata"]["name"] for each in found if "scheduler" in each["metadata"]["name"]] == []


def test_the_syncer_is_told_which_conditions_drain() -> None:
    """By default none: what a condition means is the site's to know."""

    def arguments(**syncer: list[str]) -> list[str]:
        deployment = one(everything(cluster(syncer=syncer)), "Deployment", "demo-syncer")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return [word for word in container["args"] if word.startswith("--drain-condition")]

    assert arguments() == []
    chosen = ["KernelDeadlock", "example.com/Fan"]
    assert arguments(drainConditions=chosen) == [f"--drain-condition={one}" for one in chosen]
