"""Tables on the terminal, and in pipes."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

__all__ = ["print_table"]

_PIPE_WIDTH = 250  # columns where no terminal says how wide it is: lines stay whole for grep


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal; whole, where there is none."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(table)
