"""The psycopg driver, chosen by ``ConnectionSettings(driver="psycopg")``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self, cast

import psycopg
import psycopg_pool
from psycopg import sql as pgsql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from journal.database.base import BaseSession, QueuedRun
from journal.database.base_database import BaseDatabase
from journal.database.error_translation import translated
from journal.database.keepalive import LIBPQ
from journal.database.psycopg_adapters import Adapting
from journal.database.session import OwnedSession, Row
from journal.database.session_settings import PINNED, STARTED_WITH
from journal.database.settings import ConnectionSettings
from journal.errors import DatabaseUnavailable, ReadOnlyDatabase

_ERRORS = (psycopg.Error, OSError, TimeoutError, MemoryError)


class PsycopgSession(BaseSession):
    """A session over a psycopg connection; its raw cursors take ``$1`` placeholders as asyncpg does."""

    errors = _ERRORS

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also a failed one."""
        return (
            not self._connection.closed and self._connection.info.transaction_status != TransactionStatus.IDLE
        )

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return bool(self._connection.closed)

    async def drop(self) -> None:
        await self._connection.close()

    async def _control(self, sql: str) -> str | None:
        return cast("str | None", (await self._connection.execute(sql)).statusmessage)

    async def _cursor(self, sql: str, args: Sequence[Any], row_factory: Any = dict_row) -> Any:
        self._check(sql)
        await self.flush()
        cursor = psycopg.AsyncRawCursor(self._connection, row_factory=row_factory)
        async with self._pinned():
            await self._run(cursor.execute(sql.encode(), args or None))
        return cursor

    async def execute(self, sql: str, *args: Any) -> int:
        cursor = await self._cursor(sql, args)
        return max(int(cursor.rowcount), 0)

    async def executemany(self, sql: str, args: Sequence[Sequence[Any]]) -> None:
        self._check(sql)
        await self.flush()
        async with self._pinned():
            cursor = psycopg.AsyncRawCursor(self._connection)
            await self._run(self._preparing(cursor.executemany(sql.encode(), args)))

    async def _send(self, runs: Sequence[QueuedRun]) -> None:
        await self._run(self._preparing(self._pipelined(runs)))

    async def _pipelined(self, runs: Sequence[QueuedRun]) -> None:
        cursor = psycopg.AsyncRawCursor(self._connection)
        async with self._connection.pipeline():
            for sql, rows in runs:
                statement = sql.encode()
                for args in rows:
                    await cursor.execute(statement, args or None)

    async def _preparing(self, pipeline: Awaitable[None]) -> None:
        """
        Run a pipeline, and after a failure have psycopg forget what it has prepared in it.

        It counts a statement as prepared when it is sent. One behind a failure never is, and would fail from then on.
        """
        names = self._connection._prepared._names  # noqa: SLF001 - there is no public way
        before = set(names)
        try:
            await pipeline
        except BaseException:
            for key in names.keys() - before:
                del names[key]
            raise

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        cursor = await self._cursor(sql, args)
        return cast("Sequence[Row]", await self._run(cursor.fetchall()))

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        cursor = await self._cursor(sql, args)
        return cast("Row | None", await self._run(cursor.fetchone()))

    async def fetchval(self, sql: str, *args: Any) -> Any:
        cursor = await self._cursor(sql, args, tuple_row)
        row = await self._run(cursor.fetchone())
        return None if row is None else row[0]

    async def copy_rows(
        self, table: tuple[str, str], columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        statement = pgsql.SQL("COPY {} ({}) FROM STDIN").format(
            pgsql.Identifier(*table), pgsql.SQL(", ").join(map(pgsql.Identifier, columns))
        )
        await self.flush()
        async with self._pinned():
            await self._run(self._copy(statement, rows))

    async def _copy(self, statement: pgsql.Composed, rows: Sequence[Sequence[Any]]) -> None:
        async with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                await copy.write_row(row)


def _defaults(dsn: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """What the DSN does not say itself."""
    try:
        said = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return {}  # connecting says so, without quoting it
    defaults: dict[str, Any] = {name: value for name, value in LIBPQ.items() if name not in said}
    if parameters:
        options = ["-c {}={}".format(name, value.replace(" ", r"\ ")) for name, value in parameters.items()]
        defaults["options"] = " ".join([str(said.get("options", "")), *options]).strip()
    return defaults


async def _date(connection: Any) -> None:
    connection.opened = time.monotonic()


async def _first(dsn: str, arguments: Mapping[str, Any]) -> psycopg.AsyncConnection:
    try:
        return await psycopg.AsyncConnection.connect(dsn, **arguments)
    except psycopg.ProgrammingError:
        # The parser's message may quote the password, so it is not kept as the cause either.
        raise DatabaseUnavailable("no connection to the database: the DSN cannot be read") from None


class PsycopgDatabase(BaseDatabase):
    """A pool of psycopg connections."""

    errors = _ERRORS
    pinned: ClassVar = {
        **PINNED,
        "client_encoding": "UTF8",  # of texts, both ways
        "array_nulls": "on",  # else NULL in an array, which is sent as text, is the word
        "standard_conforming_strings": "on",
        "datestyle": "ISO",  # psycopg reads no other style of dates
    }

    @classmethod
    async def open(cls, dsn: str, settings: ConnectionSettings, *, pooled: bool) -> Self:
        timeout = settings.connect_timeout.total_seconds()
        arguments: dict[str, Any] = {
            **_defaults(dsn, {} if pooled else {**cls.pinned_for(settings), **STARTED_WITH}),
            "application_name": settings.application_name,
            "autocommit": True,
            "connect_timeout": max(2, round(timeout)),
            "prepare_threshold": None if pooled else 5,
            "context": Adapting(),
        }
        with translated(*_ERRORS):
            # The pool hides why a first connection fails: a connection of our own says it.
            await (await _first(dsn, arguments)).close()
            pool = psycopg_pool.AsyncConnectionPool(
                dsn, min_size=1, max_size=settings.max_connections, kwargs=arguments, open=False,
                configure=_date,
            )  # fmt: skip
            await pool.open(wait=True, timeout=timeout)
        return cls(pool, dsn, settings, pooled=pooled)

    @staticmethod
    def announced_pid(connection: Any) -> int:
        return int(connection.info.backend_pid)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OwnedSession]:
        with translated(*_ERRORS, origin=self._pool):
            connection = await self._acquire()
        session = PsycopgSession(
            connection, pooled=self.pooled, pins=self._pins, origin=self._pool, doubts=self._doubts
        )
        try:
            yield session
        except (asyncio.CancelledError, TimeoutError, ReadOnlyDatabase):
            # In the middle of a statement, which may never be answered; or a standby, and the next one may not be.
            await connection.close()
            raise
        finally:
            try:
                await self._dismiss(session)
            finally:
                await self._pool.putconn(connection)

    async def _acquire(self) -> Any:
        try:
            return await self._pool.getconn(timeout=self._settings.pool_timeout.total_seconds())
        except psycopg_pool.PoolTimeout as error:
            raise self._pool_is_full() from error

    async def renew(self) -> None:
        await self._pool.drain()

    async def _listen(self, channel: str, heard: Callable[[], None]) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._dsn,
            autocommit=True,
            application_name=self._settings.application_name,
            **_defaults(self._dsn, self.pinned),
        ) as connection:
            await connection.execute(pgsql.SQL("LISTEN {}").format(pgsql.Identifier(channel)))
            heard()  # what was appended while nobody listened
            async for _ in connection.notifies():
                heard()
