"""One build of images: the base by debootstrap, the layers by buildah, an archive for each image.

Every program runs in its own mount and process namespace and dies with us: a `kurm` that is killed leaves no mount, no
process and no lock behind.
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path

from kurm.local.image_recipe import ImageError, Job

BASE = "localhost/debian:forky-slim"
"""What `FROM debian:forky-slim` finds when nothing but this machine is asked."""
SUITE = "forky"
SEED_RECIPE = "1"
"""Counted up when `_seed` changes, so that an old base is not taken for a new one."""
BASE_AGE = 7 * 24 * 3600.0
"""Seconds that a base and its layers are built upon: Debian's testing suites move on and drop what they held before."""
BUILD_DEADLINE = 1200.0
"""Seconds for one program of a build: twenty times what it takes on two cores, for slow networks."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
SIGNED_SINCE = 13
"""The first Debian release whose keys know forky's; an older one has to take its first packages on trust."""
# It sees its mounts alone, and is process 1 of a namespace: when we die it dies, with all that it started.
JAIL = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class Builder:
    """One build: it has the cache folder for itself."""

    def __init__(
        self, cache: Path, repository: Path, arguments: Mapping[str, str], progress: Callable[[str], None]
    ) -> None:
        self.cache, self.repository, self.arguments, self.progress = cache, repository, arguments, progress
        self.log = cache / "build.log"
        self.store, self.base, self.work = cache / "store", cache / "base", cache / "work"

    def build(self, jobs: Sequence[Job]) -> None:
        """Build each image and put its archive in its place. Raises ImageError."""
        self.log.unlink(missing_ok=True)
        # Nothing in it outlives a build: it holds what a killed one left, and buildah's notes of mounts that are gone.
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        for job in jobs:
            self._copy(job)
        self._refresh_base()
        self._buildah("rm", "--all")  # containers of a build that was killed
        layout = self.work / "layout"
        for job in jobs:
            self.progress(f"image {job.target}")
            self._build_image(job)
            # zstd: over plain tar or gzip the import into a node takes a third less processor time, and less disk.
            self._buildah("push", "--compression-format", "zstd", _local(job.target), f"oci:{layout}:{job.target}")
            job.archive.parent.mkdir(exist_ok=True)
            write_archive(layout, job.target, job.references, job.archive)
        shutil.rmtree(self.work)

    def _build_image(self, job: Job) -> None:
        checkout = self._checkout(job)
        labels = []
        if job.recipe.version is not None:
            found = self.work / job.recipe.version
            if not found.exists():
                output = f"type=local,dest={found}"
                self._build_target(job, checkout, "--target", job.recipe.version, "--output", output)
            labels = ["--label", f"org.opencontainers.image.version={next(found.iterdir()).read_text().strip()}"]
        self._build_target(job, checkout, "--target", job.target, "--tag", _local(job.target), *labels)

    def _checkout(self, job: Job) -> Path:
        return self.work / "checkout" / Path(job.recipe.containerfile).parent.name

    def _copy(self, job: Job) -> None:
        """Copy what the recipe may read to a folder of its own: what is not in the key cannot be in the image."""
        checkout = self._checkout(job)
        if not checkout.exists():
            for path in job.recipe.files(self.repository):
                copy = checkout / path.relative_to(self.repository)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
        if job.recipe.digest(checkout) != job.digest:
            raise ImageError(
                f"{self.repository}: files of image {job.target!r} changed while they were read: try again"
            )

    def _build_target(self, job: Job, checkout: Path, *options: str) -> None:
        arguments = [f"--build-arg={name}={value}" for name, value in self.arguments.items()]
        # This machine's ways to the registries are lent to the build as mounts; none of them ends in a layer.
        lent = ["--volume", f"{self.base}/sources:/etc/apt/sources.list.d:ro"]
        lent += ["--volume", f"{self.base}/apt.conf:/etc/apt/apt.conf:ro"]
        if (bundle := certificates()) is not None:
            lent += ["--secret", f"id=ca,src={bundle}"]
        fixed = ["--isolation", "chroot", "--pull=never", "--layers", "--network", "host"]
        where = ["--file", str(checkout / job.recipe.containerfile), str(checkout / job.recipe.context)]
        self._buildah("build", *fixed, *arguments, *lent, *options, *where)

    def _refresh_base(self) -> None:
        """See to a base that is young enough, under the name that the Containerfiles give it."""
        stamp = self.base / f"seeded-{SUITE}-{SEED_RECIPE}"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < BASE_AGE:
            return
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.rmtree(self.store, ignore_errors=True)
        self.progress("image base (debootstrap)")
        (self.base / "sources").mkdir(parents=True)
        mirror = apt_mirror(Path("/etc/apt"), _os_release())
        sources = f"Types: deb\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\n"
        keyring = "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        (self.base / "sources/build.sources").write_text(sources + keyring)
        (self.base / "apt.conf").write_text(_apt_conf())
        (self.base / "apt.conf").chmod(0o600)  # a proxy's address may hold a password
        self._seed(mirror)
        stamp.touch()

    def _seed(self, mirror: str) -> None:
        """Make the base by debootstrap, as slim as the public image of that name, and give it that name."""
        root = self.work / "root"
        release = int(_os_release().get("VERSION_ID", "").partition(".")[0] or 0)
        trust = [] if release >= SIGNED_SINCE else ["--no-check-gpg"]
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
        # A build that is cut off is thrown away: dpkg need not wait for the disk.
        (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
        self._run("tar", "--create", f"--file={self.work}/root.tar", f"--directory={root}", "--numeric-owner", ".")
        (self.work / "seed").write_text('FROM scratch\nADD root.tar /\nCMD ["bash"]\n')
        fixed = ["--isolation", "chroot", "--layers=false"]
        self._buildah("build", *fixed, "--tag", BASE, "--file", f"{self.work}/seed", str(self.work))
        shutil.rmtree(root)

    def _buildah(self, *arguments: str) -> None:
        places = ["--root", str(self.store), "--runroot", str(self.work / "run"), "--storage-driver", "overlay"]
        # Where it notes which layers it has pushed cannot be chosen: below /var/lib. It gets one of its own.
        notes = self.cache / "notes"
        notes.mkdir(exist_ok=True)
        own_place = ["sh", "-c", 'mount --bind "$0" /var/lib && exec "$@"', str(notes)]
        self._run(*own_place, "buildah", *places, *arguments)

    def _run(self, *argv: str) -> None:
        """Run a program with its output in the log; raise ImageError with the cause as far as the log tells it."""
        environment = {**os.environ, "TMPDIR": str(self.work), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        with self.log.open("ab") as out:
            begun = out.tell()
            out.write(f"+ {' '.join(argv)}\n".encode())
            out.flush()
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            try:
                done = subprocess.run([*JAIL, *argv], **streams, env=environment, timeout=BUILD_DEADLINE, check=False)  # type: ignore[call-overload]
            except subprocess.TimeoutExpired:
                raise ImageError(f"{argv[0]} did not end within {BUILD_DEADLINE / 60:.0f} min", self.log) from None
        if done.returncode != 0:
            raise ImageError(cause(self.log.read_bytes()[begun:].decode(errors="replace")), self.log)


def _local(target: str) -> str:
    """Return the name of a target's image in buildah's storage."""
    return f"kurm-build/{target}"


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
    parts = [found, manifest["config"], *manifest["layers"]]
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        tar.add(layout / "oci-layout", "oci-layout")
        text = json.dumps({**index, "manifests": entries}).encode()
        member = tarfile.TarInfo("index.json")
        member.size = len(text)
        tar.addfile(member, BytesIO(text))
        for digest in dict.fromkeys(part["digest"] for part in parts):
            tar.add(_blob(layout, digest), f"blobs/{digest.replace(':', '/')}")
    partial.replace(archive)


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def apt_mirror(apt: Path, release: Mapping[str, str]) -> str:
    """Return the address of the Debian mirror that this machine's apt uses, read from the settings in folder `apt`.

    `release` is /etc/os-release. Among several sources it is the one with the machine's own suite. Raises ImageError.
    """
    codename = release.get("VERSION_CODENAME") or "(unknown)"
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^(\w+):[ \t]*(.+)$", stanza, re.MULTILINE))
            if codename in fields.get("Suites", "").split() and fields.get("URIs"):
                return str(fields["URIs"].split()[0])
    line = re.compile(rf"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{re.escape(codename)}\s", re.MULTILINE)
    for path in (apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))):
        if path.exists() and (found := line.search(path.read_text())):
            return found[1]
    raise ImageError(
        f"{apt}: apt has no source with suite {codename!r}, so no Debian mirror is known to build from: images are "
        "built on Debian 12 or later"
    )


def certificates() -> Path | None:
    """Return this machine's bundle of certificate authorities, which may hold a proxy's own; None if it has none."""
    named = os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT")
    return next((path for path in (Path(named or CERTIFICATES), CERTIFICATES) if path.is_file()), None)


def _apt_conf() -> str:
    """Return apt's settings for the build: this machine's proxies, and a Release file past its date is taken."""
    try:
        dumped = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        dumped = ""
    proxies = [line for line in dumped.splitlines() if re.match(r"Acquire::(http|https)::", line)]
    return "\n".join([*proxies, 'Acquire::Check-Valid-Until "false";', 'Acquire::Retries "3";', ""])


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


UNREACHABLE = (
    "Could not resolve", "Temporary failure", "Failed getting release file", "Failed to fetch", "Unable to connect",
    "Connection refused", "Network is unreachable", "Could not connect", "Connection timed out",
    "error sending request", "No matching distribution",
)  # fmt: skip
UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "UnknownIssuer", "certificate verify failed")
# What the tools print when the cause lies outside of them, and what to do about it. They give no codes.
CAUSES = {
    "No space left on device": "the disk is full: make room, or set XDG_CACHE_HOME to a folder on a larger disk",
    r"Version '(?P<version>[^']+)' for '(?P<package>[^']+)' was not found": f"Debian's {SUITE} has no {{package}} "
    "{version}: set SLURM_VERSION to one that it has, or, if it had this one before, remove the cache's folder `base`",
    "|".join(UNTRUSTED): "a package registry's certificate is not trusted: name the bundle that holds its authority in "
    "SSL_CERT_FILE",
    "|".join(UNREACHABLE): "a package registry cannot be reached: see whether apt-get update and pip download work on "
    "this machine",
}


def cause(output: str) -> str:
    """Return one sentence that says why a build failed, from what its programs printed."""
    for pattern, sentence in CAUSES.items():
        if found := re.search(pattern, output):
            return "the image cannot be built: " + sentence.format(**found.groupdict())
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"E: |error: ", line, re.IGNORECASE)]
    return f"the image cannot be built: {(errors or lines or ['nothing was printed'])[0][:300]}"
