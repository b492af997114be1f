"""A real slurmctld and a real slurmrestd, in namespaces of their own: no slurmd, no pods, and nothing left behind.

They run from the images' own file system (`image_root`), as the images' users. Their network is a loopback that nobody
else sees, so ports never collide and nothing leaves it; slurmrestd listens on a UNIX socket that the host can reach,
because a UNIX socket belongs to a file and not to a network. Whoever dies, pytest or a bench: the kernel ends the init
of the process namespace, everything in it, and with the last of them go the mounts.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from integration.slurm import image_root
from kurm.operator.render.rest import OURS_ARGS, OURS_ENV
from kurm.slurm.session import PARSERS

START_SECONDS = 60.0
"""Until a daemon answers. It takes half a second; the machine may be busy."""
SLURM, REST = 401, 403
"""User ids in the images (images/slurm/Containerfile)."""

COMPLAINING = ("-d", PARSERS[0])
"""Arguments of a slurmrestd that warns of fields that it does not know. One that is misspelled is left out, and beside
our daemons nobody says so."""

CONF = """\
ClusterName=lab
SlurmctldHost=lab(127.0.0.1)
SlurmUser=slurm
AuthType=auth/slurm
CredType=auth/slurm
AuthInfo=use_client_ids
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt_hs256.key,use_jwt_client_ids
SlurmctldParameters=enable_configless
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
# Nodes that nobody runs must not be found dead in the middle of a test.
SlurmdTimeout=0
MaxNodeCount=10000
PartitionName=main Nodes=ALL Default=YES DefaultTime=1:00:00 MaxTime=1-00:00:00 State=UP
"""


class LabError(RuntimeError):
    """A program of the lab failed; the message holds its own words."""


@dataclass
class Lab:
    """One Slurm cluster without compute nodes. `folder` holds `etc` (its /etc/slurm), `state` and `run`.

    `conf` is slurm.conf; see CONF, which most callers extend. Records of nodes are made over the API or with
    `self.command("scontrol", "create", ...)`: EXTERNAL ones take jobs without any slurmd.
    """

    folder: Path
    conf: str = CONF
    targets: tuple[str, ...] = ("controller", "slurmrestd")
    """The images whose files the lab has, all on top of one another."""
    rest_threads: int = 0
    """Threads of slurmrestd; 0 leaves it its default, 2 for each CPU."""
    rest_args: tuple[str, ...] = OURS_ARGS
    """How slurmrestd reads what it is sent: as beside our daemons, or as `COMPLAINING`."""
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Signs tokens (HS256); slurmctld holds the same in jwt_hs256.key."""
    _init: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def socket(self) -> Path:
        """The UNIX socket of slurmrestd."""
        return self.folder / "run/slurmrestd.sock"

    @property
    def etc(self) -> Path:
        """What the lab sees as /etc/slurm."""
        return self.folder / "etc"

    @contextmanager
    def run(self) -> Iterator["Lab"]:
        """Start all of it, and end all of it."""
        self._prepare()
        self._boot()
        try:
            self.start_controller()
            self.start_rest()
            yield self
        finally:
            self.close()

    def start_controller(self) -> None:
        """Start slurmctld as its image does, under its init, and wait until it answers."""
        self._spawn("slurmctld", SLURM, "/usr/local/sbin/slurmctld-init", "-v")
        self._wait("slurmctld", lambda: "is UP" in self.command("scontrol", "ping"))

    def kill_controller(self) -> None:
        """End slurmctld as a crash does (SIGKILL), with its helper and its init; returns when they are gone."""
        self._end("slurmctld", "slurmscriptd", signal_number=signal.SIGKILL)

    def stop_controller(self) -> None:
        """End slurmctld in order (SIGTERM): it saves its state."""
        self._end("slurmctld", "slurmscriptd", signal_number=signal.SIGTERM)

    def start_rest(self) -> None:
        """Start slurmrestd with JWT and no key of its own, and wait until it listens."""
        threads = ["-t", str(self.rest_threads)] if self.rest_threads else []
        self.socket.unlink(missing_ok=True)
        command = ["/usr/sbin/slurmrestd", "-a", "rest_auth/jwt", "-s", "slurmctld", *self.rest_args, *threads]
        settings = ("SLURM_JWT=daemon", *(f"{name}={value}" for name, value in OURS_ENV.items()))
        self._spawn("slurmrestd", REST, "env", *settings, *command, "unix:/run/lab/slurmrestd.sock")
        self._wait("slurmrestd", self.socket.is_socket)

    def kill_rest(self) -> None:
        """End slurmrestd at once."""
        self._end("slurmrestd", signal_number=signal.SIGKILL)

    def write_conf(self, text: str, name: str = "slurm.conf") -> None:
        """Replace a configuration file; in force after a reconfigure or a restart."""
        path = self.etc / name
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)

    def command(self, *words: str) -> str:
        """Run a program inside, as root, and return what it prints; raise LabError with its words if it fails."""
        done = subprocess.run(self._inside(*words), capture_output=True, text=True, timeout=START_SECONDS, check=False)
        if done.returncode != 0:
            raise LabError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def log(self, name: str = "slurmctld") -> str:
        """Return what a daemon has logged."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def pids(self, *names: str) -> list[int]:
        """Return the host's process ids of the programs of these names inside, by the kernel's 15 letters."""
        assert self._init is not None
        ours = Path(f"/proc/{self._pid_of_init()}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended
                if (entry / "comm").read_text().strip() in names and (entry / "ns/pid").readlink() == ours:
                    found.append(int(entry.name))
        return found

    def cpu(self, name: str) -> float:
        """Return the CPU seconds that a program has used so far."""
        total = 0
        for pid in self.pids(name):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def resident(self, name: str) -> int:
        """Return the memory that a program holds, in bytes."""
        return sum(
            int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024 for pid in self.pids(name)
        )

    def close(self) -> None:
        """End everything. Repeating it is harmless."""
        if self._init is not None:
            self._init.kill()
            self._init.wait(timeout=START_SECONDS)
            self._init = None

    def _prepare(self) -> None:
        for name, owner in (("etc", 0), ("state", SLURM), ("run", REST), ("root", 0)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            os.chown(self.folder / name, owner, owner)
            (self.folder / name).chmod(0o755)
        self.write_conf(self.conf)
        for name, content in (("slurm.key", secrets.token_bytes(1024)), ("jwt_hs256.key", self.key)):
            path = self.etc / name
            path.touch(mode=0o600)
            path.write_bytes(content)
            os.chown(path, SLURM, SLURM)

    def _boot(self) -> None:
        """Start the namespaces and their init."""
        for program in ("unshare", "nsenter", "setpriv", "ip"):
            if shutil.which(program) is None:
                raise LabError(f"the program {program!r} is not installed: apt-get install util-linux iproute2")
        quote = shlex.quote
        script = f"""
set -eu
ip link set lo up
# glibc answers no look-up, not even of "any address", for a family of which only 127.0.0.1 is there (AI_ADDRCONFIG).
ip address add 192.0.2.1/32 dev lo
cd {quote(str(self.folder))}
mount --bind {quote(str(image_root.root(self.targets)))} root
mount -o remount,bind,ro root
mount --bind etc root/etc/slurm
mount --bind state root/var/spool/slurmctld
mount -t tmpfs tmpfs root/run
mount -t tmpfs tmpfs root/tmp
mkdir root/run/lab root/run/slurm root/run/slurmctld
mount --bind run root/run/lab
chown {SLURM}:{SLURM} root/run/slurmctld root/run/slurm
mount --rbind /dev root/dev
mount -t proc proc root/proc
hostname lab
exec chroot root /usr/bin/tini -- sleep infinity
"""
        with (self.folder / "init.log").open("ab") as log:
            self._init = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL"),
                    *("unshare", "--mount", "--propagation=private", "--pid", "--net", "--uts", "--ipc"),
                    *("--fork", "--kill-child=KILL", "/bin/sh", "-c", script),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own: Ctrl-C at the terminal ends the test, and the test ends the lab.
                start_new_session=True,
            )
        self._wait("init", lambda: Path(f"/proc/{self._pid_of_init()}/comm").read_text().strip() == "tini")

    def _pid_of_init(self) -> int:
        assert self._init is not None, "the lab is not running: use it as `with lab.run()`"
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
        if not children:
            raise LabError(f"the lab's namespaces cannot be made: {self.log('init').strip()}")
        return int(children[0])

    def _inside(self, *words: str) -> list[str]:
        places = ("--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd")
        return ["nsenter", "--target", str(self._pid_of_init()), *places, *words]

    def _spawn(self, name: str, user: int, *words: str) -> None:
        who = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        with (self.folder / f"{name}.log").open("ab") as log:
            # `setsid --fork` hands the daemon to the lab's init, which reaps it.
            command = self._inside("setsid", "--fork", *who, *words)
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, timeout=START_SECONDS)

    def _end(self, *names: str, signal_number: signal.Signals) -> None:
        for pid in self.pids(*names):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        self._wait(names[0], lambda: not self.pids(*names, "slurmctld-init" if names[0] == "slurmctld" else names[0]))

    def _wait(self, name: str, met: Callable[[], bool]) -> None:
        """Wait until `met`; LabError with the end of the log if it is not in time."""
        end = time.monotonic() + START_SECONDS
        said: Exception | None = None
        while time.monotonic() < end:
            try:
                if met():
                    return
            except (OSError, LabError, subprocess.TimeoutExpired) as error:
                said = error
            if self._init is not None and self._init.poll() is not None:
                break
            time.sleep(0.02)
        log = self.folder / f"{name}.log"
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise LabError(f"{name}: not as wanted after {START_SECONDS:.0f} s ({said}); its log ends:\n{tail}")
