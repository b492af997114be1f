"""The modules that `kurm local` builds: what they share is compiled once, and one's change is not the other's."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

from kurm.local import build


def _versions(go_mod: str) -> dict[str, str]:
    """Return the versions of all modules in a go.mod, as they are after its replacements."""
    required = dict(re.findall(r"^\s*(?:require )?(\S+) (v\S+)(?: // indirect)?$", go_mod, re.MULTILINE))
    return required | dict(re.findall(r"^\s*(?:replace )?(\S+) => \1 (v\S+)$", go_mod, re.MULTILINE))


def test_shared_modules_have_one_version() -> None:
    """Go then compiles each of their packages once for both; another version would add minutes to a first build."""
    kubernetes, helm = (_versions(module.go_mod()) for module in build.MODULES)
    shared = kubernetes.keys() & helm.keys()
    assert {name: (kubernetes[name], helm[name]) for name in shared if kubernetes[name] != helm[name]} == {}
    assert {"k8s.io/api", "k8s.io/client-go", "k8s.io/kubectl", "golang.org/x/net"} <= shared


def test_another_helm_builds_no_kubernetes(tmp_path: Path) -> None:
    """Each module has its own key, over all of its files."""
    shutil.copytree(build.SOURCE, tmp_path, dirs_exist_ok=True)
    kubernetes, helm = (replace(module, folder=tmp_path / module.folder.name) for module in build.MODULES)
    before = kubernetes.key(), helm.key()
    assert before == (build.KUBERNETES.key(), build.HELM.key())
    (tmp_path / "helm/go.sum").write_text("")
    assert (kubernetes.key() == before[0], helm.key() == before[1]) == (True, False)
    (tmp_path / "kubernetes/pause/main.go").write_text("package main\n")
    assert kubernetes.key() != before[0]


def test_programs_tell_the_versions_that_are_pinned() -> None:
    """The linker writes them; Go's own build information names modules only."""
    stamps = build.HELM.stamps(build.HELM)
    assert list(stamps.values()) == [f"v{build.HELM.pinned('helm.sh/helm/v4')}"]
    kubernetes = build.KUBERNETES.stamps(build.KUBERNETES)
    assert kubernetes["k8s.io/component-base/version.gitVersion"] == f"v{build.kubernetes_version()}"
