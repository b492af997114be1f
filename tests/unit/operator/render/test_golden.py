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

from unit.operator.render.demo import Json, cluster, everything

GOLDEN = Path(__file__).parent / "golden"
PARTS = ("controller", "login", "accounting", "database", "rest", "slurmd", "syncer")


class _Plain(yaml.SafeDumper):
    """YAML as a person would write it: no anchors, texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def _rendered(part: str) -> str:
    ours: list[Json] = [
        each for each in everything(cluster()) if each["metadata"]["labels"]["app.kubernetes.io/component"] == part
    ]
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
    path = GOLDEN / f"{part}.yaml"
    text = _rendered(part)
    if os.environ.get("KURM_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "a renderer has changed: see this file's first lines"


def test_nothing_is_left_out() -> None:
    """Every object belongs to one of the components, so it stands in one of the files."""
    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in everything(cluster())} == set(PARTS)
