"""What a SlurmCluster's status says of the configuration."""

from datetime import UTC, datetime

import msgspec

from kurm.domain.slurmcluster import ConfigRefused, SlurmClusterStatus
from kurm.domain.spec import Condition
from kurm.kube.resources import ObjectMeta
from kurm.slurm.controller import Status
from kurm.syncer.configuration import status
from kurm.syncer.objects import SlurmCluster

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = Condition("Configured", "True", SINCE, "Applied", "")
CLUSTER = SlurmCluster(
    metadata=ObjectMeta(name="demo"), status=SlurmClusterStatus(conditions=(GOOD,), config_hash="h1")
)


def test_nothing_is_written_where_nothing_is_new() -> None:
    """The status says it already."""
    assert status(CLUSTER, Status("h1"), "") is None


def test_a_refused_one_quotes_slurm_and_leaves_the_hash_in_force() -> None:
    """The condition is False since now."""
    told = status(CLUSTER, Status("h1", "h2", "Parsing error"), "")
    assert told is not None
    assert (told["configHash"], told["configRefused"]) == ("h1", {"hash": "h2", "message": "Parsing error"})
    (condition,) = told["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Refused", "Parsing error")


def test_one_that_is_taken_ends_the_refusal() -> None:
    """What is no longer named in an apply is removed."""
    refused = msgspec.structs.replace(CLUSTER.status, config_refused=ConfigRefused("h2", "Parsing error"))
    told = status(msgspec.structs.replace(CLUSTER, status=refused), Status("h3"), "")
    assert told is not None
    assert "configRefused" not in told
    assert told["configHash"] == "h3"


def test_an_init_that_does_not_tell_takes_nothing_back() -> None:
    """What was known stays, and the condition is Unknown with the reason."""
    refused = msgspec.structs.replace(CLUSTER.status, config_refused=ConfigRefused("h2", "Parsing error"))
    told = status(msgspec.structs.replace(CLUSTER, status=refused), None, "nobody answers")
    assert told is not None
    assert (told["configHash"], told["configRefused"]["hash"]) == ("h1", "h2")
    (condition,) = told["conditions"]
    assert (condition["status"], condition["message"]) == ("Unknown", "nobody answers")
