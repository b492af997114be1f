"""One of Kurm's daemons as a process of its own: what it uses, what it counts, what it says."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass
class Daemon:
    """A running one. `log` is its standard output: a JSON object on each line."""

    process: "subprocess.Popen[bytes]"
    log: Path
    port: int
    """Of its metrics."""
    skipped: int = 0
    """Bytes of the log that an earlier process has written."""

    @property
    def cpu(self) -> float:
        """CPU seconds used so far."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident(self) -> float:
        """Memory held now, in MB (10**6 bytes)."""
        return self._status("VmRSS")

    @property
    def peak(self) -> float:
        """The most memory that it ever held, in MB."""
        return self._status("VmHWM")

    def metrics(self) -> dict[str, float]:
        """Return what it counts now, by the metric's name with its labels as Prometheus writes them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^(\w[^#\n]*) (\S+)$", text, re.MULTILINE)}

    def said(self, event: str) -> list[tuple[float, dict[str, Any]]]:
        """Return the lines of its log that tell an event, each with its time (time.time())."""
        text = self.log.read_bytes()[self.skipped :]
        lines = [json.loads(line) for line in text.splitlines() if event.encode() in line and line.startswith(b"{")]
        return [
            (datetime.fromisoformat(line["timestamp"]).timestamp(), line) for line in lines if line["event"] == event
        ]

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self.process.pid}/{name}").read_text()

    def _status(self, field: str) -> float:
        return int(self._proc("status").split(f"{field}:")[1].split()[0]) * 1024 / 1e6


@contextmanager
def daemon(*words: str, log: Path, port: int) -> Iterator[Daemon]:
    """Run `kurm WORDS --port PORT`; the kernel ends it with us, or the end of the block does (SIGTERM)."""
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "kurm.cli", *words, "--port", str(port)]
    skipped = log.stat().st_size if log.exists() else 0
    with log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield Daemon(process, log, port, skipped)
        finally:
            process.terminate()
            process.wait(30)
