"""The one error of this room."""


class LocalError(Exception):
    """One sentence that says what is wrong and what to do; the CLI prints it as it is, without a traceback."""
