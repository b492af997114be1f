"""Kurm's images, built here without a container engine and without a registry.

buildah builds the same Containerfiles that `docker build` takes. The base that they name is made by debootstrap, from
the Debian mirror that this machine's apt uses, and stored under that name. What comes out is one OCI archive for each
image, kept by content: an archive's key is a hash of all that goes into it, so nothing is built twice.

    $XDG_CACHE_HOME/kurm/images/
      archives/slurmd-<key>.tar   the product; holds the image under two names, `...:dev` and `...:<key>`
      base/                       the mirror, and apt's settings for the build
      store/, notes/              buildah's layers, so that a small change costs a small build
      work/                       what one build needs; the next one clears what a killed one left
      build.log                   the last build's output
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kurm.local.image_builder import BASE, SEED_RECIPE, Builder
from kurm.local.image_recipe import ImageError, Job, Recipe

__all__ = ["RECIPES", "TARGETS", "ImageError", "build", "reference", "tag"]

Progress = Callable[[str], None]

DISK_NEEDED = 4 << 30
"""Bytes: base and layers take 1 GB, archives 0.8 GB, and a build holds both twice for a while."""
ARCHIVES_KEPT = 2
"""Of each image, counted from the latest used: this build's and the one before."""

RECIPES = (
    Recipe(
        "images/slurm/Containerfile",
        "images/slurm",
        ("images/slurm",),
        ("controller", "slurmrestd", "dbd", "slurmd", "login", "mariadb"),
        "slurm-version",
    ),
    Recipe(
        "images/kurm/Containerfile",
        ".",
        ("images/kurm", "images/slurm/apt-install", "src", "pyproject.toml", "uv.lock", "README.md", "LICENSE"),
        ("kurm",),
    ),
)
TARGETS = tuple(target for recipe in RECIPES for target in recipe.targets)


def build(
    repository: Path, targets: Sequence[str] | None = None, progress: Progress = lambda _: None
) -> dict[str, Path]:
    """Build the images that are not in the cache and return, for each target, its reference and its OCI archive.

    `targets` are names of TARGETS, all if None. A reference is `localhost/kurm/TARGET:dev`; the archive holds the image
    also under `localhost/kurm/TARGET:KEY`, where KEY changes with the content (see `tag`). `progress` is told what is
    being done, one line each. Raises ImageError.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kurm/images"
    jobs = [_job(cache, repository, target) for target in _check(targets)]
    if not all(job.archive.exists() for job in jobs):
        _check_machine(cache)
        with _locked(cache, progress):
            # Another build, which we waited for, may have made some of them.
            if missing := [job for job in jobs if not job.archive.exists()]:
                Builder(cache, repository, _build_arguments(), progress).build(missing)
            for job in jobs:
                os.utime(job.archive)
                _prune(job.archive.parent, job.target)
    return {reference(job.target): job.archive for job in jobs}


def reference(target: str, tag: str = "dev") -> str:
    """Return the name of a target's image, as a pod spec has it."""
    return f"localhost/kurm/{target}:{tag}"


def tag(repository: Path, target: str) -> str:
    """Return the target's content tag: 12 hexadecimal digits that change whenever anything that goes into it does."""
    return _key(target, _recipe(target).digest(repository))


def _key(target: str, digest: str) -> str:
    whole = (BASE, SEED_RECIPE, target, sorted(_build_arguments().items()), digest)
    return hashlib.sha256(repr(whole).encode()).hexdigest()[:12]


def _recipe(target: str) -> Recipe:
    return next(recipe for recipe in RECIPES if target in recipe.targets)


def _job(cache: Path, repository: Path, target: str) -> Job:
    recipe = _recipe(target)
    digest = recipe.digest(repository)
    key = _key(target, digest)
    names = (reference(target), reference(target, key))
    return Job(target, recipe, digest, cache / "archives" / f"{target}-{key}.tar", names)


def _build_arguments() -> dict[str, str]:
    """Return what a user has set from outside: SLURM_VERSION, another pattern for apt, as `26.05.5-1`."""
    return {name: os.environ[name] for name in ("SLURM_VERSION",) if os.environ.get(name)}


def _check(targets: Sequence[str] | None) -> list[str]:
    for target in targets or ():
        if target not in TARGETS:
            raise ImageError(f"image {target!r}: there is no such image; there are {', '.join(TARGETS)}")
    return [target for target in TARGETS if targets is None or target in targets]


def _check_machine(cache: Path) -> None:
    """Raise ImageError if this machine plainly cannot build."""
    if os.geteuid() != 0:
        raise ImageError("images are built by root: run this as root (sudo)")
    for program, package in (("buildah", "buildah"), ("debootstrap", "debootstrap"), ("unshare", "util-linux")):
        if shutil.which(program) is None:
            raise ImageError(f"the program {program!r} is not installed: apt-get install {package}")
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if free < DISK_NEEDED:
        raise ImageError(
            f"{cache}: {free / 1e9:.1f} GB are free and building images takes {DISK_NEEDED / 1e9:.0f} GB: make room, "
            "or set XDG_CACHE_HOME to a folder on a larger disk"
        )


@contextmanager
def _locked(cache: Path, progress: Progress) -> Iterator[None]:
    """Hold the cache for one build at a time; the kernel lets go of it when we die."""
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build of images on this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _prune(folder: Path, target: str) -> None:
    """Remove all but the latest used archives of the target, and what a killed build left half-written."""
    name = re.compile(rf"{target}-[0-9a-f]{{12}}\.tar")
    found = [path for path in folder.glob(f"{target}-*.tar") if name.fullmatch(path.name)]
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[ARCHIVES_KEPT:]:
        path.unlink()
    for path in folder.glob(f"{target}-*.partial"):
        path.unlink()
