"""Keys are made of the caller's random bytes, in the formats that OpenSSH and Slurm read; users become Unix users."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from kurm.operator.render import accounting, keys, users
from kurm.operator.render.errors import SpecError
from kurm.slurm.conf import parse
from unit.operator.render.demo import Json, cluster

PASSWORD = {"name": "db", "key": "password"}


def _content(secret: Json) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in secret["data"].items()}


@given(st.binary(min_size=keys.SEED_BYTES, max_size=keys.SEED_BYTES), st.text("ab/-", max_size=20))
def test_a_host_key_is_the_seeds_own_and_openssh_reads_it(seed: bytes, comment: str) -> None:
    """The same seed gives the same file, to the byte."""
    private, public = keys.ed25519(seed, comment)
    read = load_ssh_private_key(private, password=None)
    assert isinstance(read, Ed25519PrivateKey)
    assert read.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()) == seed
    ours = read.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    assert public == ours + b" " + comment.encode() + b"\n"
    assert keys.ed25519(seed, comment) == (private, public)


def test_secrets_hold_what_their_readers_look_for() -> None:
    """And nobody changes them by accident."""
    found = keys.keys(cluster(), bytes(keys.SLURM_KEY_BYTES), bytes(keys.JWT_KEY_BYTES))
    assert {key: len(value) for key, value in _content(found).items()} == {"slurm.key": 1024, "jwt_hs256.key": 32}
    assert found["immutable"] is True


def test_a_password_needs_no_quotes() -> None:
    """It stands in slurmdbd.conf and in a statement of SQL."""
    (password,) = _content(keys.database_password(cluster(), bytes(range(224, 256)))).values()
    assert password.decode().replace("-", "").replace("_", "").replace("=", "").isalnum()
    assert parse(accounting.slurmdbd_conf(cluster(), password.decode())).get("StoragePass") == password.decode()


def test_too_few_random_bytes_are_no_key() -> None:
    """A short read would make a weak cluster that works."""
    with pytest.raises(ValueError, match="jwt: 32 random bytes are wanted, not 31"):
        keys.keys(cluster(), bytes(keys.SLURM_KEY_BYTES), bytes(31))


@pytest.mark.parametrize("password", ["p#ss", "with space", 'qu"ote', "back\\slash", "a=b,c"])
def test_slurmdbd_reads_the_password_that_was_meant(password: str) -> None:
    """Slurm's grammar has letters with a meaning of their own."""
    assert parse(accounting.slurmdbd_conf(cluster(), password)).get("StoragePass") == password


@pytest.mark.parametrize("password", ["", "two\nlines", 'both " and space'])
def test_a_password_that_slurmdbd_cannot_hold_is_refused_without_showing_it(password: str) -> None:
    """Errors end in conditions and logs."""
    with pytest.raises(SpecError) as raised:
        accounting.slurmdbd_conf(cluster(), password)
    assert raised.value.field == "spec.accounting.external.password"
    assert not password or password not in str(raised.value)
    assert raised.value.__cause__ is None


def test_slurmdbd_is_told_where_an_external_database_is() -> None:
    """All that the resource says of it."""
    external = {"host": "db.example", "user": "site", "password": PASSWORD, "port": 3307, "name": "jobs"}
    found = parse(accounting.slurmdbd_conf(cluster(accounting={"external": external}), "x"))
    settings = {key: found.get(key) for key in ("StorageHost", "StoragePort", "StorageLoc", "StorageUser")}
    assert list(settings.values()) == ["db.example", "3307", "jobs", "site"]


def test_a_new_password_is_a_new_slurmdbd() -> None:
    """It reads its configuration once."""
    one, other = (accounting.objects(cluster(), password)[-1] for password in ("pass-1", "pass-2"))
    assert one["spec"]["template"] != other["spec"]["template"]
    assert "pass-1" not in str(one)


def test_users_are_unix_users_without_passwords() -> None:
    """A group that is no user's has a name by its number; `*` is no password and no lock."""
    people = [
        {"name": "bob", "uid": 10002, "gid": 3000},
        {"name": "alice", "uid": 10001},
        {"name": "carol", "uid": 10003, "gid": 10001, "shell": "/bin/zsh"},
    ]
    data = users.users(cluster(login={"users": people}))["data"]
    assert data["passwd"].splitlines() == [
        "alice:x:10001:10001:alice:/home/alice:/bin/bash",
        "bob:x:10002:3000:bob:/home/bob:/bin/bash",
        "carol:x:10003:10001:carol:/home/carol:/bin/zsh",
    ]
    assert data["group"].splitlines() == ["group3000:x:3000:", "alice:x:10001:"]
    assert {line.split(":")[1] for line in data["shadow"].splitlines()} == {"*"}


def test_each_user_has_a_file_of_keys() -> None:
    """It is read at each login; who has no key has no file."""
    assert users.authorized_keys(cluster())["data"] == {
        "alice": "ssh-ed25519 AAAA alice@home\nssh-ed25519 BBBB alice@work\n"
    }
