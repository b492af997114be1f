"""NodeSet: slurmd pods, one for each Kubernetes node that fits, like a DaemonSet with `replicas`."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, field

from kurm.domain.spec import (
    DISTINCT,
    Component,
    Conditions,
    ConditionType,
    Count,
    Duration,
    ObservedGeneration,
    OurName,
    Quantity,
    Rule,
    Spec,
    keyed,
    plainly,
    rules,
)


class ClusterRef(Spec):
    """A SlurmCluster in the same namespace."""

    name: Annotated[OurName, Meta(description="Name of the SlurmCluster.")]


class Reserve(Spec):
    """What of a node Slurm is not told of: DaemonSets and slurmd itself live from it."""

    cpu: Annotated[int, Meta(description="Whole CPUs.", ge=0, le=4096)] = 0
    memory: Annotated[Quantity, Meta(description="Memory, as 512Mi.")] = "512Mi"


class SlurmNode(Spec):
    """What the nodes are in Slurm."""

    features: Annotated[
        tuple[
            Annotated[
                str,
                Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/-]*$", max_length=63),
                plainly("must be letters, digits, _, ., :, / and -, with a letter, digit or _ first"),
                rules(Rule("!self.startsWith('nodeset:')", "must not begin with nodeset:, which marks NodeSets")),
            ],
            ...,
        ],
        Meta(description="Features that jobs can ask for (--constraint).", max_length=64),
        DISTINCT,
    ] = ()
    weight: Annotated[int, Meta(description="Nodes of lower weight are filled first.", ge=0, le=65533)] = 1
    gres: Annotated[
        Mapping[
            Annotated[str, Meta(max_length=317)],
            Annotated[
                str,
                Meta(pattern=r"^[a-z][a-z0-9_]*(:[A-Za-z0-9][A-Za-z0-9_.-]*)?$", max_length=127),
                plainly("must be a GRES' name or name:type, as gpu or gpu:h100"),
            ],
        ],
        Meta(
            description="GRES by extended resource: nvidia.com/gpu: gpu:h100 makes gpu:h100:8 of a node with eight.",
            max_length=16,
        ),
    ] = field(default_factory=dict)


class UpdateStrategy(Spec):
    """How pods that would be made otherwise now are replaced: each is drained, waited for, replaced and resumed."""

    type: Annotated[
        Literal["RollingUpdate", "OnDelete"],
        Meta(description="RollingUpdate: by itself, a few nodes at a time. OnDelete: when somebody deletes the pod."),
    ] = "RollingUpdate"
    max_unavailable: Annotated[
        int | str,
        Meta(description="RollingUpdate begins with no further node while so many are out of service for any reason."),
        rules(
            Rule(
                "type(self) == int ? self >= 1 && self <= 100000 : self.matches('^([1-9][0-9]?|100)%$')",
                "must be a number of nodes above zero, as 1, or a share of them, as 10%, which is rounded up",
            )
        ),
    ] = 1


class NodeSetSpec(Component, kw_only=True):
    """The desired state of a set of compute nodes.

    `resources` are those of slurmd's container: its limits bound slurmd and all jobs of a node together.
    """

    cluster_ref: Annotated[
        ClusterRef,
        Meta(description="The SlurmCluster that the nodes belong to, in this namespace. It cannot be changed."),
        rules(Rule("self == oldSelf", "nodes cannot change their cluster: make another NodeSet", path=".name")),
    ]
    replicas: Annotated[
        Annotated[int, Meta(ge=0, le=100000)] | None, Meta(description="How many nodes; all that fit if absent.")
    ] = None
    reserve: Reserve = Reserve()
    slurm: SlurmNode = SlurmNode()
    update_strategy: UpdateStrategy = UpdateStrategy()
    when_busy: Annotated[
        Literal["wait", "requeue"],
        Meta(
            description="What becomes of the jobs on a node that is to go or to get a new pod: they are waited for, "
            "or requeued after busyDeadline."
        ),
    ] = "wait"
    busy_deadline: Annotated[
        Duration,
        Meta(
            description="How long jobs on such a node may run on, as 90s, 10m, 1h30m or 7d: then they are requeued, "
            "or, with whenBusy: wait, the condition Stalled says that they take too long."
        ),
    ] = "1h"
    # A slurmd that is evicted for a pod's sake takes its jobs with it.
    priority_class_name: Annotated[str, Meta(description="The pods' PriorityClass.", max_length=253)] = (
        "system-node-critical"
    )
    taint_key: Annotated[
        str,
        Meta(description="Key of the taint that keeps other pods off the nodes, as kurm.dev/pool.", max_length=317),
        Meta(pattern=r"^([a-z0-9][a-z0-9.-]*/)?[A-Za-z0-9][A-Za-z0-9_.-]*$"),
        plainly("must be the key of a taint, as kurm.dev/pool"),
    ] = "kurm.dev/pool"


class NodeSetCondition(ConditionType):
    """The conditions of a NodeSet, all of them readable by tools that know kstatus (Helm, Flux, Argo CD).

    Ready is always there once the resource has been seen. Reconciling and Stalled are there only while they are True.
    """

    READY = "Ready", "As many nodes are in service as are desired."
    RECONCILING = "Reconciling", "Nodes come or go, and no person is needed: a drain waits for jobs, a pod starts."
    STALLED = "Stalled", "It will not be ready without a person: no node fits, or the SlurmCluster is missing."


class Infeasible(Spec):
    """Nodes that were looked at and cannot be used, for one reason."""

    reason: Annotated[
        str, Meta(description="Why, as NotReady, NodeSelector, Taint/KEY, Claimed or TooFew/RESOURCE.", max_length=400)
    ]
    nodes: Annotated[Count, Meta(description="How many.")] = 0
    examples: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...], Meta(description="Names of some of them.", max_length=5)
    ] = ()


class NodeSetStatus(Spec):
    """What is there of a NodeSet; all figures count nodes. Conditions: Ready, Reconciling, Stalled."""

    observed_generation: ObservedGeneration = 0
    conditions: Conditions = ()
    desired: Annotated[Count, Meta(description="That there should be: replicas, or all that fit.")] = 0
    feasible: Annotated[Count, Meta(description="That could be used: they fit, and no other NodeSet has them.")] = 0
    current: Annotated[Count, Meta(description="That are claimed and have a pod.")] = 0
    updated: Annotated[Count, Meta(description="Whose pod is of the newest generation.")] = 0
    ready: Annotated[Count, Meta(description="On which slurmd is registered and in service.")] = 0
    allocated: Annotated[
        Count | None, Meta(description="That have jobs or pods on them, by Slurm's account; absent while unknown.")
    ] = None
    draining: Annotated[Count, Meta(description="That take no more jobs and still have some.")] = 0
    drained: Annotated[Count, Meta(description="That take no jobs and have none.")] = 0
    misscheduled: Annotated[Count, Meta(description="That have a pod and no longer fit.")] = 0
    unavailable: Annotated[Count, Meta(description="That are desired and not ready.")] = 0
    infeasible: Annotated[
        tuple[Infeasible, ...], Meta(description="Why other nodes cannot be used.", max_length=64), keyed("reason")
    ] = ()
    selector: Annotated[
        str, Meta(description="Label selector of the pods, for the scale subresource.", max_length=1024)
    ] = ""
