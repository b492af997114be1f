"""Tokens for Slurm's auth/jwt plugin: who asks, signed with the key that slurmctld holds.

The claims are those that src/plugins/auth/jwt/auth_jwt.c of Slurm 26.05 reads. With `use_jwt_client_ids` in
AuthAltParameters a token carries the whole identity, and slurmctld looks nobody up. Without the one or the other a user
whom slurmctld does not know becomes `nobody`, without a word.
"""

import base64
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from kurm.slurm.errors import SlurmError

LIFETIME_SECONDS = 1800
"""Of a token; what `scontrol token` gives (slurm.conf(5), AuthInfo, ttl)."""
KEY_BYTES = 32
"""The least for HS256: as long as its hash (RFC 7518, 3.2)."""
_HIGHEST = 2**32 - 1
_HEADER = {"alg": "HS256", "typ": "JWT"}


class TokenError(SlurmError, ValueError):
    """No token can be made of this; the message names the field, the value and what is allowed."""


@dataclass(frozen=True)
class Identity:
    """Who asks, as /etc/passwd would say it. `groups` are the names and ids of the user's further groups."""

    name: str
    uid: int
    gid: int
    groups: Mapping[str, int] = field(default_factory=dict)
    gecos: str = ""
    home: str = "/nonexistent"
    shell: str = "/usr/sbin/nologin"

    def __post_init__(self) -> None:
        if not self.name:
            raise TokenError("name: an identity needs a name")
        for what, number in (("uid", self.uid), ("gid", self.gid), *self.groups.items()):
            if not 0 <= number <= _HIGHEST:
                raise TokenError(f"{what}: {number} is no id: it must be between 0 and {_HIGHEST}")
        for what, path in (("home", self.home), ("shell", self.shell)):
            if not path.startswith("/"):
                raise TokenError(f"{what}: {path!r} must be an absolute path: Slurm refuses the identity otherwise")

    def claims(self) -> dict[str, object]:
        """Return the claims that tell Slurm the whole identity. Slurm refuses one whose gecos is empty."""
        described = {"name": self.name, "gecos": self.gecos or self.name, "dir": self.home, "shell": self.shell}
        return {"uid": self.uid, "gid": self.gid, "id": described | {"groups": dict(self.groups)}}


def sign(key: bytes, who: Identity | str, *, now: float, lifetime: int = LIFETIME_SECONDS) -> str:
    """Return a token for an identity, or for a user whom slurmctld knows by that name.

    `now` is in seconds since the epoch, `lifetime` in seconds. Raises TokenError.
    """
    if len(key) < KEY_BYTES:
        raise TokenError(f"key: {len(key)} bytes are too few to sign with HS256: it takes {KEY_BYTES}")
    name = who if isinstance(who, str) else who.name
    claims: dict[str, object] = {"sun": name, "iat": int(now), "exp": int(now) + lifetime}
    claims |= {} if isinstance(who, str) else who.claims()
    signed = f"{_encoded(msgspec.json.encode(_HEADER))}.{_encoded(msgspec.json.encode(claims))}"
    return f"{signed}.{_encoded(hmac.digest(key, signed.encode(), 'sha256'))}"


class Tokens:
    """Tokens for one identity: the same one again until half of its life is over.

    `key` is asked for each new token, so a Secret that is rotated is followed. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        key: Callable[[], bytes],
        who: Identity | str,
        *,
        lifetime: int = LIFETIME_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.who = who
        self._key, self._lifetime, self._clock = key, lifetime, clock
        self._token, self._until = "", 0.0

    def __call__(self) -> str:
        """Return a token that is good for at least half of a lifetime. Raises TokenError."""
        now = self._clock()
        # A clock that was set back makes the token look young; slurmctld's clock then says otherwise.
        if not now < self._until <= now + self._lifetime / 2:
            self._token = sign(self._key(), self.who, now=now, lifetime=self._lifetime)
            self._until = now + self._lifetime / 2
        return self._token

    def renew(self) -> None:
        """Forget the token: slurmctld has refused it."""
        self._token, self._until = "", 0.0


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
