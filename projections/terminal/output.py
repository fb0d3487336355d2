"""
What a command answers: for people tables, facts and lines, and for machines the same as one JSON object.

Texts are data: on a terminal, or in a pipe, they neither move a cursor nor are markup.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import click
from pydantic import BaseModel
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from journal import Appended, EntityTypes

T = TypeVar("T")

NO_PROJECTION = "no projection has run on this database"
"""What a list says that is of all projections."""

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
        columns: The columns of the table; see :data:`Columns`.
        found: One item for each row.
        numbers: Columns of texts that stand to the right, as whole numbers do.
        without: Columns that are left out.
    """
    shown = {name: one for name, one in columns.items() if name not in without}
    rows = [[*row_of(shown, one).values()] for one in found]
    whole = [bool(rows) and all(type(row[index]) is int for row in rows) for index in range(len(shown))]
    table = Table(
        *(_column(name, right=right or name in numbers) for name, right in zip(shown, whole, strict=True))
    )
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def row_of(columns: Columns, one: Any) -> dict[str, object]:
    """What a table shows of one thing, by the names of its columns."""
    return {name: (attrgetter(get) if isinstance(get, str) else get)(one) for name, get in columns.items()}


def table_or(
    nothing: str,
    columns: Columns,
    found: Sequence[Any],
    numbers: Collection[str] = (),
    without: Collection[str] = (),
) -> str | Table:
    """A table as :func:`table_of` makes it, or the sentence ``nothing`` where it would be empty."""
    return table_of(columns, found, numbers, without) if found else nothing


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
    """A text of somebody's data as one line that does nothing to a terminal: what cannot be seen is escaped."""
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


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What a command has found or done.

    Args:
        values: The JSON object that ``--json`` prints; times, durations, named tuples and models are written as JSON.
        shown: What is printed without it: tables, and lines around them.
        exit_code: Of the command.
        complaint: A line for stderr in either case, such as why the exit code is not 0.
        note: A line for the stderr of people.
    """

    values: Mapping[str, Any]
    shown: Sequence[str | Table]
    exit_code: int = 0
    complaint: str | None = None
    note: str | None = None

    def echo(self, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            click.echo(json.dumps(_plain(self.values), ensure_ascii=False))
        for one in () if as_json else self.shown:
            if isinstance(one, Table):
                print_table(one)
            else:
                click.echo(one)
        for line in (self.complaint, None if as_json else self.note):
            if line is not None:
                click.echo(line, err=True)

    def __rich__(self) -> RenderableType:
        """What a terminal shows in place of the answer before."""
        return Group(*(one if isinstance(one, Table) else Text(one) for one in self.shown))


def done(text: str, **values: Any) -> Answer:
    """The answer of a command that has done something: a line that says so."""
    return Answer(values, [text])


def appended(event: Appended) -> dict[str, Any]:
    """What JSON has of an event that was appended."""
    names = ("event_id", "source_id", "seq_nr", "db_timestamp")
    return {name: getattr(event, name) for name in names}


def decided(did: Literal["retried", "dropped"], what: str, count: int, **more: Any) -> Answer:
    """How many of what, in the plural, were decided about; a retry is made by others."""
    said = "to be retried" if did == "retried" else did
    return done(f"{what} {said}: {count:,}", **{did: count}, **more)


def left_to(answer: Answer, who: str, *, runs: bool, is_done: bool = False) -> Answer:
    """
    An answer, and whether anybody runs who is to do what was decided; for people, a note where nobody does.

    What is done already says that others are to go on with it.
    """
    then = "nothing is handled until one does" if is_done else "it is done when one does"
    note = answer.note if runs or answer.note else f"no {who} runs: {then}"
    return replace(answer, values={**answer.values, "running": runs}, note=note)


def rescaled(kind: str, name: str, before: int, after: int) -> Answer:
    """That something was cut into another number of ranges, or had that number already."""
    now = f"has {counted(after, 'range')} already"
    text = now if before == after else f"had {counted(before, 'range')}, and has {after:,} now"
    return done(f"{kind} {name!r} {text}", name=name, ranges_before=before, ranges=after)


def facts(values: Mapping[str, Any], known: Mapping[str, object], *more: str | Table) -> Answer:
    """What is known of one thing, a line for each, and what stands below."""
    width = max(map(len, known))
    return Answer(values, [*(f"{name:<{width}}  {_fact(value)}" for name, value in known.items()), *more])


def listing(
    name: str,
    found: Sequence[T],
    columns: Columns,
    *notes: str,
    nothing: str,
    values: Callable[[T], Any] | None = None,
    numbers: Collection[str] = (),
    without: Collection[str] = (),
    **also: Any,
) -> Answer:
    """
    A list: a table with a line for each.

    Args:
        name: The key of the list in JSON.
        found: One item for each row.
        columns: See :func:`projections.terminal.output.table_of`.
        notes: Lines below the table.
        nothing: What is said instead of an empty table.
        values: What JSON has of each; without it, all its fields.
        numbers: As for :func:`table_of`.
        without: As for :func:`table_of`.
        also: What JSON has alongside the list.
    """
    table = table_or(nothing, columns, found, numbers, without)
    return Answer({name: [*map(values or values_of, found)], **also}, [table, *notes])


def values_of(one: Any, without: Collection[str] = (), durations: Collection[str] = ()) -> dict[str, Any]:
    """
    The fields of a named tuple, a dataclass or a model as JSON has them.

    Args:
        one: The value.
        without: Names of fields that are left out.
        durations: Names of durations: what they are called then says that they are in seconds.
    """
    if isinstance(one, BaseModel):
        return one.model_dump(mode="json", exclude=set(without))
    names = getattr(one, "_fields", None) or [each.name for each in fields(one)]
    values = {name: _plain(getattr(one, name)) for name in names if name not in without}
    return {f"{name}_seconds" if name in durations else name: value for name, value in values.items()}


def picked(one: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Attributes of something, under their own names or, by those, under others."""
    return {name: getattr(one, whose) for name, whose in (*zip(names, names, strict=True), *renamed.items())}


def type_keys(found: EntityTypes) -> dict[str, Any]:
    """What a projection reads: a text for people, and the list of types, or nothing for every one."""
    return {"entity_type": str(found), "entity_types": found.sql}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, BaseModel) or is_dataclass(value) or hasattr(value, "_fields"):
        return values_of(value)
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, UUID) else value


def _fact(value: object) -> str:
    return printable(str(value)) if type(value) in {bool, datetime} else _cell(value).plain
