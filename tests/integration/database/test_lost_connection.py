"""A connection that the server has ended: every call says so in the library's words."""

from __future__ import annotations

import psycopg
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


async def test_a_connection_that_was_ended_after_its_work_is_given_back_without_an_error(
    dsn: str,
) -> None:
    settings = ConnectionSettings(
        driver="asyncpg", max_connections=1
    )  # psycopg says nothing when it gives one back
    with psycopg.connect(dsn, autocommit=True) as killer:
        async with connect(dsn, settings) as other:
            async with other.session() as session:
                pid = await session.fetchval("SELECT pg_backend_pid()")
                # Holds up the event loop, so that the driver learns of it when it gives the connection back.
                killer.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

            async with other.session() as session:
                assert await session.fetchval("SELECT pg_backend_pid()") != pid
