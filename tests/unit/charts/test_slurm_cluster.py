"""charts/slurm-cluster: what the values say is in the resources, and nobody reaches or may do more than is needed."""

from itertools import chain

import msgspec
import pytest
import yaml

from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.slurmcluster import ScriptSource, SharedVolume
from kurm.operator.crds import NODE_SET, SLURM_CLUSTER, object_schema
from kurm.operator.render.names import Part
from kurm.operator.render.pods import EXCEPTIONS, selector
from kurm.operator.render.scripts import hooks
from kurm.operator.render.slurmd import NodeSet
from unit.charts import helm
from unit.charts.helm import BUILD_SECONDS, ROOT, Json, of_kind, one, pods, rendered, unrestricted
from unit.operator.render.demo import everything

pytestmark = pytest.mark.timeout(BUILD_SECONDS)

CHART = helm.SLURM_CLUSTER
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me@home"
SHAPE: Json = {"gres": {"nvidia.com/gpu": {}}, "featureLabels": {"topology.kubernetes.io/zone": "zone"}}
VALUES: Json = {
    "cluster": {
        "login": {"users": [{"name": "alice", "uid": 2147483647, "sshKeys": [KEY]}], "service": {"type": "NodePort"}},
        "partitions": [{"name": "batch", "nodeSets": ["workers"], "default": True}],
        "sharedVolumes": [{"claimName": "data", "mountPath": "/data"}],
        "scripts": {"prolog": [{"configMapName": "site"}], "epilogSlurmctld": [{"configMapName": "site"}]},
        "rest": {"enabled": True},
        "topology": {"type": "block", "nodeLabels": ["example.com/rack"], "blockSizes": [4, 16]},
    },
    "nodeSets": {
        "workers": {"replicas": 4, "reserve": {"memory": "1Gi"}},
        "gpu": {"nodeSelector": {"gpu": "yes"}, "slurm": SHAPE},
    },
    "scripts": {"prolog": {"10-scratch": "#!/bin/sh\nexit 0\n"}, "prologSlurmctld": {"note": "#!/bin/sh\n"}},
    "sharedVolumes": {
        "home": {"mountPath": "/home", "size": "10Gi", "storageClassName": "local"},
        "scratch": {"mountPath": "/scratch", "size": "1Ti", "keep": False, "readOnly": True},
    },
}


@pytest.fixture(scope="module")
def manifests() -> list[Json]:
    """The chart with values that use all of it."""
    return rendered(CHART, VALUES)


def _unknown(schema: Json, value: object, path: str = "") -> list[str]:
    """Return the fields of a value that a schema does not know."""
    if isinstance(value, list):
        return list(chain(*(_unknown(schema.get("items", {}), item, path) for item in value)))
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    more, properties = schema.get("additionalProperties"), schema.get("properties", {})
    known = {name: properties.get(name, more) for name in value}
    wrong = [f"{path}.{name}" for name, child in known.items() if child is None]
    right = {name: child for name, child in known.items() if child is not None}
    return wrong + list(chain(*(_unknown(child, value[name], f"{path}.{name}") for name, child in right.items())))


DEMO = yaml.safe_load((ROOT / "examples/demo/values.yaml").read_text())


@pytest.mark.parametrize("values", [VALUES, DEMO, {}], ids=["all", "demo", "none"])
def test_the_resources_are_what_their_definitions_take(values: Json) -> None:
    """No field is unknown, none is of another type; tests/integration/charts asks an API server."""
    found = rendered(CHART, values)
    made = one(found, "SlurmCluster", "demo")
    assert _unknown(object_schema(SLURM_CLUSTER), made | {"metadata": {}}) == []
    assert helm.cluster(made).namespace == "slurm"
    for each in of_kind(found, "NodeSet").values():
        assert _unknown(object_schema(NODE_SET), each | {"metadata": {}}) == []
        assert msgspec.convert(each["spec"], NodeSetSpec).cluster_ref.name == "demo"


def test_the_spec_is_passed_on(manifests: list[Json]) -> None:
    """As it was written, large numbers included."""
    spec = one(manifests, "SlurmCluster", "demo")["spec"]
    as_given = {name: value for name, value in spec.items() if name not in {"scripts", "sharedVolumes"}}
    assert as_given == {name: VALUES["cluster"][name] for name in ("login", "partitions", "rest", "topology")}
    node_sets = {name: each["spec"] for name, each in of_kind(manifests, "NodeSet").items()}
    assert node_sets == {name: {"clusterRef": {"name": "demo"}} | spec for name, spec in VALUES["nodeSets"].items()}


def test_scripts_become_config_maps_that_the_cluster_names(manifests: list[Json]) -> None:
    """The chart's own run before those of other ConfigMaps."""
    scripts = helm.cluster(one(manifests, "SlurmCluster", "demo")).spec.scripts
    assert scripts.prolog == (ScriptSource("demo-prolog"), ScriptSource("site"))
    assert scripts.prolog_slurmctld == (ScriptSource("demo-prolog-slurmctld"),)
    assert (scripts.epilog, scripts.epilog_slurmctld) == ((), (ScriptSource("site"),))
    there = {name: each["data"] for name, each in of_kind(manifests, "ConfigMap").items()} | {"site": {}}
    assert hooks(scripts, there).files["prolog-00-10-scratch"] == VALUES["scripts"]["prolog"]["10-scratch"]


def test_shared_volumes_become_claims_that_outlive_the_release(manifests: list[Json]) -> None:
    """Unless they are told not to; and all nodes mount them, before the claims that were there already."""
    claims = of_kind(manifests, "PersistentVolumeClaim")
    kept = {name: each["metadata"].get("annotations") for name, each in claims.items()}
    assert kept == {"demo-shared-home": {"helm.sh/resource-policy": "keep"}, "demo-shared-scratch": None}
    assert claims["demo-shared-home"]["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "local",
    }
    assert helm.cluster(one(manifests, "SlurmCluster", "demo")).spec.shared_volumes == (
        SharedVolume("demo-shared-home", "/home"),
        SharedVolume("demo-shared-scratch", "/scratch", read_only=True),
        SharedVolume("data", "/data"),
    )


def test_nothing_of_the_charts_has_the_operators_label(manifests: list[Json]) -> None:
    """What bears it and is no longer rendered by the operator is deleted by the operator."""
    assert {each["metadata"]["labels"]["app.kubernetes.io/managed-by"] for each in manifests} == {"Helm"}


def test_two_releases_share_no_name() -> None:
    """A second cluster, in the same namespace or another one, is a release more."""
    first, second = (rendered(CHART, VALUES | {"nodeSets": {name: {}}}, release=name) for name in ("demo", "staging"))
    names = [{(each["kind"], each["metadata"]["name"]) for each in found} for found in (first, second)]
    assert names[0] & names[1] == set()


def _pods_of(manifests: list[Json]) -> list[Json]:
    """Return all pods of the cluster that a chart makes, as the operator renders them; scripts are in none of them."""
    manifest = one(manifests, "SlurmCluster", "demo")
    made = helm.cluster(manifest | {"spec": manifest["spec"] | {"scripts": {}}})
    sets = [
        NodeSet(name, "22222222-3333-4444-5555-666666666666", msgspec.convert(each["spec"], NodeSetSpec))
        for name, each in of_kind(manifests, "NodeSet").items()
    ]
    return pods(everything(made, *sets))


def test_no_container_has_powers_but_those_in_the_table(manifests: list[Json]) -> None:
    """Privileged or root are slurmd and sshd, and docs/images.md says why; no other container of either chart is."""
    label = "app.kubernetes.io/component"
    found = {
        (Part(pod["metadata"]["labels"][label]), container): powers
        for pod in _pods_of(manifests)
        for container, powers in unrestricted(pod).items()
    }
    assert found.keys() == EXCEPTIONS.keys()
    assert {which for which, powers in found.items() if "privileged" in powers} == {(Part.SLURMD, "slurmd")}
    table = (ROOT / "docs/images.md").read_text().partition("## Which run as root, and why\n")[2].partition("\n## ")[0]
    assert [line for line in table.splitlines() if line.startswith("| `")] != []
    assert {part for part, _ in found if f"| `{part}`" not in table} == set()
    assert pods(manifests) == []
    assert [unrestricted(pod) for pod in pods(rendered(helm.KURM, namespace="kurm-system"))] == [{}]


OPEN: dict[tuple[str, str], set[int | str]] = {
    ("accounting", "controller"): {6817},
    ("login", "controller"): {6817},
    ("rest", "controller"): {6817},
    ("slurmd", "controller"): {6817},
    ("syncer", "controller"): {6817, 6819},
    ("scheduler", "controller"): {6817, 6819},
    ("operator", "controller"): {6817},
    ("controller", "slurmd"): {"all"},
    ("login", "slurmd"): {"all"},
    ("slurmd", "slurmd"): {"all"},
    ("anybody", "login"): {2222},
    ("controller", "login"): {"all"},
    ("slurmd", "login"): {"all"},
    ("controller", "accounting"): {6819},
    ("login", "accounting"): {6819},
    ("rest", "accounting"): {6819},
    ("slurmd", "accounting"): {6819},
    ("syncer", "accounting"): {6819},
    ("scheduler", "accounting"): {6819},
    ("accounting", "database"): {3306},
    ("namespace", "rest"): {6820},
}
"""Who reaches whom, by port."""


def _peers(rule: Json) -> list[str]:
    """Return who is let in by a rule: components, or a word."""
    found: list[str] = []
    for peer in rule.get("from", [{}]):
        pod = peer.get("podSelector", {})
        values = [each["values"] for each in pod.get("matchExpressions", [])]
        named = pod.get("matchLabels", {}).get("app.kubernetes.io/component")
        found += chain(*values) if values else [named or ("namespace" if peer else "anybody")]
    return found


def test_each_component_is_reached_by_those_who_need_it(manifests: list[Json]) -> None:
    """And by nobody else; every component has its policy, which selects its pods."""
    policies = of_kind(manifests, "NetworkPolicy")
    selected = {name: each["spec"]["podSelector"]["matchLabels"] for name, each in policies.items()}
    assert selected == {f"demo-{part}": selector("demo", part) for part in Part}
    reached: dict[tuple[str, str], set[int | str]] = {}
    for name, policy in policies.items():
        for rule in policy["spec"].get("ingress", []):
            ports = {port["port"] for port in rule.get("ports", [{"port": "all"}])}
            for peer in _peers(rule):
                reached.setdefault((peer, name.removeprefix("demo-")), set()).update(ports)
    assert reached == OPEN
    egress = {name for name, each in policies.items() if "Egress" in each["spec"]["policyTypes"]}
    assert egress == {"demo-database"}


def test_no_list_of_rules_is_empty(manifests: list[Json]) -> None:
    """The API server stores none, so an empty one would be a write at each upgrade. No list says the same."""
    specs = {name: each["spec"] for name, each in of_kind(manifests, "NetworkPolicy").items()}
    assert [name for name, spec in specs.items() if [] in (spec.get("ingress"), spec.get("egress"))] == []
    assert [name for name, spec in specs.items() if "ingress" not in spec] == ["demo-syncer", "demo-scheduler"]


def test_the_ports_are_those_of_the_containers(manifests: list[Json]) -> None:
    """A port that moves in the operator's rendering moves in the chart."""
    listening: dict[str, set[int]] = {}
    for pod in _pods_of(manifests):
        part = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        ports = (port["containerPort"] for each in pod["spec"]["containers"] for port in each.get("ports", []))
        listening.setdefault(part, set()).update(ports)
    opened: dict[str, set[int]] = {}
    for (_, part), reached in OPEN.items():
        opened.setdefault(part, set()).update(port for port in reached if isinstance(port, int))
    assert {part: numbers - listening[part] for part, numbers in opened.items() if numbers - listening[part]} == {}


def test_metrics_are_read_by_those_who_are_named() -> None:
    """Nobody by default. Slurmctld's are on the port of its calls."""
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    found = rendered(CHART, {"networkPolicies": {"metricsFrom": [peer]}})
    assert peer in one(found, "NetworkPolicy", "demo-controller")["spec"]["ingress"][0]["from"]
    for daemon in ("demo-syncer", "demo-scheduler"):
        assert one(found, "NetworkPolicy", daemon)["spec"]["ingress"] == [
            {"ports": [{"protocol": "TCP", "port": 8080}], "from": [peer]}
        ]


def test_ssh_can_be_for_some() -> None:
    """And network policies can be left out altogether."""
    peer = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    found = rendered(CHART, {"networkPolicies": {"sshFrom": [peer], "restFrom": []}})
    assert one(found, "NetworkPolicy", "demo-login")["spec"]["ingress"][0]["from"] == [peer]
    assert one(found, "NetworkPolicy", "demo-rest")["spec"].get("ingress") is None
    assert of_kind(rendered(CHART, {"networkPolicies": {"enabled": False}}), "NetworkPolicy") == {}
