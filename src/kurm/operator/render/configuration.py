"""Slurm's configuration: its files and the scripts, their hashes, and the ConfigMap with them.

Every file is read back before anybody gets it, with the parser that knows Slurm's grammar: what it would not take is an
error that names the field of the resource.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kurm.domain.noderecord import NodeRecord
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.spec import Json, seconds
from kurm.domain.topology import Path
from kurm.operator.render import gres, names, partitions, scripts, topology
from kurm.operator.render.errors import SpecError
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster, digest, metadata
from kurm.slurm.changes import NEEDS, Step
from kurm.slurm.conf import Conf, ConfError, Include, Line, Record, Setting, parse, render
from kurm.slurm.owned import OwnedError, check, merge

GATE = "kurm-gate"
"""The file that tells slurmctld's init which state each partition is to have; without it, it leaves them alone."""
SMALLEST_TABLE, LARGEST_TABLE = 1024, 65536
"""Bounds of MaxNodeCount; the second is Slurm's own (slurm.conf(5))."""
SILENCE = 300
"""Seconds, the least SlurmdTimeout: Slurm's own default."""

PROMPT = (
    "batch_sched_delay=0,bf_continue,bf_yield_interval=20000,bf_yield_sleep=50000,bf_max_job_test=200,"
    "bf_job_part_count_reserve=10"
)
"""Of SchedulerParameters: a nudge starts jobs within a second, and the backfill scheduler holds up nobody who asks for
free room. Each is measured in docs/design/scheduler-slurm.md."""

_OURS = "# Rendered by Kurm from SlurmCluster {0.namespace}/{0.name}. Changes here are overwritten: change that.\n"


@dataclass(frozen=True)
class Configuration:
    """All that slurmctld reads at a reconfigure."""

    files: Mapping[str, str]
    """By file name, as they stand in /etc/slurm."""

    @property
    def hash(self) -> str:
        """Of all of it: what is in force is told by it (`status.configHash`)."""
        return digest(dict(self.files))

    @property
    def controller_hash(self) -> str:
        """Of the settings that come into force only with a new slurmctld."""
        return digest(_settings(self.files, Step.RESTART_SLURMCTLD))

    @property
    def slurmd_hash(self) -> str:
        """Of the settings that come into force only with a new slurmd.

        Not of gres.conf: a slurmd that is away misses a reconfigure, but a new pod reads it anew in any case.
        """
        files = {name: text for name, text in self.files.items() if name != "gres.conf"}
        return digest(_settings(files, Step.RESTART_ALL))


def configuration(
    cluster: Cluster,
    node_sets: Mapping[str, NodeSetSpec],
    *,
    config_maps: scripts.ConfigMaps,
    records: Mapping[str, NodeRecord],
    places: Collection[Path] = (),
    nodes: int,
) -> Configuration:
    """Return the configuration of a cluster with these NodeSets by name.

    `config_maps` are those with users' scripts. Of the claimed nodes, `records` are those with GRES by name (gres.conf
    is made of them) and `places` where they are (topology.yaml). `nodes` is how many nodes Kubernetes has. Raises
    SpecError (MissingError for a ConfigMap).
    """
    scheduler = cluster.spec.scheduler
    hooks = scripts.hooks(cluster.spec.scripts, config_maps, gate=scheduler is not None)
    kinds = gres.kinds(node_sets.values(), records.values())
    ours = [
        *_identity(cluster),
        *_nodes(cluster, nodes),
        *_jobs(),
        *_accounting(cluster, kinds),
        *gres.types(kinds),
        *topology.settings(cluster.spec.topology, places),
        *hooks.settings,
        # Slurm would run a prolog only where a job's first step starts, and the resource says: on each node of it.
        *([Setting("PrologFlags", "Alloc")] if cluster.spec.scripts.prolog or scheduler else []),
        *(_scheduling() if scheduler else []),
        *partitions.lines(cluster.spec.partitions, node_sets, gated=scheduler is not None),
    ]
    files = {
        "slurm.conf": _text(cluster, merge(Conf(tuple(ours)), _extra(cluster))),
        "cgroup.conf": _text(cluster, merge(_cgroups(kinds), _cgroup_extra(cluster))),
        "gres.conf": _text(cluster, gres.conf(records)),
        **({GATE: partitions.gate(cluster.spec.partitions, scheduler.pin_within)} if scheduler else {}),
    }
    return Configuration(files | topology.files(cluster.spec.topology, places) | dict(hooks.files))


def config_map(cluster: Cluster, found: Configuration) -> Json:
    """Return the ConfigMap with the configuration and its hash. All of it changes at once where it is mounted."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(cluster, Part.CONTROLLER, names.configuration(cluster.name)),
        "data": {**found.files, names.CONFIG_HASH: found.hash},
    }


def table_size(nodes: int) -> int:
    """Return MaxNodeCount for a Kubernetes of so many nodes.

    Every bitmap of slurmctld's has as many bits (node_record_count, src/slurmctld/read_config.c), so it is no more than
    the next power of two above twice the nodes: room to grow, and rarely changed.
    """
    wanted = 1 << max(2 * nodes - 1, 1).bit_length()
    return min(max(wanted, SMALLEST_TABLE), LARGEST_TABLE)


def _identity(cluster: Cluster) -> list[Line]:
    """Who slurmctld is, whom it trusts, and where its files are."""
    address = cluster.component(Part.CONTROLLER)
    return _lines(
        ClusterName=cluster.slurm_name,
        # The name is the pod's, so that slurmctld knows itself; the address is the Service's, which outlives the pod.
        SlurmctldHost=f"{address}-0({address})",
        SlurmUser="slurm",
        # Names and groups of users travel with the credential, so slurmctld looks up none.
        AuthType="auth/slurm",
        CredType="auth/slurm",
        AuthInfo="use_client_ids",
        AuthAltTypes="auth/jwt",
        AuthAltParameters=f"jwt_key={scripts.FOLDER}/{names.JWT_KEY},use_jwt_client_ids",
        # reconfig_on_restart: what has changed while slurmctld was away reaches the slurmds, too.
        SlurmctldParameters="enable_configless,reconfig_on_restart",
        SlurmctldPidFile="/run/slurmctld/slurmctld.pid",
        # A folder of its own in the volume, whose top may be writable for everyone; slurmctld makes it.
        StateSaveLocation="/var/spool/slurmctld/state",
        SlurmdPidFile="/run/slurmd.pid",
        SlurmdSpoolDir="/var/spool/slurmd",
    )


def _nodes(cluster: Cluster, nodes: int) -> list[Line]:
    """How slurmctld deals with nodes that the syncer makes and slurmds that attach themselves."""
    return _lines(
        MaxNodeCount=str(table_size(nodes)),
        # slurmctld speaks to each slurmd itself. In a tree, slurmds would have to find one another by name.
        TreeWidth="65533",
        # A node that was away is taken back when it registers with what its record says.
        ReturnToService="2",
        # How long slurmctld waits for a silent slurmd before it gives its jobs up by itself. The syncer, who knows
        # whether the node is dead, comes first; this is for a slurmd that hangs, and for a syncer that is away.
        SlurmdTimeout=str(min(max(2 * (seconds(cluster.spec.dead_after) or 0), SILENCE), 65533)),
        # Processors are shared with pods: a slurmd may be late with an answer.
        MessageTimeout="20",
    )


def _jobs() -> list[Line]:
    """How jobs are confined and what they get by default; all but the first three are users' to change."""
    return _lines(
        SelectType="select/cons_tres",
        ProctrackType="proctrack/cgroup",
        TaskPlugin="task/cgroup,task/affinity",
        SelectTypeParameters="CR_Core_Memory",
        # Without it a job that names no memory takes a node's whole.
        DefMemPerCPU="1000",
        MpiDefault="none",
        MailProg="/usr/bin/true",
    )


def _accounting(cluster: Cluster, kinds: frozenset[str]) -> list[Line]:
    if not cluster.spec.accounting.enabled:
        return []
    return _lines(
        AccountingStorageType="accounting_storage/slurmdbd",
        AccountingStorageHost=cluster.component(Part.ACCOUNTING),
        **({"AccountingStorageTRES": ",".join(f"gres/{kind}" for kind in sorted(kinds))} if kinds else {}),
        JobAcctGatherType="jobacct_gather/cgroup",
    )


def _scheduling() -> list[Line]:
    """How jobs start where pods are placed: soon after something is freed, and not over a container that still runs."""
    return _lines(
        SchedulerParameters=f"{PROMPT},{scripts.REQUEUE}",
        # The backfill scheduler says which job it has started: nothing else in the log does.
        DebugFlags="HetJob",
        # Ended jobs count for MinJobAge: with Slurm's default of 10,000 it would be full at 35 pods a second.
        MaxJobCount="100000",
        PrologTimeout=str(scripts.PROLOG_TIMEOUT),
    )


def _cgroups(kinds: frozenset[str]) -> Conf:
    return Conf(
        (
            # There is no systemd in a pod to make cgroups.
            Setting("IgnoreSystemd", "yes"),
            Setting("ConstrainCores", "yes"),
            Setting("ConstrainRAMSpace", "yes"),
            *([Setting("ConstrainDevices", "yes")] if kinds else []),
        )
    )


def _extra(cluster: Cluster) -> Conf:
    try:
        return check(cluster.spec.config.extra, scheduler=cluster.spec.scheduler is not None)
    except OwnedError as error:
        raise SpecError(error.field, f"line {error.line}: {error.key} cannot be set here: {error.why}") from error
    except ConfError as error:
        raise SpecError("spec.config.extra", str(error)) from error


def _cgroup_extra(cluster: Cluster) -> Conf:
    field = "spec.config.cgroupExtra"
    try:
        found = parse(cluster.spec.config.cgroup_extra)
    except ConfError as error:
        raise SpecError(field, str(error)) from error
    if include := next((line for line in found.lines if isinstance(line, Include)), None):
        raise SpecError(field, f"line {include.line}: Include cannot stand here: pods hold no file but Kurm's")
    return found


def _text(cluster: Cluster, conf: Conf) -> str:
    """Return a file's text. AssertionError if it would be read in another way, which no resource can bring about."""
    text = render(conf)
    if parse(text) != conf:
        raise AssertionError(f"it is read back as another configuration:\n{text}")
    return _OURS.format(cluster) + text


def _settings(files: Mapping[str, str], least: Step) -> list[tuple[str, str, str]]:
    """Return file, key and value, each once, of the keys whose change needs this step or a greater one."""
    found = set()
    for file, needs in NEEDS.items():
        keys = {key for key, need in needs.items() if need.step >= least}
        if not file.endswith(".yaml"):
            pairs = _pairs(parse(files.get(file, "")))
            found |= {(file, key.casefold(), value) for key, value in pairs if key.casefold() in keys}
    return sorted(found)


def _pairs(conf: Conf) -> Iterable[tuple[str, str]]:
    for line in conf.lines:
        if isinstance(line, Setting):
            yield line.key, line.value
        elif isinstance(line, Record):
            yield from line.fields


def _lines(**settings: str) -> list[Line]:
    return [Setting(key, value) for key, value in settings.items()]
