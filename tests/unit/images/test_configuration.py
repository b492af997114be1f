"""slurmctld's init brings a projected configuration into force, or says why not and keeps the last good one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

IMAGES = Path(__file__).parents[3] / "images/slurm"
SECONDS = 30.0

# A slurmctld for its init to deal with. A configuration with "Bad" is refused by every slurmctld, one with "Late" by
# all but the one that tries it. A started one writes which file it runs with into the log, as `with=...`.
DAEMON = f"""#!{sys.executable}
import os, signal, sys
def words():
    text = open(os.environ["SLURM_CONF"]).read()
    return text, "Bad" in text, "Late" in text
text, bad, late = words()
if "-D" in sys.argv:
    open(os.environ["TRIED"], "w").write(text)
    print("[now] error: key Bad" if bad else "[now] fine", flush=True)
    if bad:
        sys.exit(f"[now] fatal: no file {{os.environ['SLURM_CONF']}}")
    print("[now] Running as primary controller", flush=True)
    signal.pause()
log = open(sys.argv[sys.argv.index("-L") + 1], "a", buffering=1)
if os.fork():
    os._exit(0)
os.setsid()
if bad or late:
    print("[now] fatal: too late", file=log)
    os._exit(1)
print("[now] Running as primary controller", file=log)
print("with=" + text.strip(), file=log)
signals = {{signal.SIGHUP, signal.SIGTERM}}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
while True:
    if signal.sigwait(signals) == signal.SIGTERM:
        os._exit(0)
    text, bad, late = words()
    if bad or late:
        print("[now] fatal: too late", "[now] Resuming operation, reconfigure failed.", sep="\\n", file=log)
    else:
        print("with=" + text.strip(), "[now] Relinquishing control to new child", sep="\\n", file=log)
"""


@dataclass
class Pod:
    """slurmctld's container: what the kubelet projects into it, its state volume and its status port."""

    folder: Path
    port: int

    @property
    def etc(self) -> Path:
        """What is mounted at /etc/slurm."""
        return self.folder / "etc"

    def project(self, found: str, text: str) -> None:
        """Replace the whole configuration at once, as the kubelet does."""
        data = self.etc / f"..{found}"
        data.mkdir(parents=True)
        for name, content in {"kurm-hash": found, "slurm.conf": text, "slurm.key": "secret"}.items():
            (data / name).write_text(content)
            link = self.etc / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        new = self.etc / "..data_tmp"
        new.symlink_to(data.name)
        new.replace(self.etc / "..data")

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the container."""
        daemon = self.folder / "slurmctld"
        daemon.write_text(DAEMON)
        daemon.chmod(0o755)
        places = {"KURM_SOURCE": self.etc, "KURM_STORE": self.folder / "kurm", "KURM_STATUS_PORT": self.port}
        settings = {"SLURMCTLD": daemon, "PYTHONPATH": IMAGES, "TRIED": self.folder / "tried"} | places
        environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        with (self.folder / "log").open("a") as log:
            init = subprocess.Popen(
                [sys.executable, IMAGES / "slurmctld-init"], env=environment, stdout=log, stderr=log
            )
        try:
            yield init
        finally:
            init.terminate()
            init.wait(SECONDS)

    def told(self) -> dict[str, Any]:
        """Return what the status port tells of the configuration."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
            return {name: found[name] for name in ("hash", "refused", "words")}

    def runs(self) -> list[str]:
        """Return the configurations that slurmctld has run with, in order."""
        lines = (self.folder / "log").read_text().splitlines()
        return [line.removeprefix("with=") for line in lines if line.startswith("with=")]

    def copies(self) -> dict[str, set[str]]:
        """Return which files are kept of which configuration."""
        return {path.name: {file.name for file in path.iterdir()} for path in (self.folder / "kurm").glob("of-*")}


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """Return a container that does not run yet, with nothing projected into it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Pod(tmp_path, free.getsockname()[1])


def until(expected: object, actual: Callable[[], object]) -> None:
    """Wait until something is as expected, at most SECONDS."""
    end = time.monotonic() + SECONDS
    found: object = None
    while time.monotonic() < end:
        try:
            if (found := actual()) == expected:
                return
        except urllib.error.URLError as error:
            found = error
        time.sleep(0.02)
    assert expected == found


def status(found: str, refused: str = "", words: str = "") -> dict[str, str]:
    """Return what the status port is to tell."""
    return {"hash": found, "refused": refused, "words": words}


def test_a_new_configuration_is_in_force(pod: Pod) -> None:
    """The daemon runs with what is projected, then with what replaces it; its key stays where its Secret is mounted."""
    pod.project("h1", "One")
    with pod.running():
        until(status("h1"), pod.told)
        pod.project("h2", "Two")
        until(status("h2"), pod.told)
    assert pod.runs() == ["One", "Two"]
    assert pod.copies() == {"of-h2": {"kurm-hash", "slurm.conf"}}


def test_what_slurm_does_not_take_never_reaches_slurmctld(pod: Pod) -> None:
    """The trial refuses it, with Slurm's words and no path of ours in them; a good one after it is in force."""
    pod.project("h1", "One")
    with pod.running():
        until(status("h1"), pod.told)
        pod.project("h2", "Bad")
        until(status("h1", "h2", "error: key Bad; fatal: no file slurm.conf"), pod.told)
        assert (pod.folder / "kurm/current/slurm.conf").read_text() == "One"
        pod.project("h3", "Three")
        until(status("h3"), pod.told)
    assert pod.runs() == ["One", "Three"]


def test_a_refusal_is_over_when_the_old_one_is_back(pod: Pod) -> None:
    """Whoever takes a bad change back sees no refusal any more, and slurmctld hears nothing of it."""
    pod.project("h1", "One")
    with pod.running():
        until(status("h1"), pod.told)
        pod.project("h2", "Bad")
        until("h2", lambda: pod.told()["refused"])
        (pod.etc / "..h1").rename(pod.folder / "old")
        pod.project("h1", "One")
        until(status("h1"), pod.told)
    assert pod.runs() == ["One"]


def test_what_only_slurmctld_itself_refuses_is_taken_back(pod: Pod) -> None:
    """It may have been handed out already, so the last good one is put back and handed out again."""
    pod.project("h1", "One")
    with pod.running():
        until(status("h1"), pod.told)
        pod.project("h2", "Late")
        until(status("h1", "h2", "fatal: too late"), pod.told)
        until(["One", "One"], pod.runs)


@pytest.mark.parametrize(
    ("text", "words"), [("Bad", "error: key Bad; fatal: no file slurm.conf"), ("Late", "fatal: too late")]
)
def test_a_start_with_a_bad_file_runs_on_the_last_good_one(pod: Pod, text: str, words: str) -> None:
    """A new pod meets a file that Slurm refuses, and slurmctld runs all the same."""
    pod.project("h1", "One")
    with pod.running():
        until(status("h1"), pod.told)
    pod.project("h2", text)
    with pod.running():
        until(status("h1", "h2", words), pod.told)
        pod.project("h3", "Three")
        until(status("h3"), pod.told)
    assert pod.runs() == ["One", "One", "Three"]


def test_the_first_start_waits_for_a_file_that_slurm_takes(pod: Pod) -> None:
    """There is no last good one yet: no crash loop, but a refusal that can be read, and a start when it is mended."""
    pod.project("h1", "Bad")
    with pod.running() as init:
        until(status("", "h1", "error: key Bad; fatal: no file slurm.conf"), pod.told)
        pod.project("h2", "Two")
        until(status("h2"), pod.told)
        assert init.poll() is None
    assert pod.runs() == ["Two"]


def test_the_wait_for_a_better_file_can_be_ended(pod: Pod) -> None:
    """TERM ends the init at once though there is no slurmctld to pass it to."""
    pod.project("h1", "Bad")
    with pod.running() as init:
        until("h1", lambda: pod.told()["refused"])
        init.terminate()
        assert init.wait(SECONDS) == 128 + signal.SIGTERM


def test_other_paths_are_not_there(pod: Pod) -> None:
    """The status port serves one thing."""
    pod.project("h1", "One")
    with pod.running():
        until(status("h1"), pod.told)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{pod.port}/etc", timeout=SECONDS)


def tried(pod: Pod, *lines: str) -> list[str]:
    """Return the lines with which the trial of these ran."""
    pod.project("h1", "\n".join(lines))
    with pod.running():
        until("h1", lambda: pod.told()["hash"])
    return (pod.folder / "tried").read_text().splitlines()


def test_the_trial_touches_nothing_of_the_real_slurmctld(pod: Pod) -> None:
    """Its port, its files and its socket for credentials are its own; lines keep the numbers that Slurm quotes."""
    kept, *mine = "Keep=1", "SlurmctldPort=6817", "SlurmctldLogFile=/log", " statesavelocation = /state # here"
    found = tried(pod, *mine, "AuthInfo=use_client_ids", kept)
    assert found[:5] == ["", "", "", "", kept]
    added = dict(line.split("=", 1) for line in found[6:])
    assert added["SlurmctldPort"] != "6817"
    assert Path(added["StateSaveLocation"]) == Path(added["SlurmctldPidFile"]).parent
    assert added["AuthInfo"] == "use_client_ids,disable_sack"
    assert "SlurmctldLogFile" not in added


def test_the_trial_starts_with_what_is_remembered_of_slurmdbd(pod: Pod) -> None:
    """The real slurmdbd would take it for the cluster's slurmctld, so it finds none and uses what is on the disk."""
    for name in ("clustername", "last_tres", "assoc_mgr_state"):
        (pod.folder / name).write_text(name)
    kind = "AccountingStorageType=accounting_storage/slurmdbd"
    found = tried(pod, f"StateSaveLocation={pod.folder}", "AccountingStorageHost=demo-accounting", kind)
    assert found[:3] == ["", "", kind]
    assert {"AccountingStorageHost=127.0.0.1", "AccountingStoragePort=1"} <= set(found)


def test_the_trial_does_without_accounting_before_slurmdbd_was_ever_there(pod: Pod) -> None:
    """Without anything remembered slurmctld would wait for slurmdbd, for ever."""
    found = tried(pod, f"StateSaveLocation={pod.folder}", "AccountingStorageType=accounting_storage/slurmdbd")
    assert found[:2] == ["", ""]
    assert "AccountingStorageType=accounting_storage/none" in found
