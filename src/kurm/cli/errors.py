"""The one error of this room."""


class CommandError(Exception):
    """One sentence that says what is wrong and what to do; the command prints it as it is, without a traceback."""
