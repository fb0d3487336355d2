"""One short visit to the database, for the commands that look and manage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from journal import ConnectionSettings, Database, OwnedSession, Session
from journal.database import connect
from journal.embedded import database_dsn
from journal.schema import check_version

__all__ = ["visit", "visit_database", "visit_session"]

T = TypeVar("T")


def visit(dsn: str | None, work: Callable[[Session], Awaitable[T]]) -> T:
    """
    Do something in one transaction, on a database with this library's schema.

    Args:
        dsn: The database that was named, or None.
        work: Called with the session; its result is returned.

    Raises:
        ProjectionsError: The database cannot be reached, is of another version, or refuses.
    """

    async def in_transaction(database: Database) -> T:
        async with database.transaction() as session:
            return await work(session)

    return visit_database(dsn, in_transaction, connections=1)


def visit_session(dsn: str | None, work: Callable[[OwnedSession], Awaitable[T]]) -> T:
    """
    Do something that begins its own transactions, or looks again and again; see :func:`visit`.

    Args:
        dsn: The database that was named, or None.
        work: What to do there, outside a transaction.

    Raises:
        ProjectionsError: The database cannot be reached, is of another version, or refuses.
    """

    async def with_session(database: Database) -> T:
        async with database.session() as session:
            return await work(session)

    return visit_database(dsn, with_session, connections=1)


def visit_database(dsn: str | None, work: Callable[[Database], Awaitable[T]], connections: int = 2) -> T:
    """
    Do something with services that take sessions of their own; see :func:`visit`.

    Args:
        dsn: The database that was named, or None.
        work: Called with the session; its result is returned.
        connections: So many at most.
    """

    async def checked(found: str) -> T:
        async with connect(found, ConnectionSettings(max_connections=connections)) as database:
            async with database.session() as session:
                await check_version(session)
            return await work(database)

    with database_dsn(dsn) as found:
        return asyncio.run(checked(found))
