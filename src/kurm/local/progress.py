"""Progress that a person can follow: which step, how long so far, how long each took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Steps:
    """Shows one line per step: live with a running clock on a terminal, two plain lines a step elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._note: str | None = None

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show `title` while the block runs, then how long it took; a failed step says so and raises on."""
        begun = time.monotonic()
        self._note = None
        try:
            if self.console.is_terminal:
                columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
                with Progress(*columns, console=self.console, transient=True) as bar:
                    bar.add_task(title)
                    yield
            else:
                self.console.print(f"  ... {title}", highlight=False, soft_wrap=True)
                yield
        except BaseException:
            self._line("[red]fail[/red]", title, begun)
            raise
        self._line("[green] ok [/green]", title, begun)

    def note(self, text: str) -> None:
        """Say something beside the running step's title when it ends ("from the cache")."""
        self._note = text

    def _line(self, mark: str, title: str, begun: float) -> None:
        note = f" ({self._note})" if self._note else ""
        self.console.print(
            f" {mark} {title}{note} [dim]{time.monotonic() - begun:.1f} s[/dim]", highlight=False, soft_wrap=True
        )
