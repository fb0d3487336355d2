"""What a command answers: for people tables, facts and lines, and for machines the same as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar
from uuid import UUID

import click
from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from journal import Appended
from projections.terminal.output import Columns, counted, print_table, printable, table_of

__all__ = ["Answer", "appended", "decided", "done", "facts", "listing", "picked", "rescaled", "values_of"]

T = TypeVar("T")


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


def decided(did: Literal["retried", "dropped"], what: str, count: int) -> Answer:
    """How many of what, in the plural, were decided about."""
    return done(f"{what} {did}: {count:,}", **{did: count})


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
    nothing: str | None = None,
    values: Callable[[T], Any] | None = None,
    numbers: Collection[str] = (),
    without: Collection[str] = (),
    **also: Any,
) -> Answer:
    """
    A list: a table with a line for each.

    Args:
        name: What JSON calls it.
        found: What is listed.
        columns: See :func:`projections.terminal.output.table_of`.
        notes: Lines below the table.
        nothing: What is said instead of an empty table.
        values: What JSON has of each; without it, all its fields.
        numbers: See there.
        without: See there.
        also: What JSON has beside the list.
    """
    table = [nothing] if nothing is not None and not found else [table_of(columns, found, numbers, without)]
    return Answer({name: [*map(values or values_of, found)], **also}, [*table, *notes])


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
    return "-" if value is None else f"{value:,}" if type(value) is int else printable(str(value))
