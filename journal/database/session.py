"""
What the library asks of a database: a session, a pool of them, and notifications.

SQL uses ``$1`` placeholders with every driver. Times are aware datetimes, arrays are lists,
and JSON comes as text: the journal's functions return ``text`` for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, Protocol, TypeAlias

from journal.errors import ProjectionsError

Row: TypeAlias = Mapping[str, Any]
"""One row of a result: ``row["column"]``; iterating ``row.values()`` keeps the column order."""


PLAN_ANEW = "SET LOCAL plan_cache_mode = force_custom_plan"
"""
For the rest of a transaction, make no plan for later and use none.

A join with a table that grows needs it: a plan that was kept since the table was empty reads all of it, each time.
"""


SILENCE: Final = timedelta(seconds=10)
"""
For how long a transaction of the library's own may be without a statement; then the database ends it.

A process may be frozen in the middle of one: others must not wait for what it has locked until it is gone.
"""


class Session(Protocol):
    """
    One connection, and the transaction that is open on it.

    Every method raises :class:`journal.DatabaseError` (or one of its kinds) when the database refuses;
    the driver's own error is its ``__cause__``.
    """

    async def execute(self, sql: str, *args: Any) -> int:
        """Run one statement; returns the number of rows it touched."""
        ...

    async def executemany(self, sql: str, args: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each tuple of arguments, in one round trip where the driver can."""
        ...

    async def queue(self, sql: str, *args: Any) -> None:
        """
        Run one statement later, without waiting for it; its result is dropped.

        What is queued runs in the order in which it was queued, before any other statement of the session, and before
        the transaction commits; at the latest with 500 statements, or 4 MB of text. Neighbours of the same text are
        sent in one round trip; with psycopg, all of them are. Outside of a transaction it runs at once.

        Any method may raise the error of a statement that was queued; the transaction cannot commit then, unless
        the statement was queued in a savepoint. Arguments are read when they are sent: do not change them.
        """
        ...

    async def flush(self) -> None:
        """Run what is queued now, and wait for it."""
        ...

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run a query; returns all rows."""
        ...

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        """Run a query; returns its first row, or None."""
        ...

    async def fetchval(self, sql: str, *args: Any) -> Any:
        """Run a query; returns the first column of its first row, or None."""
        ...

    async def copy_rows(
        self, table: tuple[str, str], columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Load rows with ``COPY`` into ``(schema, table)``: the fastest way in."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Undo only what happens inside when the block raises; the error goes on to the caller."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also one that an error has already spoiled."""
        ...

    @property
    def connection(self) -> Any:
        """
        The driver's own connection, for what this interface does not offer.

        Raises DatabaseError while statements are queued, which would come after what is run on it: :meth:`flush` first.
        """
        ...


class OwnedSession(Session, Protocol):
    """A session whose transactions are begun and ended by the library, not by the code it is lent to."""

    failure: ProjectionsError | None
    """The last error since ``begin`` that no savepoint undid: such a transaction cannot commit."""

    queue_failed: bool
    """Whether a statement that was queued has failed, and no savepoint undid that: the transaction cannot commit."""

    pooled: bool
    """Whether a pooler lends it for each transaction: nothing lasts longer, no setting and no lock."""

    origin: object
    """Its pool, or its connection where that is of no pool of ours: errors that it raises have it."""

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        ...

    lends: bool
    """Whether the driver's own connection was taken from it since ``begin``."""

    patience: timedelta | None
    """How long a statement may take; then its connection is dropped, and it raises :class:`journal.NoAnswer`. None: for
    as long as it takes."""

    async def is_sound(self) -> bool | None:
        """
        After an error: whether statements still succeed; drops what is queued.

        None: the connection is lost. False: the transaction is spoiled.
        """
        ...

    async def begin(self, mark: str | None = None, idle: timedelta | None = None) -> None:
        """
        Open a transaction.

        Args:
            mark: Hexadecimal; lets the database see whether it is still the same one.
            idle: The database ends it, and the connection, after this long without a statement: whoever has it may be
                frozen or cut off, and others wait for its locks.
        """
        ...

    async def commit(self) -> None:
        """
        Commit. When the connection breaks here, the outcome is unknown and must be read back.

        Raises:
            journal.DatabaseError: Nothing was committed, because an error was swallowed that no savepoint undid.
        """
        ...

    async def rollback(self) -> None:
        """Roll back; does nothing when no transaction is open or the connection is gone."""
        ...

    def transaction(self, *, idle: timedelta | None = SILENCE) -> AbstractAsyncContextManager[None]:
        """A transaction for the length of the block: commits at its end, rolls back on an error; see :meth:`begin`."""
        ...


class Database(Protocol):
    """A pool of sessions on one database; :func:`journal.connect` makes one."""

    @property
    def dsn(self) -> str:
        """How it is reached, perhaps with a password: for processes that connect by themselves."""
        ...

    @property
    def max_connections(self) -> int:
        """How many sessions can be lent at a time."""
        ...

    def session(self) -> AbstractAsyncContextManager[OwnedSession]:
        """Lend a session; outside ``begin`` every statement commits by itself."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Session]:
        """Lend a session with an open transaction: commits at the end, rolls back on an error, also a swallowed one."""
        ...

    def listen(self, channel: str, heard: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """
        Call ``heard()`` for every notification on ``channel`` while the block runs.

        Uses a connection of its own. Losing it is not an error: notifications are hints, polling is the truth.

        Args:
            channel: The channel of ``NOTIFY``.
            heard: Called without arguments, in the event loop.
        """
        ...

    async def renew(self) -> None:
        """
        Replace every connection when it is next lent; those that are lent now, when they are given back.

        For when another server answers: a connection to the old one may still work, and show what is no longer true.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Closing twice is allowed."""
        ...


class KeptSession:
    """A session that is borrowed when it is first needed, and kept until it is given back, which saves round trips."""

    def __init__(self, lend: Callable[[], AbstractAsyncContextManager[OwnedSession]]) -> None:
        self._lend = lend
        self._lent = AsyncExitStack()
        self._session: OwnedSession | None = None

    async def get(self) -> OwnedSession:
        """The session; borrows one if there is none."""
        if self._session is None:
            self._session = await self._lent.enter_async_context(self._lend())
        return self._session

    @asynccontextmanager
    async def use(self) -> AsyncIterator[OwnedSession]:
        """The session; after an error in the block it is given back."""
        try:
            yield await self.get()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Give it back, also after an error on it; a later :meth:`get` borrows another."""
        self._session = None
        # The error that is being handled tells the lender whether the connection is still of use.
        await self._lent.__aexit__(*sys.exc_info())

    async def close_within(self, seconds: float) -> None:
        """Give it back, through errors, and within this time: a network that is cut must not keep anybody."""
        with suppress(ProjectionsError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.close()
