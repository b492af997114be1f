"""What of slurm.conf is Kurm's own, and how a user's lines join it.

`spec.config.extra` passes any line through to Slurm. A line that would contradict what Kurm must own is refused, with
the field, the line, the key and the reason. Keys whose values are lists are extended: the user's parts follow ours.
"""

from collections.abc import Iterable, Mapping

from kurm.slurm.conf import Comment, Conf, Include, Line, Record, Setting, parse, same
from kurm.slurm.errors import SlurmError

_ADDRESS = "Kurm runs slurmctld and gives it its address"
_PORT = "the Services and probes of the pods name it"
_KEYS = "the keys are Kurm's, in Secrets"
_PATH = "the pods' volumes are mounted there"
_LOG = "daemons log to their containers' output"
_SCRIPTS = "scripts come from ConfigMaps, by the resource's own fields"
_NODES = "nodes come from NodeSets"
_POWER = "Kubernetes powers nodes up and down, not Slurm"
_ACCOUNTING = "accounting is a part of the resource: spec.accounting"

OWNED: Mapping[str, str] = {
    "ClusterName": "accounting and the saved state go by it",
    "SlurmctldHost": _ADDRESS,
    "SlurmctldAddr": _ADDRESS,
    "ControlMachine": _ADDRESS,
    "ControlAddr": _ADDRESS,
    "BackupController": _ADDRESS,
    "BackupAddr": _ADDRESS,
    "SlurmctldPort": _PORT,
    "SlurmdPort": _PORT,
    "AuthType": _KEYS,
    "AuthInfo": _KEYS,
    "AuthAltTypes": _KEYS,
    "CredType": _KEYS,
    "CryptoType": _KEYS,
    "SlurmUser": "the images and volumes are made for it",
    "SlurmdUser": "slurmd needs root in its pod",
    "StateSaveLocation": _PATH,
    "SlurmdSpoolDir": _PATH,
    "SlurmctldPidFile": _PATH,
    "SlurmdPidFile": _PATH,
    "PluginDir": "the plugins are in the image",
    "SlurmctldLogFile": _LOG,
    "SlurmdLogFile": _LOG,
    "SlurmSchedLogFile": _LOG,
    "SelectType": "pods take parts of nodes, which cons_tres alone gives",
    "ProctrackType": "a job must not outlive its slurmd pod: cgroups hold it",
    "TaskPlugin": "cgroups confine jobs within the slurmd pod",
    "TreeWidth": "slurmctld speaks to each slurmd itself: slurmds do not know one another's addresses",
    "ReturnToService": "a slurmd pod that comes back is taken back, and one that is drained is not",
    "NodeName": _NODES,
    "NodeSet": _NODES,
    "DownNodes": _NODES,
    "MaxNodeCount": _NODES,
    "PartitionName": "partitions are a part of the resource: spec.partitions",
    "Prolog": _SCRIPTS,
    "Epilog": _SCRIPTS,
    "PrologSlurmctld": _SCRIPTS,
    "EpilogSlurmctld": _SCRIPTS,
    "Include": "the pods hold no file but those that Kurm renders",
    "ResumeProgram": _POWER,
    "ResumeFailProgram": _POWER,
    "SuspendProgram": _POWER,
    "SuspendTime": _POWER,
    "RebootProgram": "a pod cannot reboot its node",
    "PowerAction": _POWER,
    "TopologyPlugin": "the topology is made from the nodes' labels: spec.topology",
    "AccountingStorageType": _ACCOUNTING,
    "AccountingStorageHost": _ACCOUNTING,
    "AccountingStorageBackupHost": _ACCOUNTING,
    "AccountingStoragePort": _ACCOUNTING,
    "AccountingStoragePass": _ACCOUNTING,
}
"""Keys that only Kurm sets, each with the reason in a few words."""

REFUSED: Mapping[str, Mapping[str, str]] = {
    "AuthAltParameters": dict.fromkeys(("jwt_key", "jwks", "use_jwt_client_ids", "use_jwt_client_ids_only"), _KEYS),
    "CommunicationParameters": {"disable_http": "probes and metrics ask slurmctld by HTTP"},
    "PreemptMode": {
        "SUSPEND": "a suspended job's CPUs are sold again while its pod runs on",
        "GANG": "time slicing suspends jobs, and a pod would run on",
    },
    "PrologFlags": {"NoHold": "a job starts when its node's prolog has ended, not before"},
    "SlurmctldParameters": {"enable_configless": "Kurm sets it: the other pods fetch their files from slurmctld"},
}
"""Parts of lists that only Kurm sets, or that nobody may."""

WITH_SCHEDULER: Mapping[str, Mapping[str, str]] = {
    "PrologTimeout": {"": "the start gate may hold a job back for nearly as long as it is"},
    "ReconfigFlags": {
        "KeepPartInfo": "partitions are a part of the resource, and changes of theirs would be passed over"
    },
    "SchedulerParameters": {"defer": "a pod is given free room when it asks, which this puts off for ever"},
}
"""What only Kurm sets, or nobody may, where pods are placed: a key as a whole (""), or parts of its list.

`defer`: src/slurmctld/job_mgr.c, job_allocate, refuses every immediate request then.
"""

LISTS = frozenset(
    key.casefold()
    for key in (
        "AccountingStorageEnforce", "AccountingStorageTRES", "AccountingStoreFlags", "AuthAltParameters",
        "CliFilterPlugins", "CommunicationParameters", "DebugFlags", "DependencyParameters", "GresTypes",
        "JobAcctGatherParams", "JobSubmitPlugins", "LaunchParameters", "Licenses", "MetricsParameters", "MpiParams",
        "NodeFeaturesPlugins", "PreemptMode", "PreemptParameters", "PriorityFlags", "PrivateData", "PrologFlags",
        "ReconfigFlags", "SchedulerParameters", "SelectTypeParameters", "SlurmctldParameters", "SlurmdParameters",
        "SwitchParameters", "TaskPluginParam", "TopologyParam",
    )
)  # fmt: skip
"""Keys (in lower case) whose value is a list separated by commas: slurm.conf(5)."""

_OWNED = {key.casefold(): (key, why) for key, why in OWNED.items()}


def _folded(refused: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {key.casefold(): {part.casefold(): why for part, why in parts.items()} for key, parts in refused.items()}


_REFUSED = _folded(REFUSED)
_SCHEDULED = _REFUSED | _folded(WITH_SCHEDULER)


class OwnedError(SlurmError, ValueError):
    """A user's line contradicts what Kurm owns: one sentence with the field, the line and the key."""

    def __init__(self, field: str, line: int, key: str, why: str) -> None:
        super().__init__(f"{field}, line {line}: {key} cannot be set here: {why}")
        self.field, self.line, self.key, self.why = field, line, key, why


def check(extra: str, *, field: str = "spec.config.extra", scheduler: bool = False) -> Conf:
    """Read a user's lines, from the field of that name; raises OwnedError, or ConfError for what is no slurm.conf.

    `scheduler`: whether the cluster places pods.
    """
    conf = parse(extra)
    for line in conf.lines:
        if not isinstance(line, Comment):
            _check_line(line, field, _SCHEDULED if scheduler else _REFUSED)
    return conf


def merge(ours: Conf, extra: Conf) -> Conf:
    """Return our lines with a user's, which `check` has passed.

    A list is ours with the user's parts behind, those of the same name (`bf_interval=1`) replaced. Any other setting of
    the user's takes the place of ours. What we do not have comes at the end, in the user's order.
    """
    lines = list(ours.lines)
    for line in extra.lines:
        if not isinstance(line, Setting) or not _joined(lines, line):
            lines.append(line)
    return Conf(tuple(lines))


def join(ours: str, theirs: str) -> str:
    """Return one list of both: a part of theirs replaces ours of the same name (what is before `=`)."""
    parts: dict[str, str] = {}
    for part in [*_parts(ours), *_parts(theirs)]:
        parts[_name(part)] = part
    return ",".join(parts.values())


def _check_line(line: Include | Setting | Record, field: str, refusals: Mapping[str, Mapping[str, str]]) -> None:
    key = "Include" if isinstance(line, Include) else line.kind if isinstance(line, Record) else line.key
    if owned := _OWNED.get(key.casefold()):
        raise OwnedError(field, line.line, *owned)
    if isinstance(line, Setting):
        refused = refusals.get(key.casefold(), {})
        if why := refused.get(""):
            raise OwnedError(field, line.line, key, why)
        for part in _parts(line.value):
            if why := refused.get(_name(part)):
                raise OwnedError(field, line.line, f"{key}={part}", why)


def _joined(lines: list[Line], theirs: Setting) -> bool:
    """Put a user's setting where ours stands; False if we have none."""
    for index, own in enumerate(lines):
        if isinstance(own, Setting) and same(own.key, theirs.key):
            value = join(own.value, theirs.value) if own.key.casefold() in LISTS else theirs.value
            lines[index] = Setting(own.key, value, theirs.line)
            return True
    return False


def _parts(value: str) -> Iterable[str]:
    return (part.strip() for part in value.split(",") if part.strip())


def _name(part: str) -> str:
    return part.partition("=")[0].casefold()
