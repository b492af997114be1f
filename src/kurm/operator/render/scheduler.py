"""The scheduler: its Deployment, what it may do in Kubernetes, and the policies that hold for its pods."""

from kurm.domain.schedulerspec import Scheduler
from kurm.domain.spec import GROUP, Json
from kurm.operator.render import daemons
from kurm.operator.render.daemons import READ
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster

RULES: list[Json] = [
    {"apiGroups": [GROUP], "resources": ["slurmclusters", "nodesets"], "verbs": [*READ]},
    # What slurmd's pods are told of the pods beside them.
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "patch"]},
]
"""What a scheduler may do in its namespace; the rest is in the chart's ClusterRole."""


def objects(cluster: Cluster, settings: Scheduler) -> list[Json]:
    """Return the objects. What is cluster-wide among them has no owner: whoever made it takes it away."""
    requests = {"cpu": "100m", "memory": "128Mi"}
    return [
        *daemons.access(cluster, Part.SCHEDULER, RULES),
        daemons.deployment(cluster, Part.SCHEDULER, settings, [], requests),
    ]
