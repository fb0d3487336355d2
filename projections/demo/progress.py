"""How far the demo is, on stderr: bars on a terminal, else a line now and then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_PARTS = 20
"""How many lines of text there are for the whole."""


class Reporter:
    """Writes lines to a console, one whenever another twentieth is done; with bars, it moves these instead."""

    def __init__(self, console: Console, bars: Progress | None = None) -> None:
        self._console = console
        self._bars = bars
        self._tasks: list[TaskID] = []
        self._events = 0
        self._shown = -1
        self._lag = ""

    def begin(self, events: int) -> None:
        """Begin with the number of events that are to be appended and handled."""
        self._events = events
        if self._bars is not None:
            self._tasks = [
                self._bars.add_task(name, total=events, lag="") for name in ("appended", "handled")
            ]

    def step(self, text: str) -> None:
        """Something else begins."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def counted(self, appended: int, handled: int) -> None:
        """Show how many are done in all."""
        if self._bars is not None:
            for task, count in zip(self._tasks, (appended, handled), strict=True):
                self._bars.update(task, completed=count, lag=self._lag.lstrip(", "))
        elif (part := (appended + handled) * _PARTS // (2 * self._events)) > self._shown:
            self._shown = part
            self.step(f"appended {appended:,}, handled {handled:,} of {self._events:,}{self._lag}")

    def lagging(self, seconds: float) -> None:
        """The oldest event that is not handled is so old."""
        self._lag = f", lag {seconds:.1f} s"


@contextmanager
def reporting() -> Iterator[Reporter]:
    """Report on stderr for the length of the block."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Reporter(console)
        return
    lag = TextColumn("{task.fields[lag]}")
    columns = TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), lag
    with Progress(*columns, console=console, refresh_per_second=5) as progress:
        yield Reporter(progress.console, progress)
