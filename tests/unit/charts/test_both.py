"""What holds of both charts: lint, versions, and values that are described and refused by their description."""

import json
from collections.abc import Container, Iterator
from pathlib import Path

import pytest
import yaml

import kurm
from unit.charts.helm import BUILD_SECONDS, KURM, SLURM_CLUSTER, Json, helm, refusal

pytestmark = pytest.mark.timeout(BUILD_SECONDS)

both = pytest.mark.parametrize("chart", [KURM, SLURM_CLUSTER], ids=lambda chart: chart.name)


@both
def test_helm_finds_nothing_to_criticise(chart: Path) -> None:
    """Warnings are errors."""
    said = helm("lint", "--strict", chart)
    assert said.returncode == 0, said.stdout + said.stderr


@both
def test_a_chart_has_kurms_version(chart: Path) -> None:
    """Python's spelling stands in appVersion, and is the images' tag; semantic versions are spelt otherwise."""
    found = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert found["appVersion"] == kurm.__version__
    assert found["version"] == kurm.__version__.replace(".dev", "-dev.")


@both
def test_every_default_is_described(chart: Path) -> None:
    """Each value stands in the schema with a sentence, and in the README."""
    schema = json.loads((chart / "values.schema.json").read_text())
    readme = (chart / "README.md").read_text()
    values = yaml.safe_load((chart / "values.yaml").read_text())
    described = dict(_leaves(schema, schema))
    assert set(_paths(values, described)) - described.keys() == set()
    assert {path for path, about in described.items() if not about.get("description")} == set()
    assert {path for path in described if path != "global" and f"`{path}`" not in readme} == set()


def _resolved(schema: Json, node: Json) -> Json:
    name = node.get("$ref", "").rpartition("/")[2]
    return schema["definitions"][name] | node if name else node


def _leaves(schema: Json, node: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    for name, child in node.get("properties", {}).items():
        found, below = _resolved(schema, child), f"{path}.{name}".lstrip(".")
        if "properties" in found:
            yield from _leaves(schema, found, below)
        else:
            yield below, found


def _paths(values: Json, described: Container[str], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        below = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict) and below not in described:
            yield from _paths(value, described, below)
        else:
            yield below


@pytest.mark.parametrize(
    ("chart", "values", "sentence"),
    [
        (KURM, {"replicas": 2}, "- at '': additional properties 'replicas' not allowed"),
        (KURM, {"operator": {"replica": 2}}, "- at '/operator': additional properties 'replica' not allowed"),
        (KURM, {"operator": {"replicas": -1}}, "- at '/operator/replicas': minimum: got -1, want 0"),
        (
            KURM,
            {"images": {"pullPolicy": "Sometimes"}},
            "- at '/images/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
        ),
        (SLURM_CLUSTER, {"spec": {}}, "- at '': additional properties 'spec' not allowed"),
        (SLURM_CLUSTER, {"nodeSets": [{"name": "workers"}]}, "- at '/nodeSets': got array, want object"),
        (
            SLURM_CLUSTER,
            {"scripts": {"prolog": {"a": "rm -rf /tmp/x"}}},
            "- at '/scripts/prolog/a': 'rm -rf /tmp/x' does not match pattern '^#!'",
        ),
        (
            SLURM_CLUSTER,
            {"sharedVolumes": {"home": {"mountPath": "/home"}}},
            "- at '/sharedVolumes/home': missing property 'size'",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(chart: Path, values: Json, sentence: str) -> None:
    """Before anything reaches a cluster."""
    assert refusal(chart, values) == sentence


def test_a_node_set_cannot_be_given_to_another_cluster() -> None:
    """A schema would say "false schema" to that."""
    said = refusal(SLURM_CLUSTER, {"nodeSets": {"workers": {"clusterRef": {"name": "other"}}}})
    assert "nodeSets.workers.clusterRef cannot be set: all NodeSets of a release belong to its SlurmCluster" in said


def test_a_release_may_be_called_what_no_cluster_can_be() -> None:
    """The sentence says which value helps."""
    said = refusal(SLURM_CLUSTER, {}, release="1st")
    assert "the release's name \"1st\" cannot be a SlurmCluster's, which is at most 40 of a-z, 0-9 and -" in said
    assert "with a letter first: set name" in said
