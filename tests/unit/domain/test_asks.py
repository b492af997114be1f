"""What a pod asks of Slurm, and the sentence by which it is refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kurm.domain.asks import ANNOTATIONS, Ask, RefusedError, Rules
from kurm.domain.feasibility import Wish
from kurm.domain.jobrequest import UNLIMITED, JobRequest
from kurm.domain.nodeset import NodeSetSpec
from kurm.domain.partition import Partition
from kurm.domain.schedulerspec import Scheduler
from kurm.domain.slurmtime import minutes
from kurm.domain.unsupported import TABLE
from unit.domain.pods import pod

PARTITIONS = (
    Partition("batch", ("workers",), default=True, max_time="7d"),
    Partition("services", ("workers", "gpus"), tier=10, max_time="UNLIMITED"),
)
NODE_SETS = {
    "workers": msgspec.convert({"clusterRef": {"name": "demo"}}, NodeSetSpec),
    "gpus": msgspec.convert(
        {"clusterRef": {"name": "demo"}, "slurm": {"gres": {"nvidia.com/gpu": {}, "example.com/fpga": {}}}}, NodeSetSpec
    ),
}
RULES = {
    "namespaces": [
        {"name": "shop", "account": "retail", "partitions": ["services"], "qos": ["high"]},
        {"name": "lab"},
    ],
    "priorityClasses": [{"name": "urgent", "partition": "services", "qos": "high"}],
}


def _rules(**fields: Any) -> Rules:
    return Rules(msgspec.convert(fields, Scheduler), PARTITIONS, NODE_SETS)


def _ask(rules: dict[str, Any] | None = None, **fields: Any) -> Ask:
    return _rules(**(rules or {})).ask(pod(**fields))


def test_a_plain_pod_asks_for_its_size_in_the_default_partition() -> None:
    """All else is left to Slurm."""
    ask = _ask(requests={"cpu": "1500m", "memory": "1Gi"})
    assert ask.request("shop/web-0.uid-of-w", "kurm:c:p") == JobRequest(
        "shop/web-0.uid-of-w", "kurm:c:p", slots=1, cpus=2, memory=1024, partition="batch"
    )
    assert ask.constraint.node_sets == ("workers",)


def test_a_cluster_without_partitions_has_one_over_all_its_nodes() -> None:
    """As its slurm.conf has it, so that a pod may name it."""
    rules = Rules(msgspec.convert({"partition": "batch"}, Scheduler), (), NODE_SETS)
    ask = rules.ask(pod(requests={"cpu": "1"}))
    assert (ask.partition, ask.constraint.node_sets) == ("batch", ("gpus", "workers"))


def test_annotations_say_what_slurm_is_asked_for() -> None:
    """Each of them has its place in the request."""
    said = {
        "account": "physics",
        "partition": "services",
        "qos": "high",
        "time-limit": "1-12",
        "constraint": "[rack1|rack2]&ib",
        "reservation": "demo",
        "licenses": "matlab:2,ansys",
        "comment": "the shop's front",
        "exclusive": "true",
        "gres": "gpu:h100",
    }
    asked = _ask(slurm=said, requests={"cpu": "1", "nvidia.com/gpu": "2"}, namespace="lab").request(
        "n", "s", slots=4, gres=("gpu:h100:8",), per_node=4
    )
    assert asked == JobRequest(
        "n",
        "s",
        slots=4,
        cpus=1,
        memory=1,
        gres=("gpu:h100:8",),
        partition="services",
        account="physics",
        qos="high",
        time_limit=36 * 60,
        constraint="[rack1|rack2]&ib",
        reservation="demo",
        licenses="matlab:2,ansys",
        comment="the shop's front",
        exclusive=True,
        slots_per_node=4,
    )


@pytest.mark.parametrize(
    ("namespace", "fields", "expected"),
    [
        ("lab", {}, ("batch", "", "")),
        ("lab", {"priorityClassName": "urgent"}, ("services", "", "high")),
        ("lab", {"priorityClassName": "urgent", "slurm": {"partition": "batch"}}, ("batch", "", "high")),
        ("lab", {"priorityClassName": "unheard-of"}, ("batch", "", "")),
        ("shop", {}, ("services", "retail", "")),
        ("shop", {"slurm": {"qos": "high", "account": "retail"}}, ("services", "retail", "high")),
    ],
)
def test_partition_account_and_qos_come_from_the_nearest_who_says_them(
    namespace: str, fields: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    """An annotation before the PriorityClass before the cluster; a namespace's own where nobody has chosen."""
    ask = _ask(RULES, namespace=namespace, **fields)
    assert (ask.partition, ask.account, ask.qos) == expected


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"slurm": {"partitoin": "batch"}},
            "annotation slurm.kurm.dev/partitoin is unknown: allowed are " + ", ".join(sorted(ANNOTATIONS)),
        ),
        (
            {"slurm": {"partition": "debug"}},
            "annotation slurm.kurm.dev/partition 'debug' is none of the cluster's: allowed are batch, services",
        ),
        (
            {"slurm": {"partition": "pin"}},
            "annotation slurm.kurm.dev/partition 'pin' is none of the cluster's: allowed are batch, services",
        ),
        (
            {"slurm": {"partition": "batch"}, "namespace": "shop"},
            "annotation slurm.kurm.dev/partition 'batch' is not for namespace shop: allowed is services",
        ),
        (
            {"slurm": {"account": "physics"}, "namespace": "shop"},
            "annotation slurm.kurm.dev/account 'physics' is not for namespace shop: allowed is retail",
        ),
        (
            {"slurm": {"qos": "low"}, "namespace": "shop"},
            "annotation slurm.kurm.dev/qos 'low' is not for namespace shop: allowed is high",
        ),
        (
            {"namespace": "kitchen"},
            "metadata.namespace: pods of 'kitchen' may not use scheduler kurm: allowed are lab, shop",
        ),
        (
            {"slurm": {"time-limit": "soon"}},
            (
                "annotation slurm.kurm.dev/time-limit: 'soon' must be minutes, [D-]HH:MM:SS or D-HH as in sbatch "
                "--time, a duration as 90m, 1h30m or 7d, or UNLIMITED"
            ),
        ),
        (
            {"slurm": {"time-limit": "8-0"}},
            "annotation slurm.kurm.dev/time-limit '8-0' is more than partition batch allows: 7d",
        ),
        (
            {"activeDeadlineSeconds": 604801},
            "spec.activeDeadlineSeconds 604801 is more than partition batch allows: 7d",
        ),
        (
            {"slurm": {"exclusive": "yes"}},
            "annotation slurm.kurm.dev/exclusive: 'yes' must be true or false",
        ),
        (
            {"slurm": {"comment": "two\nlines"}},
            "annotation slurm.kurm.dev/comment: 'two\\nlines' must be at most 1024 letters in one line",
        ),
        (
            {"slurm": {"licenses": "matlab:two"}},
            "annotation slurm.kurm.dev/licenses: 'matlab:two' must be names with numbers, as matlab:2,ansys",
        ),
        (
            {"slurm": {"gres": "tpu:1"}},
            "annotation slurm.kurm.dev/gres: 'tpu:1' is no GRES of the cluster's NodeSets: allowed are fpga, gpu",
        ),
        (
            {"slurm": {"gres": "gpu:h100:4"}, "requests": {"nvidia.com/gpu": "2"}},
            "annotation slurm.kurm.dev/gres: 'gpu:h100:4' must have the pod's own number or none: it requests 2",
        ),
        (
            {"requests": {"example.com/tpu": "1"}},
            (
                "spec.containers: example.com/tpu is unknown to Slurm, because no NodeSet has it in spec.slurm.gres: "
                "allowed are example.com/fpga, nvidia.com/gpu"
            ),
        ),
        (
            {"requests": {"hugepages-2Mi": "64Mi"}},
            "spec.containers: hugepages-2Mi is not supported, because Slurm does not count it",
        ),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]},
            (
                "spec.resourceClaims is not supported by Slurm's queue: ask for devices as an extended resource that a "
                "NodeSet names in spec.slurm.gres, as nvidia.com/gpu"
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_names_the_field_the_value_and_what_is_allowed(fields: dict[str, Any], sentence: str) -> None:
    """In one sentence, which the pod's condition has."""
    with pytest.raises(RefusedError) as refused:
        _ask(RULES, **{"namespace": "lab"} | fields)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "fields",
    [
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}},
        {
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
            }
        },
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"schedulingGroup": {"podGroupName": "mine"}},
    ],
)
def test_what_slurm_cannot_keep_is_refused(fields: dict[str, Any]) -> None:
    """A pod that requires it is never placed as if it did not."""
    with pytest.raises(RefusedError, match="is not supported by Slurm's queue"):
        _ask(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]},
    ],
)
def test_what_is_only_preferred_is_left_to_slurm(fields: dict[str, Any]) -> None:
    """Charts have it everywhere, and no pod waits for it."""
    assert _ask(**fields).partition == "batch"


@pytest.mark.parametrize(
    ("requests", "gres", "wishes"),
    [
        ({"nvidia.com/gpu": "2"}, "", (Wish("nvidia.com/gpu", "gpu", "", 2),)),
        ({"nvidia.com/gpu": "2"}, "gpu:H100", (Wish("nvidia.com/gpu", "gpu", "h100", 2),)),
        ({"nvidia.com/gpu": "2"}, "gpu:2", (Wish("nvidia.com/gpu", "gpu", "", 2),)),
        ({}, "fpga:2", (Wish("", "fpga", "", 2),)),
        ({}, "gpu:a100", (Wish("", "gpu", "a100", 1),)),
    ],
)
def test_gres_come_from_resources_and_the_annotation(
    requests: dict[str, str], gres: str, wishes: tuple[Wish, ...]
) -> None:
    """The annotation gives the type of what the pod requests, and asks for what no extended resource stands for."""
    assert _ask(requests=requests, slurm={"gres": gres} if gres else {}).constraint.wishes == wishes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("90:30", 91),
        ("1:30:00", 90),
        ("1-0", 1440),
        ("1-12:30", 2190),
        ("2-0:0:1", 2881),
        ("90s", 2),
        ("1h30m", 90),
        ("7d", 10080),
        ("unlimited", UNLIMITED),
    ],
)
def test_time_limits_are_slurms_or_ours(text: str, expected: int) -> None:
    """In minutes, rounded up."""
    assert minutes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1:2:3:4", "1.5h", "1-", "0-0:0:0", "ten", "99999999999"])
def test_what_is_no_time_limit_is_said(text: str) -> None:
    """None at all is none, too: no pod ends before it has begun."""
    with pytest.raises(ValueError, match="is no time limit"):
        minutes(text)


def test_the_shorter_of_deadline_and_time_limit_counts() -> None:
    """Kubernetes' and Slurm's own, whichever is nearer."""
    fields: dict[str, Any] = {"activeDeadlineSeconds": 90, "slurm": {"time-limit": "10"}}
    assert _ask(**fields).time_limit == 2
    assert _ask(**fields | {"activeDeadlineSeconds": 9000}).time_limit == 10


def test_a_gangs_memory_is_rounded_by_cpu() -> None:
    """Slurm has no memory of a task: 1000 MiB on 3 CPUs are 334 each, so that a node with 1000 has no room for it."""
    ask = _ask(requests={"cpu": "3", "memory": "1000Mi"})
    assert (ask.shape().memory, ask.shape(2).memory) == (1000, 1002)


def test_pods_of_one_template_share_what_they_ask() -> None:
    """Ten thousand of them are one object; what differs in no annotation of Slurm's is the same ask."""
    rules = _rules()
    one, other = (rules.ask(pod(f"web-{number}", annotations={"rank": str(number)})) for number in range(2))
    assert one is other
    assert rules.ask(pod("web-2", slurm={"comment": "x"})) is not one


def test_the_docs_have_the_same_tables() -> None:
    """Of annotations, and of what is not supported."""
    docs = Path(__file__).parents[3].joinpath("docs/placing.md").read_text()
    rows = {f"| `{name}` | {says} |" for name, says in ANNOTATIONS.items()}
    rows |= {f"| `{one.field}` | {one.says} |" for one in TABLE}
    assert {row for row in rows if row not in docs} == set()
