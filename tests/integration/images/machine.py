"""One machine with the programs of several images: their containers' starts run in it as the pods would run them."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from integration.slurm.lab import CONF, SLURM, Lab, LabError

OURS = CONF.replace("/var/spool/slurmctld", "/var/spool/slurmctld/state") + "MailProg=/usr/bin/true\n"
"""slurm.conf as the operator renders it: with a folder of its own in the volume."""
CGROUP = "CgroupPlugin=disabled\n"
ROOT, MYSQL = 0, 402
SECONDS = 60.0
KEY = "/run/secrets/id"
IN_FORCE = "/run/slurmctld/in-force/slurm.conf"
"""What the controller's image has in its environment as SLURM_CONF."""
ASK = (
    "import sys, urllib.request; print(urllib.request.urlopen('http://127.0.0.1:6819/' + sys.argv[1]).read().decode())"
)
ALONE = (
    *("unshare", "--mount", "/bin/sh", "-c", 'mount -t tmpfs tmpfs /var/lib/extrausers; exec "$@"', "sh"),
    *("setpriv", f"--reuid={SLURM}", f"--regid={SLURM}", "--clear-groups", "/usr/local/sbin/slurmctld-init", "-v"),
)
DBD = """\
DbdHost=localhost
DbdPort=6820
SlurmUser=slurm
AuthType=auth/slurm
AuthInfo=use_client_ids
PidFile=/run/slurmdbd/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3306
StorageLoc=slurm_acct_db
StorageUser=slurm
StoragePass=secret
"""
"""As the operator renders it, with another port: in a cluster slurmdbd has a pod, and 6819 there, to itself."""
PREPARE = """
set -eu
for folder in /var/spool/slurmd /var/lib/mysql /var/lib/extrausers /home; do
  mount -t tmpfs -o mode=755 tmpfs $folder
done
echo 127.0.0.1 localhost lab >/tmp/hosts
mount --bind /tmp/hosts /etc/hosts
cp -a /etc/ssh /tmp/ssh
mount --bind /tmp/ssh /etc/ssh
mkdir /etc/ssh/authorized-keys /run/mysqld /run/slurmdbd /run/secrets /tmp/trace
chown 402:402 /run/mysqld /var/lib/mysql
chown 401:401 /run/slurmdbd
chmod 700 /run/slurmdbd
chmod 1777 /tmp /tmp/trace
install -d -m 700 -o 401 -g 401 /run/sackd
install -m 400 /etc/slurm/slurm.key /run/secrets/slurm.key
"""


@dataclass
class Machine(Lab):
    """A lab whose /etc/slurm is projected as the kubelet does it, and which runs more than slurmctld."""

    conf: str = OURS
    targets: tuple[str, ...] = ("controller", "slurmrestd", "slurmd", "login", "dbd", "mariadb")

    @contextmanager
    def run(self) -> Iterator["Machine"]:
        """Have the machine, with nothing running on it yet; end all of it afterwards."""
        self._prepare()
        (self.etc / "slurm.conf").unlink()
        self._boot()
        try:
            self.shell(PREPARE)
            yield self
        finally:
            self.close()

    def shell(self, script: str) -> str:
        """Run a script inside as root and return what it prints."""
        return self.command("/bin/sh", "-c", script)

    def project(self, found: str, files: Mapping[str, str]) -> None:
        """Replace the whole configuration at once, as the kubelet does."""
        data = self.etc / f"..{found}"
        data.mkdir()
        for name, content in {"cgroup.conf": CGROUP, **files, "kurm-hash": found}.items():
            (data / name).write_text(content)
            (data / name).chmod(0o555)
        new = self.etc / "..data_tmp"
        new.symlink_to(data.name)
        new.replace(self.etc / "..data")
        for link in self.etc.iterdir():
            if link.is_symlink() and link.name != "..data" and not link.exists():
                link.unlink()
        for name in (path.name for path in data.iterdir()):
            if not (self.etc / name).is_symlink():
                (self.etc / name).symlink_to(f"..data/{name}")

    def extended(self, *lines: str) -> dict[str, str]:
        """Return a configuration with more lines in slurm.conf."""
        return {"slurm.conf": "\n".join([self.conf, *lines, ""])}

    def start(self, name: str, user: int, *words: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a container's process 1; its log is the one of this name."""
        settings = [f"{key}={value}" for key, value in (environment or {}).items()]
        self._spawn(name, user, "env", *settings, *words)

    def start_slurmctld(self) -> None:
        """Start slurmctld's container, in which no user of the cluster is known."""
        self.start("slurmctld", ROOT, *ALONE, environment={"SLURM_CONF": IN_FORCE})

    def slurm(self, *words: str) -> str:
        """Run one of Slurm's commands in slurmctld's container."""
        return self.command("env", f"SLURM_CONF={IN_FORCE}", *words)

    def start_slurmd(self, node: str, *more: str) -> None:
        """Start a node's container. It has no slurm.conf: that comes from slurmctld."""
        # Nor has it the sockets of slurmctld's container, where anybody gets a credential.
        script = "for hidden in /etc/slurm /run/slurm /run/slurmctld; do mount -t tmpfs tmpfs $hidden; done; "
        script += 'exec /usr/local/sbin/slurmd-start "$@"'
        arguments = ("-b", "-Z", "-N", node, "--conf-server", "127.0.0.1:6817", *more)
        hidden = ("unshare", "--mount", "/bin/sh", "-c", script, "sh", *arguments)
        self.start("slurmd", ROOT, *hidden, environment={"SLURM_SACK_KEY": "/run/secrets/slurm.key"})

    def told(self, path: str = "") -> dict[str, Any]:
        """Return what slurmctld's init tells; of its status what is about the configuration."""
        found: dict[str, Any] = json.loads(self.command("python3", "-c", ASK, path))
        return found if path else {name: found[name] for name in ("hash", "refused", "words")}

    def lines(self, name: str) -> list[str]:
        """Return the lines of a log without their times."""
        return [line.partition("] ")[2] if line.startswith("[") else line for line in self.log(name).splitlines()]

    def until(self, expected: object, actual: Callable[[], object], seconds: float = SECONDS) -> float:
        """Wait until something is as expected; return how many seconds it took. What cannot be asked yet is not."""
        begun = time.monotonic()
        found: object = None
        while (passed := time.monotonic() - begun) < seconds:
            try:
                if (found := actual()) == expected:
                    return passed
            except (LabError, OSError) as error:
                found = error
            time.sleep(0.05)
        assert expected == found, f"after {seconds:.0f} s it is {found!r} and not {expected!r}"
        return passed

    def ssh(self, user: str, command: str) -> str:
        """Log in on this machine with the key KEY and run a command; raise LabError with what ssh says."""
        options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
        return self.command("ssh", *options, "-i", KEY, "-p", "2222", f"{user}@127.0.0.1", command)

    def start_sshd(self) -> None:
        """Start sshd with no more power than its container has (render/login.py), and make a key to log in."""
        self.shell(f"ssh-keygen -q -t ed25519 -N '' -f {KEY}")
        powers = ",".join(f"+{name}" for name in ("audit_write", "chown", "kill", "setgid", "setuid", "sys_chroot"))
        limits = ("setpriv", f"--bounding-set=-all,{powers}", f"--inh-caps=-all,{powers}", "--no-new-privs")
        self.start("sshd", ROOT, *limits, "/usr/local/sbin/sshd-start")

    def start_sackd(self) -> None:
        """Start the login node's sackd, which knows the users: it is who writes their names into credentials."""
        self.start("sackd", SLURM, "/usr/local/sbin/sackd-start", "--conf-server", "127.0.0.1:6817")
        self.until("socket", lambda: self.shell("stat -c %F /run/slurm/sack.socket").strip())

    def have_users(self, **users: int) -> None:
        """Have users of these numbers, in files as the operator renders them (render/users.py)."""
        files = {
            "passwd": [f"{name}:x:{uid}:{uid}:{name}:/home/{name}:/bin/bash" for name, uid in users.items()],
            "group": [f"{name}:x:{uid}:" for name, uid in users.items()],
            "shadow": [f"{name}:*:19000:0:99999:7:::" for name in users],
        }
        for file, lines in files.items():
            self.shell(f"cat >/var/lib/extrausers/{file} <<'END'\n{chr(10).join(lines)}\nEND\n")
        for name in users:
            self.shell(f"cp {KEY}.pub /etc/ssh/authorized-keys/{name}")

    def start_mariadb(self) -> None:
        """Start the companion database."""
        self.shell("printf secret >/run/secrets/password; chmod 444 /run/secrets/password; chmod 755 /run/secrets")
        environment = {"MARIADB_PASSWORD_FILE": "/run/secrets/password"}
        self.start("mariadb", MYSQL, "/usr/local/sbin/mariadb-start", environment=environment)

    def start_slurmdbd(self) -> None:
        """Start slurmdbd's container."""
        (self.etc / "slurmdbd.conf").write_text(DBD)
        self.start("slurmdbd", SLURM, "/usr/local/sbin/slurmdbd-start", "-v")
