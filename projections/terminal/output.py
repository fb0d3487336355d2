"""Tables and texts on the terminal, and in pipes. Texts are data: they neither move a cursor nor are markup."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

__all__ = [
    "Columns",
    "PartOf",
    "at",
    "counted",
    "owner_of",
    "print_table",
    "printable",
    "seconds",
    "short_id",
    "shortened",
    "table_of",
    "table_of_values",
]

_PIPE_WIDTH = 250  # columns where no terminal says how wide it is: lines stay whole for grep
_SHORT = 60  # characters of somebody's text in a table
_SHORT_ID = 8  # characters of an id after its prefix: endpoints and schedules are found by them
_WHOLE = frozenset({"event", "id", "endpoint", "schedule"})
"""Columns that are the last to be cut: they are for the next command line."""

Columns: TypeAlias = Mapping[str, str | Callable[[Any], object]]
"""The names of columns, each with the attribute that it shows, or what computes it."""


class PartOf(NamedTuple):
    """A line about a part of something, such as a range of a projection."""

    whole: Any
    part: Any


def table_of(
    columns: Columns, found: Iterable[Any], numbers: Collection[str] = (), without: Collection[str] = ()
) -> Table:
    """
    A table, with a line for each.

    Args:
        columns: See there.
        found: What it shows.
        numbers: Columns of texts that stand to the right, as whole numbers do.
        without: Columns that are left out.
    """
    getters = {
        name: attrgetter(one) if isinstance(one, str) else one
        for name, one in columns.items()
        if name not in without
    }
    rows = [[get(one) for get in getters.values()] for one in found]
    whole = [bool(rows) and all(type(row[index]) is int for row in rows) for index in range(len(getters))]
    table = Table(
        *(_column(name, right=right or name in numbers) for name, right in zip(getters, whole, strict=True))
    )
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def table_of_values(title: str, values: Mapping[str, Any], none: str = "-") -> Table:
    """A table with a line for each value of a result: a number, a text, or some of them."""
    table = Table(show_header=False, title=title)
    for name, value in values.items():
        table.add_row(name, _shown(value, none))
    return table


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


def short_id(whole: str) -> str:
    """The beginning of an id, which commands take for it."""
    prefix, _, rest = whole.partition("_")
    return f"{prefix}_{rest[:_SHORT_ID]}"


def at(time: datetime | None, none: str = "-") -> str:
    """A time to the second."""
    return none if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def seconds(time: float | None) -> str:
    """A time that was measured, in seconds, with the unit that suits it."""
    if time is None:
        return "-"
    return f"{time * 1000:.0f} ms" if time < 1 else f"{time:.1f} s"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number of things: ``1 range``, ``8 ranges``."""
    return f"1 {one}" if count == 1 else f"{count:,} {many or f'{one}s'}"


def owner_of(part: Any) -> str:
    """Who holds a range: its ``owner``, if it is still ``alive``."""
    if part.owner is None:
        return "nobody"
    return str(part.owner) if part.alive else f"{part.owner} (lease ended)"


def _shown(value: Any, none: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{name} {_shown(inner, none)}" for name, inner in value.items())
        case list():
            return "; ".join(map(printable, value)) or none
        case None:
            return none
        case _:
            return printable(str(value))


def _column(name: str, *, right: bool) -> Column:
    return Column(
        name, justify="right" if right else "left", no_wrap=right or name in _WHOLE, overflow="fold"
    )


def _cell(value: Any) -> Text:
    if type(value) in {list, tuple}:
        return Text(printable(", ".join(map(str, value))))
    match value:
        case None:
            return Text("-")
        case bool():
            return Text("yes" if value else "no")
        case datetime():
            return Text(at(value))
        case int():
            return Text(f"{value:,}")
        case _:
            return Text(printable(str(value)))
