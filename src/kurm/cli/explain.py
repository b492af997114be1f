"""`kurm explain`: everything that is known of one object, as sentences."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding

from kurm.cli import access, podview
from kurm.cli.access import Context, Kubeconfig, Namespace, checked
from kurm.cli.errors import CommandError
from kurm.cli.podstory import Story
from kurm.cli.podstory import show as show_pod
from kurm.cli.text import ago, console, line, plain, problem_lines, table
from kurm.cli.trouble import Pod, trouble
from kurm.cli.view import (
    CLUSTERS,
    NODE_SETS,
    NodeSet,
    SlurmCluster,
    View,
    absent,
    component,
    condition,
    read,
)
from kurm.domain import standing
from kurm.domain.diagnosis import of_cluster, of_node_set
from kurm.domain.noderecord import TooFewError, node_record
from kurm.domain.nodeset import NodeSetStatus
from kurm.domain.selection import claim
from kurm.domain.signals import NODE_SET
from kurm.domain.spec import Condition
from kurm.domain.standing import ASIDE, IN_SERVICE, Standing, claimant
from kurm.kube import resources as kube
from kurm.kube.errors import Forbidden
from kurm.kube.resources import NODES, Node
from kurm.kube.session import Session
from kurm.operator.render.names import Part

app = typer.Typer()
explain = typer.Typer(
    help="Say all that is known of a SlurmCluster, a NodeSet, a Kubernetes node or a pod.", no_args_is_help=True
)
app.add_typer(explain, name="explain")

Name = Annotated[str, typer.Argument(help="Its name.", metavar="NAME", callback=checked)]
FIGURES = (
    *("desired", "feasible", "current", "updated", "ready", "allocated"),
    *("draining", "drained", "misscheduled", "unavailable"),
)
_DOING = "Asking Kubernetes"


@explain.command()
def slurmcluster(
    name: Name, *, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = ""
) -> None:
    """Say what a SlurmCluster's components do, why some are not ready, and which configuration is in force."""

    async def work(session: Session, place: str) -> tuple[View, SlurmCluster]:
        view = await read(session, place)
        found = next((one for one in view.clusters if one.metadata.name == name), None)
        if found is None:
            raise CommandError(await absent(session, CLUSTERS, place, name))
        return view, found

    show_cluster(console(), *access.run(work, kubeconfig, context, namespace, _DOING))


@explain.command()
def nodeset(name: Name, *, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Say of every Kubernetes node whether a NodeSet has it, how it is, or why it cannot be used."""

    async def work(session: Session, place: str) -> tuple[View, NodeSet]:
        view = await read(session, place)
        found = next((one for one in view.node_sets if one.metadata.name == name), None)
        if found is None:
            raise CommandError(await absent(session, NODE_SETS, place, name))
        return view, found

    show_node_set(console(), *access.run(work, kubeconfig, context, namespace, _DOING))


@explain.command()
def node(name: Name, *, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Say who has claimed a Kubernetes node, how its slurmd is, and what each NodeSet says to it.

    NodeSets of all namespaces are asked where that is allowed; those of one namespace with -n.
    """

    async def work(session: Session, place: str) -> tuple[View, Node]:
        view = await _everywhere(session, namespace, place)
        found = next((one for one in view.nodes or () if one.metadata.name == name), None)
        if found is None:
            raise CommandError(view.unknown[0] if view.nodes is None else await absent(session, NODES, "", name))
        return view, found

    show_node(console(), *access.run(work, kubeconfig, context, namespace, _DOING))


@explain.command()
def pod(name: Name, *, namespace: Namespace = "", kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Say why a pod of Slurm's queue waits, its place there, which nodes are out and why, or where it is."""

    async def work(session: Session, place: str) -> Story:
        return await podview.look(session, place, name)

    show_pod(console(), access.run(work, kubeconfig, context, namespace, "Asking Kubernetes and Slurm"))


async def _everywhere(session: Session, namespace: str, place: str) -> View:
    try:
        return await read(session, namespace)
    except Forbidden:
        return await read(session, place)


def show_cluster(out: Console, view: View, cluster: SlurmCluster) -> None:
    """Print what is known of a SlurmCluster."""
    status, meta = cluster.status, cluster.metadata
    version = f"Slurm {status.version}" if status.version else "Slurm's version is not yet known"
    line(out, f"SlurmCluster {cluster.key}, {_age(cluster)}, {version}", "bold")
    found = of_cluster(view.cluster_facts(cluster))
    if found:
        problem_lines(out, found)
    else:
        line(out, "All is well.", "green")
    _conditions(out, status.conditions)
    _components(out, view, cluster)
    line(out, "\nConfiguration", "bold")
    line(out, f"  in force: {status.config_hash or 'not yet known'}")
    if refused := status.config_refused:
        line(out, f"  refused:  {refused.hash}; the one in force stays. Slurm says: {plain(refused.message)}", "red")
    line(out, "\nNodes", "bold")
    line(out, f"  {status.nodes.ready} of {status.nodes.total} are in service.")
    for node_set in view.node_sets_of(cluster):
        says = node_set.status
        more = f"kurm explain nodeset {node_set.metadata.name} -n {meta.namespace}"
        line(out, f"  NodeSet {node_set.metadata.name}: {says.ready} of {says.desired} ({more})")
    line(out, "\nLogin", "bold")
    line(out, f"  kurm ssh {meta.name} -n {meta.namespace}")
    if status.login_address:
        line(out, f"  or any ssh, to {status.login_address}")
    _unknown(out, view)


def _components(out: Console, view: View, cluster: SlurmCluster) -> None:
    said = {part.name: part for part in cluster.status.components}
    pods: dict[str, list[Pod]] = {}
    for pod in view.pods_of(cluster):
        if component(pod) != Part.SLURMD:
            pods.setdefault(component(pod), []).append(pod)
    if not said and not pods:
        return
    out.print()
    rows = []
    for name in sorted({*said, *pods}):
        part = said.get(name)
        figures = f"{part.ready}/{part.desired}" if part else "?"
        rows += [(name, figures, pod.metadata.name, pod.spec.node_name, _pod(pod, view)) for pod in pods.get(name, ())]
        if not pods.get(name):
            rows.append((name, figures, "", "", part.message if part else ""))
    out.print(table(("COMPONENT", "READY", "POD", "NODE", "HOW IT IS"), rows))


def _pod(pod: Pod, view: View) -> str:
    restarts = sum(one.restart_count for one in pod.status.container_statuses)
    told = trouble(pod, view.warnings)
    if told is not None:
        return told.why
    return f"is ready{_for(pod.condition('Ready'))}" + (f", {restarts} restarts" if restarts else "")


def show_node_set(out: Console, view: View, node_set: NodeSet) -> None:
    """Print what is known of a NodeSet, and every node."""
    says, spec = node_set.status, node_set.spec
    line(out, f"NodeSet {node_set.key} of SlurmCluster {spec.cluster_ref.name}, {_age(node_set)}", "bold")
    wish = "every node that fits" if spec.replicas is None else f"{spec.replicas} of the nodes that fit"
    line(out, f"It takes {wish}; {says.ready} of {says.desired} are in service.")
    try:
        facts = view.node_set_facts(node_set, view.facts())
    except ValueError as error:
        line(out, f"It chooses no nodes: {error}", "red")
        return
    _figures(out, says)
    clusters = {(one.metadata.namespace, one.metadata.name) for one in view.clusters}
    problem_lines(out, of_node_set(facts, clusters))
    _conditions(out, says.conditions)
    _unknown(out, view)
    if facts.standings is not None:
        out.print()
        rows = ((one.node, one.state, one.why) for one in sorted(facts.standings, key=_order))
        out.print(table(("NODE", "STATE", "WHY"), rows))


def _figures(out: Console, says: NodeSetStatus) -> None:
    """Print how many nodes there are of each sort, and why others cannot be used."""
    allocated = "unknown" if says.allocated is None else says.allocated
    figures = {name: getattr(says, name) for name in FIGURES} | {"allocated": allocated}
    line(out, "Nodes: " + ", ".join(f"{name} {number}" for name, number in figures.items()) + ".")
    for one in says.infeasible:
        some = ", ".join(one.examples) + (", ..." if one.nodes > len(one.examples) else "")
        line(out, f"  {one.nodes} cannot be used: {one.reason} ({some})")


def _order(one: Standing) -> tuple[int, str, str]:
    """Sort: what is wrong, what is set aside, what is in service, then nodes of others by what keeps them out."""
    rank = 3 if not one.own else 0 if one.wrong else 1 if one.state in ASIDE else 2
    return rank, one.state, one.node


def show_node(out: Console, view: View, node: Node) -> None:
    """Print what is known of a Kubernetes node."""
    meta = node.metadata
    claimed = meta.labels.get(NODE_SET, "")
    owner = f"claimed by NodeSet {claimant(claimed)}" if claimed else "claimed by no NodeSet"
    line(out, f"Node {meta.name}, {owner}", "bold")
    line(out, "\nKubernetes", "bold")
    for words in _in_kubernetes(node):
        line(out, f"  {words}")
    nodes = view.facts()
    pods = [one for one in view.pods if one.spec.node_name == meta.name and component(one) == Part.SLURMD]
    line(out, "\nSlurm", "bold")
    for pod in pods:
        line(out, f"  Pod {pod.key} {_pod(pod, view)}.")
        _in_slurm(out, view.slurmd(pod))
    if not pods:
        line(out, "  There is no slurmd pod on it" + (", though it is claimed." if claimed else "."))
    line(out, "\nNodeSets", "bold")
    if not view.node_sets:
        line(out, "  There is none to be seen.")
    rows = [(one.key, *_answer(one, meta.name, nodes)) for one in view.node_sets]
    if rows:
        out.print(Padding(table(("NODE SET", "STATE", "WHY", "RECORD"), rows), (0, 0, 0, 2), expand=False))
    _unknown(out, view)


def _in_kubernetes(node: Node) -> Iterator[str]:
    ready = condition(node.status.conditions, "Ready")
    if ready is None:
        yield "Nobody has said yet whether it is Ready."
    elif ready.status == "True":
        yield f"Ready{_for(ready)}."
    else:
        yield f"Not Ready ({ready.status}){_for(ready)}: {plain(ready.message or ready.reason)}"
    for one in node.status.conditions:
        if one.type != "Ready" and one.status == "True":
            yield f"{one.type}{_for(one)}: {plain(one.message or one.reason)}"
    if node.spec.unschedulable:
        yield "Cordoned: no new pod is sent there (kubectl uncordon lifts it)."
    for taint in node.spec.taints:
        yield f"Tainted {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _in_slurm(out: Console, slurmd: standing.Slurmd) -> None:
    said = slurmd.said
    if slurmd.release:
        line(out, f"  It is told to go: {plain(slurmd.release)}")
    if said is None:
        line(out, "  The syncer has said nothing of it yet: slurmd has most likely not registered.")
        return
    line(out, f"  Slurm: {said.reason}" + (f": {plain(said.message)}" if said.message else ""))
    if not said.ready:
        line(
            out, "  It takes no jobs" + (", and none is left on it." if said.drained else "; some may still run on it.")
        )


def _answer(node_set: NodeSet, name: str, nodes: Sequence[standing.Node]) -> tuple[str, str, str]:
    """Return how the node stands with a NodeSet, and the record that Slurm would get of it."""
    meta, spec = node_set.metadata, node_set.spec
    fact = next(one for one in nodes if one.candidate.name == name)
    try:
        # All nodes are asked, not this one alone: which of too many stay is a question to all of them.
        found = standing.standings(meta.name, spec, claim(meta.namespace, meta.name), nodes)
    except ValueError as error:
        return "Broken", str(error), ""
    mine = next(one for one in found if one.node == name)
    try:
        record = node_record(meta.name, spec, fact.candidate.allocatable, fact.candidate.labels)
    except TooFewError:
        return mine.state, mine.why, "none can be made"
    gres = ",".join(str(one) for one in record.gres)
    sizes = f"CPUs={record.cpus} RealMemory={record.real_memory}" + (f" Gres={gres}" if gres else "")
    return mine.state, mine.why or ("Slurm gives it jobs" if mine.state == IN_SERVICE else ""), sizes


def _conditions(out: Console, conditions: Sequence[Condition]) -> None:
    if conditions:
        out.print()
        rows = ((one.type, one.status, ago(one.last_transition_time), one.reason, one.message) for one in conditions)
        out.print(table(("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"), rows))


def _age(thing: kube.Object) -> str:
    moment = thing.metadata.creation_timestamp
    return f"{ago(moment)} old" if moment else "of unknown age"


def _for(found: kube.Condition | None) -> str:
    """Return for how long a condition has been what it is."""
    return f" for {ago(found.last_transition_time)}" if found and found.last_transition_time else ""


def _unknown(out: Console, view: View) -> None:
    for words in view.unknown:
        line(out, f"\n{words}", "yellow")
