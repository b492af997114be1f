"""Which server and as whom: kubeconfigs, the service account, rotated tokens, programs."""

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from kurm.kube.config import Config
from kurm.kube.credentials import Exec, TokenFile
from kurm.kube.errors import ConfigError
from kurm.kube.resources import NODES, Key
from kurm.kube.session import Session
from kurm.local.pki import Authority, kubeconfig
from unit.kube.fake_api import FakeApi

AUTHORITY = Authority("test")


def write(
    path: Path, *, server: str = "http://127.0.0.1:1", user: dict[str, Any] | None = None, **cluster: Any
) -> Path:
    """Write a kubeconfig with one context."""
    document = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def header(config: Config) -> str | None:
    """Return the Authorization header of a configuration."""
    return await config.credentials.header()


async def test_a_token_and_a_namespace(tmp_path: Path) -> None:
    """The token becomes a header; the context's namespace is the default one."""
    config = Config.load(write(tmp_path / "k", user={"token": "t"}))
    assert (config.server, config.namespace, await header(config)) == ("http://127.0.0.1:1", "lab", "Bearer t")


async def test_user_and_password(tmp_path: Path) -> None:
    """Basic authentication, for a proxy in front."""
    config = Config.load(write(tmp_path / "k", user={"username": "a", "password": "b"}))
    assert await header(config) == f"Basic {base64.b64encode(b'a:b').decode()}"


async def test_a_token_file_beside_the_kubeconfig_is_read_again(tmp_path: Path) -> None:
    """A relative path is relative to the kubeconfig; after a 401 the file is read at once, else once a minute."""
    (tmp_path / "token").write_text("one\n")
    config = Config.load(write(tmp_path / "k", user={"tokenFile": "token"}))
    assert await header(config) == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert await header(config) == "Bearer one"
    assert await config.credentials.header(fresh=True) == "Bearer two"
    assert isinstance(config.credentials, TokenFile)
    (tmp_path / "token").write_text("three\n")
    config.credentials._read_at -= 61
    assert await header(config) == "Bearer three"


async def test_the_first_of_several_files_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBECONFIG with two files: as with kubectl, the first that names a thing decides."""
    first, second = write(tmp_path / "1", user={"token": "1"}), write(tmp_path / "2", user={"token": "2"})
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    assert await header(Config.load()) == "Bearer 1"


def test_client_certificates_from_data_and_from_files(tmp_path: Path) -> None:
    """Both ways load, the key touches no place that others can read, and nothing is left of it."""
    pair = AUTHORITY.sign("admin")
    (tmp_path / "data").write_text(kubeconfig("c", "https://127.0.0.1:1", AUTHORITY.pair.certificate, pair))
    assert Config.load(tmp_path / "data").tls is not None
    pair.write(tmp_path, "u")
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pair.certificate)
    user = {"client-certificate": "u.crt", "client-key": "u.key"}
    path = write(tmp_path / "files", server="https://127.0.0.1:1", user=user, **{"certificate-authority": "ca.crt"})
    assert Config.load(path).tls is not None


async def test_a_program_gives_the_token(tmp_path: Path) -> None:
    """An exec plugin is run once, told what is asked, and its token is kept until it expires."""
    script = tmp_path / "plugin"
    answer = '{\\"status\\": {\\"token\\": \\"$1-$HOME_OF\\", \\"expirationTimestamp\\": \\"2099-01-01T00:00:00Z\\"}}'
    script.write_text(f'#!/bin/sh\necho x >> "$(dirname $0)/runs"\necho "{answer}"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    plugin = {"command": "./plugin", "args": ["arg"], "env": [{"name": "HOME_OF", "value": "env"}]}
    config = Config.load(write(tmp_path / "k", user={"exec": plugin}))
    assert [await header(config) for _ in range(3)] == ["Bearer arg-env"] * 3
    assert (tmp_path / "runs").read_text() == "x\n"
    await config.credentials.header(fresh=True)
    assert (tmp_path / "runs").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/no/such/plugin",), "cannot be started: No such file or directory"),
        (("sh", "-c", "echo denied >&2; exit 3"), r"failed \(3\): denied"),
        (("echo", "hello"), "answered no ExecCredential"),
        (("echo", "{}"), "answered no status.token"),
    ],
)
async def test_a_program_that_fails_says_how(command: tuple[str, ...], said: str) -> None:
    """Each way of failing is one sentence that names the program."""
    with pytest.raises(ConfigError, match=rf"exec plugin '{command[0]}' {said}"):
        await Exec(command, {}, "client.authentication.k8s.io/v1").header()


async def test_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service account that the kubelet mounts: address from the environment, token and CA from files."""
    for name, content in (("token", b"t"), ("namespace", b"slurm"), ("ca.crt", AUTHORITY.pair.certificate)):
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    config = Config.in_cluster(tmp_path)
    assert (config.server, config.namespace, await header(config)) == ("https://[fd00::1]:6443", "slurm", "Bearer t")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [", "while parsing"),
        ("- 1", "kubeconfig"),
        ("clusters: 3", "Expected `array`, got `int`"),
        ("{}", "current-context is empty"),
        ("current-context: x", "context 'x' is not there; it has: none"),
    ],
)
def test_a_bad_kubeconfig_says_what_is_wrong(tmp_path: Path, content: str, said: str) -> None:
    """One sentence with the file and the field."""
    (tmp_path / "k").write_text(content)
    with pytest.raises(ConfigError, match=said):
        Config.load(tmp_path / "k")


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"auth-provider": {"name": "gcp"}}, {}, "user 'u' sets auth-provider"),
        ({}, {"proxy-url": "http://p"}, "cluster 'c' sets proxy-url"),
        ({}, {"server": "k8s"}, "server is 'k8s', must be http"),
        ({"client-certificate-data": "YQ=="}, {"server": "https://k"}, "must both be given"),
        ({"client-key-data": "*"}, {"server": "https://k"}, "client-key-data is not base64"),
        ({"client-key": "no"}, {"server": "https://k"}, "client-key: .*/no cannot be read: No such file"),
        ({"tokenFile": "no"}, {}, "token file: .*/no cannot be read"),
    ],
)
async def test_what_cannot_be_used_says_why(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str
) -> None:
    """Unsupported or half given: one sentence, before or at the first request."""
    with pytest.raises(ConfigError, match=said):
        await header(Config.load(write(tmp_path / "k", user=user, **cluster)))


def test_no_kubeconfig_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has none is told the four ways to have one."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"name one, or set KUBECONFIG, or write ~/\.kube/config, or run in a pod"):
        Config.load()


async def test_the_header_is_sent_and_refreshed_after_401(tmp_path: Path, api: FakeApi) -> None:
    """A token that was rotated between two readings costs one more request, and nobody hears of it."""
    (tmp_path / "token").write_text("old")
    api.objects.create("/v1/nodes", "", {"metadata": {"name": "n1"}})
    api.token = "new"  # noqa: S105 - no secret
    async with Session(Config.load(write(tmp_path / "k", server=api.url, user={"tokenFile": "token"}))) as session:
        await session.config.credentials.header()
        (tmp_path / "token").write_text("new")
        assert (await session.get(NODES, Key("", "n1"))).key == Key("", "n1")
    assert len(api.requests) == 2
