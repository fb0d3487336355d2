"""The asyncpg driver, the default: the fastest way to read rows into Python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, cast
from urllib.parse import quote, urlencode

import asyncpg
import psycopg
from psycopg.conninfo import conninfo_to_dict

from journal.database.asyncpg_codecs import guarded, set_codecs
from journal.database.base import BaseSession
from journal.database.base_database import BaseDatabase
from journal.database.error_translation import translated
from journal.database.keepalive import keep_alive
from journal.database.session import OwnedSession, Row
from journal.database.session_settings import STARTED_WITH
from journal.database.settings import ConnectionSettings
from journal.errors import DatabaseUnavailable, ReadOnlyDatabase

_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a statement on a connection that is just being lost
    OSError,
    TimeoutError,
    MemoryError,
)


_CLOSE = 10  # seconds for connections to be given back and to end in order


class AsyncpgSession(BaseSession):
    """A session over an asyncpg connection."""

    errors = _ERRORS

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also a failed one."""
        try:
            return not self._connection.is_closed() and self._connection.is_in_transaction()
        except asyncpg.InterfaceError:
            return False  # the pool has taken a lost connection back

    async def _call(self, method: str, *args: Any, **options: Any) -> Any:
        if self._runs:
            await self.flush()
        async with self._pinned():
            return await self._run(self._look_up(method, *args, **options))

    async def _look_up(self, method: str, *args: Any, **options: Any) -> Any:
        # While it is awaited: on a lost connection the look-up fails already.
        return await getattr(self._connection, method)(*args, **options)

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        try:
            return bool(self._connection.is_closed())
        except asyncpg.InterfaceError:
            return True  # likewise

    async def drop(self) -> None:
        with suppress(asyncpg.InterfaceError):  # the pool has taken a lost connection back
            self._connection.terminate()

    async def _control(self, sql: str) -> str | None:
        return cast("str | None", await self._connection.execute(sql))

    async def execute(self, sql: str, *args: Any) -> int:
        self._check(sql)
        status: str = await self._call("execute", sql, *guarded(args))
        count = status.rsplit(" ", 1)[-1]
        return int(count) if count.isdecimal() else 0

    async def executemany(self, sql: str, args: Sequence[Sequence[Any]]) -> None:
        self._check(sql)
        await self._call("executemany", sql, [guarded(row) for row in args])

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        self._check(sql)
        return cast("Sequence[Row]", await self._call("fetch", sql, *guarded(args)))

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        self._check(sql)
        return cast("Row | None", await self._call("fetchrow", sql, *guarded(args)))

    async def fetchval(self, sql: str, *args: Any) -> Any:
        self._check(sql)
        return await self._call("fetchval", sql, *guarded(args))

    async def copy_rows(
        self, table: tuple[str, str], columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        schema, name = table
        options = {"schema_name": schema, "columns": list(columns), "records": map(guarded, rows)}
        await self._call("copy_records_to_table", name, **options)


# Words of libpq that asyncpg takes for settings of the server, which refuses them. Nothing is less safe without them;
# how long a connection may take is in the settings.
_LIBPQ_ONLY = {
    "connect_timeout",
    "fallback_application_name",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "sslcompression",
    "tcp_user_timeout",
}


def _readable(dsn: str) -> str:
    """The DSN as asyncpg reads it: a URL, with words that it knows."""
    address, mark, query = _as_url(dsn).partition("?")
    known = [word for word in query.split("&") if word.partition("=")[0] not in _LIBPQ_ONLY]
    return f"{address}{mark}{'&'.join(known)}"


def _as_url(dsn: str) -> str:
    """A keyword string as a URL: asyncpg reads only those."""
    if "://" in dsn:
        return dsn
    try:
        values = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise DatabaseUnavailable("no connection to the database: the DSN cannot be read") from None
    # Without a path: asyncpg takes its absence, and not an empty one, to mean that the query names the database.
    query = urlencode({name: str(value) for name, value in values.items()}, quote_via=quote)
    return f"postgresql://?{query}"


class _Dated(asyncpg.Connection):
    """A connection that knows when it was opened, by ``time.monotonic``."""

    opened = 0.0


class _OfAPooler(_Dated):
    """A connection without a session: what one leaves behind is not there, or another's."""

    def get_reset_query(self) -> str:
        """Nothing to undo."""
        return ""


async def _initialise(connection: Any) -> None:
    connection.opened = time.monotonic()
    # asyncpg has no setting for it, and names its transport for itself.
    if (transport := getattr(connection, "_transport", None)) is not None:
        keep_alive(transport.get_extra_info("socket"))
    await set_codecs(connection)


class AsyncpgDatabase(BaseDatabase):
    """A pool of asyncpg connections."""

    errors = _ERRORS

    @classmethod
    async def open(cls, dsn: str, settings: ConnectionSettings, *, pooled: bool) -> Self:
        dsn = _readable(dsn)
        with translated(*_ERRORS, ValueError):
            pool = await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=settings.max_connections,
                timeout=settings.connect_timeout.total_seconds(),
                statement_cache_size=0 if pooled else 200,
                server_settings=cls._parameters(settings, pooled=pooled),
                connection_class=_OfAPooler if pooled else _Dated,
                init=_initialise,
            )
        return cls(pool, dsn, settings, pooled=pooled)

    @classmethod
    def _parameters(cls, settings: ConnectionSettings, *, pooled: bool) -> dict[str, str]:
        ours = {} if pooled else {**cls.pinned_for(settings), **STARTED_WITH}
        return {"application_name": settings.application_name, **ours}

    @staticmethod
    def announced_pid(connection: Any) -> int:
        return int(connection.get_server_pid())

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OwnedSession]:
        with translated(*_ERRORS, origin=self._pool):
            connection = await self._acquire()
        session = AsyncpgSession(
            connection, pooled=self.pooled, pins=self._pins, origin=self._pool, doubts=self._doubts
        )
        try:
            yield session
        except (asyncio.CancelledError, TimeoutError, ReadOnlyDatabase):
            # In the middle of a statement, which may never be answered; or a standby, and the next one may not be.
            await session.drop()
            raise
        finally:
            try:
                await self._dismiss(session)
                if session.in_transaction:
                    await session.drop()
            finally:
                # Lost when it was given back: the pool ends it, and what was done on it stands.
                with suppress(*_ERRORS):
                    await self._pool.release(connection)

    async def _acquire(self) -> Any:
        try:
            return await self._pool.acquire(timeout=self._settings.pool_timeout.total_seconds())
        except TimeoutError as error:
            raise self._pool_is_full() from error

    async def _listen(self, channel: str, heard: Callable[[], None]) -> None:
        lost = asyncio.Event()
        connection = await asyncpg.connect(
            self._dsn,
            timeout=self._settings.connect_timeout.total_seconds(),
            server_settings=self._parameters(self._settings, pooled=False),
            connection_class=_Dated,
        )
        await _initialise(connection)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(channel, lambda *_: heard())
            heard()  # what was appended while nobody listened
            await lost.wait()
        finally:
            connection.terminate()

    async def renew(self) -> None:
        await self._pool.expire_connections()

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()  # connections that a cut network keeps from ending in order
