"""`python -m kurm.cli`: the command, for whom only the interpreter is sure to be found (ssh's ProxyCommand)."""

from kurm.cli import main

main()
