"""Tables on the terminal, and in pipes."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["in_table", "print_table", "printable", "shortened", "shown"]

_PIPE_WIDTH = 250  # columns where no terminal says how wide it is: lines stay whole for grep
_SHORT = 60  # characters of a condition, and of params, in a table


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal; whole, where there is none."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(table)


def printable(text: str) -> str:
    """A text of somebody's data as one line that does nothing to a terminal: what can not be seen is escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )


def shortened(text: str | None) -> str:
    """A text of somebody's data as one line of a table, cut where it is long."""
    if text is None:
        return "-"
    line = printable(" ".join(text.split()))
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


def in_table(text: str) -> Text:
    """A text of somebody's data in a table: on one line, and what looks like markup in it stays as it is."""
    return Text(printable(text))


def shown(value: Any, none: str = "-") -> str:
    """
    A value of a result as a table shows it.

    Args:
        value: A number, a text, a mapping of such, or None.
        none: What stands for None.
    """
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{name} {shown(inner, none)}" for name, inner in value.items())
        case None:
            return none
        case _:
            return printable(str(value))
