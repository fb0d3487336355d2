"""A driver of the library over the simulated network: what asyncpg's does, with connections of the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from journal import ConnectionSettings
from journal.database.base import BaseSession
from journal.database.base_database import BaseDatabase
from journal.database.error_translation import translated
from journal.database.session import OwnedSession, Row
from journal.errors import ReadOnlyDatabase
from tests.simulation.network import Link, Network
from tests.simulation.postgres.backend import Answer
from tests.simulation.postgres.errors import ServerError
from tests.simulation.postgres.server import Server

_ERRORS = (ServerError, OSError, TimeoutError)


class SimulatedSession(BaseSession):
    """A session over a link."""

    errors = _ERRORS

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also a failed one."""
        return not self._connection.lost and self._connection.in_transaction

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._connection.lost

    async def drop(self) -> None:
        self._connection.close()

    async def _control(self, sql: str) -> str | None:
        answer: Answer = await self._connection.call(sql)
        return answer.tag

    async def _call(self, sql: str, args: Sequence[Any]) -> Answer:
        self._check(sql)
        if self._runs:
            await self.flush()
        return await self._run(self._connection.call(sql, args))

    async def execute(self, sql: str, *args: Any) -> int:
        return (await self._call(sql, args)).count

    async def executemany(self, sql: str, args: Sequence[Sequence[Any]]) -> None:
        for one in args:
            await self._call(sql, one)

    async def fetch(self, sql: str, *args: Any) -> Sequence[Row]:
        return (await self._call(sql, args)).rows

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        rows = (await self._call(sql, args)).rows
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return None if row is None else next(iter(row.values()))

    async def copy_rows(
        self, table: tuple[str, str], columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        await self._call(f"COPY {'.'.join(table)} FROM STDIN", [rows])


class SimulatedDatabase(BaseDatabase):
    """
    A pool of links of the current host.

    Args:
        network: Carries them.
        server: What they lead to.
        settings: The size of the pool, and how long to wait.
    """

    errors = _ERRORS

    def __init__(self, network: Network, server: Server, settings: ConnectionSettings) -> None:
        super().__init__(None, "postgresql://simulation", settings, pooled=False)
        self._network = network
        self._server = server
        self._places = asyncio.Semaphore(settings.max_connections)
        self._idle: list[tuple[Link, int]] = []
        self._renewals = 0

    @classmethod
    async def open(cls, dsn: str, settings: ConnectionSettings, *, pooled: bool) -> Self:
        raise NotImplementedError("a simulation has no DSN")

    @staticmethod
    def announced_pid(connection: Any) -> int:
        return int(connection.backend.number)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[OwnedSession]:
        with translated(*_ERRORS):
            await self._wait_for_a_place()
            try:
                link, renewals = await self._link()
            except BaseException:
                self._places.release()
                raise
        session = SimulatedSession(link, pooled=False, pins=())
        try:
            yield session
        except (asyncio.CancelledError, TimeoutError, ReadOnlyDatabase):
            # In the middle of a statement, which may never be answered.
            await session.drop()
            raise
        finally:
            if session.in_transaction:
                await session.drop()
            if not link.lost and renewals == self._renewals:
                self._idle.append((link, renewals))
            else:
                link.close()
            self._places.release()

    async def _wait_for_a_place(self) -> None:
        try:
            async with asyncio.timeout(self._settings.pool_timeout.total_seconds()):
                await self._places.acquire()
        except TimeoutError as error:
            raise self._pool_is_full() from error

    async def _link(self) -> tuple[Link, int]:
        while self._idle:
            link, renewals = self._idle.pop()
            if not link.lost and renewals == self._renewals:
                return link, renewals
            link.close()
        return await self._network.connect(self._server), self._renewals

    async def _listen(self, channel: str, heard: Callable[[], None]) -> None:
        link = await self._network.connect(self._server)
        try:
            await link.listen(channel, heard)
        finally:
            link.close()

    async def renew(self) -> None:
        self._renewals += 1

    async def close(self) -> None:
        for link, _ in self._idle:
            link.close()
        self._idle.clear()
