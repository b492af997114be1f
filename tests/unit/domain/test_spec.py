"""What specs mean: durations, what absence stands for, and what cannot be left out."""

import msgspec
import pytest

from kurm.domain.nodeset import NodeSetCondition, NodeSetSpec
from kurm.domain.slurmcluster import CompanionDatabase, ExternalDatabase, SlurmClusterSpec, User
from kurm.domain.spec import SecretKey, seconds


@pytest.mark.parametrize(
    ("duration", "expected"),
    [("0s", 0), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("7d", 604800), ("1d1h1m1s", 90061), ("UNLIMITED", None)],
)
def test_durations_are_read(duration: str, expected: int | None) -> None:
    """Days to seconds, added up; UNLIMITED is no number."""
    assert seconds(duration) == expected


@pytest.mark.parametrize("duration", ["", "5", "5 minutes", "0m", "05m", "-1s", "1.5h", "7D", "1h UNLIMITED"])
def test_what_is_no_duration_is_refused(duration: str) -> None:
    """A unit is needed, zero and fractions are not taken: the type says so even where no API server has looked."""
    with pytest.raises(msgspec.ValidationError, match="deadAfter"):
        msgspec.convert({"deadAfter": duration}, SlurmClusterSpec)


def test_an_empty_spec_is_a_cluster() -> None:
    """Everything of a SlurmCluster has a default: slurmctld, accounting on a companion, one login pod."""
    spec = msgspec.convert({}, SlurmClusterSpec)
    assert spec == SlurmClusterSpec()
    assert (spec.login.replicas, spec.rest.enabled, spec.accounting.enabled) == (1, False, True)
    assert spec.accounting.database == CompanionDatabase()
    assert spec.accounting.database.storage.size == "5Gi"


def test_a_named_companion_keeps_its_size() -> None:
    """To choose only the storage class of the companion does not make its volume that of slurmctld's size."""
    accounting = {"companion": {"storage": {"storageClassName": "fast"}}}
    database = msgspec.convert({"accounting": accounting}, SlurmClusterSpec).accounting.database
    assert isinstance(database, CompanionDatabase)
    assert (database.storage.size, database.storage.storage_class_name) == ("5Gi", "fast")


def test_an_external_database_is_the_database() -> None:
    """What is named is used."""
    external = {"host": "db", "user": "slurm", "password": {"name": "db", "key": "password"}}
    spec = msgspec.convert({"accounting": {"external": external}}, SlurmClusterSpec)
    assert spec.accounting.database == ExternalDatabase(
        host="db", user="slurm", password=SecretKey(name="db", key="password")
    )


def test_a_user_has_a_group_of_the_same_number() -> None:
    """Unless told otherwise."""
    assert (User(name="a", uid=1001).group, User(name="a", uid=1001, gid=100).group) == (1001, 100)


def test_a_node_set_needs_its_cluster_and_no_more() -> None:
    """Without replicas it takes all nodes that fit."""
    spec = msgspec.convert({"clusterRef": {"name": "demo"}}, NodeSetSpec)
    assert (spec.cluster_ref.name, spec.replicas, spec.reserve.memory) == ("demo", None, "512Mi")
    assert (spec.priority_class_name, spec.taint_key) == ("system-node-critical", "kurm.dev/pool")
    with pytest.raises(msgspec.ValidationError, match="clusterRef"):
        msgspec.convert({}, NodeSetSpec)


def test_a_newer_field_is_skipped() -> None:
    """An operator of this version can read what a newer one's users wrote."""
    assert msgspec.convert({"fromTheFuture": 1}, SlurmClusterSpec) == SlurmClusterSpec()


def test_a_condition_is_its_type() -> None:
    """So that it can be compared with, and written as, what the API server has."""
    assert "Ready" in list(NodeSetCondition)
    assert msgspec.convert("Ready", NodeSetCondition) is NodeSetCondition.READY
    assert msgspec.to_builtins(NodeSetCondition.READY) == "Ready"
    assert NodeSetCondition.READY.meaning.startswith("As many nodes")
