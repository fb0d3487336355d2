"""Options that several commands have, as types of their parameters; see :mod:`projections.terminal.commands`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click

from journal import NUMBER_OF_SLICES
from projections.durations import Duration
from projections.terminal.commands import Arg, Opt
from projections.terminal.times import Time

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

Yes = Annotated[bool, Opt("Do not ask.")]
Every = Annotated[bool, Opt("All that wait for a decision.", "--all")]
Limit = Annotated[int, Opt("List at most this many.", type=click.IntRange(1, 1000))]
Next = Annotated[
    str | None,
    Opt("The next page: the cursor that a page showed at its end.", "--next", metavar="CURSOR"),
]
Tenant = Annotated[str | None, Opt("Only this tenant's. Default: of all.", metavar="TENANT")]
NewRanges = Annotated[int, Opt("How many, 1 to 1024.", type=click.IntRange(1, NUMBER_OF_SLICES))]
Since = Annotated[datetime | None, Opt("Only events from this time on; 2h is two hours ago.")]
Until = Annotated[datetime | None, Opt("Only events before this time.")]
NotBefore = Annotated[
    datetime | None,
    Opt("Not before this time, such as 2026-01-31T12:00:00Z.", type=Time(ahead=True), metavar="TIME"),
]
From = partial(Opt, type=Time(words=("beginning",)), metavar="beginning|2h|TIME")
"""Of ``--from``, the time at which reading starts: the value is a datetime, or the word."""
FailAbove = Annotated[
    timedelta | None,
    Opt("Exit with code 3 when a lag is above this.", type=Duration()),
]


def one_or_all(name: str, shown: str) -> Callable[[Mapping[str, Any]], None]:
    """The check of a command that takes either an argument, ``shown`` in its help, or ``--all``."""

    def check(options: Mapping[str, Any]) -> None:
        if (options[name] is None) != options["every"]:
            raise click.UsageError(f"pass either {shown} or --all")

    return check


def text_of(value: str) -> str:
    """What an argument stands for: ``-`` for what stdin has, ``@file`` for what a file in UTF-8 has, else itself."""
    try:
        if value == "-":
            return sys.stdin.buffer.read().decode().strip()
        if value.startswith("@"):
            return Path(value[1:]).read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{value!r} is not UTF-8: {error}") from None
    except OSError as error:
        raise click.BadParameter(f"{value[1:]!r} cannot be read: {error.strerror}") from None
    return value


def json_of(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """JSON as it was written, or as stdin or a file has it; a callback of what takes ``JSON|-|@FILE``."""
    if value is None:
        return None
    text = text_of(value)
    try:
        json.loads(text, parse_int=str)  # how long an integer may be, the journal says
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{text[:80]!r} is not JSON: {error}") from None
    return text


def json_object_of(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """A JSON object, given in the same ways, as a mapping."""
    text = json_of(context, parameter, value)
    found = None if text is None else json.loads(text)
    if text is not None and not isinstance(found, dict):
        raise click.BadParameter(f'{text[:80]!r} is not a JSON object: write {{"name": "value"}}')
    return found


Json = Annotated[str, Arg("[JSON|-|@FILE]", callback=json_of)]


def check_no_address(directory: str) -> None:
    """Refuse the address of an object store where the directory of an archive is wanted."""
    if _ADDRESS.match(directory):
        raise click.BadParameter(
            f"{directory} is not a directory: an archive is written to a file system. Write it to one, and copy it to "
            "the object store from there, or mount that"
        )


def next_page(cursor: str | None) -> list[str]:
    """The line below a page that says how to get the next one, if there may be one."""
    return [] if cursor is None else [f"there may be more: --next {cursor}"]


def tell_more(found: Sequence[object], limit: int) -> list[str]:
    """The line below a list that says that it may have been cut."""
    return ["there may be more: --limit"] if len(found) == limit else []
