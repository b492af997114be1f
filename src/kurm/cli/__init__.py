"""The `kurm` command: thin, it parses arguments and calls the other rooms."""

import sys

import typer
from rich.console import Console

from kurm import __version__
from kurm.cli.daemons import app as daemons
from kurm.cli.local import app as local
from kurm.local.errors import LocalError

app = typer.Typer(
    name="kurm",
    help="Slurm on Kubernetes, on one pool of nodes.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(local, name="local")
app.add_typer(daemons)


@app.command()
def version() -> None:
    """Print Kurm's version."""
    typer.echo(f"kurm {__version__}")


def main() -> None:
    """Run the command; an error of ours is one sentence on standard error and exit status 1."""
    try:
        app()
    except LocalError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
