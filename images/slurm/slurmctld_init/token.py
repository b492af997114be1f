"""Whether who asks is SlurmUser: by a token as slurmctld takes it (auth/jwt), signed with the key that both have."""

import base64
import binascii
import hmac
import json
from typing import Any

TRUSTED = frozenset({"slurm", "root"})
"""Whose tokens are taken. The key signs those of all users, and only these may see everybody's, or open the gate."""


def valid(token: str, key: bytes, now: float) -> bool:
    """Return whether this is SlurmUser's token: HS256, signed with the key, and not over. `now` is in seconds."""
    try:
        signed, _, signature = token.rpartition(".")
        head, _, body = signed.partition(".")
        expected = hmac.digest(key, signed.encode(), "sha256")
        if not hmac.compare_digest(expected, _decoded(signature)) or json.loads(_decoded(head)).get("alg") != "HS256":
            return False
        claims: dict[str, Any] = json.loads(_decoded(body))
        return claims.get("sun") in TRUSTED and float(claims.get("exp", 0)) > now
    except (ValueError, TypeError, AttributeError, binascii.Error):
        return False


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
