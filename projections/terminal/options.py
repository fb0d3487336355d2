"""Options that several commands have."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import reduce
from typing import Any, TypeVar

import click

__all__ = ["check_no_address", "dsn_option", "echo_done", "echo_json", "iso_time", "json_option", "together"]

F = TypeVar("F", bound=Callable[..., Any])

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

# Not read from the environment here: journal.embedded does, and its messages say where a wrong one came from.
dsn_option = click.option(
    "--dsn",
    metavar="DSN",
    help="The database, such as postgresql://user@host/name. "
    "Default: PROJECTIONS_DSN, else the embedded server, started when it is needed.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Options that go together, as one decorator; the help lists them in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def echo_json(**values: Any) -> None:
    """Print one JSON object on a line."""
    click.echo(json.dumps(values, ensure_ascii=False))


def echo_done(text: str, *, as_json: bool, **values: Any) -> None:
    """Say what a command has done: the text, or the values as one JSON object."""
    if as_json:
        echo_json(**values)
    else:
        click.echo(text)


def iso_time(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """Read an ISO time with its zone; a callback of options."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time: write it as 2026-01-31T12:00:00Z") from None
    if time.utcoffset() is None:
        raise click.BadParameter(f"{value!r} has no time zone: write it as 2026-01-31T12:00:00Z")
    return time


def check_no_address(directory: str) -> None:
    """Refuse the address of an object store where the directory of an archive is wanted."""
    if _ADDRESS.match(directory):
        raise click.BadParameter(
            f"{directory} is no directory: an archive is written to a file system. Write it to one, and copy it to the "
            "object store from there, or mount that"
        )
