"""One short visit to the database, for the commands that look and manage."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import click

from journal import (
    OWN_NAME,
    ConnectionSettings,
    Database,
    DatabaseUnavailable,
    JournalUnavailable,
    Log,
    LogToOpen,
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
"""Environment variable: the database of the journal, where read models are in another; or several, one on each line."""
JOURNAL_PRIMARY_VARIABLE = "PROJECTIONS_JOURNAL_PRIMARY"
"""Environment variable: the primary of the journal, where a standby of it is read."""
READ_SIDE_VARIABLE = "PROJECTIONS_READ_SIDE"
"""Environment variable: the database of the read models, where the journal is in another."""

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]{0,62})=(?P<dsn>postgres(?:ql)?://.*)", re.DOTALL)
"""A journal of this library with a name: of several, each has its own. No keyword of a DSN has such a value."""


class Sides(NamedTuple):
    """The databases of projections."""

    read_side: str
    """Where offsets and read models are."""
    journals: tuple[str, ...] = ()
    """Where events are, if not there: DSNs, NAME=URL, or names of journals that are attached to the read side. Of
    several, one may be the read side."""
    primary: str | None = None
    """Where the one journal is a standby, its primary."""

    @property
    def journal(self) -> str | None:
        """
        The journal of what reads one; None where it is alongside the read models.

        Raises:
            click.UsageError: Several were named.
        """
        if len(self.journals) > 1:
            raise click.UsageError(
                f"this reads one journal, and {len(self.journals)} are named: name the one by --journal"
            )
        return self.journals[0] if self.journals else None

    @property
    def environment(self) -> dict[str, str]:
        """The variables from which another process has the same."""
        return {
            DSN_VARIABLE: self.read_side,
            READ_SIDE_VARIABLE: "",
            JOURNAL_VARIABLE: "\n".join(self.journals),
            JOURNAL_PRIMARY_VARIABLE: self.primary or "",
        }


@contextmanager
def sides(
    dsn: str | None,
    journals: Sequence[str] | None = None,
    read_side: str | None = None,
    primary: str | None = None,
) -> Iterator[Sides]:
    """
    The databases to use, for the length of the block; what was not named is the one database that others would use.

    Args:
        dsn: The one database that was named, or None; if it was, the environment does not count.
        journals: Those of journals that were named, or names of attached ones; if none, ``PROJECTIONS_JOURNAL``.
        read_side: The one of the read models that was named, or None: then ``PROJECTIONS_READ_SIDE``.
        primary: The primary of the journal that was named, or None: then ``PROJECTIONS_JOURNAL_PRIMARY``.

    Raises:
        click.UsageError: The first three were named, or a primary without one journal, or a journal twice.
        ProjectionsError: A DSN cannot be read, or the embedded server is needed and cannot be had.
    """
    journals = tuple(journals or ())
    if dsn is None:
        journals = journals or _split(os.environ.get(JOURNAL_VARIABLE) or "")
        read_side = read_side or os.environ.get(READ_SIDE_VARIABLE) or None
        primary = primary or os.environ.get(JOURNAL_PRIMARY_VARIABLE) or None
    elif journals and read_side is not None:
        raise click.UsageError("--dsn is the database of both: pass it with one of --journal and --read-side")
    _check_primary(primary, journals)
    for journal in journals:
        if not _is_name(journal):
            check_dsn(_named(journal)[1], "the DSN of the journal")
    if len({_named(journal)[1] for journal in journals}) < len(journals):
        raise click.UsageError("a journal is named twice: each of its events would be handled twice")
    if read_side is not None:
        check_dsn(read_side, "the DSN of the read side")
    if journals and read_side is not None:
        yield _sides(read_side, journals, primary)
    else:
        with database_dsn(dsn) as one:
            yield _sides(read_side or one, journals or (one,), primary)


@contextmanager
def read_side_alone(dsn: str | None, read_side: str | None = None) -> Iterator[str]:
    """The one of them that has the read models, for what asks no journal: none is started, if another has that."""
    if dsn is None:
        read_side = read_side or os.environ.get(READ_SIDE_VARIABLE) or None
    if read_side is None:
        with database_dsn(dsn) as one:
            yield one
    else:
        check_dsn(read_side, "the DSN of the read side")
        yield read_side


def _check_primary(primary: str | None, journals: Sequence[str]) -> None:
    if primary is None:
        return
    check_dsn(primary, "the DSN of the journal's primary")
    if len(journals) != 1:
        raise click.UsageError(
            "--journal-primary is the primary of a standby: name that by --journal, and no other journal"
        )


def _sides(read_side: str, journals: Sequence[str], primary: str | None) -> Sides:
    here = len(journals) == 1 and journals[0] == read_side
    return Sides(read_side, () if here else tuple(journals), primary)


def _split(named: str) -> tuple[str, ...]:
    """What the variable names: one on each line, or on one line names and URLs; a keyword string has spaces, too."""
    lines = tuple(line.strip() for line in named.splitlines() if line.strip())
    words = tuple(named.split())
    apart = len(lines) == 1 and all(_is_name(word) or "://" in word for word in words)
    return words if apart else lines


_ASKED = 3
"""Connections to the primary of a standby: for polls, for comparing, and for what comes up."""
_FEW = ConnectionSettings(max_connections=2)


@asynccontextmanager
async def connected_journal(where: Sides, settings: ConnectionSettings = _FEW) -> AsyncIterator[Log | None]:
    """
    The journal in another database, for the length of the block; None where it is in the one of the read models.

    Args:
        where: The databases.
        settings: Of the connection; by default one that a few short questions need.

    Raises:
        click.UsageError: Several were named.
        ProjectionsError: The database cannot be reached, or is of another version; the message says which it is. Or no
            journal is attached by the name, or it cannot be read.
    """
    if where.journal is None:
        yield None
        return
    async with _connected_log(where, where.journal, settings) as log:
        yield log


@asynccontextmanager
async def connected_journals(where: Sides, settings: ConnectionSettings = _FEW) -> AsyncIterator[list[Log]]:
    """All journals that are in other databases than the read models; see :func:`connected_journal`."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(_connected_log(where, journal, settings))
            for journal in where.journals
            if _named(journal)[1] != where.read_side
        ]


def journals_to_open(
    where: Sides, database: Database, settings: ConnectionSettings
) -> list[Database | LogToOpen]:
    """
    The journals to run projections on, each opened when it can be reached; none where it is alongside the read models.

    Args:
        where: The databases.
        database: The one of the read models.
        settings: Of the connections.
    """
    return [
        database
        if _named(journal)[1] == where.read_side
        else LogToOpen(_named(journal)[0], partial(_connected_log, where, journal, settings))
        for journal in where.journals
    ]


@asynccontextmanager
async def _connected_log(where: Sides, journal: str, settings: ConnectionSettings) -> AsyncIterator[Log]:
    attached = await _attached(where, journal) if _is_name(journal) else None
    name, dsn = _named(journal) if attached is None else (attached.name, attached.place)
    if attached is not None:
        settings = settings.model_copy(update={"foreign_journal": True})
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(connect(dsn, settings))
        except DatabaseUnavailable as error:
            named = "journal" if attached is None and name == OWN_NAME else f"journal {name!r}"
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
        log = Log(database, name, primary=primary)
        async with log.session() as session:
            await check_version(session)
        await log.check(alone=True)
        yield log


def _is_name(journal: str) -> bool:
    """Whether it is the name of an attached journal, and no DSN."""
    return "=" not in journal and ":" not in journal


def _named(journal: str) -> tuple[str, str]:
    """The name that a journal is given by NAME=URL, or has by itself, and its DSN; of an attached one the name."""
    if (found := _NAMED.fullmatch(journal)) is not None:
        return found["name"], found["dsn"]
    return (journal if _is_name(journal) else OWN_NAME), journal


async def _attached(where: Sides, name: str) -> AttachedJournal:
    settings = ConnectionSettings(max_connections=1)
    async with connect(where.read_side, settings) as database, database.session() as session:
        await check_version(session)
        return await attached_journal(session, name)


@asynccontextmanager
async def connected_read_side(where: Sides, settings: ConnectionSettings) -> AsyncIterator[Database]:
    """
    The database of the read models, for the length of the block.

    Raises:
        ProjectionsError: It cannot be reached; where the journal is in another, the message says which it is.
    """
    async with AsyncExitStack() as stack:
        try:
            database = await stack.enter_async_context(connect(where.read_side, settings))
        except DatabaseUnavailable as error:
            if not where.journals:
                raise
            raise DatabaseUnavailable(f"read side: {error}") from error
        yield database


@asynccontextmanager
async def connected(where: Sides, settings: ConnectionSettings) -> AsyncIterator[tuple[Database, Log | None]]:
    """
    The database of the read models, and the journal where that is in another, for the length of the block.

    Raises:
        ProjectionsError: One cannot be reached, or the journal is of another version; the message says which it is.
    """
    async with (
        connected_read_side(where, settings) as database,
        connected_journal(where, settings) as journal,
    ):
        yield database, journal


def visit(dsn: str | None, work: Callable[[Session], Awaitable[T]]) -> T:
    """
    Do something in one transaction, on a database with this library's schema; returns what it returned.

    ProjectionsError: the database cannot be reached, is of another version, or refuses.
    """

    async def in_transaction(database: Database) -> T:
        async with database.session() as session, session.transaction():
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
