"""A connection that the server has ended: every call says so in the library's words."""

from __future__ import annotations

import pytest

from journal import ConnectionSettings, Database, DatabaseUnavailable, connect


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_calls_on_a_connection_that_was_ended_say_that_the_database_is_gone(
    dsn: str, database: Database, driver: str
) -> None:
    async with connect(dsn, ConnectionSettings(driver=driver)) as other, other.session() as session:
        pid = await session.fetchval("SELECT pg_backend_pid()")
        await session.begin()
        async with database.session() as killer:
            await killer.fetchval("SELECT pg_terminate_backend($1, 5000)", pid)

        for _ in range(2):
            with pytest.raises(DatabaseUnavailable):
                await session.fetch("SELECT 1")
        await session.rollback()

        assert not session.in_transaction
