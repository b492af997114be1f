"""What can go wrong with the Kubernetes API, as types: nobody ever tells one failure from another by its text."""

# ruff: noqa: N818 - Kubernetes' own reasons are the names ("NotFound", "Conflict"); a suffix would rename them

from collections.abc import Mapping

import msgspec

from kurm.kube.resources import Narrow


class Cause(Narrow):
    """One cause in a Status: which field, which reason, in whose words."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Narrow):
    """The part of a Status that says which object, and how long to wait."""

    name: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(Narrow):
    """`meta/v1` Status: the API server's answer where no object is."""

    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class KubeError(Exception):
    """Every error that this room raises."""


class ConfigError(KubeError):
    """The kubeconfig or the service account cannot be used; the message says which field and what is allowed."""


class DecodeError(KubeError):
    """The API server sent what the declared struct cannot hold; the message names the object and the field."""


class NotSynced(KubeError):
    """A cache did not hold the whole list in time; the message says why."""


class Unreachable(KubeError):
    """No answer from the API server: refused, cut, not trusted, or too slow.

    The request may have been carried out all the same, so whoever repeats it must be able to.
    """

    def __init__(self, server: str, what: str, check: str) -> None:
        super().__init__(f"no answer from the API server at {server}: {what}; check {check}")
        self.server = server


class Silent(Unreachable):
    """An open stream that has brought nothing for too long: it is quiet, or dead. To open it anew tells which."""


class ApiError(KubeError):
    """The API server refused. `reason` is Kubernetes' own word; `retry_after` is in seconds, None if none was given."""

    def __init__(self, status: Status, *, retry_after: float | None = None) -> None:
        super().__init__(f"{status.message or 'no message'} ({status.code} {status.reason or 'no reason'})")
        self.status = status.code
        self.reason = status.reason
        self.message = status.message
        self.causes: tuple[Cause, ...] = status.details.causes if status.details else ()
        self.retry_after = retry_after

    def caused_by(self, reason: str) -> bool:
        """Whether one of the causes bears this reason (an eviction: `DisruptionBudget`)."""
        return any(cause.reason == reason for cause in self.causes)


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the server does not know who asks."""


class Forbidden(ApiError):
    """403: the server knows who asks, and refuses."""


class NotFound(ApiError):
    """404: no such object, or no such resource (a missing CustomResourceDefinition)."""


class MethodNotAllowed(ApiError):
    """405: the resource does not have this verb."""


class Conflict(ApiError):
    """409: the object has changed since it was read, or a UID precondition failed. Read again, decide again."""


class AlreadyExists(ApiError):
    """409: an object of this name is there."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is older than what the server still remembers."""


class TooLarge(ApiError):
    """413: the request is larger than the server takes (3 MiB)."""


class UnsupportedMediaType(ApiError):
    """415: the server does not know this kind of patch."""


class Invalid(ApiError):
    """422: the object breaks its schema or an admission rule; `causes` names the fields."""


class TooManyRequests(ApiError):
    """429: the server is busy, or an eviction would break a disruption budget."""


class InternalError(ApiError):
    """500: the server or one of its webhooks failed."""


class ServiceUnavailable(ApiError):
    """503: the server is starting or stopping, or an aggregated API is away."""


class Timeout(ApiError):
    """504: the server gave up waiting (etcd, or a resourceVersion that it has not reached)."""


# Reasons: k8s.io/apimachinery pkg/apis/meta/v1/types.go, StatusReason.
_BY_REASON: Mapping[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Gone": Gone,
    "Expired": Gone,
    "RequestEntityTooLarge": TooLarge,
    "UnsupportedMediaType": UnsupportedMediaType,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": InternalError,
    "ServiceUnavailable": ServiceUnavailable,
    "Timeout": Timeout,
    "ServerTimeout": Timeout,
}
# The reason wins: 409 alone does not tell Conflict from AlreadyExists, and 500 may carry ServerTimeout.
_BY_CODE: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: Timeout,
}

_status = msgspec.json.Decoder(Status)


def from_status(status: Status, *, retry_after: float | None = None) -> ApiError:
    """Return the error that a Status stands for."""
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, ApiError)
    if kind is Invalid and status.details and any(cause.field == "metadata.uid" for cause in status.details.causes):
        kind = Conflict  # a patch meant for another UID is called an invalid change of it; a delete's is a Conflict
    if retry_after is None and status.details and status.details.retry_after_seconds:
        retry_after = float(status.details.retry_after_seconds)
    return kind(status, retry_after=retry_after)


def from_response(code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error that an HTTP answer stands for; a body that is no Status (a proxy's page) is quoted."""
    try:
        status = _status.decode(body)
    except msgspec.DecodeError:
        status = Status()
    if status.code != code:
        text = " ".join(body[:200].decode(errors="replace").split())
        status = Status(status="Failure", code=code, message=status.message or text)
    seconds = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
    return from_status(status, retry_after=seconds)
