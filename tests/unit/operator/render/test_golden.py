"""What the demo's cluster becomes, to the letter, so that a change of a renderer is seen as what it changes.

    KURM_WRITE_GOLDEN=1 .venv/bin/pytest tests/unit/operator/render/test_golden.py

writes the files anew.
"""

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from unit.operator.render.demo import SCHEDULER, Json, cluster, everything

GOLDEN = Path(__file__).parent / "golden"
PARTS = ("controller", "login", "accounting", "database", "rest", "slurmd", "syncer")
CONFIGURED = ("ConfigMap", "demo-config")


class _Plain(yaml.SafeDumper):
    """YAML as a person would write it: no anchors, texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def _rendered(part: str) -> str:
    return _text_of([each for each in everything(cluster()) if _component(each) == part])


def _component(manifest: Json) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def _text_of(ours: list[Json]) -> str:
    return yaml.dump_all(map(_readable, ours), Dumper=_Plain, sort_keys=False, width=120)


def _readable(manifest: Json) -> Json:
    """Return a Secret with what a person can read: configuration as text, keys as their length."""
    if manifest["kind"] != "Secret":
        return manifest
    content = {key: base64.b64decode(value) for key, value in manifest["data"].items()}
    shown = {key: value.decode() if key.endswith(".conf") else f"{len(value)} bytes" for key, value in content.items()}
    return manifest | {"data": shown}


@pytest.mark.parametrize("part", PARTS)
def test_demo_is_rendered_as_committed(part: str) -> None:
    """One file for each component."""
    _compare(GOLDEN / f"{part}.yaml", _rendered(part))


def _compare(path: Path, text: str) -> None:
    if os.environ.get("KURM_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "a renderer has changed: see this file's first lines"


def test_nothing_is_left_out() -> None:
    """Every object belongs to one of the components, so it stands in one of the files."""
    assert {_component(each) for each in everything(cluster())} == set(PARTS)


def test_a_scheduler_adds_itself_and_changes_the_configuration() -> None:
    """Nothing else but slurmd's pods: slurmctld runs on, and a cluster without one is what it always was."""
    without, found = everything(cluster()), everything(cluster(scheduler=SCHEDULER))
    _compare(
        GOLDEN / "scheduler.yaml", _text_of([each for each in found if each not in without and each["kind"] != "Pod"])
    )
    changed = [each for each in without if each not in found and each["kind"] != "Pod"]
    assert [(each["kind"], each["metadata"]["name"]) for each in changed] == [CONFIGURED]
