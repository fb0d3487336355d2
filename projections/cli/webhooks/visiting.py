"""One short visit to the webhooks of a database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from journal import ConnectionSettings, Database
from journal.drivers import connect
from journal.embedded import database_dsn
from journal.schema import check_version

__all__ = ["visit_database"]

T = TypeVar("T")

_CONNECTIONS = ConnectionSettings(max_connections=2, application_name="slice-projections webhooks")


def visit_database(dsn: str | None, work: Callable[[Database], Awaitable[T]]) -> T:
    """
    Do something with services that take sessions of their own, on a database with this library's schema.

    Args:
        dsn: The database that was named, or None.
        work: What to do there.

    Raises:
        ProjectionsError: The database can not be reached, is of another version, or refuses.
    """
    with database_dsn(dsn) as found:
        return asyncio.run(_visit(found, work))


async def _visit(dsn: str, work: Callable[[Database], Awaitable[T]]) -> T:
    async with connect(dsn, _CONNECTIONS) as database:
        async with database.session() as session:
            await check_version(session)
        return await work(database)
