"""Opening a pool with the driver that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from journal.drivers.asyncpg import AsyncpgDatabase
from journal.drivers.base import BaseDatabase
from journal.drivers.psycopg import PsycopgDatabase
from journal.drivers.session import Database
from journal.embedded.dsn import check_dsn
from journal.settings import ConnectionSettings

_DRIVERS: dict[str, type[BaseDatabase]] = {"asyncpg": AsyncpgDatabase, "psycopg": PsycopgDatabase}


@asynccontextmanager
async def connect(dsn: str, settings: ConnectionSettings | None = None) -> AsyncIterator[Database]:
    """
    Open a pool of connections for the length of the block.

    Args:
        dsn: A PostgreSQL URL or a libpq keyword string.
        settings: Driver, sizes and timeouts.

    Raises:
        journal.embedded.DsnError: The DSN can not be read; the message does not quote it.
        journal.DatabaseUnavailable: No connection can be had; the message hides the password.
    """
    settings = settings or ConnectionSettings()
    check_dsn(dsn)  # before a driver reads it: what their parsers say may quote the password
    database = await _DRIVERS[settings.driver].connect(dsn, settings)
    try:
        yield database
    finally:
        await database.close()
