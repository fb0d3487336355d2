"""How commands of webhooks show what they have found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import click
from rich.table import Column, Table
from rich.text import Text

from projections.terminal.output import in_table, print_table, printable

__all__ = ["at", "cell", "echo_facts", "echo_table", "seconds", "short_id", "shortened", "table_of"]

_SHORT = 60  # characters of somebody's text in a table
_SHORT_ID = 8  # characters of an id after its prefix: endpoints and schedules are found by them
_WHOLE = frozenset({"event", "id", "endpoint", "schedule"})
"""Columns that are the last to be cut: they are for the next command line."""


def at(time: datetime | None, none: str = "-") -> str:
    """A time to the second."""
    return none if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def seconds(time: float | None) -> str:
    """A time that was measured, in seconds, with the unit that suits it."""
    if time is None:
        return "-"
    return f"{time * 1000:.0f} ms" if time < 1 else f"{time:.1f} s"


def short_id(whole: str) -> str:
    """The beginning of an id, which commands take for it."""
    prefix, _, rest = whole.partition("_")
    return f"{prefix}_{rest[:_SHORT_ID]}"


def shortened(text: str | None) -> str:
    """A text of somebody's as one line, cut where it is long."""
    line = " ".join((text or "").split())
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1]}…"


def cell(value: object) -> str | Text:
    """A value in a table. Texts are data: what looks like markup in them stays as it is."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return in_table(str(value))


def table_of(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Collection[str] = (),
    without: Collection[str] = (),
) -> Table:
    """
    A table.

    Args:
        columns: Their names.
        rows: A value for each.
        numbers: The columns that stand to the right.
        without: Columns that are left out.
    """
    table = Table(*(_column(one, number=one in numbers) for one in columns if one not in without))
    for row in rows:
        shown = (value for name, value in zip(columns, row, strict=True) if name not in without)
        table.add_row(*map(cell, shown))
    return table


def echo_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Collection[str] = (),
    without: Collection[str] = (),
) -> None:
    """Print a table; see :func:`table_of`."""
    print_table(table_of(columns, rows, numbers, without))


def echo_facts(facts: Mapping[str, object]) -> None:
    """Print what is known of one thing, a line for each."""
    width = max(map(len, facts))
    for name, value in facts.items():
        shown = "-" if value is None else f"{value:,}" if type(value) is int else printable(str(value))
        click.echo(f"{name:<{width}}  {shown}")


def _column(name: str, *, number: bool) -> Column:
    return Column(name, justify="right" if number else "left", no_wrap=name in _WHOLE, overflow="fold")
