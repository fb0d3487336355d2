"""A session in a transaction of the caller's, on whichever connection it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from journal.database.callers_connection import CHANGE, CHANGE_BACK, kind_of, suits, unknown
from journal.database.error_translation import translated
from journal.database.session import Row, Session
from journal.errors import DatabaseError

T = TypeVar("T")

_ASYNC = "a Session, or asyncpg's, psycopg's or SQLAlchemy's asynchronous connection over one of them"
_SYNC = "psycopg's connection, or SQLAlchemy's over it"
_NOT_OPEN = "begin a transaction on the connection first: what is appended is handled in it"
_SPOIL = (
    "DO $$ BEGIN RAISE 'a projection could not be handled inline: this transaction cannot commit'; END $$"
)


async def driver_of(connection: Any) -> Any:
    """
    The driver's asynchronous connection, or a session of this library; SQLAlchemy's stand on one.

    Raises:
        TypeError: It is of no known kind.
        journal.DatabaseError: No transaction is open on it.
    """
    kind = kind_of(connection)
    if kind == "sqlalchemy.AsyncSession":
        connection, kind = await connection.connection(), "sqlalchemy.AsyncConnection"
    if kind == "sqlalchemy.AsyncConnection":
        # SQLAlchemy begins its transaction with the first statement.
        await connection.exec_driver_sql("SELECT 1")
        connection = (await connection.get_raw_connection()).driver_connection
        kind = kind_of(connection)
    if not kind.startswith(("asyncpg.", "journal.")) and kind != "psycopg.AsyncConnection":
        raise unknown(connection, f"{_ASYNC}; for a synchronous one there is append_sync")
    if kind.startswith("asyncpg.") and not connection.is_in_transaction():
        raise DatabaseError(_NOT_OPEN)
    if kind.startswith("journal.") and not connection.in_transaction:
        raise DatabaseError(_NOT_OPEN)
    if kind == "psycopg.AsyncConnection":
        _check_psycopg(connection)
    return connection


def driver_of_sync(connection: Any) -> Any:
    """Psycopg's synchronous connection, as :func:`driver_of`."""
    kind = kind_of(connection)
    if kind == "sqlalchemy.Session":
        connection, kind = connection.connection(), "sqlalchemy.Connection"
    if kind == "sqlalchemy.Connection":
        connection.exec_driver_sql("SELECT 1")
        connection = connection.connection.driver_connection
    if kind_of(connection) != "psycopg.Connection":
        raise unknown(connection, f"{_SYNC}; for an asynchronous one there is append")
    _check_psycopg(connection)
    return connection


def _check_psycopg(connection: Any) -> None:
    from psycopg.pq import TransactionStatus  # noqa: PLC0415 - one of several drivers

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise DatabaseError(_NOT_OPEN)


@asynccontextmanager
async def session_on(driver: Any) -> AsyncIterator[Session]:
    """A session on what :func:`driver_of` or :func:`driver_of_sync` found, on which something was appended."""
    kind = kind_of(driver)
    if kind.startswith("journal."):
        yield driver
    elif kind.startswith("asyncpg."):
        from journal.database.asyncpg import AsyncpgSession  # noqa: PLC0415 - one of several drivers

        yield AsyncpgSession(driver, pooled=False, pins=())
    else:
        async with _suited(driver, _session_on_psycopg(driver, kind)) as session:
            yield session


def _session_on_psycopg(driver: Any, kind: str) -> Session:
    if kind == "psycopg.Connection":
        return cast("Session", _SyncSession(driver))
    from journal.database.psycopg import PsycopgSession  # noqa: PLC0415 - one of several drivers

    return PsycopgSession(driver, pooled=False, pins=())


@asynccontextmanager
async def _suited(driver: Any, session: Session) -> AsyncIterator[Session]:
    """With the settings that texts and arrays need; after an error they go with the transaction."""
    if suits(driver):
        yield session
        return
    before = [row["before"] for row in await session.fetch(CHANGE, True)]
    yield session
    await session.fetch(CHANGE_BACK, *before, True)


async def spoil(session: Any) -> None:
    """
    Let the transaction of a session not commit, also where the caller catches the error and goes on.

    Where the database does not answer that it is so, as while another statement runs on the connection, that is ended.
    """
    spoilt = False
    try:
        await session.execute(_SPOIL)
    except DatabaseError as error:
        spoilt = error.sqlstate is not None
    finally:
        if not spoilt:
            await session.drop()


class _SyncSession:
    """What writing tables asks of a session, on psycopg's synchronous connection: nothing here ever waits."""

    lends = False  # handlers of tables get no session

    def __init__(self, connection: Any) -> None:
        self.connection = self.origin = connection

    async def is_sound(self) -> bool | None:
        try:
            await self.fetchval("SELECT 1")
        except DatabaseError:
            return None if self.connection.closed else False
        return True

    async def drop(self) -> None:
        self.connection.close()

    async def execute(self, sql: str, *args: Any) -> int:
        return max(int(self._cursor(sql, args).rowcount), 0)

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        return cast("Sequence[Row]", self._cursor(sql, args).fetchall())

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        return cast("Row | None", self._cursor(sql, args).fetchone())

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = self._cursor(sql, args).fetchone()
        return None if row is None else next(iter(row.values()))

    def _cursor(self, sql: str, args: Sequence[Any]) -> Any:
        import psycopg  # noqa: PLC0415 - one of several drivers
        from psycopg.rows import dict_row  # noqa: PLC0415 - likewise

        cursor = psycopg.RawCursor(self.connection, row_factory=dict_row)
        with translated(Exception, origin=self.origin):
            return cursor.execute(sql.encode(), args or None)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """
    Run to its end what never waits, such as the use of a session on a synchronous connection; needs no event loop.

    Raises:
        RuntimeError: It has waited.
    """
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return cast("T", ended.value)
    coroutine.close()
    raise RuntimeError("this waits for something: it needs an event loop")
