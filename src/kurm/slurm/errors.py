"""What can go wrong with Slurm, as types: nobody ever tells one failure from another by its text."""

# ruff: noqa: N818 - the names are what has happened ("NotFound", "Busy"), in Slurm's and HTTP's own words

import errno
from collections.abc import Mapping


class SlurmError(Exception):
    """Every error that this room raises."""


class Unreachable(SlurmError):
    """No answer from slurmrestd: refused, cut, or too slow.

    The request may have been carried out all the same, so whoever repeats it must be able to.
    """

    def __init__(self, address: str, what: str, check: str) -> None:
        super().__init__(f"no answer from slurmrestd at {address}: {what}; check {check}")
        self.address = address


class DecodeError(SlurmError):
    """slurmrestd sent what the declared struct cannot hold; the message names the call and the field."""


class ReleaseError(SlurmError):
    """Slurm is of a release that Kurm is not made for; the message says which was found and which is wanted."""


class ApiError(SlurmError):
    """Slurm refused. `number` is Slurm's own (slurm/slurm_errno.h), 0 where none was given; `status` is HTTP's.

    `error` are Slurm's words for the number, `description` says what was tried, `source` where in Slurm it failed.
    """

    def __init__(
        self, *, status: int, number: int = 0, error: str = "", description: str = "", source: str = ""
    ) -> None:
        words = ": ".join(text for text in (_shortened(description), error) if text) or "no reason was given"
        super().__init__(f"{words} ({f'Slurm error {number}' if number else f'HTTP {status}'})")
        self.status = status
        self.number = number
        self.error = error
        self.description = description
        self.source = source


class NotFound(ApiError):
    """No such node, job, partition or path."""


class AlreadyExists(ApiError):
    """A node of this name is there; of several in one call none was made."""


class Busy(ApiError):
    """A node or a partition is in use by jobs."""


class InvalidTransition(ApiError):
    """A node cannot go from its state to the wanted one (RESUME of a node that is neither down nor drained)."""


class AlreadyDone(ApiError):
    """The job has ended."""


class OtherJob(ApiError):
    """The job of this id is not the one that was meant: it does not bear the name that was asked for."""


class AccessDenied(ApiError):
    """Slurm knows who asks, and refuses."""


class Unauthorized(ApiError):
    """The token is missing, expired or signed by another key; or its user cannot be told."""


class TableFull(ApiError):
    """There is no room for another node: MaxNodeCount."""


class NoSuchPlace(ApiError):
    """The topology in force has no such switch or block."""


class ControllerAway(ApiError):
    """slurmrestd answers and slurmctld does not: it is starting, or gone. Whether it got the request is unknown."""


class NoRoom(ApiError):
    """An immediate start found no free nodes, licences or share of a limit: it may find them later."""


class Behind(ApiError):
    """An immediate start would overtake a job of a higher priority that waits for the same nodes."""


class Infeasible(ApiError):
    """No node of the partition could hold such a job even if all were idle: it may when nodes come or change."""


class StillHeld(ApiError):
    """A job of this name lives, and there is to be only one (dependency=singleton)."""


class NoReason(ApiError):
    """Slurm failed without saying why (error -1): a refused reconfigure, a node line that does not parse."""


_CUT_OFF = (
    *(errno.EPIPE, errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNABORTED, errno.ECONNRESET),
    *(errno.ENOTCONN, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EHOSTUNREACH),
)
"""The system's own numbers, which Slurm hands on: if slurmctld dies amid an answer it is "Connection reset by peer"."""
# slurm/slurm_errno.h of Slurm 26.05.
_BY_NUMBER: Mapping[int, type[ApiError]] = {
    -1: NoReason,
    2000: NotFound,  # ESLURM_INVALID_PARTITION_NAME
    2017: NotFound,  # ESLURM_INVALID_JOB_ID
    2018: NotFound,  # ESLURM_INVALID_NODE_NAME
    2168: AlreadyExists,  # ESLURM_NODE_ALREADY_EXISTS
    2169: TableFull,  # ESLURM_NODE_TABLE_FULL
    2016: Busy,  # ESLURM_NODES_BUSY
    2075: Busy,  # ESLURM_PARTITION_IN_USE
    2180: InvalidTransition,  # ESLURM_INVALID_NODE_STATE_TRANSITION
    2021: AlreadyDone,  # ESLURM_ALREADY_DONE
    2172: OtherJob,  # ESLURM_JOB_SIGNAL_FAILED, of a filter that does not match
    2002: AccessDenied,  # ESLURM_ACCESS_DENIED
    2010: AccessDenied,  # ESLURM_USER_ID_MISSING, "Invalid user id": only operators may do this
    1007: Unauthorized,  # SLURM_PROTOCOL_AUTHENTICATION_ERROR
    9008: Unauthorized,  # ESLURM_REST_AUTH_FAIL
    2178: NoSuchPlace,  # ESLURM_REQUESTED_TOPO_CONFIG_UNAVAIL
    2013: Behind,  # ESLURM_NOT_TOP_PRIORITY
    2038: StillHeld,  # ESLURM_DEPENDENCY
    2014: Infeasible,  # ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE
    # What job_allocate() of job_mgr.c takes for "not now", and what keeps it from looking.
    2015: NoRoom,  # ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE
    2035: NoRoom,  # ESLURM_FRAGMENTATION
    2040: NoRoom,  # ESLURM_LICENSES_UNAVAILABLE
    2050: NoRoom,  # ESLURM_ACCOUNTING_POLICY
    2055: NoRoom,  # ESLURM_RESERVATION_BUSY
    2056: NoRoom,  # ESLURM_RESERVATION_NOT_USABLE
    2059: NoRoom,  # ESLURM_PORTS_BUSY
    2068: NoRoom,  # ESLURM_NODE_NOT_AVAIL
    2074: NoRoom,  # ESLURM_QOS_THRES
    2078: NoRoom,  # ESLURM_CAN_NOT_START_IMMEDIATELY
    2100: NoRoom,  # ESLURM_BURST_BUFFER_WAIT
    2101: NoRoom,  # ESLURM_PARTITION_DOWN
    2125: NoRoom,  # ESLURM_DEFER
    2179: NoRoom,  # ESLURM_PREEMPTION_REQUIRED
    2027: ControllerAway,  # ESLURM_IN_STANDBY_MODE
    2131: ControllerAway,  # ESLURM_IN_STANDBY_USE_BACKUP
    **dict.fromkeys(_CUT_OFF, ControllerAway),
    **dict.fromkeys(range(1001, 1005), ControllerAway),  # SLURM_COMMUNICATIONS_*
    **dict.fromkeys(range(1019, 1024), ControllerAway),  # SLURM_COMMUNICATIONS_REJECTED .. _READ_TIMEOUT
    **dict.fromkeys(range(1800, 1806), ControllerAway),  # SLURMCTLD_COMMUNICATIONS_*
    **dict.fromkeys(range(6000, 6012), Unauthorized),  # ESLURM_AUTH_*
}
_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: AccessDenied,
    404: NotFound,
    502: ControllerAway,
    504: ControllerAway,
    511: Unauthorized,
}
_LONGEST = 300


def api_error(*, status: int, number: int = 0, error: str = "", description: str = "", source: str = "") -> ApiError:
    """Return the error that an answer stands for: Slurm's number tells, else the HTTP status."""
    kind = _BY_NUMBER.get(number) or _BY_STATUS.get(status, ApiError)
    return kind(status=status, number=number, error=error, description=description, source=source)


def _shortened(text: str) -> str:
    """Slurm repeats the whole host list that it was given, which may be 200 KB."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
