"""Both charts on a real API server: installed, repeated, taken away; and the operator's rights as it sees them."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.apiserver import ApiServer, binaries
from kurm.local import build
from kurm.operator.render.pods import EXCEPTIONS
from unit.charts.helm import KURM, ROOT, SLURM_CLUSTER, of_kind, pods, rendered
from unit.operator.render.demo import SCHEDULER, cluster, everything

Json = dict[str, Any]

SYSTEM, PLACE = "kurm-system", "slurm"
OPERATOR = f"system:serviceaccount:{SYSTEM}:kurm-operator"
DEMO = ROOT / "examples/demo/values.yaml"
POLICY_SECONDS = 30.0
"""Within which the API server knows of a new policy."""


class RefusedError(Exception):
    """What Helm or kubectl says when it fails."""


class Server:
    """Helm and kubectl on one API server."""

    def __init__(self, server: ApiServer) -> None:
        self.kubeconfig, self._home = server.kubeconfig(), server.folder

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm; its words if it fails."""
        return self._run(build.made(build.HELM) / "helm", f"--kubeconfig={self.kubeconfig}", *arguments)

    def kubectl(self, *arguments: str | Path, manifests: list[Json] | None = None) -> str:
        """Run kubectl, with manifests as its input."""
        text = yaml.safe_dump_all(manifests or [])
        cache = f"--cache-dir={self._home}/kubectl"
        return self._run(binaries() / "kubectl", f"--kubeconfig={self.kubeconfig}", cache, *arguments, text=text)

    def refused(self, *arguments: str | Path, manifests: list[Json] | None = None) -> str:
        """Return what kubectl says when it fails; empty if it does not."""
        try:
            self.kubectl(*arguments, manifests=manifests)
        except RefusedError as refused:
            return str(refused)
        return ""

    def may(self, verb: str, resource: str, user: str) -> bool:
        """Whether a user has a right in all namespaces."""
        return self.refused("auth", "can-i", verb, resource, f"--as={user}", "--all-namespaces") == ""

    def versions(self, release: str, namespace: str) -> dict[str, str]:
        """Return the resourceVersion of each object of a release."""
        manifest = list(yaml.safe_load_all(self.helm("get", "manifest", release, f"--namespace={namespace}")))
        found = json.loads(self.kubectl("get", "--filename=-", "--output=json", manifests=[x for x in manifest if x]))
        return {
            f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found["items"]
        }

    def _run(self, *command: str | Path, text: str = "") -> str:
        said = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        if said.returncode:
            raise RefusedError(said.stderr or said.stdout)
        return said.stdout


def _until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + POLICY_SECONDS
    while not holds():
        assert time.monotonic() < end, f"not after {POLICY_SECONDS:.0f} s: {what}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def server(charts_server: ApiServer) -> Server:
    """The server with both charts on it, as `make demo` gives their values."""
    found = Server(charts_server)
    found.helm("install", "kurm", KURM, f"--namespace={SYSTEM}", "--create-namespace")
    for crd in of_kind(rendered(KURM), "CustomResourceDefinition"):
        found.kubectl("wait", f"crd/{crd}", "--for=condition=Established", "--timeout=30s")
    found.helm("install", "demo", SLURM_CLUSTER, f"--namespace={PLACE}", "--create-namespace", f"--values={DEMO}")
    # The part of the volume controller, which is not here: until a claim's phase is stored, each write stores it.
    bound = ("--subresource=status", '--patch={"status": {"phase": "Bound"}}')
    found.kubectl("patch", "pvc/demo-shared-home", f"--namespace={PLACE}", *bound)
    return found


@pytest.mark.parametrize(
    ("release", "chart", "namespace", "values"),
    [("kurm", KURM, SYSTEM, []), ("demo", SLURM_CLUSTER, PLACE, [f"--values={DEMO}"])],
    ids=["kurm", "slurm-cluster"],
)
def test_the_same_again_changes_nothing(
    server: Server, release: str, chart: Path, namespace: str, values: list[str]
) -> None:
    """No object of the release is written: no new generation, no restart."""
    before = server.versions(release, namespace)
    server.helm("upgrade", release, chart, f"--namespace={namespace}", *values)
    assert server.versions(release, namespace) == before
    assert len(before) > 5


def test_the_operator_can_make_a_cluster(server: Server) -> None:
    """With its own rights: each object that it renders, its daemons' Roles and cluster-wide bindings included."""
    objects = everything(cluster(scheduler=SCHEDULER))
    as_operator = ("apply", "--server-side", f"--as={OPERATOR}", "--field-manager=kurm-operator", "--filename=-")
    assert server.refused(*as_operator, manifests=objects) == ""
    # Nothing has changed when it does so again, but the server has to be asked about each object all the same.
    assert server.refused(*as_operator, manifests=objects) == ""


def test_the_operator_binds_nobody_but_syncers(server: Server) -> None:
    """Neither by making a binding nor by taking one away: what RBAC cannot say, the admission policy does."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kurm-syncer"},
        "subjects": [],
    }
    sentence = "Kurm's operator may write no ClusterRoleBinding but those of its syncers"
    create = ("create", "--dry-run=server", f"--as={OPERATOR}", "--filename=-")
    _until(lambda: sentence in server.refused(*create, manifests=[binding]), "the policy is in force")
    named = binding | {"metadata": {"name": "kurm-syncer.slurm.demo2"}}
    assert server.refused(*create, manifests=[named]) == ""
    more = named | {"roleRef": binding["roleRef"] | {"name": "cluster-admin"}}  # type: ignore[operator]
    assert "attempting to grant RBAC permissions not currently held" in server.refused(*create, manifests=[more])
    delete = ("delete", "--dry-run=server", f"--as={OPERATOR}", "clusterrolebinding/cluster-admin")
    assert sentence in server.refused(*delete)
    assert server.refused("delete", "--dry-run=server", "clusterrolebinding/cluster-admin") == ""


def test_the_operator_reads_no_more_than_it_needs(server: Server) -> None:
    """And writes no custom resource into being, no key out of being."""
    never = [
        ("create", "slurmclusters.kurm.dev"),
        ("delete", "secrets"),
        ("delete", "persistentvolumeclaims"),
        ("delete", "nodes"),
        ("create", "namespaces"),
        ("create", "clusterroles.rbac.authorization.k8s.io"),
        ("escalate", "roles.rbac.authorization.k8s.io"),
        ("impersonate", "users"),
    ]
    assert [right for right in never if server.may(*right, OPERATOR)] == []
    assert server.may("patch", "nodes", OPERATOR)


def test_kubernetes_finds_powers_where_the_table_has_them(server: Server) -> None:
    """A namespace that enforces the restricted profile takes the operator and all of a cluster but the exceptions."""
    restricted = {"metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    server.kubectl("create", "--filename=-", manifests=[{"apiVersion": "v1", "kind": "Namespace"} | restricted])
    templates = pods(everything(cluster())) + pods(rendered(KURM, namespace=SYSTEM))
    refused = set()
    for template in templates:
        labels = template["metadata"]["labels"]
        metadata = {"name": "pod", "namespace": "restricted", "labels": labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        said = server.refused("create", "--dry-run=server", "--filename=-", manifests=[pod])
        if said:
            assert 'violates PodSecurity "restricted' in said
            refused.add(labels["app.kubernetes.io/component"])
    assert refused == {str(part) for part, _ in EXCEPTIONS}


def test_a_second_release_is_a_staging_cluster(server: Server) -> None:
    """In another namespace, with the same values; uninstalling it leaves its data and does not touch the first."""
    before = server.versions("demo", PLACE)
    arguments = ("--namespace=staging", f"--values={DEMO}")
    server.helm("install", "demo", SLURM_CLUSTER, "--create-namespace", *arguments)
    assert server.versions("demo", "staging").keys() == before.keys()
    server.helm("uninstall", "demo", "--namespace=staging")
    left = server.kubectl("get", "slurmclusters,nodesets,pvc,networkpolicies", "--namespace=staging", "--output=name")
    assert left.split() == ["persistentvolumeclaim/demo-shared-home"]
    assert server.versions("demo", PLACE) == before
    # The same release finds its data again.
    server.helm("install", "demo", SLURM_CLUSTER, *arguments)
    assert server.versions("demo", "staging").keys() == before.keys()


def test_uninstalling_kurm_leaves_the_clusters(charts_server: ApiServer, server: Server) -> None:
    """With the custom resources would go all SlurmClusters; installed again, the operator finds them."""

    def clusters() -> str:
        return server.kubectl("get", "slurmclusters", "--all-namespaces", "--output=name")

    assert charts_server.port
    before = clusters()
    server.helm("uninstall", "kurm", f"--namespace={SYSTEM}")
    assert clusters() == before != ""
    assert "not found" in server.refused("get", "deployment/kurm-operator", f"--namespace={SYSTEM}")
    server.helm("install", "kurm", KURM, f"--namespace={SYSTEM}")
    assert clusters() == before


def test_an_unknown_field_of_the_spec_is_refused_by_the_server(server: Server) -> None:
    """The charts pass specs on; the custom resources are their schema."""
    with pytest.raises(RefusedError, match=r"\.spec\.login\.user: field not declared in schema"):
        server.helm(
            "upgrade", "demo", SLURM_CLUSTER, f"--namespace={PLACE}", f"--values={DEMO}", "--set=cluster.login.user=me"
        )
