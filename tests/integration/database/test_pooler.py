"""Through a pooler that lends a session for each transaction: found by connecting, with nothing to be set."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from journal import ConnectionSettings, Database, DatabaseError, Event, append, connect, current_events
from journal.database.base_database import BaseDatabase
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import execute

DRIVERS = pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
IGNORES = "ignore_startup_parameters = options, default_transaction_isolation"


def pooled(database: Database) -> bool:
    assert isinstance(database, BaseDatabase)
    return database.pooled


@DRIVERS
async def test_a_server_is_no_pooler(dsn: str, driver: Any) -> None:
    async with connect(dsn, ConnectionSettings(driver=driver)) as database:
        assert not pooled(database)


@DRIVERS
@pytest.mark.parametrize("more", [(), (IGNORES,)], ids=["refuses", "ignores"])
async def test_a_pooler_is_found(dsn: str, driver: Any, more: tuple[str, ...]) -> None:
    async with (
        pooler(dsn, *more) as address,
        connect(address, ConnectionSettings(driver=driver)) as database,
    ):
        assert pooled(database)


@DRIVERS
async def test_what_is_said_about_a_pooler_is_not_asked(dsn: str, driver: Any) -> None:
    async with connect(dsn, ConnectionSettings(driver=driver, pgbouncer=True)) as database:
        assert pooled(database)
    async with pooler(dsn) as address:
        with pytest.raises(DatabaseError, match="startup parameter"):
            async with connect(address, ConnectionSettings(driver=driver, pgbouncer=False)):
                pass


@DRIVERS
async def test_nothing_listens_and_one_line_says_so(
    dsn: str, driver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "projections")
    async with (
        pooler(dsn) as address,
        connect(address, ConnectionSettings(driver=driver)) as database,
        database.listen("a", lambda: None),
        database.listen("b", lambda: None),
    ):
        pass

    assert [one.getMessage() for one in caplog.records if "pooler" in one.getMessage()] == [
        "a pooler is between this process and the database, and keeps notifications to itself: polling instead"
    ]


@pytest.mark.slow
@DRIVERS
async def test_many_statements_on_few_sessions_leave_nothing_behind(dsn: str, driver: Any) -> None:
    """Each is sent more often than drivers wait before they prepare it, from two pools on the same sessions."""
    options = ConnectionSettings(driver=driver, max_connections=3)
    async with pooler(dsn) as address, connect(address, options) as one, connect(address, options) as other:
        for number in range(20):
            for database in (one, other):
                async with database.transaction() as session:
                    await append(
                        session, [Event(f"s{number}", {}, entity_type="plane", event_type="Happened")]
                    )
        found = [event.source_id async for event in current_events(one, "plane")]
    async with connect(dsn) as direct, direct.session() as session:
        prepared = await session.fetchval("SELECT count(*) FROM pg_prepared_statements")

    assert len(found) == 40
    assert prepared <= 1  # its own


@DRIVERS
async def test_dates_are_read_whatever_style_the_database_has(dsn: str, driver: Any) -> None:
    async with connect(dsn) as database:
        await execute(
            database,
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = German', current_database()); END $$",
        )
    async with pooler(dsn) as address, connect(address, ConnectionSettings(driver=driver)) as database:
        async with database.session() as session:
            alone = await session.fetchval("SELECT $1::timestamptz", datetime(2026, 1, 2, tzinfo=UTC))
        async with database.transaction() as session:
            inside = await session.fetchval("SELECT $1::timestamptz", datetime(2026, 1, 2, tzinfo=UTC))

    assert alone == inside == datetime(2026, 1, 2, tzinfo=UTC)
