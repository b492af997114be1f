"""SlurmCluster: a Slurm cluster's controller, accounting, login, configuration and partitions, as one resource."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field

from kurm.domain.causes import CONDITION_TYPE
from kurm.domain.partition import Partition
from kurm.domain.schedulerspec import KNOWN_PARTITIONS, PIN_TIER, Scheduler
from kurm.domain.spec import (
    DISTINCT,
    Annotations,
    Component,
    Conditions,
    ConditionType,
    Count,
    Duration,
    Name,
    ObservedGeneration,
    Path,
    Port,
    Quantity,
    Rule,
    SecretKey,
    Spec,
    Storage,
    keyed,
    plainly,
    rules,
    unchanged,
)
from kurm.domain.topology import Topology


class Controller(Component):
    """slurmctld."""

    storage: Annotated[Storage, Meta(description="slurmctld's state: queue, jobs, nodes.")] = Storage()


class DatabaseStorage(Storage):
    """A claim for the volume of a database."""

    size: Annotated[Quantity, Meta(description="How large, as 10Gi. It can grow, where the class allows it.")] = "5Gi"


class CompanionDatabase(Component):
    """A MariaDB that is run beside slurmdbd, for clusters that bring none."""

    storage: Annotated[DatabaseStorage, Meta(description="The accounting records.")] = DatabaseStorage()


class ExternalDatabase(Spec):
    """A MariaDB or MySQL that somebody else runs."""

    host: Annotated[str, Meta(description="Its address.", min_length=1, max_length=253)]
    user: Annotated[str, Meta(description="Whom slurmdbd logs in as.", min_length=1, max_length=80)]
    password: Annotated[SecretKey, Meta(description="Where the user's password is.")]
    port: Annotated[Port, Meta(description="Its port.")] = 3306
    name: Annotated[
        str,
        Meta(description="The database's name.", pattern=r"^[A-Za-z0-9_]+$", max_length=64),
        plainly("must be letters, digits and _"),
    ] = "slurm_acct_db"


_NO_CLASS = "(!has({0}.companion) || !has({0}.companion.storage.storageClassName))"


class Accounting(Component):
    """slurmdbd, and the database behind it."""

    RULES: ClassVar = (
        Rule(
            "!(has(self.companion) && has(self.external))",
            "companion and external are both set: a cluster has one database; keep the one that it shall use",
        ),
        # The same rule in Storage does not see a companion that is named for the first time or no longer.
        Rule(
            "has(self.external) || has(oldSelf.external) || has(self.companion) == has(oldSelf.companion) || "
            f"{_NO_CLASS.format('self')} && {_NO_CLASS.format('oldSelf')}",
            "the storage class of a volume cannot be changed: its data would be lost",
            path=".companion",
        ),
    )
    enabled: Annotated[bool, Meta(description="Whether jobs are recorded (sacct) and limits kept (sacctmgr).")] = True
    companion: Annotated[
        CompanionDatabase | None,
        Meta(description="A MariaDB run beside slurmdbd; with its defaults if there is no external one either."),
    ] = None
    external: Annotated[ExternalDatabase | None, Meta(description="A database of yours, instead of the companion.")] = (
        None
    )

    @property
    def database(self) -> CompanionDatabase | ExternalDatabase:
        """The one database that slurmdbd uses."""
        return self.external or self.companion or CompanionDatabase()


_SYSTEM_USERS = "['root', 'daemon', 'bin', 'sys', 'mail', 'nobody', 'sshd', 'mysql', 'slurm', 'slurmrestd']"


class User(Spec):
    """Someone who may log in; enough for a small cluster, until a directory is connected."""

    name: Annotated[
        str,
        Meta(description="Name to log in with.", pattern=r"^[a-z_][a-z0-9_-]*$", max_length=32),
        plainly("must be a-z, 0-9, _ and -, with a letter or _ first"),
        rules(
            Rule(
                f"!(self in {_SYSTEM_USERS})",
                "must be another name: this is a system user of the images",
            )
        ),
    ]
    uid: Annotated[
        int,
        Meta(description="The same number on every node, from 1000.", ge=1000, le=2147483647),
        rules(Rule("self != 65534", "must be another number: this is the user nobody")),
    ]
    gid: Annotated[
        Annotated[int, Meta(ge=1, le=2147483647)] | None,
        Meta(description="Number of the user's group; the same as uid if absent."),
    ] = None
    ssh_keys: Annotated[
        tuple[
            Annotated[
                str,
                Meta(pattern=r"^([^\r\n]* )?(ssh|ecdsa|sk)-[^\r\n]+$", max_length=2048),
                plainly("must be a public key: one line of authorized_keys, as ssh-ed25519 AAAA... me@home"),
            ],
            ...,
        ],
        Meta(description="Public keys, as in authorized_keys.", max_length=8),
    ] = ()
    shell: Annotated[Path, Meta(description="Path of the login shell.")] = "/bin/bash"

    @property
    def group(self) -> int:
        """Number of the user's group."""
        return self.uid if self.gid is None else self.gid


class Service(Spec):
    """How the login nodes are reached."""

    RULES: ClassVar = (
        Rule(
            "!has(self.nodePort) || self.type != 'ClusterIP'",
            "a Service of type ClusterIP has no port on the nodes: set type to NodePort or LoadBalancer",
            path=".nodePort",
        ),
        Rule(
            "!has(self.loadBalancerSourceRanges) || self.type == 'LoadBalancer'",
            "only a Service of type LoadBalancer has source ranges",
            path=".loadBalancerSourceRanges",
        ),
    )
    type: Annotated[
        Literal["ClusterIP", "NodePort", "LoadBalancer"], Meta(description="Kubernetes' type of the Service.")
    ] = "ClusterIP"
    port: Annotated[Port, Meta(description="Port of the Service.")] = 22
    node_port: Annotated[
        Port | None, Meta(description="Port on every node; one that Kubernetes chooses if absent.")
    ] = None
    load_balancer_source_ranges: Annotated[
        tuple[
            Annotated[
                str,
                Meta(max_length=43),
                rules(
                    Rule(
                        "isCIDR(self)",
                        "must be a range of addresses, as 10.0.0.0/8",
                    )
                ),
            ],
            ...,
        ],
        Meta(description="Who may connect; everybody if absent.", max_length=64),
        DISTINCT,
    ] = ()
    annotations: Annotated[Annotations, Meta(description="Annotations of the Service, for load balancers.")] = field(
        default_factory=dict
    )


_OWN_UID = "self.exists_one(v, v.uid == u.uid)"
_UIDS = Rule(
    f"self.all(u, {_OWN_UID})",
    "every user needs a uid of their own",
    says="'every user needs a uid of their own, and the one of ' + "
    f"self[self.map(u, {_OWN_UID}).indexOf(false)].name + ' is given more than once'",
)


class Login(Component):
    """Login nodes: sshd, and Slurm's commands."""

    replicas: Annotated[int, Meta(description="How many login pods.", ge=0, le=100)] = 1
    users: Annotated[
        tuple[User, ...], Meta(description="Who may log in.", max_length=128), keyed("name"), rules(_UIDS)
    ] = ()
    service: Service = Service()


class Rest(Component):
    """slurmrestd for programs outside of Kurm; Kurm's own daemons have each their own."""

    enabled: Annotated[bool, Meta(description="Whether it is run.")] = False


_CONDITION = Annotated[
    str,
    Meta(pattern=CONDITION_TYPE, max_length=316),
    plainly("must be letters, digits, _, ., / and -, with a letter or digit first, as KernelDeadlock"),
]


class Syncer(Component):
    """The daemon that keeps Slurm's nodes, slurmd's pods and Kubernetes' nodes in agreement."""

    drain_conditions: Annotated[
        tuple[_CONDITION, ...],
        Meta(
            description="Types of conditions, as node-problem-detector sets them: one that is True drains its node.",
            max_length=32,
        ),
        DISTINCT,
    ] = ()


class SharedVolume(Spec):
    """A ReadWriteMany claim that every login and compute node sees, as users of Slurm expect of /home."""

    claim_name: Annotated[Name, Meta(description="Name of the PersistentVolumeClaim.")]
    mount_path: Annotated[Path, Meta(description="Where it is seen, the same on all nodes.")]
    sub_path: Annotated[str, Meta(description="Folder in the volume; the whole of it if absent.", max_length=255)] = ""
    read_only: Annotated[bool, Meta(description="Whether nobody may write to it.")] = False


class ScriptSource(Spec):
    """A ConfigMap whose keys are scripts; they run in the order of the list, then of the keys."""

    config_map_name: Annotated[Name, Meta(description="Name of the ConfigMap.")]


ScriptSources = Annotated[tuple[ScriptSource, ...], Meta(max_length=16)]


class Scripts(Spec):
    """Programs that Slurm runs around jobs; a change is in force for the next job, without a restart."""

    prolog: Annotated[ScriptSources, Meta(description="On each node of a job, before it.")] = ()
    epilog: Annotated[ScriptSources, Meta(description="On each node of a job, after it.")] = ()
    prolog_slurmctld: Annotated[ScriptSources, Meta(description="Beside slurmctld, before a job.")] = ()
    epilog_slurmctld: Annotated[ScriptSources, Meta(description="Beside slurmctld, after a job.")] = ()


class Configuration(Spec):
    """What Kurm does not know of and Slurm does."""

    # CEL rules over the text cost by its length, and the API server bounds them: a longer one could not be checked.
    extra: Annotated[
        str, Meta(description="Lines of slurm.conf. A line that Kurm must write itself is refused.", max_length=32768)
    ] = ""
    cgroup_extra: Annotated[str, Meta(description="Lines of cgroup.conf.", max_length=16384)] = ""


_DEFAULTS = "self.map(p, p.default)"
_ONE_DEFAULT = Rule(
    f"{_DEFAULTS}.indexOf(true) == {_DEFAULTS}.lastIndexOf(true)",
    "one partition can be the default, no more",
    says=f"'one partition can be the default, not both ' + self[{_DEFAULTS}.indexOf(true)].name + "
    f"' and ' + self[{_DEFAULTS}.lastIndexOf(true)].name",
)


class SlurmClusterSpec(Spec):
    """The desired state of a Slurm cluster."""

    RULES: ClassVar = (
        Rule(
            unchanged("clusterName"),
            "the name of a cluster cannot be changed: its accounting and its saved state go by it",
            path=".clusterName",
        ),
        *KNOWN_PARTITIONS,
        PIN_TIER,
    )
    cluster_name: Annotated[
        str,
        Meta(description="Slurm's own name of it, which cannot be changed; the resource's if absent.", max_length=40),
        Meta(pattern=r"^[a-z0-9][a-z0-9_-]*$"),
        plainly("must be a-z, 0-9, _ and -, with a letter or digit first"),
    ] = ""
    controller: Controller = Controller()
    accounting: Accounting = Accounting()
    login: Login = Login()
    rest: Rest = Rest()
    syncer: Syncer = Syncer()
    scheduler: Annotated[
        Scheduler | None, Meta(description="Places pods through Slurm's queue; without it no pod is placed.")
    ] = None
    shared_volumes: Annotated[
        tuple[SharedVolume, ...],
        Meta(description="Claims that every login and compute node sees.", max_length=32),
        keyed("mountPath"),
    ] = ()
    scripts: Scripts = Scripts()
    config: Configuration = Configuration()
    partitions: Annotated[
        tuple[Partition, ...],
        Meta(description="Queues; without any, one named batch over all NodeSets.", max_length=64),
        keyed("name"),
        rules(_ONE_DEFAULT),
    ] = ()
    topology: Annotated[
        Topology | None,
        Meta(description="How near nodes are to one another; without it all are the same to Slurm."),
    ] = None
    dead_after: Annotated[
        Duration, Meta(description="How long a node must be Ready=Unknown before its jobs are requeued.")
    ] = "5m"


class SlurmClusterCondition(ConditionType):
    """The conditions of a SlurmCluster. Tools that know kstatus (Helm, Flux, Argo CD) read the last three.

    Available, Configured and Ready are always there once the resource has been seen. Reconciling and Stalled are there
    only while they are True, as kstatus wants it.
    """

    AVAILABLE = "Available", "Slurm takes jobs: slurmctld answers."
    CONFIGURED = "Configured", "slurmctld runs with what the resource asks for; if it refused, Slurm's words about it."
    READY = "Ready", "Everything that the resource asks for is there."
    RECONCILING = "Reconciling", "Something is on its way, and will come by itself."
    STALLED = "Stalled", "It will not come without a person: a Secret is missing, an image cannot be pulled."


class ConfigRefused(Spec):
    """A configuration that slurmctld would not take; the one before it is in force."""

    hash: Annotated[str, Meta(description="Of the refused configuration.", max_length=64)]
    message: Annotated[str, Meta(description="Slurm's words about it.", max_length=4096)] = ""


class NodeCounts(Spec):
    """Compute nodes of all NodeSets of the cluster."""

    total: Annotated[Count, Meta(description="Nodes that belong to it.")] = 0
    ready: Annotated[Count, Meta(description="Nodes on which slurmd is registered and in service.")] = 0


class ComponentStatus(Spec):
    """How the pods of one component are."""

    name: Annotated[
        str, Meta(description="Which: controller, accounting, database, login, rest, syncer, scheduler.", max_length=63)
    ]
    desired: Annotated[Count, Meta(description="Pods that there should be.")] = 0
    ready: Annotated[Count, Meta(description="Pods that are ready.")] = 0
    message: Annotated[str, Meta(description="What keeps the others from it.", max_length=4096)] = ""


class SlurmClusterStatus(Spec):
    """What is there of a Slurm cluster. Conditions: Available, Configured, Ready, Reconciling, Stalled."""

    observed_generation: ObservedGeneration = 0
    conditions: Conditions = ()
    config_hash: Annotated[
        str, Meta(description="Of the configuration and scripts that are in force.", max_length=64)
    ] = ""
    config_refused: Annotated[
        ConfigRefused | None, Meta(description="The newest configuration, if slurmctld has refused it.")
    ] = None
    nodes: NodeCounts = NodeCounts()
    components: Annotated[
        tuple[ComponentStatus, ...], Meta(description="How each component is.", max_length=16), keyed("name")
    ] = ()
    login_address: Annotated[
        str, Meta(description="Where ssh finds the login nodes, as HOST or HOST:PORT.", max_length=320)
    ] = ""
    version: Annotated[str, Meta(description="Slurm's version, as slurmctld tells it.", max_length=64)] = ""
