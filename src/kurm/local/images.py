"""Kurm's images, built here without a container engine and without a registry.

buildah builds the same Containerfiles that `docker build` takes. The base that they name is made by debootstrap from the
Debian mirror that this machine's apt uses, and stored under that name. What comes out is one OCI archive for each image,
kept by content: the archive's key is a hash of all that goes into it, so nothing is built twice.

    $XDG_CACHE_HOME/kurm/images/
      archives/slurmd-<key>.tar   the product; holds the image under two names, `...:dev` and `...:<key>`
      store/                      buildah's layers, so that a small change costs a small build
      base/                       the debootstrapped base and the build's apt settings
      build.log                   the last build's output

Every child runs in its own mount and process namespace and dies with us: a `kurm` that is killed leaves no mount, no
process and no lock behind, and what it left in `store/` is cleared by the next build.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from kurm.local.errors import LocalError

Progress = Callable[[str], None]

BASE = "localhost/debian:forky-slim"
"""What `FROM debian:forky-slim` finds when nothing but this machine is asked."""
SUITE = "forky"
SEED_RECIPE = "1"
"""Counted up when `_seed` changes, so that an old base is not taken for a new one."""
BASE_AGE = 7 * 24 * 3600.0
"""Seconds that a base and its layers are built upon: Debian's testing suites move on and drop what they held before."""
BUILD_DEADLINE = 1200.0
"""Seconds for one program of a build: twenty times what it takes on two cores, for slow networks."""
DISK_NEEDED = 6 << 30
"""Bytes: base and layers 1.5 GB, archives 2 GB, and what a build holds beside them."""
ARCHIVES_KEPT = 2
"""Of each image, counted from the newest: this build's and the one before, which a running cluster may still use."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class Recipe:
    """One Containerfile and what its build may read."""

    containerfile: str
    context: str
    """The folder that COPY's paths start from; all paths here are relative to the repository."""
    inputs: tuple[str, ...]
    """Files and folders that the build sees, and nothing else; their content is in the key."""
    targets: tuple[str, ...]


RECIPES = (
    Recipe(
        "images/slurm/Containerfile",
        "images/slurm",
        ("images/slurm",),
        ("controller", "slurmrestd", "dbd", "slurmd", "login", "mariadb"),
    ),
    Recipe(
        "images/kurm/Containerfile",
        ".",
        ("images/kurm", "images/slurm/apt-install", "src", "pyproject.toml", "uv.lock", "README.md", "LICENSE"),
        ("kurm",),
    ),
)
TARGETS = tuple(target for recipe in RECIPES for target in recipe.targets)


class ImageError(LocalError):
    """An image cannot be built: one sentence that says why and what to do; `log` is the build's output, if there is any."""

    def __init__(self, sentence: str, log: Path | None = None) -> None:
        super().__init__(sentence if log is None else f"{sentence} (the build's output is in {log})")
        self.log = log


def build(
    repository: Path, targets: Sequence[str] | None = None, progress: Progress = lambda _: None
) -> dict[str, Path]:
    """Build the images that are not in the cache and return, for each target, its reference and its OCI archive.

    `targets` are names of TARGETS, all if None. A reference is `localhost/kurm/TARGET:dev`; the archive holds the image
    also under `localhost/kurm/TARGET:KEY`, where KEY changes with the content (see `tag`). `progress` is told what is
    being done, one line each. Raises ImageError.
    """
    wanted = _check(targets)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kurm/images"
    archives = {target: _archive(cache, repository, target) for target in wanted}
    if not all(archive.exists() for archive in archives.values()):
        _check_machine(cache)
        with _locked(cache, progress):
            builder = _Builder(cache, repository, progress)
            builder.build([target for target in wanted if not archives[target].exists()])
    for archive in archives.values():
        archive.touch()  # `_prune` keeps the latest used
    return {reference(target): archive for target, archive in archives.items()}


def reference(target: str, tag: str = "dev") -> str:
    """Return the name of a target's image, as a pod spec has it."""
    return f"localhost/kurm/{target}:{tag}"


def tag(repository: Path, target: str) -> str:
    """Return the target's content tag: 12 hexadecimal digits that change whenever anything that goes into it does."""
    recipe = _recipe(target)
    digest = hashlib.sha256(f"{BASE} {SEED_RECIPE} {target} {sorted(_build_arguments().items())}".encode())
    for path, name in _inputs(repository, recipe):
        digest.update(f"\0{name}\0{path.stat().st_mode & 0o111:o}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _build_arguments() -> dict[str, str]:
    """What a user may set from outside: SLURM_VERSION, another pattern for apt, as `26.05.5-1`."""
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
            f"{cache}: {free / 1e9:.1f} GB are free and building images takes {DISK_NEEDED / 1e9:.0f} GB: make room, or "
            "set XDG_CACHE_HOME to a folder on a larger disk"
        )


def _recipe(target: str) -> Recipe:
    return next(recipe for recipe in RECIPES if target in recipe.targets)


def _inputs(repository: Path, recipe: Recipe) -> Iterator[tuple[Path, str]]:
    """Yield each file that goes into the recipe's images, with its name below the context, in a fixed order."""
    for entry in recipe.inputs:
        top = repository / entry
        if not top.exists():
            raise ImageError(
                f"{top}: the file is missing, and {recipe.containerfile} needs it: is this a whole checkout?"
            )
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, path.relative_to(repository / recipe.context).as_posix()


def _archive(cache: Path, repository: Path, target: str) -> Path:
    return cache / "archives" / f"{target}-{tag(repository, target)}.tar"


@contextlib.contextmanager
def _locked(cache: Path, progress: Progress) -> Iterator[None]:
    """Hold the cache for one build at a time; the kernel lets go of it when we die."""
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build of images on this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Builder:
    """One build: it has the cache for itself."""

    def __init__(self, cache: Path, repository: Path, progress: Progress) -> None:
        self.cache, self.repository, self.progress = cache, repository, progress
        self.log = cache / "build.log"
        self.store, self.base, self.work = cache / "store", cache / "base", cache / "work"

    def build(self, targets: Sequence[str]) -> None:
        """Build what is still missing of `targets` and put the archives in their place."""
        targets = [target for target in targets if not _archive(self.cache, self.repository, target).exists()]
        self.log.unlink(missing_ok=True)
        # Nothing in it outlives a build: it holds what a killed one left, and buildah's state of mounts that are gone.
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        if not targets:  # the build that we waited for made them
            return
        self._refresh_base()
        with contextlib.suppress(ImageError):
            self._buildah("rm", "--all")  # containers of a build that was killed
        layout = self.work / "layout"
        for target in targets:
            self.progress(f"image {target}")
            self._build_image(target)
            # zstd: over plain tar or gzip the import into a node takes a third less processor time, and less disk.
            self._buildah("push", "--compression-format", "zstd", f"kurm-build/{target}", f"oci:{layout}:{target}")
        for target in targets:
            path = _archive(self.cache, self.repository, target)
            path.parent.mkdir(exist_ok=True)
            names = [reference(target), reference(target, tag(self.repository, target))]
            write_archive(layout, target, names, path)
            _prune(path.parent, target)
        shutil.rmtree(self.work)

    def _build_image(self, target: str) -> None:
        recipe = _recipe(target)
        context = self._context(recipe)
        options = [
            "--target",
            target,
            "--tag",
            f"kurm-build/{target}",
            "--file",
            str(self.repository / recipe.containerfile),
        ]
        for name, value in _build_arguments().items():
            options += ["--build-arg", f"{name}={value}"]
        # This machine's ways to the registries are lent to the build as mounts; none of them ends in a layer.
        options += ["--volume", f"{self.base}/sources:/etc/apt/sources.list.d:ro"]
        options += ["--volume", f"{self.base}/apt.conf:/etc/apt/apt.conf:ro"]
        if (bundle := certificates()) is not None:
            options += ["--secret", f"id=ca,src={bundle}"]
        self._buildah(
            "build", "--isolation", "chroot", "--pull=never", "--layers", "--network", "host", *options, str(context)
        )

    def _context(self, recipe: Recipe) -> Path:
        """Copy what the recipe may read to a folder of its own: what is not in the key cannot be in the image."""
        context = self.work / "context" / Path(recipe.containerfile).parent.name
        if not context.exists():
            for path, name in _inputs(self.repository, recipe):
                (context / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, context / name)
        return context

    def _refresh_base(self) -> None:
        """See to a base that is young enough, under the name that the Containerfiles give it."""
        stamp = self.base / f"seeded-{SUITE}-{SEED_RECIPE}"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < BASE_AGE:
            return
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.rmtree(self.store, ignore_errors=True)
        self.base.mkdir()
        self.progress("image base (debootstrap)")
        (self.base / "sources").mkdir()
        mirror = apt_mirror(Path("/etc/apt"), _os_release())
        sources = f"Types: deb\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\n"
        keyring = "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        (self.base / "sources/build.sources").write_text(sources + keyring)
        (self.base / "apt.conf").write_text(self._apt_conf())
        (self.base / "apt.conf").chmod(0o600)  # a proxy's address may hold a password
        self._seed(mirror)
        stamp.touch()

    def _apt_conf(self) -> str:
        """Return apt's settings for the build: this machine's proxies, and a Release file past its date is taken."""
        dumped = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=False).stdout
        proxies = [line for line in dumped.splitlines() if re.match(r"Acquire::(http|https)::", line)]
        return "\n".join([*proxies, 'Acquire::Check-Valid-Until "false";', 'Acquire::Retries "3";', ""])

    def _seed(self, mirror: str) -> None:
        """Make the base by debootstrap, as slim as the public image of that name, and give it that name."""
        root = self.work / "root"
        trust = [] if int(_os_release().get("VERSION_ID", "0").partition(".")[0] or 0) > 12 else ["--no-check-gpg"]
        # forky has no script of its own in older debootstraps; it is made like sid.
        script = "/usr/share/debootstrap/scripts/sid"
        self._run("debootstrap", "--variant=minbase", *trust, SUITE, str(root), mirror, script)
        for folder in ("doc", "man", "info", "locale", "lintian", "bug"):
            shutil.rmtree(root / "usr/share" / folder, ignore_errors=True)
        for folder in ("var/lib/apt/lists", "var/cache/apt", "var/log", "dev"):
            for path in (root / folder).iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        # Where packages come from is the build's affair (a mount), not the image's.
        for name in ("etc/apt/sources.list", "etc/resolv.conf", "etc/hostname"):
            (root / name).unlink(missing_ok=True)
        (root / "etc/apt/apt.conf").touch()
        (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text(
            "force-unsafe-io\n"
        )  # a build that is cut off is thrown away
        self._run(
            "tar", "--create", "--file", f"{self.work}/root.tar", "--directory", str(root), "--numeric-owner", "."
        )
        (self.work / "seed").write_text('FROM scratch\nADD root.tar /\nCMD ["bash"]\n')
        self._buildah(
            "build",
            "--isolation",
            "chroot",
            "--layers=false",
            "--tag",
            BASE,
            "--file",
            f"{self.work}/seed",
            str(self.work),
        )
        shutil.rmtree(root)

    def _buildah(self, *arguments: str) -> None:
        places = ["--root", str(self.store), "--runroot", str(self.work / "run"), "--storage-driver", "overlay"]
        # Where it keeps notes on the layers that it has pushed cannot be chosen: below /var/lib. It gets one of its own.
        notes = self.cache / "notes"
        notes.mkdir(exist_ok=True)
        own_place = ["sh", "-c", 'mount --bind "$0" /var/lib && exec "$@"', str(notes)]
        self._run(*own_place, "buildah", *places, *arguments)

    def _run(self, *argv: str) -> None:
        """Run a program with its output in the log; raise ImageError with the cause as far as the log tells it.

        It sees its mounts alone and is the first process of a namespace: when we die it dies, with all that it started.
        """
        jail = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        environment = {**os.environ, "TMPDIR": str(self.work), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        with self.log.open("ab") as out:
            begun = out.tell()
            out.write(f"+ {' '.join(argv)}\n".encode())
            out.flush()
            try:
                done = subprocess.run(
                    [*jail, *argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
                    timeout=BUILD_DEADLINE, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise ImageError(f"{argv[0]} did not end within {BUILD_DEADLINE / 60:.0f} min", self.log) from None
        if done.returncode != 0:
            raise ImageError(cause(self.log.read_bytes()[begun:].decode(errors="replace")), self.log)


def write_archive(layout: Path, name: str, references: Sequence[str], archive: Path) -> None:
    """Write one image of an OCI layout folder to an OCI archive that holds it under each of `references`.

    The archive appears complete or not at all.
    """
    index = json.loads((layout / "index.json").read_bytes())
    key = "org.opencontainers.image.ref.name"
    found = next(entry for entry in index["manifests"] if entry.get("annotations", {}).get(key) == name)
    # containerd takes the second annotation first, and buildah's own tools read the first.
    entries = [{**found, "annotations": {key: name, "io.containerd.image.name": name}} for name in references]
    manifest = json.loads(_blob(layout, found["digest"]).read_bytes())
    digests = dict.fromkeys(
        [found["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    )
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        tar.add(layout / "oci-layout", "oci-layout")
        text = json.dumps({**index, "manifests": entries}).encode()
        member = tarfile.TarInfo("index.json")
        member.size = len(text)
        tar.addfile(member, BytesIO(text))
        for digest in digests:
            tar.add(_blob(layout, digest), f"blobs/{digest.replace(':', '/')}")
    partial.replace(archive)


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def _prune(folder: Path, target: str) -> None:
    """Remove all but the latest used archives of the target, and what a killed build left half-written."""
    found = [
        path for path in folder.glob(f"{target}-*.tar") if re.fullmatch(rf"{target}-[0-9a-f]{{12}}\.tar", path.name)
    ]
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[ARCHIVES_KEPT:]:
        path.unlink()
    for path in folder.glob(f"{target}-*.partial"):
        path.unlink()


def apt_mirror(apt: Path, release: Mapping[str, str]) -> str:
    """Return the address of the Debian mirror that this machine's apt uses, read from the settings in folder `apt`.

    `release` is /etc/os-release. Among several sources it is the one with the machine's own suite. Raises ImageError.
    """
    codename = release.get("VERSION_CODENAME", "")
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^(\w+):[ \t]*(.+)$", stanza, re.MULTILINE))
            if codename in fields.get("Suites", "").split() and fields.get("URIs"):
                return str(fields["URIs"].split()[0])
    for path in (apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))):
        if path.exists():
            found = re.search(
                rf"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{re.escape(codename)}\s", path.read_text(), re.MULTILINE
            )
            if found and codename:
                return found[1]
    raise ImageError(
        f"{apt}: apt has no source with suite {codename or '(unknown)'!r}, so no Debian mirror is known to build from: "
        "images are built on Debian 12 or later"
    )


def certificates() -> Path | None:
    """Return this machine's bundle of certificate authorities, which may hold a proxy's own; None if it has none."""
    named = os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT")
    return next((path for path in (Path(named or CERTIFICATES), CERTIFICATES) if path.is_file()), None)


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


# What the tools print when the cause lies outside of them, and what to do about it. The tools give no codes.
CAUSES = (
    (r"No space left on device", "the disk is full: make room, or set XDG_CACHE_HOME to a folder on a larger disk"),
    (
        r"Version '(?P<what>[^']+)' for '(?P<of>[^']+)' was not found",
        "Debian's {suite} has no {of} {what}: set SLURM_VERSION to one that it has, or remove the cache's folder `store`",
    ),
    (
        r"Could not resolve|Temporary failure|Failed getting release file|Failed to fetch|Unable to connect|Connection refused"
        r"|Network is unreachable|Could not connect|Connection timed out|error sending request|No matching distribution",
        "a package registry cannot be reached: see whether apt-get update and pip download work on this machine",
    ),
    (r"CERTIFICATE_VERIFY_FAILED|UnknownIssuer|certificate verify failed", "a package registry's certificate is not "
     "trusted: name the bundle that holds its authority in SSL_CERT_FILE"),
)  # fmt: skip


def cause(output: str) -> str:
    """Return one sentence that says why a build failed, from what its programs printed."""
    for pattern, sentence in CAUSES:
        if found := re.search(pattern, output):
            return "the image cannot be built: " + sentence.format(suite=SUITE, **found.groupdict())
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"E: |error: |ERROR: |Error: ", line, re.IGNORECASE)]
    return f"the image cannot be built: {(errors or lines or ['nothing was printed'])[0][:300]}"
