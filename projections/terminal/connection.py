"""One short visit to the database, for the commands that look and manage."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import NamedTuple, TypeVar

import click

from journal import (
    ConnectionSettings,
    Database,
    DatabaseUnavailable,
    JournalUnavailable,
    Log,
    OwnedSession,
    Primary,
    Session,
)
from journal.database import connect
from journal.embedded import DSN_VARIABLE, check_dsn, database_dsn
from journal.foreign import AttachedJournal, attached_journal
from journal.schema import check_version

T = TypeVar("T")

JOURNAL_VARIABLE = "PROJECTIONS_JOURNAL"
"""Environment variable: the database of the journal, where read models are in another."""
JOURNAL_PRIMARY_VARIABLE = "PROJECTIONS_JOURNAL_PRIMARY"
"""Environment variable: the primary of the journal, where a standby of it is read."""
READ_SIDE_VARIABLE = "PROJECTIONS_READ_SIDE"
"""Environment variable: the database of the read models, where the journal is in another."""


class Sides(NamedTuple):
    """The databases of projections."""

    read_side: str
    """Where offsets and read models are."""
    journal: str | None
    """Where events are, if that is another one: a DSN, or the name of a journal that is attached to the read side."""
    primary: str | None = None
    """Where that is a standby, its primary."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables from which another process has the same."""
        return {
            DSN_VARIABLE: self.read_side,
            READ_SIDE_VARIABLE: "",
            JOURNAL_VARIABLE: self.journal or "",
            JOURNAL_PRIMARY_VARIABLE: self.primary or "",
        }


@contextmanager
def sides(
    dsn: str | None,
    journal: str | None = None,
    read_side: str | None = None,
    primary: str | None = None,
) -> Iterator[Sides]:
    """
    The databases to use, for the length of the block; what was not named is the one database that others would use.

    Args:
        dsn: The one database that was named, or None; if it was, the environment does not count.
        journal: The one of the journal that was named, or the name of one that is attached, or None: then
            ``PROJECTIONS_JOURNAL``.
        read_side: The one of the read models that was named, or None: then ``PROJECTIONS_READ_SIDE``.
        primary: The primary of the journal that was named, or None: then ``PROJECTIONS_JOURNAL_PRIMARY``.

    Raises:
        click.UsageError: The first three were named, or a primary and no journal.
        ProjectionsError: A DSN cannot be read, or the embedded server is needed and cannot be had.
    """
    if dsn is None:
        journal = journal or os.environ.get(JOURNAL_VARIABLE) or None
        read_side = read_side or os.environ.get(READ_SIDE_VARIABLE) or None
        primary = primary or os.environ.get(JOURNAL_PRIMARY_VARIABLE) or None
    elif journal is not None and read_side is not None:
        raise click.UsageError("--dsn is the database of both: pass it with one of --journal and --read-side")
    if primary is not None:
        check_dsn(primary, "the DSN of the journal's primary")
        if journal is None:
            raise click.UsageError("--journal-primary is the primary of a standby: name that by --journal")
    for named, name in ((journal, "the DSN of the journal"), (read_side, "the DSN of the read side")):
        if named is not None and not (named is journal and _is_name(named)):
            check_dsn(named, name)
    if journal is not None and read_side is not None:
        yield _sides(read_side, journal, primary)
    else:
        with database_dsn(dsn) as one:
            yield _sides(read_side or one, journal or one, primary)


def _sides(read_side: str, journal: str, primary: str | None) -> Sides:
    return Sides(read_side, None if journal == read_side else journal, primary)


_ASKED = 3
"""Connections to the primary of a standby: for polls, for comparing, and for what comes up."""


@asynccontextmanager
async def connected_journal(
    where: Sides, settings: ConnectionSettings | None = None
) -> AsyncIterator[Log | None]:
    """
    The journal in another database, for the length of the block; None where it is in the one of the read models.

    Args:
        where: The databases.
        settings: Of the connection; by default one that a few short questions need.

    Raises:
        ProjectionsError: The database cannot be reached, or is of another version; the message says which it is. Or no
            journal is attached by the name, or it cannot be read.
    """
    if where.journal is None:
        yield None
        return
    attached = await _attached(where) if _is_name(where.journal) else None
    dsn = where.journal if attached is None else attached.place
    settings = settings or ConnectionSettings(max_connections=2)
    if attached is not None:
        settings = settings.model_copy(update={"foreign_journal": True})
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(connect(dsn, settings))
        except DatabaseUnavailable as error:
            named = "journal" if attached is None else f"journal {attached.name!r}"
            raise JournalUnavailable(f"{named}: {error}") from error
        primary = None
        if where.primary is not None:
            asked = settings.model_copy(update={"max_connections": _ASKED})
            try:
                primary = Primary(await stack.enter_async_context(connect(where.primary, asked)))
            except DatabaseUnavailable as error:
                raise JournalUnavailable(f"the primary of the journal: {error}") from error
        if attached is not None:
            yield await attached.log(database, primary)
            return
        log = Log(database, primary=primary)
        async with log.session() as session:
            await check_version(session)
        await log.check(alone=True)
        yield log


def _is_name(journal: str) -> bool:
    """Whether it is the name of an attached journal, and no DSN."""
    return "=" not in journal and ":" not in journal


async def _attached(where: Sides) -> AttachedJournal:
    assert where.journal is not None  # noqa: S101 - who calls has looked
    settings = ConnectionSettings(max_connections=1)
    async with connect(where.read_side, settings) as database, database.session() as session:
        await check_version(session)
        return await attached_journal(session, where.journal)


@asynccontextmanager
async def connected(where: Sides, settings: ConnectionSettings) -> AsyncIterator[tuple[Database, Log | None]]:
    """
    The database of the read models, and the journal where that is in another, for the length of the block.

    Raises:
        ProjectionsError: One cannot be reached, or the journal is of another version; the message says which it is.
    """
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(connect(where.read_side, settings))
        except DatabaseUnavailable as error:
            if where.journal is None:
                raise
            raise DatabaseUnavailable(f"read side: {error}") from error
        yield database, await stack.enter_async_context(connected_journal(where, settings))


def visit(dsn: str | None, work: Callable[[Session], Awaitable[T]]) -> T:
    """
    Do something in one transaction, on a database with this library's schema; returns what it returned.

    ProjectionsError: the database cannot be reached, is of another version, or refuses.
    """

    async def in_transaction(database: Database) -> T:
        async with database.transaction() as session:
            return await work(session)

    return visit_database(dsn, in_transaction, connections=1)


def visit_session(dsn: str | None, work: Callable[[OwnedSession], Awaitable[T]]) -> T:
    """Do something that begins its own transactions, or looks again and again; see :func:`visit`."""

    async def with_session(database: Database) -> T:
        async with database.session() as session:
            return await work(session)

    return visit_database(dsn, with_session, connections=1)


def visit_database(dsn: str | None, work: Callable[[Database], Awaitable[T]], connections: int = 2) -> T:
    """Do something with services that take sessions of their own, up to a number of connections; see :func:`visit`."""

    async def checked(found: str) -> T:
        async with connect(found, ConnectionSettings(max_connections=connections)) as database:
            async with database.session() as session:
                await check_version(session)
            return await work(database)

    with database_dsn(dsn) as found:
        return asyncio.run(checked(found))
