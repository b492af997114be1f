"""What a bare Kubernetes needs before anyone can use it: DNS, a default StorageClass, and the images for them."""

import hashlib
import io
import json
import string
import tarfile
from pathlib import Path

from kurm.local.layout import Layout
from kurm.local.node import PAUSE_IMAGE

COREDNS_IMAGE = "localhost/kurm/coredns:local"
_MANIFESTS = Path(__file__).parent / "manifests"


def manifests(layout: Layout) -> str:
    """Render the objects that every local cluster begins with, as YAML."""
    text = (_MANIFESTS / "base.yaml").read_text()
    return string.Template(text).substitute(DNS=layout.dns, COREDNS_IMAGE=COREDNS_IMAGE)


def write_archives(binaries: Path, directory: Path) -> dict[str, Path]:
    """Write the images of the sandbox and of CoreDNS; return the archive of each image."""
    directory.mkdir(parents=True, exist_ok=True)
    archives = {}
    for image, program in ((PAUSE_IMAGE, "pause"), (COREDNS_IMAGE, "coredns")):
        archives[image] = directory / f"{program}.tar"
        _write_archive(image, binaries / program, archives[image])
    return archives


def _write_archive(image: str, program: Path, archive: Path) -> None:
    """Write an image that holds one static program and nothing else, in the format of `docker save`.

    It is three small files in a tar; a builder of images would take seconds for each at every `up`.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        _add(tar, program.name, program.read_bytes(), mode=0o755)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    encoded = json.dumps(config).encode()
    name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, name, encoded)
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)  # its time is 0, so that the same program always gives the same image
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
