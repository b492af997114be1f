"""What things are called: components, objects, labels. Users, tests and charts rely on these names."""

from enum import StrEnum
from hashlib import blake2b

LABEL_LENGTH = 63
"""Letters of a label's value and of a host name (RFC 1123)."""

RESTART_HASH = "kurm.dev/restart-hash"
"""Annotation of a pod's template: of the settings that only a new pod can bring into force."""
TEMPLATE_HASH = "kurm.dev/template-hash"
"""Annotation of a slurmd pod: of all that it was made of but its node."""
OWNER_UID = "kurm.dev/cluster-uid"
"""Annotation of what the SlurmCluster does not own: its UID. Cluster-wide objects can have no owner, and slurmd's pods
have their NodeSet."""

CONFIG_HASH = "kurm-hash"
"""Key of the ConfigMap with the configuration: of all other keys."""
SLURM_KEY, JWT_KEY = "slurm.key", "jwt_hs256.key"
"""Keys of the Secret with the cluster's keys; slurmctld finds the files under these names."""
HOST_KEY = "ssh_host_ed25519_key"
"""Key of the Secret with the login nodes' host key."""
PASSWORD = "password"  # noqa: S105 - the name of a key, not a password
"""Key of the Secret of the companion database."""


class Part(StrEnum):
    """A component of a cluster: the value of app.kubernetes.io/component."""

    CONTROLLER = "controller"
    LOGIN = "login"
    ACCOUNTING = "accounting"
    DATABASE = "database"
    REST = "rest"
    SLURMD = "slurmd"
    SYNCER = "syncer"
    SCHEDULER = "scheduler"


POD_POLICY, CLAIM_POLICY, NAMESPACE_POLICY = (
    f"kurm-{Part.SCHEDULER}-{what}" for what in ("pods", "claims", "namespaces")
)
"""The chart's policies: what a scheduler's pods may ask, what it may write of claims, which pods are its own."""


def component(cluster: str, part: Part) -> str:
    """Return the name of a component's objects: `demo-controller`. At most 51 letters, for a cluster's 40.

    A StatefulSet's pods bear its name and a hash of 10 letters in one label, so no more than 52 would do.
    """
    return f"{cluster}-{part}"


def configuration(cluster: str) -> str:
    """Return the name of the ConfigMap with Slurm's configuration and scripts."""
    return f"{cluster}-config"


def keys(cluster: str) -> str:
    """Return the name of the Secret with the keys of auth/slurm and of the tokens."""
    return f"{cluster}-keys"


def host_keys(cluster: str) -> str:
    """Return the name of the Secret with the login nodes' host key."""
    return f"{cluster}-ssh-host-keys"


def users(cluster: str) -> str:
    """Return the name of the ConfigMap with users and groups."""
    return f"{cluster}-users"


def authorized_keys(cluster: str) -> str:
    """Return the name of the ConfigMap with users' public keys."""
    return f"{cluster}-authorized-keys"


def slurmd_pod(node_set: str, node: str) -> str:
    """Return the name of the pod on a node: `workers-n1`, at most 63 letters.

    NodeSets `gpu` and `gpu-a` could both want `gpu-a-1`, so one with a hyphen in its name adds a hash. So does a node
    whose name has a dot or is too long.
    """
    plain = f"{node_set}-{node}"
    if "-" not in node_set and "." not in node and len(plain) <= LABEL_LENGTH:
        return plain
    digest = blake2b(f"{node_set}/{node}".encode(), digest_size=5).hexdigest()
    return f"{plain.replace('.', '-')[: LABEL_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def host_name(node: str) -> str:
    """Return what slurmd's pod calls itself: the node's name up to its first dot, as `hostname -s` has it."""
    return node.partition(".")[0][:LABEL_LENGTH].rstrip("-")


def cluster_role(part: Part) -> str:
    """Return the name of the chart's ClusterRole with what a daemon of ours may do beyond its namespace."""
    return f"kurm-{part}"


WIDE = (
    ("ClusterRoleBinding", cluster_role(Part.SYNCER)),
    ("ClusterRoleBinding", cluster_role(Part.SCHEDULER)),
    ("ValidatingAdmissionPolicyBinding", POD_POLICY),
    ("ValidatingAdmissionPolicyBinding", CLAIM_POLICY),
    ("MutatingAdmissionPolicyBinding", NAMESPACE_POLICY),
)
"""Kind of each cluster-wide object that a cluster may have, and what of the chart's it binds."""


def wide(of: str, namespace: str, cluster: str) -> str:
    """Return the name of a cluster-wide object that binds one of the chart's; it tells clusters apart."""
    return f"{of}.{namespace}.{cluster}"
