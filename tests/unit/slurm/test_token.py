"""Tokens, as slurmctld will read them."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from kurm.slurm.token import Identity, TokenError, Tokens, sign

KEY = b"k" * 32


def claims(token: str, key: bytes = KEY) -> dict[str, Any]:
    """Check a token's signature by hand, and return what it claims."""
    head, body, signature = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.split("."))
    assert json.loads(head) == {"alg": "HS256", "typ": "JWT"}
    assert signature == hmac.new(key, token.rpartition(".")[0].encode(), hashlib.sha256).digest()
    return dict(json.loads(body))


def test_a_name_alone() -> None:
    """For a user whom slurmctld knows."""
    assert claims(sign(KEY, "slurm", now=1000.9, lifetime=60)) == {"sun": "slurm", "iat": 1000, "exp": 1060}


def test_a_whole_identity() -> None:
    """All that Slurm requires of one: an empty gecos would be refused."""
    ada = Identity("ada", 1001, 100, groups={"users": 100, "gpu": 7}, home="/home/ada", shell="/bin/bash")  # noqa: S604 - no shell is started
    assert claims(sign(KEY, ada, now=0, lifetime=1)) == {
        "sun": "ada", "iat": 0, "exp": 1, "uid": 1001, "gid": 100,
        "id": {"name": "ada", "gecos": "ada", "dir": "/home/ada", "shell": "/bin/bash",
               "groups": {"users": 100, "gpu": 7}},
    }  # fmt: skip


def test_a_token_is_kept_until_half_of_its_life() -> None:
    """Then it is made anew, with the key of that time; also if the clock was set back."""
    now, key = [1000.0], [KEY]
    tokens = Tokens(lambda: key[0], "slurm", lifetime=100, clock=lambda: now[0])
    first = tokens()
    now[0] = 1049
    assert tokens() == first
    now[0], key[0] = 1050, b"n" * 32
    assert claims(tokens(), key[0]) == {"sun": "slurm", "iat": 1050, "exp": 1150}
    now[0] = 500
    assert claims(tokens(), key[0])["iat"] == 500


def test_a_refused_token_is_forgotten() -> None:
    """The next one is signed with what the key is now."""
    key = [KEY]
    tokens = Tokens(lambda: key[0], "slurm", clock=lambda: 1000.0)
    tokens()
    key[0] = b"n" * 32
    assert claims(tokens())
    tokens.renew()
    assert claims(tokens(), key[0])


@pytest.mark.parametrize(
    ("name", "uid", "shell", "sentence"),
    [
        ("", 1, "/bin/sh", "name: an identity needs a name"),
        ("a", -1, "/bin/sh", "uid: -1 is no id: it must be between 0 and 4294967295"),
        ("a", 2**32, "/bin/sh", "uid: 4294967296 is no id: it must be between 0 and 4294967295"),
        ("a", 1, "sh", "shell: 'sh' must be an absolute path: Slurm refuses the identity otherwise"),
    ],
)
def test_an_identity_that_slurm_would_refuse(name: str, uid: int, shell: str, sentence: str) -> None:
    """It is told here, because Slurm would make it `nobody`."""
    with pytest.raises(TokenError) as refused:
        Identity(name, uid, 1, shell=shell)
    assert str(refused.value) == sentence


def test_a_short_key_is_refused() -> None:
    """An empty Secret must not sign anything."""
    with pytest.raises(TokenError, match="key: 0 bytes are too few"):
        sign(b"", "slurm", now=0)
