"""`kurm operator` says in one sentence what is wrong with its file of images."""

from pathlib import Path

import pytest
import typer

from kurm.cli.daemons import read_images

NAMES = ("controller", "slurmd", "login", "slurmrestd", "dbd", "mariadb", "kurm")


def test_a_file_of_images(tmp_path: Path) -> None:
    """YAML, of which JSON is a part."""
    path = tmp_path / "images.yaml"
    path.write_text("".join(f"{name}: x/{name}:1\n" for name in NAMES) + "pullPolicy: Always\n")
    images = read_images(path)
    assert (images.controller, images.kurm, images.pull_policy) == ("x/controller:1", "x/kurm:1", "Always")


@pytest.mark.parametrize(
    ("text", "word"),
    [("controller: x\n", "slurmd"), ("controler: x\n", "controler"), ("[", "images.yaml")],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, word: str) -> None:
    """The field is named."""
    path = tmp_path / "images.yaml"
    path.write_text(text)
    with pytest.raises(typer.BadParameter, match=word):
        read_images(path)
