"""Images are built once per content, from the machine's own mirror, and a failure says what to do."""

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from pathlib import Path

import pytest

from kurm.local import image_builder, images
from kurm.local.image_recipe import ImageError

BOOKWORM = {"ID": "debian", "VERSION_ID": "12", "VERSION_CODENAME": "bookworm"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout as far as a build reads it, with a file in each folder."""
    root = tmp_path / "checkout"
    for name in ("images/slurm/file", "images/slurm/apt-install", "images/kurm/file", "src/file"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    for name in ("pyproject.toml", "uv.lock", "README.md", "LICENSE"):
        (root / name).write_text(name)
    return root


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that images are cached in: an empty one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SLURM_VERSION", raising=False)
    return tmp_path / "cache/kurm/images"


def fill(cache: Path, checkout: Path, target: str) -> Path:
    """Put an archive where a build of the target would put it."""
    archive = cache / "archives" / f"{target}-{images.tag(checkout, target)}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_text(target)
    return archive


def test_nothing_is_built_when_nothing_has_changed(checkout: Path, cache: Path) -> None:
    """With all archives in the cache, build only names them: it says nothing and starts no program."""
    archives = {target: fill(cache, checkout, target) for target in images.TARGETS}
    said: list[str] = []
    built = images.build(checkout, None, said.append)
    assert built == {f"localhost/kurm/{target}:dev": archive for target, archive in archives.items()}
    assert said == []


def test_a_part_of_the_images_can_be_asked_for(checkout: Path, cache: Path) -> None:
    """Only the targets that are named are looked for."""
    archive = fill(cache, checkout, "slurmd")
    assert images.build(checkout, ["slurmd"]) == {"localhost/kurm/slurmd:dev": archive}


def test_any_change_of_content_mode_or_name_changes_the_tag(checkout: Path) -> None:
    """A tag stands for what goes into the image: content, names and whether a file is executable."""
    file = checkout / "images/slurm/file"
    tags = {images.tag(checkout, "slurmd")}
    file.write_text("something else")
    tags.add(images.tag(checkout, "slurmd"))
    file.chmod(0o755)
    tags.add(images.tag(checkout, "slurmd"))
    file.rename(file.with_name("other"))
    tags.add(images.tag(checkout, "slurmd"))
    assert len(tags) == 4


def test_a_tag_does_not_change_with_time_or_with_other_images(checkout: Path) -> None:
    """Neither a file's date, nor compiled Python beside it, nor a source of Kurm's touches Slurm's images."""
    before = images.tag(checkout, "slurmd")
    os.utime(checkout / "images/slurm/file", (0, 0))
    (checkout / "images/slurm/__pycache__").mkdir()
    (checkout / "images/slurm/__pycache__/x.pyc").write_text("compiled")
    (checkout / "src/file").write_text("new code")
    assert images.tag(checkout, "slurmd") == before


def test_another_slurm_version_is_another_image(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_VERSION goes into the build, so it goes into the tag."""
    monkeypatch.delenv("SLURM_VERSION", raising=False)
    before = images.tag(checkout, "slurmd")
    monkeypatch.setenv("SLURM_VERSION", "26.05.5-1")
    assert images.tag(checkout, "slurmd") != before


def test_an_unknown_image_is_refused_with_the_names_there_are(checkout: Path) -> None:
    """A wrong target is told together with the right ones."""
    with pytest.raises(ImageError, match=r"image 'slurm': there is no such image; there are controller, .*, kurm$"):
        images.build(checkout, ["slurm"])


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    """Without the files that a Containerfile copies, the sentence names the first that is missing."""
    with pytest.raises(ImageError, match="images/slurm is missing, and images/slurm/Containerfile needs it"):
        images.build(tmp_path, ["slurmd"])


def test_a_missing_program_is_named_with_its_package(
    checkout: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without buildah is told which package to install, before anything is begun."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="'buildah' is not installed: apt-get install buildah"):
        images.build(checkout, ["slurmd"])
    assert not cache.exists()


def test_too_little_disk_is_told_before_the_build(checkout: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is found out at once, with the folder, what is free and what is needed."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(images, "DISK_NEEDED", 1 << 60)
    with pytest.raises(ImageError, match=rf"{cache}: .* GB are free and building images takes .* GB: make room"):
        images.build(checkout, ["slurmd"])


DEB822 = """\
Types: deb
URIs: http://tools.example/apt
Suites: bookworm-tools
Components: main

Types: deb
URIs: http://mirror.example/debian http://second.example/debian
Suites: bookworm bookworm-updates
Components: main
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sources.list.d/debian.sources": DEB822}, "http://mirror.example/debian"),
        ({"sources.list": "deb [arch=amd64] http://old.example/debian bookworm main\n"}, "http://old.example/debian"),
        (
            {
                "sources.list": "# deb http://a.example bookworm main\ndeb http://tools.example bookworm-tools main\n",
                "sources.list.d/x.list": "deb  http://third.example/debian  bookworm  main contrib\n",
            },
            "http://third.example/debian",
        ),
    ],
)
def test_the_mirror_is_the_one_with_the_machines_own_suite(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    """Among other vendors' sources, in either of apt's formats, Debian's own is found by the suite."""
    (tmp_path / "sources.list.d").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert image_builder.apt_mirror(tmp_path, BOOKWORM) == expected


def test_a_machine_without_debians_sources_is_told_so(tmp_path: Path) -> None:
    """No source with the machine's suite: one sentence names the folder and the suite."""
    with pytest.raises(ImageError, match="no source with suite 'bookworm'"):
        image_builder.apt_mirror(tmp_path, BOOKWORM)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("tar: x: Cannot write: No space left on device\nError: exit status 2", "the disk is full"),
        ("E: Version '26.05.*' for 'slurmctld' was not found", "forky has no slurmctld 26.05.*: set SLURM_VERSION"),
        ("E: Failed getting release file http://m/dists/forky/Release", "a package registry cannot be reached"),
        ("Err:1 http://m forky InRelease\n  Could not resolve 'm'", "a package registry cannot be reached"),
        ("error: invalid peer certificate: UnknownIssuer", "certificate is not trusted: name the bundle"),
        ("Step 1\nE: Unable to locate package nope\nError: exit status 100", "E: Unable to locate package nope"),
        ("only this", "only this"),
        ("", "nothing was printed"),
    ],
)
def test_the_cause_of_a_failed_build_is_one_sentence(output: str, expected: str) -> None:
    """What lies outside of the build is told with what to do; anything else by the first error's own line."""
    said = image_builder.cause(output)
    assert said.startswith("the image cannot be built: ")
    assert expected in said
    assert "\n" not in said


def test_an_error_carries_the_log() -> None:
    """The sentence ends with the log's path, and a program can read it from the error."""
    error = ImageError("the disk is full", Path("/cache/build.log"))
    assert str(error) == "the disk is full (the build's output is in /cache/build.log)"
    assert error.log == Path("/cache/build.log")


def layout_with(folder: Path, **contents: bytes) -> dict[str, str]:
    """Write an OCI layout with one image per keyword, a single layer each; return each image's manifest digest."""

    def blob(data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (folder / "blobs/sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    index = []
    for name, layer in contents.items():
        parts = {"config": blob(b"{}" + name.encode()), "layers": [blob(layer), blob(b"shared")]}
        manifest = blob(json.dumps(parts).encode())
        index.append({**manifest, "annotations": {"org.opencontainers.image.ref.name": name}})
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": index}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return {str(name): str(entry["digest"]) for name, entry in zip(contents, index, strict=True)}


def test_an_archive_holds_one_image_under_both_its_names(tmp_path: Path) -> None:
    """Of a layout with several images the archive has the one, whole, under a name for people and one for content."""
    digests = layout_with(tmp_path / "layout", slurmd=b"slurmd's layer", login=b"login's layer")
    names = ["localhost/kurm/slurmd:dev", "localhost/kurm/slurmd:0123456789ab"]
    image_builder.write_archive(tmp_path / "layout", "slurmd", names, tmp_path / "slurmd.tar")
    with tarfile.open(tmp_path / "slurmd.tar") as tar:
        members = {member.name: tar.extractfile(member) or io.BytesIO() for member in tar}
        contents = {name: file.read() for name, file in members.items()}
    manifests = json.loads(contents["index.json"])["manifests"]
    assert [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in manifests] == names
    assert {entry["digest"] for entry in manifests} == {digests["slurmd"]}
    blobs = {name: data for name, data in contents.items() if name.startswith("blobs/sha256/")}
    assert all(hashlib.sha256(data).hexdigest() == name.rpartition("/")[2] for name, data in blobs.items())
    assert {b"slurmd's layer", b"shared"} <= set(blobs.values())
    assert b"login's layer" not in blobs.values()
    assert [path.name for path in tmp_path.glob("*.partial")] == []


def test_old_archives_go_and_those_of_other_images_stay(tmp_path: Path) -> None:
    """The two latest used of an image are kept, and what a killed build left half-written goes."""
    now = time.time()
    for age, name in enumerate(["kurm-00000000000a.tar", "kurm-00000000000b.tar", "kurm-00000000000c.tar"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age, now - age))
    for name in ("kurm-00000000000d.partial", "slurmd-00000000000a.tar"):
        (tmp_path / name).touch()
    images._prune(tmp_path, "kurm")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["kurm-00000000000a.tar", "kurm-00000000000b.tar", "slurmd-00000000000a.tar"]


def test_the_machines_certificates_are_found_by_the_variables_that_clients_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that SSL_CERT_FILE or PIP_CERT names is lent to the build; a machine without any lends none."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("certificates")
    monkeypatch.setattr(image_builder, "CERTIFICATES", tmp_path / "none.pem")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("PIP_CERT", raising=False)
    assert image_builder.certificates() is None
    monkeypatch.setenv("PIP_CERT", str(bundle))
    assert image_builder.certificates() == bundle
