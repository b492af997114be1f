"""`kurm local`: a real Kubernetes cluster on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kurm.local import build, checks, cluster, images, status
from kurm.local import demo as demonstration
from kurm.local.layout import check_name
from kurm.local.progress import Steps

app = typer.Typer(
    help="A real Kubernetes cluster on this machine: API server, kubelets, containers; no Docker. Needs root.",
    no_args_is_help=True,
)
node = typer.Typer(help="The power of single nodes.", no_args_is_help=True)
app.add_typer(node, name="node")

DEFAULT_NAME = "demo"
NodeName = Annotated[str, typer.Argument(help="A node's name: n0 (control pods), n1, n2, ...", metavar="NODE")]


@app.callback()
def _local(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="Clusters of different names live side by side.")] = DEFAULT_NAME,
) -> None:
    context.obj = check_name(name)  # the option stands before the command: kurm local --name NAME up


@app.command()
def up(
    context: typer.Context,
    nodes: Annotated[int, typer.Option(help="Worker nodes n1..nN; n0, for control pods, comes on top.")] = 4,
) -> None:
    """Bring the cluster up. The first time builds Kubernetes (about 7 minutes on two cores); after that, seconds."""
    console = Console(stderr=True)
    made = cluster.up(context.obj, nodes, Steps(console))
    console.print(
        f"Cluster [bold]{made.layout.name}[/] is up. Use it with:\n"
        f"  export KUBECONFIG={made.layout.kubeconfig}\n  export PATH={made.record.binaries}:$PATH",
        highlight=False,
        soft_wrap=True,
    )


@app.command(name="build")
def build_all(
    repository: Annotated[Path, typer.Option(help="A checkout of Kurm.", file_okay=False)] = Path(),
) -> None:
    """Build what a cluster runs, into the cache: Kubernetes, Helm, images. `demo` does it by itself."""
    steps = Steps(Console(stderr=True))
    checks.root()
    checks.packages(steps)
    with steps.step("Kubernetes, CoreDNS and Helm"):
        build.binaries()
    with steps.step("Images"):
        images.build(repository.resolve(), None, steps.note)


@app.command()
def down(context: typer.Context) -> None:
    """End the cluster and leave nothing of it but the caches."""
    console = Console(stderr=True)
    if not cluster.down(context.obj, Steps(console)):
        console.print(f"There was no cluster {context.obj!r}.", highlight=False)


@app.command(name="status")
def show_status(context: typer.Context) -> None:
    """Show the cluster's machines, and what is wrong with them if anything is."""
    if not status.show(cluster.find(context.obj), Console()):
        raise typer.Exit(1)


@app.command()
def kubeconfig(context: typer.Context) -> None:
    """Print the path of the cluster's kubeconfig."""
    typer.echo(cluster.find(context.obj).layout.kubeconfig)


@app.command()
def load(
    context: typer.Context,
    image: Annotated[str, typer.Argument(help="An archive (OCI or docker), or the name of an image.")],
) -> None:
    """Load an image into every node, from an archive or out of buildah's or docker's storage on this machine."""
    with Steps(Console(stderr=True)).step(f"Loading {image}"):
        cluster.find(context.obj).load_image(image)


@app.command()
def demo(
    context: typer.Context,
    repository: Annotated[Path, typer.Option(help="A checkout of Kurm.", file_okay=False)] = Path(),
    *,
    bare: Annotated[bool, typer.Option("--bare", help="Slurm by plain manifests, to compare with.")] = False,
) -> None:
    """Run the demonstration of a checkout: a cluster, Slurm on it by the charts, an MPI job. `make demo` is this."""
    show = demonstration.run_bare if bare else demonstration.run
    show(context.obj, repository.resolve(), Console())


@node.command()
def stop(context: typer.Context, name: NodeName) -> None:
    """Cut a node off as a power failure does: nothing is told, only its disk stays."""
    with Steps(Console(stderr=True)).step(f"Switching {name} off"):
        cluster.find(context.obj).stop_node(name)


@node.command()
def start(context: typer.Context, name: NodeName) -> None:
    """Switch a node on again, and wait until it is Ready."""
    with Steps(Console(stderr=True)).step(f"Starting {name}"):
        cluster.find(context.obj).start_node(name)
