"""The syncer: its Deployment, and what it may do in Kubernetes."""

from kurm.domain.spec import GROUP, Json
from kurm.operator.render import daemons
from kurm.operator.render.daemons import READ
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster

RULES: list[Json] = [
    {"apiGroups": [GROUP], "resources": ["slurmclusters", "nodesets"], "verbs": [*READ]},
    {"apiGroups": [GROUP], "resources": ["slurmclusters/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*READ]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
]
"""What a syncer may do in its namespace. Who makes this Role must be allowed all of it: nobody can give more."""


def objects(cluster: Cluster) -> list[Json]:
    """Return the objects."""
    arguments = [
        *("--dead-after", cluster.spec.dead_after),
        *(f"--drain-condition={one}" for one in cluster.spec.syncer.drain_conditions),
    ]
    requests = {"cpu": "50m", "memory": "64Mi"}
    return [
        *daemons.access(cluster, Part.SYNCER, RULES),
        daemons.deployment(cluster, Part.SYNCER, cluster.spec.syncer, arguments, requests),
    ]
