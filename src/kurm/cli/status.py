"""`kurm status`: Slurm clusters at a glance, what is wrong first."""

import asyncio
import sys
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console

from kurm.cli import access, queues, waiting
from kurm.cli.access import Context, Kubeconfig, Namespace, checked
from kurm.cli.errors import CommandError
from kurm.cli.queues import Queues
from kurm.cli.text import ago, console, line, problem_lines, table
from kurm.cli.view import CLUSTERS, NodeSet, SlurmCluster, View, absent, read
from kurm.cli.waiting import Waiting
from kurm.domain.diagnosis import Problem, Weight, by_type, problems, worst_first
from kurm.domain.nodeset import NodeSetStatus
from kurm.domain.slurmcluster import SlurmClusterStatus
from kurm.kube.errors import Forbidden
from kurm.kube.session import Session

app = typer.Typer()

WRONG = 1
"""Exit status when something is wrong. 2 is for a question that could not be asked."""


class Told(msgspec.Struct, frozen=True, rename={"about": "object"}, omit_defaults=True):
    """A problem, as programs are told of it."""

    severity: str
    about: str
    message: str
    next: str
    nodes: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One SlurmCluster or NodeSet, as programs are told of it."""

    namespace: str
    name: str
    status: SlurmClusterStatus | NodeSetStatus
    cluster: str = ""


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """What `-o json` prints."""

    well: bool
    problems: tuple[Told, ...]
    clusters: tuple[Named, ...]
    node_sets: tuple[Named, ...]
    queues: tuple[Queues, ...]
    waiting: tuple[Waiting, ...]
    unknown: tuple[str, ...]


@app.command()
def status(
    cluster: Annotated[
        str,
        typer.Argument(
            help="Only this SlurmCluster, and what belongs to it.",
            metavar="[CLUSTER]",
            callback=checked,
            show_default=False,
        ),
    ] = "",
    *,
    namespace: Namespace = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")] = False,
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="For people or for programs.")] = (
        "text"
    ),
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show Slurm clusters, their node sets, queues and the pods that wait; what is wrong comes first.

    Exit status: 0 if all is well, 1 if something is wrong, 2 if that could not be found out.
    """

    async def work(session: Session, place: str) -> tuple[View, list[Queues], list[Waiting]]:
        return await look(session, "" if all_namespaces else place, cluster)

    view, asked, pods = access.run(work, kubeconfig, context, namespace, "Asking Kubernetes and Slurm")
    found = diagnose(view)
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report(view, asked, pods, found))) + b"\n")
    else:
        show(console(), view, asked, pods, found)
    if not well(found):
        raise typer.Exit(WRONG)


async def look(session: Session, namespace: str, cluster: str) -> tuple[View, list[Queues], list[Waiting]]:
    """Read everything about the clusters of a namespace ("" for all), or about one of them. Raises CommandError."""
    view = await read(session, namespace)
    if cluster:
        view.clusters = [one for one in view.clusters if one.metadata.name == cluster]
        view.node_sets = [one for one in view.node_sets if one.spec.cluster_ref.name == cluster]
    if not view.clusters and (cluster or not view.node_sets):
        raise CommandError(f"{await absent(session, CLUSTERS, namespace, cluster)} (-n NAMESPACE, or -A for all)")
    asked = await asyncio.gather(
        *(queues.ask(session, one.metadata.namespace, one.metadata.name, view.pods_of(one)) for one in view.clusters)
    )
    return view, list(asked), await _waiting(session, view)


async def _waiting(session: Session, view: View) -> list[Waiting]:
    try:
        found = await asyncio.gather(*(waiting.ask(session, one) for one in view.clusters))
    except Forbidden as error:
        view.unknown.append(f"Nothing is known of the pods that wait: {error.message}")
        return []
    return [pod for pods in found for pod in pods]


def diagnose(view: View) -> list[Problem]:
    """Return all that is not as it should be, the worst first."""
    found, node_sets, nodes = [], [], view.facts()
    for node_set in view.node_sets:
        try:
            node_sets.append(view.node_set_facts(node_set, nodes))
        except ValueError as error:
            meta = node_set.metadata
            command = f"kubectl -n {meta.namespace} edit nodeset {meta.name}"
            found.append(Problem(Weight.STUCK, f"NodeSet {meta.namespace}/{meta.name}", f"is no use: {error}", command))
    return worst_first(found + problems([view.cluster_facts(one) for one in view.clusters], node_sets))


def well(found: list[Problem]) -> bool:
    """Whether nothing is wrong; what somebody has set aside is not."""
    return all(problem.weight is Weight.ASIDE for problem in found)


def report(view: View, asked: list[Queues], pods: list[Waiting], found: list[Problem]) -> Report:
    """Return what programs are told."""
    return Report(
        well=well(found),
        problems=tuple(
            Told(problem.weight.name.lower(), problem.subject, problem.says, problem.next, problem.nodes)
            for problem in found
        ),
        clusters=tuple(Named(one.metadata.namespace, one.metadata.name, one.status) for one in view.clusters),
        node_sets=tuple(
            Named(one.metadata.namespace, one.metadata.name, one.status, one.spec.cluster_ref.name)
            for one in view.node_sets
        ),
        queues=tuple(asked),
        waiting=tuple(pods),
        unknown=tuple(view.unknown),
    )


def show(out: Console, view: View, asked: list[Queues], pods: list[Waiting], found: list[Problem]) -> None:
    """Print everything for people."""
    wrong = [problem for problem in found if problem.weight < Weight.ASIDE]
    aside = [problem for problem in found if problem.weight is Weight.ASIDE]
    if wrong:
        line(out, "One thing is wrong:" if len(wrong) == 1 else f"{len(wrong)} things are wrong:", "bold")
        problem_lines(out, wrong)
    else:
        line(out, f"All is well: {_summary(view)}.", "bold green")
    if aside:
        line(out, "\nSet aside by somebody:", "bold")
        problem_lines(out, aside)
    for words in view.unknown:
        line(out, f"\n{words}", "yellow")
    _clusters(out, view)
    _node_sets(out, view)
    _queues(out, asked)
    waiting.show(out, pods)


def _summary(view: View) -> str:
    ready = sum(one.status.ready for one in view.node_sets)
    desired = sum(one.status.desired for one in view.node_sets)
    things = f"{_number(len(view.clusters), 'cluster')}, {_number(len(view.node_sets), 'node set')}"
    return f"{things}, {ready} of {desired} nodes in service"


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _clusters(out: Console, view: View) -> None:
    out.print()
    columns = ("CLUSTER", "AVAILABLE", "CONFIGURED", "READY", "NODES", "SLURM", "LOGIN", "AGE")
    out.print(table(columns, (_cluster_row(one) for one in view.clusters)))


def _cluster_row(cluster: SlurmCluster) -> tuple[object, ...]:
    conditions, nodes = by_type(cluster.status.conditions), cluster.status.nodes
    says = [
        conditions[kind].status if kind in conditions else "Unknown" for kind in ("Available", "Configured", "Ready")
    ]
    return (
        cluster.key,
        *says,
        f"{nodes.ready}/{nodes.total}",
        cluster.status.version,
        cluster.status.login_address,
        ago(cluster.metadata.creation_timestamp),
    )


def _node_sets(out: Console, view: View) -> None:
    if view.node_sets:
        out.print()
        columns = (
            "NODE SET",
            "CLUSTER",
            "READY",
            "DESIRED",
            "FEASIBLE",
            "ALLOCATED",
            "DRAINING",
            "DRAINED",
            "UPDATED",
            "AGE",
        )
        out.print(table(columns, (_node_set_row(one) for one in view.node_sets)))


def _node_set_row(node_set: NodeSet) -> tuple[object, ...]:
    says = node_set.status
    return (
        node_set.key,
        node_set.spec.cluster_ref.name,
        says.ready,
        says.desired,
        says.feasible,
        "" if says.allocated is None else says.allocated,
        says.draining,
        says.drained,
        says.updated,
        ago(node_set.metadata.creation_timestamp),
    )


def _queues(out: Console, asked: list[Queues]) -> None:
    rows = [
        (
            f"{queue.name} (default)" if queue.default else queue.name,
            f"{one.namespace}/{one.cluster}",
            queue.state,
            queue.allocated,
            queue.idle,
            queue.other,
            queue.running,
            queue.pending,
            ", ".join(f"{reason} {number}" for reason, number in queue.waits_for.items()),
        )
        for one in asked
        for queue in one.partitions
    ]
    if rows:
        out.print()
        columns = ("QUEUE", "CLUSTER", "STATE", "IN USE", "IDLE", "OTHER", "RUNNING", "PENDING", "WAITING FOR")
        out.print(table(columns, rows))
    for one in asked:
        if one.unknown:
            line(out, f"\nThe queues of {one.namespace}/{one.cluster} are not known: {one.unknown}", "yellow")
