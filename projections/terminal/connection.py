"""One short visit to the database, for the commands that look at projections and manage them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from journal import ConnectionSettings, OwnedSession, Session
from journal.database import connect
from journal.embedded import database_dsn
from journal.schema import check_version

__all__ = ["confirm", "visit", "visit_session"]

T = TypeVar("T")


def visit(dsn: str | None, work: Callable[[Session], Awaitable[T]]) -> T:
    """
    Do something in one transaction, on a database with this library's schema.

    Args:
        dsn: The database that was named, or None.
        work: What to do there.

    Raises:
        ProjectionsError: The database can not be reached, is of another version, or refuses.
    """

    async def in_transaction(session: OwnedSession) -> T:
        await session.begin()
        try:
            done = await work(session)
            await session.commit()
            return done
        finally:
            await session.rollback()

    return visit_session(dsn, in_transaction)


def visit_session(dsn: str | None, work: Callable[[OwnedSession], Awaitable[T]]) -> T:
    """
    Do something that begins its own transactions, or looks again and again; see :func:`visit`.

    Args:
        dsn: The database that was named, or None.
        work: What to do there, outside a transaction.

    Raises:
        ProjectionsError: The database can not be reached, is of another version, or refuses.
    """
    with database_dsn(dsn) as found:
        return asyncio.run(_visit(found, work))


async def _visit(dsn: str, work: Callable[[OwnedSession], Awaitable[T]]) -> T:
    async with (
        connect(dsn, ConnectionSettings(max_connections=1)) as database,
        database.session() as session,
    ):
        await check_version(session)
        return await work(session)


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless ``yes`` was given; without a terminal there is nobody to ask, and nothing is done."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.ClickException("nobody is here to ask: pass --yes")
    click.confirm(question, abort=True)
