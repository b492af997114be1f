"""What a pod asks of Slurm, by its spec, its annotations and the cluster's rules; or why it cannot be placed. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kurm.domain import gres, slurmtime
from kurm.domain.feasibility import Constraint, Wish
from kurm.domain.jobrequest import UNLIMITED, JobRequest
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.partition import WITHOUT_ANY, Partition
from kurm.domain.podresources import Resources, requests, size_of
from kurm.domain.podspec import Pod, PodSpec, Port, host_ports, placing_key
from kurm.domain.room import Shape
from kurm.domain.schedulerspec import NamespaceRule, Scheduler
from kurm.domain.spec import seconds
from kurm.domain.unsupported import HUGEPAGES, unsupported

PREFIX = "slurm.kurm.dev/"
"""How the annotations begin by which users say what a pod asks of Slurm."""
GANG, GANG_SIZE = f"{PREFIX}gang", f"{PREFIX}gang-size"
ANNOTATIONS: Mapping[str, str] = {
    "account": "Slurm account",
    "partition": "partition",
    "qos": "QOS",
    "time-limit": f"how long the pod may run: {slurmtime.ALLOWED}",
    "constraint": "features of nodes, as sbatch --constraint has them",
    "reservation": "reservation",
    "licenses": "licences with their numbers, as matlab:2,ansys",
    "comment": "the job's comment",
    "exclusive": "true: nothing else of Slurm's runs on the pod's nodes",
    "gres": "GRES of the node, as gpu:h100 for the type of GPUs that the pod requests, or fpga:1",
    "gang": "the gang that the pod belongs to, by name; within its namespace",
    "gang-size": "how many pods the gang has",
}
"""Each with what it says; docs/placing.md has the same."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_LICENSES = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.@/-]*(:[0-9]{1,9})?([,|][A-Za-z0-9][A-Za-z0-9_.@/-]*(:[0-9]{1,9})?)*", re.ASCII
)
_CONSTRAINT = re.compile(r"[A-Za-z0-9_.:/&|,*()\[\]!-]{1,1024}", re.ASCII)
_GRES = re.compile(r"([a-z][a-z0-9_]*)(?::([A-Za-z][A-Za-z0-9_.-]*))?(?::([1-9][0-9]{0,8}))?", re.ASCII)
_COMMENT = re.compile(r"[^\x00-\x1f\x7f]{0,1024}")
_PATTERNS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "account": (_NAME, "letters, digits, _, . and -, with a letter or digit first"),
    "partition": (_NAME, "letters, digits, _, . and -, with a letter or digit first"),
    "qos": (_NAME, "letters, digits, _, . and -, with a letter or digit first"),
    "reservation": (_NAME, "letters, digits, _, . and -, with a letter or digit first"),
    "licenses": (_LICENSES, "names with numbers, as matlab:2,ansys"),
    "constraint": (_CONSTRAINT, "features and operators, as a100&ib or [rack1|rack2], at most 1024 letters"),
    "comment": (_COMMENT, "at most 1024 letters in one line"),
    "exclusive": (re.compile("true|false"), "true or false"),
}
_REMEMBERED = 4096
"""Templates whose asks are remembered."""


class RefusedError(ValueError):
    """A pod asks for what it cannot have; its words are one sentence that names the field, the value, what is allowed.

    Nothing but a change of the pod, the SlurmCluster or a NodeSet helps.
    """


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod asks. Pods of one template in one namespace share the same object."""

    constraint: Constraint
    resources: Resources
    ports: tuple[Port, ...] = ()
    cpus: int = 1
    memory: int = 1
    """MiB."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: int | None = None
    """Minutes; None for the partition's own."""
    features: str = ""
    """Slurm's constraint."""
    reservation: str = ""
    licenses: str = ""
    comment: str = ""
    exclusive: bool = False

    def shape(self, slots: int = 1, gres: tuple[str, ...] = (), per_node: int = 0) -> Shape:
        """Return what one of so many slots takes of a node, as Slurm counts it."""
        # A gang's memory is said by CPU, and rounded up there: so several slots can share a node.
        memory = self.memory if slots == 1 else -(-self.memory // self.cpus) * self.cpus
        return Shape(self.cpus, memory, gres, self.exclusive, per_node if slots > 1 else 0)

    def request(
        self, name: str, signature: str, *, slots: int = 1, gres: tuple[str, ...] = (), per_node: int = 0
    ) -> JobRequest:
        """Return the request to Slurm; `gres` and `per_node` are what `Placing.prospect` has found."""
        return JobRequest(
            name=name,
            signature=signature,
            slots=slots,
            cpus=self.cpus,
            memory=self.memory,
            gres=gres,
            partition=self.partition,
            account=self.account,
            qos=self.qos,
            time_limit=self.time_limit,
            constraint=self.features,
            reservation=self.reservation,
            licenses=self.licenses,
            comment=self.comment,
            exclusive=self.exclusive,
            slots_per_node=per_node if slots > 1 else 0,
        )


class Rules:
    """What pods may ask of one SlurmCluster. It remembers templates: make a new one when what it is made of changes."""

    def __init__(
        self, scheduler: Scheduler, partitions: Iterable[Partition], node_sets: Mapping[str, NodeSetSpec]
    ) -> None:
        """`node_sets` are those of the cluster, by name. Without partitions there is one over all of them."""
        self._scheduler = scheduler
        self._partitions = {partition.name: partition for partition in partitions}
        if not self._partitions and node_sets:
            self._partitions[WITHOUT_ANY] = Partition(WITHOUT_ANY, tuple(sorted(node_sets)), default=True)
        self._default = next((name for name, one in self._partitions.items() if one.default), "")
        self._namespaces = {rule.name: rule for rule in scheduler.namespaces}
        self._classes = {rule.name: rule for rule in scheduler.priority_classes}
        self._gres: dict[str, str] = {}
        for _, spec in sorted(node_sets.items()):
            for resource, source in spec.slurm.gres.items():
                self._gres.setdefault(resource, gres.name_of(resource, source))
        self._asks: dict[tuple[str, bytes, tuple[tuple[str, str], ...]], Ask] = {}

    def ask(self, pod: Pod) -> Ask:
        """Return what the pod asks. Raises RefusedError."""
        said = tuple(sorted(one for one in pod.metadata.annotations.items() if _asks(one[0])))
        key = pod.metadata.namespace, placing_key(pod.spec), said
        known = self._asks.get(key)
        if known is None:
            known = self._ask(pod, {name.removeprefix(PREFIX): value for name, value in said})
            if len(self._asks) >= _REMEMBERED:
                self._asks.clear()
            self._asks[key] = known
        return known

    def _ask(self, pod: Pod, said: Mapping[str, str]) -> Ask:
        spec = pod.spec
        if refused := unsupported(spec):
            raise RefusedError(refused)
        for name, value in said.items():
            _check(name, value)
        namespace = self._rule(pod.metadata.namespace)
        try:
            resources = requests(spec)
        except ValueError as error:
            raise RefusedError(f"spec.containers: {error}") from error
        partition = self._partition(spec, said, namespace)
        return Ask(
            constraint=self._constraint(spec, resources, said, partition),
            resources=resources,
            ports=host_ports(spec),
            cpus=resources.cpus,
            memory=resources.mebibytes,
            partition=partition,
            account=_account(said, namespace),
            qos=self._qos(spec, said, namespace),
            time_limit=self._time_limit(spec, said, partition),
            features=said.get("constraint", ""),
            reservation=said.get("reservation", ""),
            licenses=said.get("licenses", ""),
            comment=said.get("comment", ""),
            exclusive=said.get("exclusive") == "true",
        )

    def _rule(self, namespace: str) -> NamespaceRule:
        if self._namespaces and namespace not in self._namespaces:
            name = self._scheduler.name
            raise RefusedError(
                f"metadata.namespace: pods of {namespace!r} may not use scheduler {name}: {_allowed(self._namespaces)}"
            )
        return self._namespaces.get(namespace, NamespaceRule(name=namespace))

    def _partition(self, spec: PodSpec, said: Mapping[str, str], namespace: NamespaceRule) -> str:
        """Return the pod's partition: its annotation's, its PriorityClass's, the scheduler's, the cluster's own."""
        by_class = self._classes.get(spec.priority_class_name)
        if "partition" in said:
            field, name = f"annotation {PREFIX}partition", said["partition"]
        elif by_class is not None and by_class.partition:
            field, name = f"spec.priorityClassName {spec.priority_class_name}: partition", by_class.partition
        else:
            field, name = "the SlurmCluster's spec.scheduler.partition", self._scheduler.partition or self._default
            if namespace.partitions and name not in namespace.partitions:
                name = namespace.partitions[0]  # nobody has chosen the other one
        if name and name not in self._partitions:
            raise RefusedError(f"{field} {name!r} is none of the cluster's: {_allowed(self._partitions)}")
        if namespace.partitions and name not in namespace.partitions:
            allowed = _allowed(namespace.partitions)
            raise RefusedError(f"{field} {name!r} is not for namespace {namespace.name}: {allowed}")
        return name

    def _qos(self, spec: PodSpec, said: Mapping[str, str], namespace: NamespaceRule) -> str:
        by_class = self._classes.get(spec.priority_class_name)
        field, name = f"spec.priorityClassName {spec.priority_class_name}: QOS", by_class.qos if by_class else ""
        if "qos" in said:
            field, name = f"annotation {PREFIX}qos", said["qos"]
        if name and namespace.qos and name not in namespace.qos:
            raise RefusedError(f"{field} {name!r} is not for namespace {namespace.name}: {_allowed(namespace.qos)}")
        return name

    def _time_limit(self, spec: PodSpec, said: Mapping[str, str], partition: str) -> int | None:
        limits = []
        if "time-limit" in said:
            limits.append((f"annotation {PREFIX}time-limit {said['time-limit']!r}", _minutes(said["time-limit"])))
        if spec.active_deadline_seconds is not None:
            field = f"spec.activeDeadlineSeconds {spec.active_deadline_seconds}"
            limits.append((field, -(-spec.active_deadline_seconds // 60)))
        if not limits:
            return None
        field, limit = min(limits, key=lambda one: one[1])
        longest = self._partitions[partition].max_time if partition in self._partitions else "UNLIMITED"
        most = seconds(longest)
        if most is not None and limit * 60 > most:
            raise RefusedError(f"{field} is more than partition {partition} allows: {longest}")
        return min(limit, UNLIMITED)

    def _constraint(self, spec: PodSpec, resources: Resources, said: Mapping[str, str], partition: str) -> Constraint:
        affinity = spec.affinity and spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        return Constraint(
            selector=tuple(sorted(spec.node_selector.items())),
            required=affinity.node_selector_terms if affinity else None,
            tolerations=spec.tolerations,
            wishes=self._wishes(resources, said.get("gres", "")),
            node_sets=tuple(sorted(self._partitions[partition].node_sets)) if partition else None,
            cpus=resources.cpus,
            memory=resources.mebibytes,
            storage=resources.storage,
        )

    def _wishes(self, resources: Resources, said: str) -> tuple[Wish, ...]:
        """Return the GRES that the pod asks for, by its extended resources and by its annotation."""
        wishes = {resource: self._wish(resource, count) for resource, count in resources.extended}
        for text in filter(None, said.split(",")):
            found = _GRES.fullmatch(text)
            field = f"annotation {PREFIX}gres: {text!r}"
            if not found:
                raise RefusedError(f"{field} must be a name, with a type and a number if wanted, as gpu:h100 or fpga:1")
            name, kind, count = found[1], (found[2] or "").lower(), int(found[3] or 1)
            if name not in self._gres.values():
                known = _allowed(set(self._gres.values()))
                raise RefusedError(f"{field} is no GRES of the cluster's NodeSets: {known}")
            asked = [wish for wish in wishes.values() if wish.name == name]
            if not asked:
                wishes[f"{name}:{kind}"] = Wish("", name, kind, count)
            for wish in asked:
                if found[3] and count != wish.count:
                    raise RefusedError(f"{field} must have the pod's own number or none: it requests {wish.count}")
                wishes[wish.resource] = Wish(wish.resource, name, kind, wish.count)
        return tuple(wish for _, wish in sorted(wishes.items()))

    def _wish(self, resource: str, count: int) -> Wish:
        if resource.startswith(HUGEPAGES):
            raise RefusedError(f"spec.containers: {resource} is not supported, because Slurm does not count it")
        if resource not in self._gres:
            why = f"no NodeSet has it in spec.slurm.gres: {_allowed(self._gres)}"
            raise RefusedError(f"spec.containers: {resource} is unknown to Slurm, because {why}")
        return Wish(resource, self._gres[resource], "", count)


def held(pod: Pod) -> Ask:
    """Return what a bound pod takes of its node, by itself: whether it may ask for that (still) is another matter."""
    said, resources = pod.metadata.annotations, size_of(pod.spec)
    named = (_GRES.fullmatch(text) for text in said.get(f"{PREFIX}gres", "").split(","))
    return Ask(
        Constraint(
            cpus=resources.cpus,
            memory=resources.mebibytes,
            wishes=tuple(Wish("", found[1], (found[2] or "").lower()) for found in named if found),
        ),
        resources,
        cpus=resources.cpus,
        memory=resources.mebibytes,
        exclusive=said.get(f"{PREFIX}exclusive") == "true",
    )


def _asks(annotation: str) -> bool:
    return annotation.startswith(PREFIX) and annotation not in {GANG, GANG_SIZE}


def _check(name: str, value: str) -> None:
    if name not in ANNOTATIONS:
        raise RefusedError(f"annotation {PREFIX}{name} is unknown: {_allowed(ANNOTATIONS)}")
    pattern, words = _PATTERNS.get(name, (None, ""))
    if pattern and not pattern.fullmatch(value):
        raise RefusedError(f"annotation {PREFIX}{name}: {value!r} must be {words}")


def _account(said: Mapping[str, str], namespace: NamespaceRule) -> str:
    wanted = said.get("account", namespace.account)
    if namespace.account and wanted != namespace.account:
        field = f"annotation {PREFIX}account {wanted!r}"
        raise RefusedError(f"{field} is not for namespace {namespace.name}: allowed is {namespace.account}")
    return wanted


def _minutes(text: str) -> int:
    try:
        return slurmtime.minutes(text)
    except ValueError as error:
        raise RefusedError(f"annotation {PREFIX}time-limit: {text!r} must be {slurmtime.ALLOWED}") from error


def _allowed(names: Collection[str]) -> str:
    if not names:
        return "there are none"
    return f"allowed {'are' if len(names) > 1 else 'is'} {', '.join(sorted(names))}"
