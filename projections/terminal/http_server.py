"""Commands that serve HTTP until they are stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import click

from journal import ConnectionSettings, Database
from journal.database import connect
from journal.embedded import database_dsn
from journal.schema import check_version
from projections.http.addresses import Address
from projections.terminal.signals import stopped_by_signals

log = logging.getLogger("projections")


def serve_until_stopped(
    dsn: str | None,
    connections: ConnectionSettings,
    what: str,
    serving: Callable[[Database], AbstractAsyncContextManager[Address]],
) -> None:
    """
    Serve what a database has until a signal comes, and end the command with its exit code.

    ``what`` is what the log calls the server; ``serving`` serves for the length of the block, and gives its address.
    """

    async def run(found: str) -> int:
        stop = asyncio.Event()
        async with connect(found, connections) as database:
            async with database.session() as session:
                await check_version(session)
            with stopped_by_signals(stop) as received:
                async with serving(database) as address:
                    log.info(
                        "%s is at http://%s",
                        what,
                        address,
                        extra={"action": "serving", "address": str(address)},
                    )
                    await stop.wait()
        return received.exit_code

    with database_dsn(dsn) as found:
        code = asyncio.run(run(found))
    raise click.exceptions.Exit(code)
