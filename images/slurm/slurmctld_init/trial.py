"""A configuration is tried by a second slurmctld, which has a state, a port and a database of its own: none.

It reads every file as the real one would (slurm.conf, cgroup.conf, gres.conf, topology.yaml), loads the plugins, builds
the partitions and gets to the point where it would serve: 20 ms. There it is killed. A real slurmctld that meets a bad
file at a reconfigure lives on, but by then it has handed that file to every slurmd and sackd, and they end at it.
"""

import asyncio
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurmctld_init.log import STANDS, without_stamp, words
from slurmctld_init.processes import Processes

SECONDS = 30.0
"""Until a trial is given up, with no verdict; it takes a thousandth of that."""
CACHE = ("clustername", "last_tres", "assoc_mgr_state")
"""Files of slurmctld's state with which it starts though slurmdbd is away."""
NOBODY = "127.0.0.1"
"""Where no slurmdbd and no slurmd is: this container."""
UNKNOWN = re.compile(r"slurmdbd|\bTRES\b|\bqos\b", re.IGNORECASE)
"""In a fatal error of a cluster with accounting: it is about what only slurmdbd knows, so the trial cannot judge."""
IN_FORCE = "/run/slurmctld/in-force"
"""Where slurm.conf names programs that come with it (PrologSlurmctld); those on trial are not there yet."""
NODE = f"NodeName=kurm-trial NodeAddr={NOBODY} State=CLOUD"
"""gres.conf is not read before there is a node. This one is powered down, so nobody tries to reach it."""
_SETTING = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*(?:#.*)?$")
_DROPPED = ("slurmctldlogfile", "slurmctldprimaryonprog", "slurmctldprimaryoffprog", "accountingstoragebackuphost")
"""Settings that would act outside of the trial."""


async def trial(folder: Path, processes: Processes, environment: Mapping[str, str]) -> str:
    """Try the configuration in a folder; return Slurm's words if it does not take it, else nothing.

    The state that slurmctld keeps is read from its own slurm.conf's StateSaveLocation. Nothing is left in the folder.
    Raises OSError.
    """
    conf = folder / "slurm.conf.trial"
    text = (folder / "slurm.conf").read_text(errors="surrogateescape")
    text = text.replace(f"{IN_FORCE}/", f"{folder}/")
    with tempfile.TemporaryDirectory(prefix="slurmctld-trial-") as state:
        try:
            conf.write_text(trial_conf(text, Path(state)), errors="surrogateescape")
            lines = await _lines(conf, processes, environment)
        finally:
            conf.unlink(missing_ok=True)
    fatal = [line for line in lines if line.startswith("fatal: ")]
    if STANDS in lines or not fatal or (_accounts(text) and UNKNOWN.search(fatal[-1])):
        return ""
    return words(lines, hidden=(".trial", f"{folder}/"))


def trial_conf(text: str, state: Path) -> str:
    """Return slurm.conf for the trial; `state` is an empty folder, into which what it needs is copied.

    Lines keep their numbers: they stand in Slurm's words.
    """
    found = dict(_settings(text))
    ours = {
        "SlurmctldPort": str(_free_port()),
        "SlurmctldPidFile": f"{state}/pid",
        "StateSaveLocation": str(state),
        # Its socket for credentials has a fixed place, where the real slurmctld has its own.
        "AuthInfo": ",".join(filter(None, [found.get("authinfo", ""), "disable_sack"])),
    }
    if _accounts(text):
        # The real slurmdbd would take this one for the cluster's slurmctld, and call it from now on.
        if _cached(Path(found.get("statesavelocation", "")), state):
            ours |= {"AccountingStorageHost": NOBODY, "AccountingStoragePort": "1"}
        else:
            ours |= {"AccountingStorageType": "accounting_storage/none"}
    gone = {key.casefold() for key in ours} | set(_DROPPED)
    kept = ["" if _key(line) in gone else line for line in text.split("\n")]
    added = [f"{key}={value}" for key, value in ours.items()]
    # An empty line first: the last one may end in a backslash.
    return "\n".join([*kept, "", *added, NODE, ""])


async def _lines(conf: Path, processes: Processes, environment: Mapping[str, str]) -> list[str]:
    """Run slurmctld until it stands or ends; return what it said. Nothing if it does neither in SECONDS."""
    output, inlet = os.pipe()
    reader = asyncio.StreamReader(limit=1 << 20)  # a line may name thousands of nodes
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", 0)
    )
    try:
        pid, ended = processes.start_another("-D", environment={**environment, "SLURM_CONF": str(conf)}, output=inlet)
    finally:
        os.close(inlet)
    found: list[str] = []
    try:
        async with asyncio.timeout(SECONDS):
            while line := await reader.readline():
                found.append(without_stamp(line.decode(errors="replace").rstrip("\n")))
                if found[-1] == STANDS:
                    break
    except TimeoutError:
        found = []
    finally:
        if not ended.done():
            os.killpg(pid, signal.SIGKILL)
        transport.close()
    await ended
    return found


def _accounts(text: str) -> bool:
    return dict(_settings(text)).get("accountingstoragetype", "").casefold().endswith("slurmdbd")


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        if found := _SETTING.match(line):
            yield found[1].casefold(), found[2]


def _key(line: str) -> str:
    found = _SETTING.match(line)
    return found[1].casefold() if found else ""


def _cached(real: Path, state: Path) -> bool:
    """Copy what slurmctld remembers of slurmdbd; return whether all of it was there."""
    if not all((real / name).is_file() for name in CACHE):
        return False
    for name in CACHE:
        shutil.copy(real / name, state / name)
    return True


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((NOBODY, 0))
        return int(listening.getsockname()[1])
