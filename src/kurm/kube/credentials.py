"""As whom we speak to the API server: nobody (a client certificate speaks), a token, a rotated file, a program."""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from kurm.kube.errors import ConfigError

# The kubelet rotates a token at 80 % of its life (an hour by default), so a minute of delay is always in time.
REREAD_SECONDS = 60.0
EXEC_SECONDS = 60.0


def read(path: Path, what: str) -> bytes:
    """Return a file's bytes; ConfigError says what it was for when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what}: {path} cannot be read: {error.strerror}") from error


class Credentials(Protocol):
    """Who we are, as an Authorization header."""

    async def header(self, *, fresh: bool = False) -> str | None:
        """Return the header's value, None if there is none; `fresh` drops what is remembered (after a 401)."""


@dataclass(frozen=True)
class Fixed:
    """A credential that never changes; none at all when a client certificate speaks for us."""

    value: str | None = None

    async def header(self, *, fresh: bool = False) -> str | None:  # noqa: ARG002 - nothing can be fresher
        """Return it."""
        return self.value


@dataclass
class TokenFile:
    """A token in a file that someone else rotates: read again every minute."""

    path: Path
    _token: str = ""
    _read_at: float = 0.0

    async def header(self, *, fresh: bool = False) -> str | None:
        """Return the token that stood in the file at most a minute ago."""
        if fresh or not self._token or time.monotonic() - self._read_at > REREAD_SECONDS:
            self._token = read(self.path, "token file").decode().strip()
            self._read_at = time.monotonic()
        return f"Bearer {self._token}"


class ExecCredentialStatus(msgspec.Struct, rename="camel"):
    """What an exec plugin answers."""

    token: str = ""
    expiration_timestamp: datetime | None = None


class ExecCredential(msgspec.Struct):
    """An exec plugin's answer, of which a token is used."""

    status: ExecCredentialStatus = msgspec.field(default_factory=ExecCredentialStatus)


@dataclass
class Exec:
    """A token from a program that the kubeconfig names (`users[].user.exec`), kept until it expires."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    api_version: str
    _answer: ExecCredentialStatus | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def header(self, *, fresh: bool = False) -> str | None:
        """Return the token, running the program if there is none that is still good."""
        async with self._lock:
            if fresh or self._answer is None or _expired(self._answer):
                self._answer = await self._run()
            return f"Bearer {self._answer.token}"

    async def _run(self) -> ExecCredentialStatus:
        asked = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = os.environ | self.env | {"KUBERNETES_EXEC_INFO": msgspec.json.encode(asked).decode()}
        pipe, name = asyncio.subprocess.PIPE, self.command[0]
        try:
            process = await asyncio.create_subprocess_exec(*self.command, env=environment, stdout=pipe, stderr=pipe)
        except OSError as error:
            raise ConfigError(f"kubeconfig: exec plugin {name!r} cannot be started: {error.strerror}") from error
        try:
            out, err = await asyncio.wait_for(process.communicate(), EXEC_SECONDS)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise ConfigError(f"kubeconfig: exec plugin {name!r} gave no answer in {EXEC_SECONDS:.0f} s") from error
        if process.returncode != 0:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            raise ConfigError(f"kubeconfig: exec plugin {name!r} failed ({process.returncode}): {last[0]}")
        try:
            status = msgspec.json.decode(out, type=ExecCredential).status
        except msgspec.DecodeError as error:
            raise ConfigError(f"kubeconfig: exec plugin {name!r} answered no ExecCredential: {error}") from error
        if not status.token:
            raise ConfigError(f"kubeconfig: exec plugin {name!r} answered no status.token; certificates are not taken")
        return status


def _expired(status: ExecCredentialStatus) -> bool:
    expires = status.expiration_timestamp
    return expires is not None and expires.timestamp() - time.time() < REREAD_SECONDS
