"""The cluster's keys as Secrets, made of random bytes that the caller draws once. They are never rendered again.

Each is immutable: a key that changes under running daemons cuts them off from one another. To change one, delete its
Secret and the pods that mount it.
"""

import base64
import hashlib
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kurm.domain.spec import Json
from kurm.operator.render import names
from kurm.operator.render.names import Part
from kurm.operator.render.pods import Cluster, metadata

SLURM_KEY_BYTES = 1024
"""Of auth/slurm's key; Slurm takes 16 or more ("Slurm authentication" in its documentation makes 1,024)."""
JWT_KEY_BYTES = 32
"""Of the key of HS256, whose hash has as many (RFC 7518, 3.2)."""
SEED_BYTES = 32
"""Of an Ed25519 key (RFC 8032, 5.1.5), and of what a password is made of."""


def keys(cluster: Cluster, slurm: bytes, jwt: bytes) -> Json:
    """Return the Secret with the key that every daemon trusts and the one that signs tokens for the REST API."""
    _check("slurm", slurm, SLURM_KEY_BYTES)
    _check("jwt", jwt, JWT_KEY_BYTES)
    content = {names.SLURM_KEY: slurm, names.JWT_KEY: jwt}
    return _secret(cluster, Part.CONTROLLER, names.keys(cluster.name), content)


def host_keys(cluster: Cluster, seed: bytes) -> Json:
    """Return the Secret with the login nodes' host key; the public half is there for those who want to know it."""
    _check("seed", seed, SEED_BYTES)
    private, public = ed25519(seed, f"{cluster.namespace}/{cluster.name}")
    content = {names.HOST_KEY: private, f"{names.HOST_KEY}.pub": public}
    return _secret(cluster, Part.LOGIN, names.host_keys(cluster.name), content)


def database_password(cluster: Cluster, seed: bytes) -> Json:
    """Return the Secret with the companion database's password, in letters that no file or statement has to quote."""
    _check("seed", seed, SEED_BYTES)
    return _secret(
        cluster, Part.DATABASE, cluster.component(Part.DATABASE), {names.PASSWORD: base64.urlsafe_b64encode(seed)}
    )


def ed25519(seed: bytes, comment: str) -> tuple[bytes, bytes]:
    """Return a key pair as OpenSSH's files: the private one without a passphrase, and the line of the public one.

    The format is OpenSSH's PROTOCOL.key. The library that could write it draws random check bytes; these are made of
    the seed, so that the same seed gives the same file.
    """
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    kind = b"ssh-ed25519"
    blob = _strings(kind, public)
    check = hashlib.sha256(b"check" + seed).digest()[:4]
    body = check + check + _strings(kind, public, seed + public, comment.encode())
    body += bytes(range(1, 1 + -len(body) % 8))  # padding: 1, 2, 3, ... to a whole block of the cipher "none"
    whole = b"openssh-key-v1\0" + _strings(b"none", b"none", b"") + struct.pack(">I", 1) + _strings(blob, body)
    lines = base64.encodebytes(whole).replace(b"\n", b"")
    wrapped = b"\n".join(lines[start : start + 70] for start in range(0, len(lines), 70))
    private = b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + wrapped + b"\n-----END OPENSSH PRIVATE KEY-----\n"
    return private, b"%s %s %s\n" % (kind, base64.b64encode(blob), comment.encode())


def _strings(*texts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(text)) + text for text in texts)


def _check(what: str, content: bytes, length: int) -> None:
    if len(content) != length:
        raise ValueError(f"{what}: {length} random bytes are wanted, not {len(content)}")


def _secret(cluster: Cluster, part: Part, name: str, content: dict[str, bytes]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(cluster, part, name),
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
    }
