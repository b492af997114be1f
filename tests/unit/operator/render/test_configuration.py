"""Slurm's configuration: what stands in it, what may not, what its hashes tell, and that it is read back as it is."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kurm.domain.spec import seconds
from kurm.operator.render.configuration import LARGEST_TABLE, SMALLEST_TABLE, Configuration, config_map, table_size
from kurm.operator.render.errors import MissingError, SpecError
from kurm.operator.render.partitions import clock
from kurm.slurm.conf import Conf, parse, render
from kurm.slurm.owned import OWNED
from unit.operator.render.demo import SCHEDULER, SITE, cluster, configured, node_set, records_of


def _conf(found: Configuration, name: str = "slurm.conf") -> Conf:
    return parse(found.files[name])


def _partition(**fields: Any) -> dict[str, Any]:
    return {"name": "batch", "nodeSets": ["workers"]} | fields


def _record(**fields: Any) -> dict[str, str]:
    """Return the pairs of the one partition's line."""
    (record,) = _conf(configured(cluster(partitions=[_partition(**fields)]))).records("PartitionName")
    return dict(record.fields)


def test_slurmctld_is_named_as_its_pod_and_found_by_its_service() -> None:
    """It looks for its own host name among SlurmctldHost, and others connect to what is in parentheses."""
    assert _conf(configured(cluster())).get("SlurmctldHost") == "demo-controller-0(demo-controller)"


def test_slurms_own_name_of_the_cluster_is_the_resources_unless_it_has_one() -> None:
    """Accounting goes by it."""
    assert _conf(configured(cluster())).get("ClusterName") == "demo"
    assert _conf(configured(cluster(clusterName="site"))).get("ClusterName") == "site"


def test_partitions_take_their_nodes_by_feature() -> None:
    """So a node is in its partitions when its record is made. A NodeSet that is not there yet is no error to Slurm."""
    found = _conf(configured(cluster(partitions=[_partition(nodeSets=["workers", "later"])])))
    assert [(record.name, record.get("Feature")) for record in found.records("NodeSet")] == [
        ("later", "nodeset:later"),
        ("workers", "nodeset:workers"),
    ]
    assert [(record.name, record.get("Nodes")) for record in found.records("PartitionName")] == [
        ("batch", "workers,later")
    ]


def test_a_cluster_without_partitions_has_one_over_all_nodes() -> None:
    """It is finite, and the default."""
    (record,) = _conf(configured(cluster(partitions=[]))).records("PartitionName")
    assert dict(record.fields) == {
        "PartitionName": "batch",
        "Nodes": "ALL",
        "Default": "YES",
        "MaxTime": "7-00:00:00",
        "DefaultTime": "0-01:00:00",
        "State": "UP",
    }


def test_a_partition_says_only_what_it_limits() -> None:
    """Absent limits are Slurm's own; what is given stands under Slurm's name."""
    assert _record() == {
        "PartitionName": "batch",
        "Nodes": "workers",
        "Default": "NO",
        "PriorityTier": "1",
        "GraceTime": "0",
        "MaxTime": "7-00:00:00",
        "DefaultTime": "0-01:00:00",
        "PreemptMode": "OFF",
        "State": "UP",
    }
    limited = _record(
        tier=5,
        graceTime="90s",
        minNodes=2,
        maxNodes=4,
        allowAccounts=["a", "b"],
        allowGroups=["g"],
        allowQos=["q"],
        qos="big",
        state="DRAIN",
        extra='LLN=YES TRESBillingWeights="CPU=1.0,Mem=0.25G"',
    )
    assert (
        limited
        | {
            "PriorityTier": "5",
            "GraceTime": "90",
            "MinNodes": "2",
            "MaxNodes": "4",
            "AllowAccounts": "a,b",
            "AllowGroups": "g",
            "AllowQos": "q",
            "QOS": "big",
            "State": "DRAIN",
            "LLN": "YES",
            "TRESBillingWeights": "CPU=1.0,Mem=0.25G",
        }
        == limited
    )


@pytest.mark.parametrize(
    ("longest", "usual", "written"),
    [
        ("7d", "1h", "0-01:00:00"),
        ("30m", "1h", "0-00:30:00"),
        ("UNLIMITED", "1h", "0-01:00:00"),
        ("UNLIMITED", "UNLIMITED", "UNLIMITED"),
        ("2h", "UNLIMITED", "0-02:00:00"),
    ],
)
def test_a_job_without_a_limit_never_asks_for_more_than_it_may(longest: str, usual: str, written: str) -> None:
    """Slurm would refuse each such job."""
    assert _record(maxTime=longest, defaultTime=usual)["DefaultTime"] == written


@pytest.mark.parametrize(
    ("modes", "cluster_wide"),
    [(["OFF", "OFF"], None), (["OFF", "CANCEL"], "CANCEL"), (["REQUEUE", "CANCEL"], "REQUEUE")],
)
def test_preemption_is_switched_on_where_a_partition_wants_it(modes: list[str], cluster_wide: str | None) -> None:
    """Slurm wants a mode for the cluster as soon as a partition has one, and none without a PreemptType."""
    partitions = [_partition(name=f"p{number}", preemptMode=mode) for number, mode in enumerate(modes)]
    found = _conf(configured(cluster(partitions=partitions)))
    assert found.get("PreemptMode") == cluster_wide
    assert found.get("PreemptType") == (cluster_wide and "preempt/partition_prio")
    assert [record.get("PreemptMode") for record in found.records("PartitionName")] == modes


def test_two_default_partitions_are_refused() -> None:
    """Slurm would take the last, silently."""
    both = [_partition(default=True), _partition(name="other", default=True)]
    with pytest.raises(
        SpecError, match=r"spec\.partitions: one partition can be the default, not both batch and other"
    ):
        configured(cluster(partitions=both))


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ("LLN", "`Key=value` is wanted"),
        ("LLN=YES # mine", "settings stand in one line"),
        ("LLN=YES\nClusterName=x", "settings stand in one line"),
    ],
)
def test_what_is_no_setting_of_a_partition_is_refused(extra: str, why: str) -> None:
    """With the partition's place in the resource."""
    with pytest.raises(SpecError, match=re.escape(f"spec.partitions[0].extra: {why}")):
        configured(cluster(partitions=[_partition(extra=extra)]))


def test_users_lines_join_ours() -> None:
    """Lists are extended, other settings replaced, unknown ones kept: Slurm is the one to judge them."""
    extra = "SlurmctldParameters=rl_enable\nDefMemPerCPU=500\nUnheardOf=1\n"
    found = _conf(configured(cluster(config={"extra": extra})))
    assert found.get("SlurmctldParameters") == "enable_configless,reconfig_on_restart,rl_enable"
    assert found.all("DefMemPerCPU") == ("500",)
    assert found.get("UnheardOf") == "1"


@pytest.mark.parametrize("key", sorted(set(OWNED) - {"Include"}))
def test_what_is_ours_stays_ours(key: str) -> None:
    """Each key of the table is refused, naming field, line, key and reason."""
    with pytest.raises(SpecError, match=re.escape(f"spec.config.extra: line 2: {key} cannot be set here: ")):
        configured(cluster(config={"extra": f"# mine\n{key}=x\n"}))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"extra": "A=1\nnonsense\n"}, "spec.config.extra: line 2, nonsense: `Key=value` is wanted, not 'nonsense'"),
        ({"cgroupExtra": "nonsense"}, "spec.config.cgroupExtra: line 1, nonsense: `Key=value` is wanted"),
        ({"cgroupExtra": "Include other"}, "spec.config.cgroupExtra: line 1: Include cannot stand here"),
    ],
)
def test_lines_that_no_parser_takes_are_refused(config: dict[str, str], message: str) -> None:
    """Before Slurm sees them, with their place in the resource."""
    with pytest.raises(SpecError, match=re.escape(message)):
        configured(cluster(config=config))


def test_cgroup_lines_of_users_replace_ours() -> None:
    """cgroup.conf is nobody's alone."""
    found = _conf(
        configured(cluster(config={"cgroupExtra": "ConstrainCores=no\nCgroupPlugin=cgroup/v1"})), "cgroup.conf"
    )
    assert (found.get("ConstrainCores"), found.get("CgroupPlugin")) == ("no", "cgroup/v1")


def test_gres_are_named_for_the_nodes_that_have_them() -> None:
    """No record is made with a GPU that gres.conf does not know; a slurmd ends if a file of its line is missing."""
    gpus = node_set("gpus", slurm={"gres": {"nvidia.com/gpu": {"type": "h100"}}})
    eight = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    known = records_of(gpus, eight, "g1", "g2") | records_of(gpus, eight | {"nvidia.com/gpu": "4"}, "g3")
    found = configured(cluster(), node_set(), gpus, records=known | records_of(node_set()))
    assert [dict(line.fields) for line in _conf(found, "gres.conf").records("NodeName")] == [
        {"NodeName": "g3", "Name": "gpu", "Type": "h100", "File": "/dev/nvidia[0-3]"},
        {"NodeName": "g[1-2]", "Name": "gpu", "Type": "h100", "File": "/dev/nvidia[0-7]"},
    ]
    assert _conf(found).get("GresTypes") == "gpu"
    assert _conf(found).get("AccountingStorageTRES") == "gres/gpu"
    assert _conf(found, "cgroup.conf").get("ConstrainDevices") == "yes"


def test_without_accounting_nothing_is_said_of_it() -> None:
    """A slurmctld that looks for a slurmdbd that is not there does not start."""
    found = configured(cluster(accounting={"enabled": False}))
    assert "AccountingStorage" not in found.files["slurm.conf"]


def test_scripts_are_named_one_by_one_and_in_order() -> None:
    """Slurmd runs the matches of a pattern in reverse, and drains its node where a pattern matches nothing."""
    found = configured(
        cluster(scripts={"prolog": [{"configMapName": "site"}]}), site=SITE | {"05-first": "#!/bin/sh\n"}
    )
    assert _conf(found).all("Prolog") == ("prolog-00-05-first", "prolog-00-10-clean")
    assert {"prolog-00-05-first", "prolog-00-10-clean"} <= found.files.keys()
    assert _conf(found).get("PrologFlags") == "Alloc"


def test_slurmctlds_scripts_are_run_in_order_by_one_program() -> None:
    """Slurmctld itself would start all of them at once."""
    twice = [{"configMapName": "site"}, {"configMapName": "site"}]
    found = configured(cluster(scripts={"epilogSlurmctld": twice}))
    assert _conf(found).all("EpilogSlurmctld") == ("/run/slurmctld/in-force/epilog-slurmctld",)
    assert found.files["epilog-slurmctld"].splitlines()[2:] == [
        "set -e",
        "/run/slurmctld/in-force/epilog-slurmctld-00-10-clean",
        "/run/slurmctld/in-force/epilog-slurmctld-01-10-clean",
    ]


def test_without_scripts_slurm_runs_none() -> None:
    """Each hook costs a program for each job."""
    found = configured(cluster(scripts={}))
    assert not [line for line in _conf(found).settings() if "log" in line.key.lower() and "Slurmd" not in line.key]
    assert set(found.files) == {"slurm.conf", "cgroup.conf", "gres.conf"}


def test_a_script_that_slurm_could_not_run_is_refused() -> None:
    """Its exec would fail, and with a prolog the node would be drained."""
    with pytest.raises(SpecError) as raised:
        configured(cluster(), site={"clean": "rm -rf /tmp/scratch\n"})
    assert str(raised.value).startswith("spec.scripts.prolog[0] (ConfigMap 'site', key 'clean'): a script must begin")


def test_a_missing_config_map_is_named() -> None:
    """The operator waits for it and says so."""
    with pytest.raises(MissingError) as raised:
        configured(cluster(scripts={"epilog": [{"configMapName": "site"}, {"configMapName": "gone"}]}))
    assert str(raised.value) == "spec.scripts.epilog[1]: there is no ConfigMap 'gone' in this namespace"


def _hashes(**changes: Any) -> tuple[str, str, str]:
    found = configured(cluster(**changes))
    return found.hash, found.controller_hash, found.slurmd_hash


def test_each_hash_tells_what_it_is_for() -> None:
    """Any change is a new configuration; a new slurmctld or slurmd is needed only for what Slurm's manual names."""
    whole, controller, slurmd = _hashes()
    reconfigured = _hashes(partitions=[])
    assert reconfigured[0] != whole
    assert reconfigured[1:] == (controller, slurmd)
    listening = _hashes(config={"extra": "CommunicationParameters=EnableIPv6"})
    assert [new != old for new, old in zip(listening, (whole, controller, slurmd), strict=True)] == [True, True, True]
    tokens = _hashes(config={"extra": "AuthAltParameters=disable_token_creation"})
    assert [new != old for new, old in zip(tokens, (whole, controller, slurmd), strict=True)] == [True, True, False]


def test_a_changed_script_is_a_new_configuration() -> None:
    """`status.configHash` tells when it is in force."""
    ours, other = configured(cluster()), configured(cluster(), site={"10-clean": "#!/bin/sh\n"})
    assert ours.hash != other.hash
    assert ours.controller_hash == other.controller_hash


def test_another_node_of_a_known_kind_restarts_nothing() -> None:
    """gres.conf has a new line for each kind of node, and its types and cores are what counts."""
    gpus = node_set("gpus", slurm={"gres": {"nvidia.com/gpu": {"type": "h100"}}})
    eight = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "8"}
    one = configured(cluster(), gpus, records=records_of(gpus, eight, "g1"))
    two = configured(cluster(), gpus, records=records_of(gpus, eight, "g1", "h7"))
    assert one.hash != two.hash
    assert (one.controller_hash, one.slurmd_hash) == (two.controller_hash, two.slurmd_hash)


def test_the_hash_stands_beside_what_it_is_of() -> None:
    """Its init reads it from the same volume, which changes as a whole."""
    found = configured(cluster())
    assert config_map(cluster(), found)["data"] == {**found.files, "kurm-hash": found.hash}


@given(st.integers(0, 200_000))
def test_the_table_of_nodes_has_room_to_grow_and_is_rarely_changed(nodes: int) -> None:
    """It is a power of two, for twice the nodes as far as Slurm goes."""
    size = table_size(nodes)
    assert size == LARGEST_TABLE or 2 * nodes <= size <= max(4 * nodes, SMALLEST_TABLE)
    assert size & (size - 1) == 0


@given(st.from_regex(r"([1-9][0-9]{0,5}[dhms]){1,3}", fullmatch=True))
def test_durations_mean_the_same_to_slurm(duration: str) -> None:
    """`D-HH:MM:SS`, by slurm.conf(5)."""
    day, _, rest = clock(duration).partition("-")
    hour, minute, second = map(int, rest.split(":"))
    assert ((int(day) * 24 + hour) * 60 + minute) * 60 + second == seconds(duration)


def test_with_a_scheduler_a_restart_starts_nothing() -> None:
    """All partitions are DOWN in the file, whatever the resource asks for, and stay as they are at a reconfigure.

    The file beside it tells slurmctld's init which states they are to have, and how long it waits by itself.
    """
    partitions = [_partition(), _partition(name="services", state="DRAIN")]
    found = configured(cluster(partitions=partitions, scheduler={"pinWithin": "1m30s"}))
    conf = _conf(found)
    assert conf.get("ReconfigFlags") == "KeepPartState"
    states = {record.name: record.get("State") for record in conf.records("PartitionName")}
    assert states == {"pin": "UP", "batch": "DOWN", "services": "DOWN"}
    assert json.loads(found.files["kurm-gate"]) == {"partitions": {"batch": "UP", "services": "DRAIN"}, "wait": 90}


def test_pods_are_pinned_again_before_all_else() -> None:
    """In a partition over all nodes that no user sees or uses, in a cluster without partitions of its own as well."""
    found = configured(cluster(partitions=[], scheduler=SCHEDULER | {"partition": "batch"}))
    pin, batch = _conf(found).records("PartitionName")
    assert dict(pin.fields) == {
        "PartitionName": "pin",
        "Nodes": "ALL",
        "PriorityTier": "65533",
        "Hidden": "YES",
        "RootOnly": "YES",
        "MaxTime": "UNLIMITED",
        "DefaultTime": "UNLIMITED",
        "PreemptMode": "OFF",
        "State": "UP",
    }
    assert (batch.name, batch.get("State")) == ("batch", "DOWN")
    assert json.loads(found.files["kurm-gate"])["partitions"] == {"batch": "UP"}


def test_without_a_scheduler_partitions_have_their_states() -> None:
    """Nobody would open a gate."""
    found = configured(cluster())
    conf = _conf(found)
    assert conf.get("ReconfigFlags") is None
    assert {record.get("State") for record in conf.records("PartitionName")} == {"UP"}
    assert "kurm-gate" not in found.files


_WORD = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
_LIMIT = st.sampled_from(["1h", "7d", "90s", "UNLIMITED"])
_PARTITIONS = st.lists(
    st.fixed_dictionaries(
        {"name": _WORD, "nodeSets": st.lists(_WORD.map(str.lower), min_size=1, max_size=3, unique=True)},
        optional={
            "default": st.booleans(),
            "tier": st.integers(0, 65533),
            "preemptMode": st.sampled_from(["OFF", "REQUEUE", "CANCEL"]),
            "maxTime": _LIMIT,
            "defaultTime": _LIMIT,
            "maxNodes": st.integers(1, 9),
            "allowAccounts": st.lists(_WORD, max_size=2, unique=True),
            "extra": st.sampled_from(["", "LLN=YES", 'JobDefaults="DefCpuPerGPU=2"']),
        },
    ),
    max_size=4,
    unique_by=lambda partition: str(partition["name"]).lower(),
)
_EXTRA = st.lists(
    st.tuples(
        _WORD.filter(lambda word: word.lower() not in {key.lower() for key in OWNED}), st.text('ab =,#"\\', max_size=6)
    ),
    max_size=4,
).map(lambda pairs: "".join(f"{key}={value}\n" for key, value in pairs))


@given(_PARTITIONS, _EXTRA, st.booleans(), st.booleans())
def test_what_is_rendered_is_read_back_as_it_is(
    partitions: list[dict[str, Any]],
    extra: str,
    accounting: bool,  # noqa: FBT001 - drawn by Hypothesis
    scheduled: bool,  # noqa: FBT001 - drawn by Hypothesis
) -> None:
    """Rendered, read and rendered again it is the same; at most one default; only known modes of preemption."""
    changes = {"partitions": partitions, "config": {"extra": extra}, "accounting": {"enabled": accounting}}
    changes |= {"scheduler": {}} if scheduled else {}
    try:
        found = configured(cluster(**changes))
    except SpecError as error:
        several = sum(partition.get("default", False) for partition in partitions) > 1
        assert error.field == "spec.config.extra" or (several and error.field == "spec.partitions")  # noqa: PT017
        return
    for name, text in found.files.items():
        if name != "kurm-gate" and not text.startswith("#!"):
            assert render(parse(text)) == text
    lines = parse(found.files["slurm.conf"]).records("PartitionName")
    assert sum(line.get("Default") == "YES" for line in lines) <= 1
    assert {line.get("PreemptMode") for line in lines} <= {"OFF", "REQUEUE", "CANCEL", None}
    assert [line.name for line in lines if line.get("State") != "DOWN"] == ["pin"] or not scheduled
    named = {record.name for record in parse(found.files["slurm.conf"]).records("NodeSet")}
    assert all(set((line.get("Nodes") or "").split(",")) <= named | {"ALL"} for line in lines)
    assert found.hash == configured(cluster(**changes)).hash
