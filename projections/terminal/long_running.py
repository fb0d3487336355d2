"""What commands share that run until they are stopped: their options, where they serve, how they end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import click

from journal import NUMBER_OF_SLICES, ProjectionsError
from journal.database import hide_password
from projections.durations import Duration
from projections.http.addresses import Address, parse_address
from projections.http.authentication import read_token, require_token
from projections.terminal.command_group import exit_code_of
from projections.terminal.commands import Opt

log = logging.getLogger("projections")

Driver: TypeAlias = Annotated[Literal["asyncpg", "psycopg"], Opt("The library that talks to PostgreSQL.")]
Pgbouncer = Annotated[
    bool | None,
    Opt(
        "A pooler is in between: nothing is prepared, and nothing listens. Default: found out when connecting."
    ),
]
FirstRanges = Annotated[
    int,
    Opt(
        "Into how many ranges the slices of a projection are cut when it runs for the first time; later "
        "`projections rescale` cuts others.",
        type=click.IntRange(1, NUMBER_OF_SLICES),
    ),
]
HttpAddress = Annotated[
    str | None,
    Opt(
        "Serve /metrics, /livez, /readyz and /lagz. What other machines reach needs a token, except for the probes "
        "/livez and /readyz.",
        metavar="HOST:PORT",
    ),
]
TokenFile = Annotated[
    Path | None,
    Opt(
        "A file that holds the token. Default: PROJECTIONS_TOKEN, or the file that PROJECTIONS_TOKEN_FILE names."
    ),
]
MaintainEvery = Annotated[
    timedelta,
    Opt(
        "One of all workers makes and drops time partitions, as `projections maintain` does; 0s: not this one.",
        type=Duration(most="1d"),
    ),
]  # fmt: skip
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


def served_at(http: str | None, token_file: Path | None) -> tuple[Address | None, str | None]:
    """Where a process serves its metrics, and the token that it asks for; None where it does not, or needs none."""
    if http is None:
        return None, None
    address, token = parse_address(http), read_token(file=token_file)
    require_token(address, token)
    return address, token


@contextmanager
def ending(context: click.Context, *, logged: bool) -> Iterator[None]:
    """
    End the command as the process was ended, for the length of the block.

    With ``logged`` an error goes to the log, where whoever reads it as JSON finds it, and not through click.
    """
    try:
        yield
    except ProjectionsError as error:
        if not logged:
            raise
        log.critical(
            "%s", hide_password(str(error)), extra={"action": "ended", "error": type(error).__name__}
        )
        context.exit(exit_code_of(error))
