"""What a node's daemons are told."""

import yaml

from kurm.local import addons, controlplane, node
from kurm.local.layout import Layout
from kurm.local.pki import Authority

GIB = 1 << 30
LAYOUT = Layout("demo", 0, 4)


def reserved(memory: int) -> object:
    """Return what the kubelet of a machine with `memory` bytes holds back."""
    return node.kubelet_configuration(LAYOUT, LAYOUT.nodes[1], memory)["systemReserved"]


def test_a_node_offers_four_gibibytes_of_a_large_machine() -> None:
    """Every kubelet sees the whole machine's memory; all but 4 GiB (and what it keeps free itself) is reserved."""
    assert reserved(24 * GIB) == {"memory": f"{20 * 1024 - 50}Mi"}


def test_a_node_of_a_small_machine_offers_what_there_is() -> None:
    """Nothing is reserved where there is less than a node would offer."""
    assert reserved(2 * GIB) == {"memory": "0Mi"}


def test_only_n0_is_for_control_pods() -> None:
    """The label tells n0 from the pool."""
    labelled = [n.name for n in LAYOUT.nodes if f"--node-labels={node.CONTROL_ROLE}" in kubelet_arguments(n.name)]
    assert labelled == ["n0"]


def kubelet_arguments(name: str) -> list[str]:
    """Return the command line of that node's kubelet."""
    services = node.services(LAYOUT.node(name))
    return list(next(service.argv for service in services if service.name == "kubelet"))


def test_secrets_are_under_var_where_only_the_machine_looks() -> None:
    """A machine sees its own /var alone: whatever it reads must be written there."""
    authority = Authority("test")
    paths = [*controlplane.files(LAYOUT, authority), *node.files(LAYOUT, LAYOUT.nodes[0], authority, 8 * GIB)]
    assert [path for path in paths if not path.startswith("/var/")] == []


def test_all_files_of_a_node_parse() -> None:
    """YAML and kubeconfigs are read back as what was meant."""
    files = node.files(LAYOUT, LAYOUT.nodes[2], Authority("test"), 8 * GIB)
    kubeconfig = yaml.safe_load(files["/var/lib/kubelet/kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == "https://172.30.0.2:6443"
    assert yaml.safe_load(files["/var/lib/kubelet/config.yaml"])["clusterDNS"] == ["10.176.0.10"]


def test_the_first_objects_of_a_cluster_have_no_hole() -> None:
    """Every placeholder of the manifests is filled in, and each document is an object."""
    objects = list(yaml.safe_load_all(addons.manifests(LAYOUT)))
    assert [item["kind"] for item in objects if item["kind"] == "StorageClass"] == ["StorageClass"]
    assert "$" not in addons.manifests(LAYOUT)
