"""``projections wait``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

import click

from journal import ConnectionSettings
from journal.database import connect
from journal.embedded import database_dsn
from journal.schema import check_version
from projections.terminal.durations import Duration
from projections.terminal.options import dsn_option, echo_done, json_option
from projections.waiting import wait_for

__all__ = ["wait"]


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--token",
    required=True,
    help="What to wait for: the token of an append, as the application gives it out.",
)
@click.option(
    "--timeout",
    type=Duration(least="1ms"),
    default="30s",
    show_default=True,
    help="How long to wait at most.",
)
@dsn_option
@json_option
def wait(names: tuple[str, ...], token: str, timeout: timedelta, dsn: str | None, as_json: bool) -> None:
    r"""
    Wait until projections have handled what was appended.

    The token is that of `appended.token` in Python, or of a header of your application. When the time is over, the exit
    code is 1, and the message says for each projection what holds it back: paused, parked, failing, no worker, behind.

    \b
    Example
      projections wait delays routes --token MS4xLjYzZjUuTjE --timeout 10s
    """
    began = time.perf_counter()
    with database_dsn(dsn) as found:
        asyncio.run(_wait(found, names, token, timeout))
    seconds = time.perf_counter() - began
    said = " and ".join(map(repr, names))
    echo_done(
        f"handled by {said}",
        as_json=as_json,
        projections=list(names),
        handled=True,
        seconds=round(seconds, 3),
    )


async def _wait(dsn: str, names: Sequence[str], token: str, limit: timedelta) -> None:
    async with connect(dsn, ConnectionSettings(max_connections=2)) as database:
        async with database.session() as session:
            await check_version(session)
        await wait_for(database, names, token, limit)
