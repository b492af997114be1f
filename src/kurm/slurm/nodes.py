"""Slurm's node records: read, made, changed and deleted.

Field names are those of data_parser v0.0.45 (slurmrestd's /openapi/v3); memory is in MiB, times in seconds since 1970.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kurm.slurm.conf import Record, render_line
from kurm.slurm.errors import ApiError, Busy, InvalidTransition, NotFound
from kurm.slurm.hostlist import compress, expand
from kurm.slurm.session import Session
from kurm.slurm.wire import ABSENT, Answer, Narrow, Number, number

PATH = 8_000
"""Characters of a host list in a path, before brackets and commas are escaped. 60,000 were seen to pass."""
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_CLOSED = frozenset(
    {"DOWN", "DRAIN", "FAIL", "FUTURE", "UNKNOWN", "INVALID_REG", "NOT_RESPONDING"}
    | {"REBOOT_ISSUED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}
)


class Node(Narrow):
    """A node's record, as far as Kurm reads it."""

    name: str
    state: tuple[str, ...] = ()
    """One base state (IDLE, MIXED, ALLOCATED, DOWN, ...) and flags (DRAIN, CLOUD, POWERED_DOWN, INVALID_REG, ...)."""
    reason: str = ""
    reason_changed_at: Number = ABSENT
    reason_set_by_user: str = ""
    address: str = ""
    hostname: str = ""
    cpus: int = 0
    alloc_cpus: int = 0
    """Seen to lag behind `state` (ALLOCATED at once, MIXED later) for up to a second after a job's start."""
    real_memory: int = 0
    alloc_memory: int = 0
    gres: str = ""
    gres_used: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    weight: int = 0
    extra: str = ""
    comment: str = ""
    topology: str = ""
    instance_id: str = ""
    boot_time: Number = ABSENT
    slurmd_start_time: Number = ABSENT
    last_busy: Number = ABSENT
    version: str = ""
    """slurmd's release; empty before it has registered."""

    def has(self, *states: str) -> bool:
        """Whether the state holds any of these words."""
        return any(state in self.state for state in states)

    @property
    def busy(self) -> bool:
        """Whether any job holds a part of it, or is just leaving it."""
        return not _BUSY.isdisjoint(self.state) or self.alloc_cpus > 0

    @property
    def closed(self) -> bool:
        """Whether Slurm starts nothing on it, whoever asks; a reserved one takes the jobs of its reservation."""
        return not _CLOSED.isdisjoint(self.state)

    @property
    def draining(self) -> bool:
        """Whether it takes no new jobs because somebody said so; `busy` tells whether it is drained."""
        return "DRAIN" in self.state

    @property
    def registered(self) -> bool:
        """Whether a slurmd has attached to the record, and still answers. An EXTERNAL node has none to wait for."""
        attached = self.slurmd_start_time.value not in {None, 0} or self.has("EXTERNAL")
        return attached and not self.has("NOT_RESPONDING", "POWERED_DOWN")


class NodesAnswer(Answer):
    """All nodes, or one. `last_update` is slurmctld's clock, to be given back as `since`."""

    nodes: tuple[Node, ...] | None = None
    last_update: Number = ABSENT


class NewNode(msgspec.Struct, frozen=True, kw_only=True):
    """The record of nodes to be made: of one size, given by names. It cannot change its size later."""

    names: tuple[str, ...]
    cpus: int
    real_memory: int
    """MiB."""
    state: str = "CLOUD"
    """CLOUD waits for a slurmd that attaches itself; EXTERNAL takes jobs without one; FUTURE waits for RESUME."""
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    gres: str = ""
    features: tuple[str, ...] = ()
    weight: int | None = None
    topology: str = ""
    address: str = ""
    hostname: str = ""

    def line(self, hosts: str) -> str:
        """Return the line of slurm.conf(5), NODE CONFIGURATION, for a host list."""
        fields = (
            ("NodeName", hosts),
            ("State", self.state),
            ("CPUs", self.cpus),
            ("Sockets", self.sockets),
            ("CoresPerSocket", self.cores_per_socket),
            ("ThreadsPerCore", self.threads_per_core),
            ("RealMemory", self.real_memory),
            ("Gres", self.gres),
            ("Feature", ",".join(self.features)),
            ("Weight", self.weight),
            ("Topology", self.topology),
            ("NodeAddr", self.address),
            ("NodeHostName", self.hostname),
        )
        return render_line(Record(tuple((key, str(value)) for key, value in fields if value not in {None, ""})))


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What to change of nodes; None leaves a thing as it is, "" and () empty it."""

    state: str | None = None
    """DRAIN, UNDRAIN (harmless if not drained), RESUME (refused if not), DOWN, POWER_DOWN, FUTURE, ..."""
    reason: str | None = None
    """Slurm wants one with DOWN and DRAIN from people; over REST it takes them without."""
    comment: str | None = None
    extra: str | None = None
    features: tuple[str, ...] | None = None
    active_features: tuple[str, ...] | None = None
    """All of `features` if it is not given: Slurm refuses an update that leaves others active."""
    gres: str | None = None
    weight: int | None = None
    topology: str | None = None
    address: str | None = None
    hostname: str | None = None
    resume_after: int | None = None
    """Seconds, after a DOWN or DRAIN."""

    def body(self) -> dict[str, object]:
        """Return the fields of `update_node_msg`, without the names."""
        active = self.features if self.active_features is None else self.active_features
        fields: dict[str, object] = {
            "state": None if self.state is None else [self.state],
            "reason": self.reason,
            "comment": self.comment,
            "extra": self.extra,
            "features": _list(self.features),
            "features_act": _list(active),
            "gres": self.gres,
            "weight": None if self.weight is None else number(self.weight),
            "topology_str": self.topology,
            "address": None if self.address is None else [self.address],
            "hostname": None if self.hostname is None else [self.hostname],
            "resume_after": None if self.resume_after is None else number(self.resume_after),
        }
        return {name: value for name, value in fields.items() if value is not None}


_FUTURE = 4_102_444_800
"""The year 2100, in seconds since 1970."""
_SHOWN = tuple(("flags", flag) for flag in ("ALL", "DETAIL", "MIXED", "FUTURE"))
"""slurmrestd's own default, and FUTURE nodes, which it hides: a record that is there would seem not to be."""


async def list_nodes(session: Session, *, since: int = 0, deadline: float | None = None) -> NodesAnswer | None:
    """Return all nodes; None if nothing at all has changed since `since`, the `last_update` of an earlier answer.

    Dear: 2.5 KB for each node over the wire. Any start or end of a job is a change.
    """
    query = [*_SHOWN, *([("update_time", str(since))] if since else [])]
    return await session.request(NodesAnswer, "GET", "nodes/", query=query, deadline=deadline)


async def recount_nodes(session: Session, *, deadline: float | None = None) -> None:
    """Have slurmctld count anew what jobs hold of each node. Cheap: the answer is "nothing has changed".

    It counts for a list only, and before it looks whether a list is due; so it is asked for what has changed since a
    day that has not come.
    """
    await session.request(NodesAnswer, "GET", "nodes/", query=[("update_time", str(_FUTURE))], deadline=deadline)


async def get_node(session: Session, name: str, *, deadline: float | None = None) -> Node:
    """Return one node. Raises NotFound.

    What jobs hold of it is as it was counted last, for a list, by the backfill scheduler or at a ping (26.05,
    `_slurm_rpc_dump_node_single`): a node without a job may be MIXED for minutes. See `recount_nodes`.
    """
    try:
        answer = await session.request(NodesAnswer, "GET", "node/{}", name, query=_SHOWN, deadline=deadline)
    except ApiError as error:
        # slurmctld finds no such node, slurmrestd calls that an error without a number and a success of HTTP.
        if error.status == 200 and not error.number:  # noqa: PLR2004 - HTTP's "OK"
            raise NotFound(status=404, error="no such node", description=error.description) from error
        raise
    if not answer or not answer.nodes:
        raise NotFound(status=404, error="no such node", description=f"node {name}")
    return answer.nodes[0]


async def why_closed(session: Session, name: str) -> str:
    """Return why Slurm starts nothing on a node, for people; empty if it does."""
    try:
        node = await get_node(session, name)
    except NotFound:
        return f"Slurm has no record of node {name}"
    return (
        f"node {name} is {'+'.join(node.state)} in Slurm: {node.reason or 'no reason is given'}" if node.closed else ""
    )


async def create_nodes(session: Session, new: NewNode, *, deadline: float | None = None) -> None:
    """Make the records of nodes. Raises AlreadyExists, TableFull (MaxNodeCount), NoReason for what does not parse.

    If any of the names exists, none is made (of those in one call: 50,000 characters of host list).
    """
    for hosts in compress(new.names):
        body = {"node_conf": new.line(hosts)}
        await session.request(Answer, "POST", "new/node/", body=body, deadline=deadline)


async def update_nodes(
    session: Session, names: Iterable[str], update: Update, *, deadline: float | None = None
) -> None:
    """Change many nodes by few calls. What Slurm refuses for one node it does for the others, and is raised at the end.

    Raises NotFound if one is not there, InvalidTransition if one cannot take the state. `deadline` is each call's.
    """
    if refused := await _update(session, names, update.body(), deadline):
        raise refused


async def _update(
    session: Session, names: Iterable[str], body: dict[str, object], deadline: float | None
) -> ApiError | None:
    refused: ApiError | None = None
    for hosts in compress(names):
        try:
            await session.request(Answer, "POST", "nodes/", body={"name": [hosts], **body}, deadline=deadline)
        except InvalidTransition as error:
            refused = error
        except NotFound as error:
            # Slurm stops at the first name that it does not know, and does not say which: halve until it stands alone.
            refused = error
            group = expand(hosts)
            half = len(group) // 2
            for part in (group[:half], group[half:]) if half else ():
                await _update(session, part, body, deadline)
    return refused


async def delete_nodes(session: Session, names: Iterable[str], *, deadline: float | None = None) -> None:
    """Delete records by few calls. What Slurm refuses for one node it does for the others, and is raised at the end.

    Raises Busy while a job holds any of one, NotFound if one is not there; if both are so, either.
    """
    refused: ApiError | None = None
    for hosts in compress(names, limit=PATH):
        try:
            await session.request(Answer, "DELETE", "node/{}", hosts, deadline=deadline)
        except (NotFound, Busy) as error:
            refused = error
    if refused:
        raise refused


def _list(values: Sequence[str] | None) -> Sequence[str] | None:
    """Return what empties a list, if it is to be empty: Slurm ignores `[]`."""
    return values if values is None else values or ("",)


def names_of(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the names of nodes."""
    return frozenset(node.name for node in nodes)
