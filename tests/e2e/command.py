"""The commands that these tests run: a user's, as the README gives them."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KURM = Path(sys.executable).parent / "kurm"


def run(*argv: str | Path, stdin: str | None = None, deadline: float = 120) -> str:
    """Run a command and return what it printed; a failure shows everything it said."""
    words = [str(word) for word in argv]
    done = subprocess.run(words, input=stdin or "", capture_output=True, text=True, check=False, timeout=deadline)
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}".strip()
        raise AssertionError(f"`{' '.join(words)}` ended with {done.returncode}:\n{said}")
    return done.stdout


@dataclass(frozen=True)
class Local:
    """One local cluster, by its commands."""

    name: str

    def kurm(self, *argv: str, deadline: float = 300) -> str:
        """Run `kurm local --name NAME ...`."""
        return run(KURM, "local", "--name", self.name, *argv, deadline=deadline)

    def kubectl(self, *argv: str, stdin: str | None = None, deadline: float = 120) -> str:
        """Run the cluster's own kubectl with the kubeconfig that `kurm local kubeconfig` prints."""
        conf = self.kurm("kubeconfig").strip()
        binaries = json.loads((Path(conf).parent / "cluster.json").read_text())["binaries"]
        return run(f"{binaries}/kubectl", f"--kubeconfig={conf}", *argv, stdin=stdin, deadline=deadline)

    def get(self, *argv: str) -> Any:
        """Return what `kubectl get ... -o json` prints."""
        return json.loads(self.kubectl("get", *argv, "-o", "json"))

    def ready(self) -> dict[str, str]:
        """Return the status of each node's Ready condition."""
        return {
            item["metadata"]["name"]: condition["status"]
            for item in self.get("nodes")["items"]
            for condition in item["status"]["conditions"]
            if condition["type"] == "Ready"
        }
