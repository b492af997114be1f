"""The cluster's keys and certificates, and the kubeconfigs that hold them.

Elliptic curve keys (P-256): a pair takes under a millisecond, where RSA takes a tenth of a second of each start.
"""

import base64
import datetime as dt
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = dt.timedelta(days=3650)  # a local cluster lives for hours; nothing rotates these


@dataclass(frozen=True)
class Pair:
    """A private key and its certificate, PEM."""

    key: bytes
    certificate: bytes

    def write(self, directory: Path, name: str) -> None:
        """Write NAME.key, readable by its owner alone, and NAME.crt."""
        write_secret(directory / f"{name}.key", self.key)
        (directory / f"{name}.crt").write_bytes(self.certificate)


class Authority:
    """The cluster's certificate authority; it lives for one `up`, which signs all that the cluster needs."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False)
        self.pair = Pair(_pem(self._key), _signed(builder, self._key))

    def sign(self, name: str, *, groups: str | None = None, addresses: tuple[str | IPv4Address, ...] = ()) -> Pair:
        """Make a key and a certificate for the user `name` of `groups`, also a server's at `addresses`."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, groups), self._name, key.public_key())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if addresses:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = [x509.DNSName(a) if isinstance(a, str) else x509.IPAddress(a) for a in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        # RFC 5280, 4.2.1.1; Python's default since 3.13 takes no certificate without it.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signer, critical=False)
        return Pair(_pem(key), _signed(builder, self._key))


def signing_keys() -> tuple[bytes, bytes]:
    """Make the pair that signs service account tokens: private and public key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _pem(key), public


def kubeconfig(cluster: str, server: str, authority: bytes, user: Pair) -> str:
    """Render a kubeconfig with everything in it, so that it can be copied as one file."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}}
        ],
        "users": [
            {
                "name": cluster,
                "user": {
                    "client-certificate-data": _base64(user.certificate),
                    "client-key-data": _base64(user.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_secret(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner may read, and that nobody could read a moment before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _name(name: str, groups: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if groups:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, groups))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + VALID)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
