"""The way of this machine's user to the login node of a Slurm cluster on a local Kubernetes."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from kurm.local.command import run
from kurm.local.pki import write_secret

USER = "researcher"


@dataclass(frozen=True)
class Login:
    """A folder with what `ssh -F FOLDER/config login` needs: the user's key and the login node's public one."""

    folder: Path

    @property
    def config(self) -> Path:
        """The file for `ssh -F`."""
        return self.folder / "config"

    def ssh(self, command: str, *, stdin: str = "", deadline: float = 60.0) -> str:
        """Run a shell command on the login node as the researcher; raise LocalError with its words if it fails."""
        return run("ssh", "-F", self.config, "login", command, stdin=stdin, deadline=deadline)

    def public_key(self) -> str:
        """Return the researcher's public key, as a line of authorized_keys; the pair is made when there is none."""
        kept = self.folder / "id_ed25519"
        if not kept.exists():
            write_secret(kept, key_pair()[0])
        key = serialization.load_ssh_private_key(kept.read_bytes(), password=None)
        public = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        return key.public_key().public_bytes(*public).decode()

    def write(self, address: str, port: int | str, host_key: str) -> None:
        """Write where the login node is and the public key by which it is known: `ssh-ed25519 AAAA...`."""
        write_secret(self.folder / "known_hosts", f"login {host_key.strip()}\n".encode())
        self.config.write_text(
            f"Host login\n  HostName {address}\n  Port {port}\n  User {USER}\n"
            f"  IdentityFile {self.folder}/id_ed25519\n  IdentitiesOnly yes\n"
            f"  HostKeyAlias login\n  UserKnownHostsFile {self.folder}/known_hosts\n  LogLevel ERROR\n"
        )


def key_pair() -> tuple[bytes, bytes]:
    """Make an SSH key pair: private and public, in OpenSSH's formats."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public
