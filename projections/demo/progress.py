"""How far the demo is, on stderr: bars on a terminal, else a line now and then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_PARTS = 20
"""A line of text for so many parts of the whole."""


class Reporter(Protocol):
    """Is told how far the demo is."""

    def begin(self, events: int) -> None:
        """So many events are to be appended and handled."""

    def step(self, text: str) -> None:
        """Something else begins."""

    def counted(self, appended: int, handled: int) -> None:
        """So many are done in all."""

    def lagging(self, seconds: float) -> None:
        """The oldest event that is not handled is so old."""


class Lines:
    """Writes lines, each when another twentieth is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events = 0
        self._shown = -1
        self._lag = ""

    def begin(self, events: int) -> None:
        """See :class:`Reporter`."""
        self._events = events

    def step(self, text: str) -> None:
        """See :class:`Reporter`."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def counted(self, appended: int, handled: int) -> None:
        """See :class:`Reporter`."""
        part = (appended + handled) * _PARTS // (2 * self._events)
        if part > self._shown:
            self._shown = part
            self.step(f"appended {appended:,}, handled {handled:,} of {self._events:,}{self._lag}")

    def lagging(self, seconds: float) -> None:
        """See :class:`Reporter`."""
        self._lag = f", lag {seconds:.1f} s"


class Bars:
    """Moves bars."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: list[TaskID] = []

    def begin(self, events: int) -> None:
        """See :class:`Reporter`."""
        self._tasks = [
            self._progress.add_task(name, total=events, lag="") for name in ("appended", "handled")
        ]

    def step(self, text: str) -> None:
        """See :class:`Reporter`."""
        self._progress.console.print(text, highlight=False, markup=False)

    def counted(self, appended: int, handled: int) -> None:
        """See :class:`Reporter`."""
        for task, count in zip(self._tasks, (appended, handled), strict=True):
            self._progress.update(task, completed=count)

    def lagging(self, seconds: float) -> None:
        """See :class:`Reporter`."""
        if self._tasks:
            self._progress.update(self._tasks[-1], lag=f"lag {seconds:.1f} s")


@contextmanager
def reporting() -> Iterator[Reporter]:
    """Report on stderr for the length of the block."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(console)
        return
    lag = TextColumn("{task.fields[lag]}")
    columns = TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), lag
    with Progress(*columns, console=console, refresh_per_second=5) as progress:
        yield Bars(progress)
