"""The scheduler: its Deployment, what it may do in Kubernetes, and the admission policies that hold for its pods.

The policies are the chart's (charts/kurm): a binding can bring about no more than they say, and a right to write
policies would be one to rewrite every object in Kubernetes.
"""

from kurm.domain.schedulerspec import Scheduler
from kurm.domain.spec import GROUP, Json
from kurm.operator.render import daemons, names
from kurm.operator.render.daemons import READ
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster

SCHEDULER = f"{GROUP}/scheduler"
"""Label of a namespace: the scheduler of its pods that name none."""
RULES: list[Json] = [
    {"apiGroups": [GROUP], "resources": ["slurmclusters", "nodesets"], "verbs": [*READ]},
    # What slurmd's pods are told of the pods beside them.
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
]
"""What a scheduler may do in its namespace; the rest is in the chart's ClusterRole."""


def objects(cluster: Cluster, settings: Scheduler) -> list[Json]:
    """Return the objects. What is cluster-wide among them has no owner: whoever made it takes it away."""
    requests = {"cpu": "100m", "memory": "128Mi"}
    return [
        *daemons.access(cluster, Part.SCHEDULER, RULES),
        *bindings(cluster, settings),
        daemons.deployment(cluster, Part.SCHEDULER, settings, [], requests),
    ]


def bindings(cluster: Cluster, settings: Scheduler) -> list[Json]:
    """Return what brings the chart's admission policies into force for this cluster."""
    # Without the SlurmCluster, as while it is being deleted, they say nothing.
    params = {"name": cluster.name, "namespace": cluster.namespace, "parameterNotFoundAction": "Allow"}
    checks = {"validationActions": ["Deny"], "paramRef": params}
    opted_in = {"namespaceSelector": {"matchLabels": {SCHEDULER: settings.name}}}
    return [
        _binding(cluster, "Validating", names.POD_POLICY, checks),
        _binding(cluster, "Validating", names.CLAIM_POLICY, checks),
        _binding(cluster, "Mutating", names.NAMESPACE_POLICY, {"matchResources": opted_in}),
    ]


def _binding(cluster: Cluster, way: str, policy: str, spec: Json) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{way}AdmissionPolicyBinding",
        "metadata": daemons.wide(cluster, Part.SCHEDULER, policy),
        "spec": {"policyName": policy, **spec},
    }
