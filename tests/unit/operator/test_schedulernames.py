"""Two clusters cannot place pods of one schedulerName."""

from datetime import UTC, datetime

import msgspec

from kurm.operator.objects import SlurmCluster
from kurm.operator.schedulernames import taken, wanted


def _cluster(name: str, made: int | None, *, uid: str = "", scheduler: str = "kurm") -> SlurmCluster:
    """Return a cluster that was made at a second of some minute; None: so lately that no time is known."""
    time = None if made is None else datetime(2026, 11, 21, 16, 15, made, tzinfo=UTC)
    metadata = {"name": name, "namespace": "slurm", "uid": uid or name}
    metadata |= {} if time is None else {"creationTimestamp": time.isoformat()}
    return msgspec.convert({"metadata": metadata, "spec": {"scheduler": {"name": scheduler}}}, SlurmCluster)


def test_the_oldest_has_the_name() -> None:
    """Of the same second, the one whose name comes first: both are told the same, in whatever order they are seen."""
    z, y, a, late = _cluster("z", 1), _cluster("y", 2), _cluster("a", 2), _cluster("0", None)
    for rivals in ((z, y, a, late), (late, a, y, z)):
        assert [one.metadata.name for one in rivals if taken(one, rivals) is None] == ["z"]
        others = [one for one in rivals if one != z]
        assert [one.metadata.name for one in others if taken(one, others) is None] == ["a"]
    trouble = taken(y, (z, y))
    assert trouble is not None
    assert (trouble.reason, trouble.stuck) == ("SchedulerNameTaken", True)
    assert "'kurm' is the scheduler of SlurmCluster slurm/z, which is older" in trouble.message


def test_a_cluster_is_no_rival_of_its_own() -> None:
    """Also if what is seen of it is another version; and without a scheduler it wants no name."""
    cluster = _cluster("demo", 1)
    assert taken(cluster, [_cluster("demo", 1)]) is None
    assert wanted(cluster) == ["kurm"]
    assert wanted(msgspec.structs.replace(cluster, spec=msgspec.structs.replace(cluster.spec, scheduler=None))) == []
