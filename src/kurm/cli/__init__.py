"""The `kurm` command: thin, it parses arguments and calls the other rooms."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from kurm import __version__
from kurm.cli.errors import CommandError
from kurm.kube.errors import KubeError
from kurm.local.errors import LocalError

if TYPE_CHECKING:
    app: typer.Typer

_MODULES = {name: f"kurm.cli.{name}" for name in ("status", "explain", "ssh", "local", "daemons")}
_COMMANDS = {name: name for name in _MODULES} | dict.fromkeys(("operator", "syncer", "scheduler"), "daemons")
"""In which module each command is. All together take two seconds to import, and ssh starts us twice."""
UNKNOWN = 2
"""Exit status of a question that could not be asked, as of a usage error; 1 is for `kurm status` that found a fault."""


def build(*modules: str) -> typer.Typer:
    """Return the command with the commands of these modules."""
    made = typer.Typer(
        name="kurm",
        help="Slurm on Kubernetes, on one pool of nodes.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    for module in modules:
        made.add_typer(import_module(_MODULES[module]).app, name=module if module == "local" else None)
    made.command()(version)
    # Without a callback a single command would take the place of the whole, and lose its name.
    made.callback()(lambda: None)
    return made


def __getattr__(name: str) -> typer.Typer:
    if name == "app":
        return build(*_MODULES)
    raise AttributeError(name)


def version() -> None:
    """Print Kurm's version."""
    typer.echo(f"kurm {__version__}")


def main() -> None:
    """Run the command; an error of ours is one sentence on standard error, and exit status 1 or 2."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    wanted = [_COMMANDS[word]] if word in _COMMANDS else [] if word == "version" else list(_MODULES)
    try:
        build(*wanted)()
    except LocalError as error:
        _say(error)
        sys.exit(1)
    except (CommandError, KubeError) as error:
        _say(error)
        sys.exit(UNKNOWN)
    except KeyboardInterrupt:
        sys.exit(130)


def _say(error: Exception) -> None:
    console = Console(stderr=True)
    console.print("[bold red]error:[/] ", end="")
    console.print(str(error), highlight=False, markup=False, soft_wrap=True)
