"""Opening a pool with the driver that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journal.database.asyncpg import AsyncpgDatabase
from journal.database.base_database import BaseDatabase
from journal.database.pooler import open_direct
from journal.database.psycopg import PsycopgDatabase
from journal.database.session import Database
from journal.database.settings import ConnectionSettings
from journal.dsn import check_dsn

_DRIVERS: dict[str, type[BaseDatabase]] = {"asyncpg": AsyncpgDatabase, "psycopg": PsycopgDatabase}


@asynccontextmanager
async def connect(dsn: str, settings: ConnectionSettings | None = None) -> AsyncIterator[Database]:
    """
    Open a pool of connections for the length of the block.

    Args:
        dsn: A PostgreSQL URL or a libpq keyword string.
        settings: Driver, sizes and timeouts.

    Raises:
        InvalidValue: The DSN cannot be read; the message does not quote it.
        DatabaseUnavailable: No connection can be had; the message hides the password.
    """
    settings = settings or ConnectionSettings()
    check_dsn(dsn)  # before a driver reads it: what their parsers say may quote the password
    driver = _DRIVERS[settings.driver]
    database = await open_direct(driver, dsn, settings) or await _pooled(driver, dsn, settings)
    try:
        yield database
    finally:
        await database.close()


async def _pooled(driver: type[BaseDatabase], dsn: str, settings: ConnectionSettings) -> BaseDatabase:
    database = await driver.open(dsn, settings, pooled=True)
    try:
        await database.pin()
    except BaseException:
        await database.close()
        raise
    return database
