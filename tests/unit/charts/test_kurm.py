"""charts/kurm: the custom resources, the operator's pod, and that its rights are what it needs and no more."""

import ast
from typing import Any

import msgspec
import pytest
import typer
import yaml

from kurm.cli import daemons
from kurm.domain.asks import ANNOTATIONS
from kurm.domain.unsupported import TABLE
from kurm.kube.resources import Resource
from kurm.operator import objects
from kurm.operator.render import names, scheduler, syncer
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Images
from unit.charts.helm import BUILD_SECONDS, KURM, Json, helm, of_kind, one, pods, rendered, unrestricted
from unit.operator.render.demo import cluster, everything

pytestmark = pytest.mark.timeout(BUILD_SECONDS)

READ = {"get", "list", "watch"}
CRDS = KURM / "files/crds"


@pytest.fixture(scope="module")
def manifests() -> list[Json]:
    """The chart with its defaults."""
    return rendered(KURM, release="kurm", namespace="kurm-system")


def _allowed(rules: list[Json]) -> set[tuple[str, str, str]]:
    """Return (group, resource, verb) of rules; a right to certain names is one to resource/=name."""
    return {
        (group, f"{resource}/={name}" if name else resource, verb)
        for rule in rules
        for name in rule.get("resourceNames", [""])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _operator(manifests: list[Json]) -> set[tuple[str, str, str]]:
    return _allowed(one(manifests, "ClusterRole", "kurm-operator")["rules"])


def test_the_custom_resources_are_the_committed_ones(manifests: list[Json]) -> None:
    """They are kept when the release goes: with them would go all clusters."""
    kept = {"helm.sh/resource-policy": "keep"}
    found = of_kind(manifests, "CustomResourceDefinition")
    assert {name: each["metadata"].pop("annotations") for name, each in found.items()} == dict.fromkeys(found, kept)
    committed = [yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml")]
    assert list(found.values()) == sorted(committed, key=lambda each: str(each["metadata"]["name"]))


def test_the_custom_resources_can_be_left_out() -> None:
    """For who installs them by other means."""
    assert of_kind(rendered(KURM, {"crds": {"install": False}}), "CustomResourceDefinition") == {}


def test_the_operator_is_started_as_its_command_line_has_it(manifests: list[Json]) -> None:
    """Every option is known to `kurm operator`, and the file with the images is what it reads."""
    [pod] = pods(manifests)
    [container] = pod["spec"]["containers"]
    name, *arguments = container["args"]
    command = typer.main.get_command(daemons.app)
    assert isinstance(command, typer.core.TyperGroup)
    options = {option for each in command.commands[name].params for option in each.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options
    images = one(manifests, "ConfigMap", "kurm-operator-images")["data"]["images.yaml"]
    assert msgspec.yaml.decode(images, type=Images).controller == "localhost/kurm/controller:0.1.0.dev0"


def test_images_can_be_named_one_by_one() -> None:
    """As `kurm local` does, by their content; and other images are other pods of the operator."""
    one_by_one = {name: f"registry.example/{name}:1" for name in Images.__struct_fields__ if name != "pull_policy"}
    found = rendered(KURM, {"images": one_by_one | {"pullPolicy": "Never"}})
    images = one(found, "ConfigMap", "kurm-operator-images")["data"]["images.yaml"]
    assert msgspec.yaml.decode(images, type=Images) == Images(**one_by_one, pull_policy="Never")
    [pod], [default] = pods(found), pods(rendered(KURM))
    assert pod["spec"]["containers"][0]["image"] == "registry.example/kurm:1"
    assert pod["metadata"]["annotations"] != default["metadata"]["annotations"]


def test_the_operator_is_restricted(manifests: list[Json]) -> None:
    """Its namespace can enforce Kubernetes' strictest profile; its root file system is not written."""
    [pod] = pods(manifests)
    assert unrestricted(pod) == {}
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_replicas_bring_a_budget() -> None:
    """A single one has none: it would keep its node from being drained."""
    assert of_kind(rendered(KURM), "PodDisruptionBudget") == {}
    assert list(of_kind(rendered(KURM, {"operator": {"replicas": 2}}), "PodDisruptionBudget")) == ["kurm-operator"]


def test_prometheus_is_served_on_request() -> None:
    """The kind is not everywhere."""
    assert of_kind(rendered(KURM), "ServiceMonitor") == {}
    found = rendered(KURM, {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}})
    assert one(found, "ServiceMonitor", "kurm-operator")["metadata"]["labels"]["release"] == "prometheus"


def test_the_operator_may_write_what_it_renders(manifests: list[Json]) -> None:
    """Each kind that a cluster is made of can be created and applied."""
    kinds = {**objects.KINDS, "Pod": objects.CLUSTER_PODS}
    plurals = {kind: (each.group, each.plural) for kind, each in kinds.items()}
    wanted = {(*plurals[each["kind"]], verb) for each in everything(cluster()) for verb in ("create", "patch")}
    assert wanted - _operator(manifests) == set()


def test_the_operator_may_read_what_it_watches(manifests: list[Json]) -> None:
    """Every cache of it, and what the SlurmClusters name."""
    watched: list[Resource[Any]] = [each for each in vars(objects).values() if isinstance(each, Resource)]
    wanted = {(each.group, each.plural, verb) for each in watched for verb in READ}
    assert wanted - _operator(manifests) == set()
    assert len(watched) > len(objects.KINDS)


def test_the_operator_may_delete_what_it_deletes(manifests: list[Json]) -> None:
    """What is no longer rendered, pods, and bindings that have no owner. No data, no key."""
    deleted = {objects.KINDS[kind] for kind in objects.DISPENSABLE}
    wanted = {(each.group, each.plural, "delete") for each in deleted} | {
        ("", "pods", "delete"),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "delete"),
    }
    assert {each for each in _operator(manifests) if each[2].startswith("delete")} == wanted


def test_the_operator_has_what_it_gives(manifests: list[Json]) -> None:
    """Kubernetes lets nobody give what he has not; the ClusterRoles of its daemons are bound by name."""
    assert _allowed([*syncer.RULES, *scheduler.RULES]) - _operator(manifests) == set()
    roles = {names.cluster_role(part) for part in (Part.SYNCER, Part.SCHEDULER)}
    bound = {("rbac.authorization.k8s.io", f"clusterroles/={role}", "bind") for role in roles}
    assert {each for each in _operator(manifests) if each[2] in {"bind", "escalate", "impersonate"}} == bound
    assert roles <= of_kind(manifests, "ClusterRole").keys()


def test_a_scheduler_writes_pods_and_claims_and_no_more(manifests: list[Json]) -> None:
    """Of all namespaces it reads pods, nodes and what binds a pod to some of them. No Secret, no ConfigMap."""
    allowed = _allowed(of_kind(manifests, "ClusterRole")["kurm-scheduler"]["rules"])
    assert {each for each in allowed if each[2] not in READ} == {
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch"),
        ("", "pods", "delete"),
        ("", "persistentvolumeclaims", "patch"),
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
    }
    assert {resource for _, resource, verb in allowed if verb in READ} == {
        *("pods", "nodes", "persistentvolumes", "persistentvolumeclaims", "storageclasses", "jobs"),
    }


def test_the_pods_policy_is_what_placing_a_pod_asks(manifests: list[Json]) -> None:
    """The annotations are those that the scheduler reads, and what it cannot do is refused in its own words."""
    policy = one(manifests, "ValidatingAdmissionPolicy", "kurm-scheduler-pods")["spec"]
    (words,) = (each["expression"] for each in policy["variables"] if each["name"] == "words")
    # A map of strings is written in CEL as in Python.
    assert set(ast.literal_eval(words)) == set(ANNOTATIONS)
    said = {each["message"] for each in policy["validations"]}
    sentences = {f"{each.field} is not supported by Slurm's queue: {each.says}" for each in TABLE}
    assert sentences - said == set()
    assert len([each for each in said if "is not supported by Slurm's queue" in each]) == len(TABLE)


def test_no_policy_for_schedulers_can_keep_anybodys_pod_from_being_made(manifests: list[Json]) -> None:
    """What cannot be evaluated is passed over, and without a binding of the operator's they do nothing.

    But one, which keeps nothing from being made: what a pod says of its job cannot be changed.
    """
    policies = [
        each
        for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
        for name, each in of_kind([*manifests, *_with_mutations()], kind).items()
        if name != "kurm-operator"
    ]
    (marks,) = (each["spec"] for each in policies if each["metadata"]["name"] == "kurm-scheduler-marks")
    assert [rule["operations"] for rule in marks["matchConstraints"]["resourceRules"]] == [["UPDATE"]]
    assert {each["metadata"]["name"] for each in policies} == {
        *(of for kind, of in names.WIDE if "Policy" in kind),
        "kurm-scheduler-marks",
    }
    assert {each["spec"]["failurePolicy"] for each in policies} == {"Ignore"}
    bound = of_kind(manifests, "ValidatingAdmissionPolicyBinding")
    assert set(bound) == {"kurm-operator", "kurm-scheduler-marks"}


def _with_mutations() -> list[Json]:
    """Return the policies as a Kubernetes gets them that has MutatingAdmissionPolicy."""
    served = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    said = helm("template", "kurm", KURM, served, "--show-only=templates/schedulerpolicies.yaml")
    return [found for found in yaml.safe_load_all(said.stdout) if found]


def test_an_older_kubernetes_is_not_given_what_it_does_not_know(manifests: list[Json]) -> None:
    """Helm would fail: it has no MutatingAdmissionPolicy before 1.36."""
    assert of_kind(manifests, "MutatingAdmissionPolicy") == {}
    assert set(of_kind(_with_mutations(), "MutatingAdmissionPolicy")) == {"kurm-scheduler-namespaces"}


def test_no_right_is_a_wildcard(manifests: list[Json]) -> None:
    """Neither the operator's nor anybody's."""
    allowed = {right for role in of_kind(manifests, "ClusterRole").values() for right in _allowed(role["rules"])}
    assert {right for right in allowed if "*" in "".join(right)} == set()


def test_people_get_their_share(manifests: list[Json]) -> None:
    """Who may see a namespace sees its clusters, who may edit it scales them, its administrator makes them."""
    roles = of_kind(manifests, "ClusterRole")
    shares = {}
    for whom in ("view", "edit", "admin"):
        label = f"rbac.authorization.k8s.io/aggregate-to-{whom}"
        mine = [role for role in roles.values() if role["metadata"]["labels"].get(label) == "true"]
        shares[whom] = {right[1:] for role in mine for right in _allowed(role["rules"])}
    assert {verb for _, verb in shares["view"]} == READ
    assert ("nodesets/scale", "patch") in shares["edit"]
    assert ("slurmclusters", "create") not in shares["edit"]
    assert {("slurmclusters", "create"), ("nodesets", "delete")} <= shares["admin"]
    assert shares["view"] <= shares["edit"] <= shares["admin"]
    left_out = rendered(KURM, {"aggregateRoles": False})
    assert set(of_kind(left_out, "ClusterRole")) == {"kurm-operator", "kurm-syncer", "kurm-scheduler"}


def test_the_operators_traffic_is_what_it_needs(manifests: list[Json]) -> None:
    """The API server, names, and each slurmctld; it is asked for metrics only."""
    spec = one(manifests, "NetworkPolicy", "kurm-operator")["spec"]
    [pod] = pods(manifests)
    assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert [[port["port"] for port in rule["ports"]] for rule in spec["egress"]] == [[443, 6443], [53, 53], [6817]]
    assert [[port["port"] for port in rule["ports"]] for rule in spec["ingress"]] == [[8080]]
    closed = one(rendered(KURM, {"networkPolicy": {"metricsFrom": []}}), "NetworkPolicy", "kurm-operator")
    assert closed["spec"].get("ingress") is None
