"""Pods as the API server is asked for them, and the sentences with which it must refuse some. Nothing of it is made."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

OURS = "slurm.kurm.dev/"
NAMES = (
    "account, comment, constraint, exclusive, gang, gang-size, gres, licenses, partition, qos, reservation, time-limit"
)
WORD = "letters, digits, _, . and -, with a letter or digit first"
TIME = "minutes, [D-]HH:MM:SS or D-HH as in sbatch --time, a duration as 90m, 1h30m or 7d, or UNLIMITED"
FEATURES = "features and operators, as a100&ib or [rack1|rack2], at most 1024 letters"
GRES = "names, each with a type and a number if wanted, as gpu:h100 or fpga:1"
QUEUE = "is not supported by Slurm's queue:"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}


def pod(annotations: Mapping[str, str], scheduler: str, **spec: Any) -> Json:
    """Return a pod with some fields in its spec; annotations without a prefix are Kurm's for users."""
    container = {"name": "main", "image": "registry.example/main:1"}
    said = {name if "/" in name else f"{OURS}{name}": value for name, value in annotations.items()}
    return {
        "metadata": {"generateName": "pod-", "annotations": said},
        "spec": {"schedulerName": scheduler, "containers": [container]} | spec,
    }


PARTITIONS = [
    {"name": "batch", "nodeSets": ["workers"], "default": True, "preemptMode": "REQUEUE", "graceTime": "1m30s"},
    {"name": "services", "nodeSets": ["workers"], "tier": 10, "maxTime": "UNLIMITED"},
    {"name": "scavenge", "nodeSets": ["workers"], "preemptMode": "CANCEL"},
]
GOOD: list[tuple[Json, Json]] = [
    ({}, {}),
    ({"example.org/mine": "any\nthing", "kurm.dev/reason": "of a person"}, {}),
    (
        {"account": "ml", "partition": "batch", "qos": "high", "reservation": "r1", "licenses": "matlab:2,ansys@host"},
        {},
    ),
    ({"time-limit": "90m", "constraint": "[rack1|rack2]&ib*2", "comment": "Grüße, 7 + 5", "exclusive": "true"}, {}),
    ({"time-limit": "1-12:00:00", "gres": "gpu:h100:8,fpga:1", "exclusive": "false"}, {}),
    ({"time-limit": "unlimited", "gres": "gpu"}, {}),
    ({"gang": "solvers.a-1", "gang-size": "512"}, {}),
    ({"partition": "batch"}, {"terminationGracePeriodSeconds": 90}),
    ({"partition": "scavenge"}, {"terminationGracePeriodSeconds": 0}),
    ({}, {"terminationGracePeriodSeconds": 3600}),
    ({}, {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}),
    ({}, {"affinity": {"nodeAffinity": {}}, "nodeSelector": {"zone": "a"}, "activeDeadlineSeconds": 60}),
    ({}, {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}),
]
"""Annotations and fields of a pod that is taken."""

BAD: list[tuple[Json, Json, str]] = [
    ({"partion": "batch"}, {}, f"annotation {OURS}partion is unknown: allowed are {NAMES}"),
    (
        {"partition": "big"},
        {},
        (f"annotation {OURS}partition: big is none of the cluster's: allowed are batch, services, scavenge"),
    ),
    (
        {"partition": "pin"},
        {},
        (f"annotation {OURS}partition: pin is none of the cluster's: allowed are batch, services, scavenge"),
    ),
    ({"account": "a b"}, {}, f'annotation {OURS}account: "a b" must be {WORD}'),
    ({"qos": ""}, {}, f'annotation {OURS}qos: "" must be {WORD}'),
    ({"reservation": "r,s"}, {}, f'annotation {OURS}reservation: "r,s" must be {WORD}'),
    ({"time-limit": "soon"}, {}, f'annotation {OURS}time-limit: "soon" must be {TIME}'),
    ({"time-limit": "1:2:3:4"}, {}, f'annotation {OURS}time-limit: "1:2:3:4" must be {TIME}'),
    ({"constraint": "a b"}, {}, f'annotation {OURS}constraint: "a b" must be {FEATURES}'),
    ({"constraint": "a" * 1025}, {}, f'" must be {FEATURES}'),
    (
        {"licenses": "matlab:two"},
        {},
        (f'annotation {OURS}licenses: "matlab:two" must be names with numbers, as matlab:2,ansys'),
    ),
    ({"comment": "two\nlines"}, {}, f'annotation {OURS}comment: "two lines" must be at most 1024 letters in one line'),
    ({"exclusive": "yes"}, {}, f'annotation {OURS}exclusive: "yes" must be true or false'),
    ({"gres": "gpu:h100:8x"}, {}, f'annotation {OURS}gres: "gpu:h100:8x" must be {GRES}'),
    (
        {"gang": "a"},
        {},
        (f"annotations {OURS}gang and {OURS}gang-size belong together: the name of a gang, and how many pods it has"),
    ),
    ({"gang": "a", "gang-size": "0"}, {}, f'annotation {OURS}gang-size: "0" must be a number of pods, from 1'),
    (
        {"gang": "A_", "gang-size": "2"},
        {},
        (
            f'annotation {OURS}gang: "A_" must be a-z, 0-9, . and -, with a letter or '
            "digit first and last, at most 63 letters"
        ),
    ),
    (
        {"partition": "batch"},
        {"terminationGracePeriodSeconds": 91},
        (
            "spec.terminationGracePeriodSeconds: 91 is more than partition batch gives a "
            "pod that is preempted: at most 90 is "
            "allowed (its graceTime)"
        ),
    ),
    (
        {"partition": "scavenge"},
        {},
        (
            "spec.terminationGracePeriodSeconds: 30 is more than partition scavenge gives a "
            "pod that is preempted: at most 0 is "
            "allowed (its graceTime)"
        ),
    ),
    (
        {},
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        (
            f"spec.resourceClaims {QUEUE} ask for "
            "devices as an extended resource that a NodeSet names in spec.slurm.gres, as nvidia.com/gpu"
        ),
    ),
    (
        {},
        {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
        (
            f"spec.affinity.podAffinity.{REQUIRED} {QUEUE} prefer it "
            "(preferredDuringScheduling...), choose nodes by their labels, or make the pods a gang"
        ),
    ),
    (
        {},
        {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
        (
            f"spec.affinity.podAntiAffinity.{REQUIRED} {QUEUE} "
            "prefer it (preferredDuringScheduling...), or ask for whole nodes by slurm.kurm.dev/exclusive: true"
        ),
    ),
    (
        {},
        {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]},
        (
            f"spec.topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule {QUEUE} say ScheduleAnyway, or "
            "choose nodes "
            "by their labels"
        ),
    ),
    (
        {},
        {
            "containers": [
                {
                    "name": "a",
                    "image": "a",
                    "resources": {
                        "requests": {"hugepages-2Mi": "2Mi", "memory": "8Mi"},
                        "limits": {"hugepages-2Mi": "2Mi"},
                    },
                }
            ]
        },
        "spec.containers: hugepages are not supported, because Slurm does not count them",
    ),
    (
        {},
        {"nodeName": "n1"},
        (
            "spec.nodeName must be absent: a pod that comes with its node has no share of it in Slurm; "
            "name a node by spec.nodeSelector, kubernetes.io/hostname"
        ),
    ),
    (
        {"kurm.dev/job": "5"},
        {},
        (
            "annotations kurm.dev/job, kurm.dev/slot, kurm.dev/allocation and kurm.dev/epoch must be absent: "
            "the scheduler writes them"
        ),
    ),
]
"""Annotations and fields of a pod, and the end of the sentence with which it is refused."""

RULES = {
    "namespaces": [
        {"name": "NAMESPACE", "account": "ml", "partitions": ["batch", "scavenge"], "qos": ["normal", "low"]},
        {"name": "web"},
    ],
    "priorityClasses": [
        {"name": "PRIORITY-urgent", "partition": "services"},
        {"name": "PRIORITY-cheap", "partition": "scavenge", "qos": "high"},
    ],
}
"""What a namespace may ask for, with its name to be put in, and where pods go by their PriorityClass."""
RULED_GOOD: list[tuple[Json, Json]] = [
    ({}, {}),
    ({"account": "ml", "partition": "batch", "qos": "low"}, {}),
    ({"partition": "batch", "qos": "low"}, {"priorityClassName": "PRIORITY-urgent"}),
]
"""As GOOD, of the namespace that has a rule."""
RULED_BAD: list[tuple[Json, Json, str]] = [
    ({"account": "root"}, {}, f"annotation {OURS}account: root is not for namespace NAMESPACE: allowed is ml"),
    (
        {"partition": "services"},
        {},
        (f"annotation {OURS}partition: services is not for namespace NAMESPACE: allowed are batch, scavenge"),
    ),
    ({"qos": "high"}, {}, f"annotation {OURS}qos: high is not for namespace NAMESPACE: allowed are normal, low"),
    (
        {},
        {"priorityClassName": "PRIORITY-urgent"},
        (
            "spec.priorityClassName PRIORITY-urgent: partition services is not "
            "for namespace NAMESPACE: allowed are batch, scavenge"
        ),
    ),
    (
        {},
        {"priorityClassName": "PRIORITY-cheap", "terminationGracePeriodSeconds": 0},
        "spec.priorityClassName PRIORITY-cheap: QOS high is not for namespace NAMESPACE: allowed are normal, low",
    ),
    (
        {},
        {"terminationGracePeriodSeconds": 100},
        (
            "spec.terminationGracePeriodSeconds: 100 is more than partition batch "
            "gives a pod that is preempted: at most 90 is allowed (its graceTime)"
        ),
    ),
]
"""As BAD, of the namespace that has a rule."""
STRANGER = "metadata.namespace: pods of STRANGER may not use scheduler SCHEDULER: allowed are NAMESPACE, web"
"""What a namespace without a rule is told where others have one."""
