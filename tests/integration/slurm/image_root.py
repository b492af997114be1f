"""The file system of Slurm's own images, unpacked once: what a lab runs is what a pod runs."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from kurm.local import images

REPOSITORY = Path(__file__).resolve().parents[3]
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"  # OCI image specification, layer.md
KEPT = 3
"""Roots of earlier images that stay: another checkout's tests may be running on one."""


def root(targets: Sequence[str] = ("controller", "slurmrestd")) -> Path:
    """Return a folder with the files of several images on top of one another: $KURM_SLURM_ROOT, else unpacked here.

    They share their lower layers, so the union is what one image with all their programs would be. Nobody may write to
    it. Raises what `images.build` raises.
    """
    if "KURM_SLURM_ROOT" in os.environ:
        return Path(os.environ["KURM_SLURM_ROOT"])
    archives = [images.build(REPOSITORY, [target])[images.reference(target)] for target in targets]
    # An archive's name ends in a key of its content.
    key = hashlib.sha256("\0".join(archive.name for archive in archives).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kurm/slurm-lab"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / key
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            unpacked = cache / f"{key}.part"
            shutil.rmtree(unpacked, ignore_errors=True)
            unpacked.mkdir()
            _unpack(archives, unpacked)
            unpacked.rename(place)
        place.touch()
        _prune(cache)
    return place


def _prune(cache: Path) -> None:
    roots = sorted((path for path in cache.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in roots[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _unpack(archives: Sequence[Path], place: Path) -> None:
    done: set[str] = set()
    for archive in archives:
        with tarfile.open(archive) as opened:
            for digest in _layers(opened):
                if digest not in done:
                    done.add(digest)
                    _apply(opened, digest, place)


def _layers(archive: tarfile.TarFile) -> Iterator[str]:
    """Yield the digests of the image's layers, the lowest first."""
    index = msgspec.json.decode(_read(archive, "index.json"))
    manifest = msgspec.json.decode(_read(archive, _blob(index["manifests"][0]["digest"])))
    yield from (layer["digest"] for layer in manifest["layers"])


def _apply(archive: tarfile.TarFile, digest: str, place: Path) -> None:
    """Put one layer on top of what is there, and take away what it says is gone."""
    layer = place.with_suffix(".layer")
    layer.write_bytes(_read(archive, _blob(digest)))
    listed = subprocess.run(["tar", "--zstd", "-tf", layer], capture_output=True, text=True, check=True).stdout
    for entry in map(PurePosixPath, listed.splitlines()):
        if entry.name == OPAQUE:
            shutil.rmtree(place / entry.parent, ignore_errors=True)
        elif entry.name.startswith(WHITEOUT):
            gone = place / entry.parent / entry.name.removeprefix(WHITEOUT)
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(gone) if gone.is_dir() and not gone.is_symlink() else gone.unlink()
    command = ["tar", "--zstd", "-xpf", str(layer), "-C", str(place), "--numeric-owner", f"--exclude={WHITEOUT}*"]
    subprocess.run(command, check=True)
    layer.unlink()


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None, f"{name} is no file in {archive.name!r}"
    return member.read()


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")
