"""Which pods belong together."""

from typing import Any

import pytest

from kurm.domain.asks import RefusedError, Rules
from kurm.domain.gangs import COMPLETION_INDEX, Owner, finished, gather, job_of, owner_of
from kurm.domain.partition import Partition
from kurm.domain.podspec import JobSpec, JobStatus
from kurm.domain.schedulerspec import Scheduler
from unit.domain.pods import Pod, pod

JOB = {"kind": "Job", "name": "train", "uid": "0123456789-job"}
INDEXED = JobSpec(parallelism=3, completions=3, completion_mode="Indexed")
TRAIN = Owner("0123456789-job", "shop", "train", 3, indexed=True)
RULES = Rules(Scheduler(), [Partition("batch", ("workers",), default=True)], {})


def _rank(number: int, name: str = "", **fields: Any) -> Pod:
    annotations = {COMPLETION_INDEX: str(number)}
    return pod(name or f"train-{number}-x7k2p", owner=JOB, annotations=annotations, **fields)


def _member(number: int, size: int = 3, **fields: Any) -> Pod:
    slurm = {"gang": "mpi", "gang-size": str(size)} | fields.pop("slurm", {})
    return pod(f"mpi-{number}", slurm=slurm, **fields)


def test_a_pod_alone_is_its_own_owner() -> None:
    """Its job in Slurm is called after it, and bears its UID."""
    owner = owner_of(pod("web-0", uid="89abcdef-0123"))
    assert owner == Owner("89abcdef-0123", "shop", "web-0", 1)
    assert (owner.job_name, owner.signature("c1")) == ("shop/web-0.89abcdef", "kurm:c1:89abcdef-0123")


def test_the_pods_of_an_indexed_job_have_one_owner() -> None:
    """The Job: its UID stays when one of its pods is replaced."""
    assert job_of(_rank(0)) == "0123456789-job"
    assert {owner_of(_rank(number), INDEXED) for number in range(3)} == {TRAIN}
    assert TRAIN.job_name == "shop/train.01234567"


@pytest.mark.parametrize(
    "job",
    [
        JobSpec(parallelism=2, completions=3, completion_mode="Indexed"),
        JobSpec(parallelism=3, completions=None),
        JobSpec(parallelism=1, completions=1, completion_mode="Indexed"),
    ],
)
def test_a_job_whose_pods_need_not_run_at_once_is_no_gang(job: JobSpec) -> None:
    """Fewer at a time than there are to be, or without ranks: each of its pods is by itself."""
    assert owner_of(_rank(0), job).size == 1


def test_annotations_make_a_gang_of_any_pods() -> None:
    """Of those of an Indexed Job as well: what is said on the pod comes first, and the Job need not be known."""
    said: dict[str, Any] = {"annotations": {COMPLETION_INDEX: "1"}, "slurm": {"gang": "mpi", "gang-size": "3"}}
    other = pod("train-1", owner=JOB, **said)
    assert job_of(other) == ""
    owners = {owner_of(_member(0)), owner_of(other)}
    assert owners == {Owner("shop/mpi", "shop", "mpi", 3)}
    assert all(owner.job_name.startswith("shop/mpi.") and len(owner.job_name) == 17 for owner in owners)


@pytest.mark.parametrize(
    ("slurm", "sentence"),
    [
        ({"gang": "mpi"}, "annotation slurm.kurm.dev/gang-size is missing: a gang needs it beside slurm.kurm.dev/gang"),
        (
            {"gang-size": "3"},
            "annotation slurm.kurm.dev/gang is missing: a gang needs it beside slurm.kurm.dev/gang-size",
        ),
        (
            {"gang": "mpi", "gang-size": "0"},
            "annotation slurm.kurm.dev/gang-size: '0' must be a number of pods above zero, as 8",
        ),
        (
            {"gang": "MPI", "gang-size": "3"},
            "annotation slurm.kurm.dev/gang: 'MPI' must be a-z, 0-9, . and -, at most 63, as trainer",
        ),
    ],
)
def test_annotations_that_make_no_gang_are_refused(slurm: dict[str, str], sentence: str) -> None:
    """With the one that is wrong."""
    with pytest.raises(RefusedError) as refused:
        owner_of(pod(slurm=slurm))
    assert str(refused.value) == sentence


def _gather(owner: Owner, *pods: Pod) -> str:
    return gather(owner, [(one, RULES.ask(one)) for one in pods]).waits_for


def test_an_incomplete_gang_says_what_it_waits_for() -> None:
    """In numbers; complete it waits for nothing, and neither does a pod alone."""
    mpi = owner_of(_member(0))
    assert _gather(mpi, _member(0), _member(1)) == "2 of 3 pods of gang mpi are there"
    assert _gather(mpi, _member(0), _member(1), _member(2)) == ""
    assert _gather(owner_of(pod()), pod()) == ""


def test_two_pods_of_one_rank_are_one() -> None:
    """The Job controller may make the next one before the old one is gone."""
    assert _gather(TRAIN, _rank(0), _rank(0, "train-0-again"), _rank(1)) == "2 of 3 pods of gang train are there"


def test_ranks_that_have_ended_for_good_are_not_waited_for() -> None:
    """Their Job makes no pod for them any more, and says so by intervals."""
    ended = finished(JobStatus(completed_indexes="0,2-3", failed_indexes="6"))
    assert ended == {0, 2, 3, 6}
    assert finished(JobStatus()) == frozenset()
    left = [(one, RULES.ask(one)) for one in (_rank(1), _rank(2))]
    assert gather(TRAIN, left, frozenset({0})).waits_for == ""
    assert gather(TRAIN, left[:1], frozenset({0})).waits_for == "1 of 2 pods of gang train are there"


@pytest.mark.parametrize(
    ("odd", "clause"),
    [
        ({"requests": {"cpu": "4", "memory": "1Gi"}}, "pod mpi-2 asks 4 CPUs, pod mpi-0 1 CPUs"),
        ({"requests": {"cpu": "1", "memory": "2Gi"}}, "pod mpi-2 asks 2048 MiB, pod mpi-0 1024 MiB"),
        (
            {"requests": {"cpu": "500m", "memory": "1Gi"}},
            "pod mpi-2 asks for other resources than pod mpi-0",
        ),
        ({"slurm": {"qos": "high"}}, "pod mpi-2 asks QOS 'high', pod mpi-0 QOS ''"),
        ({"nodeSelector": {"zone": "a"}}, "pod mpi-2 asks for another node selector than pod mpi-0"),
        ({"ports": [{"containerPort": 1, "hostPort": 1}]}, "pod mpi-2 asks for other host ports than pod mpi-0"),
    ],
)
def test_a_pod_that_asks_otherwise_is_named(odd: dict[str, Any], clause: str) -> None:
    """With what most of them ask."""
    pods = [_member(0), _member(1), _member(2, **odd)]
    with pytest.raises(RefusedError) as refused:
        _gather(owner_of(pods[0]), *pods)
    assert str(refused.value) == f"gang mpi: {clause}: the pods of a gang must ask the same"


def test_a_gang_has_one_size() -> None:
    """Two of them are told with the pods that say them."""
    with pytest.raises(RefusedError, match="gang-size is 3 on pod mpi-0 and 4 on pod mpi-1"):
        _gather(owner_of(_member(0)), _member(0), _member(1, 4))
