"""Settings that a database or a role gives every session, and that others than ours may depend on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from journal import ConnectionSettings, Database, DatabaseError, connect
from projections import run
from projections.subscriptions import Consumer, Listener, Matching, publish, subscribe
from tests.fixtures.projections import execute, fetchval, settings
from tests.fixtures.subscriptions import Seen, consuming, quick

SET = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {setting}', current_database()); END $$"


async def with_default(dsn: str, setting: str) -> None:
    async with connect(dsn) as database:
        await execute(database, SET.format(setting=setting.replace("'", "''")))


@pytest.fixture(params=["asyncpg", "psycopg"])
async def strict(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """A database whose transactions keep their snapshots, where they do not say that they should not."""
    await with_default(dsn, "default_transaction_isolation = 'serializable'")
    async with connect(dsn, ConnectionSettings(driver=request.param)) as database:
        yield database


async def test_events_are_matched_consumed_and_listened_to_where_serializable_is_the_default(
    strict: Database,
) -> None:
    seen, reading, stop = Seen(), Consumer(strict, "g", settings=quick()), asyncio.Event()
    reading.handle(seen, name="h")
    matching = asyncio.create_task(run(strict, discovery=Matching(), settings=settings(), stop=stop))
    async with consuming(strict, reading), Listener(strict, "l") as listener, listener.listen() as events:
        async with strict.transaction() as session:
            await publish(session, "t", {})

        async with asyncio.timeout(30):
            assert (await anext(aiter(events))).topic == "t"
        await seen.until_events(1)
        stop.set()
        await matching


async def test_a_transaction_sees_what_others_commit(strict: Database) -> None:
    async with strict.transaction() as session:
        assert await session.fetchval("SHOW transaction_isolation") == "read committed"


async def test_behind_pgbouncer_a_strict_default_is_refused_with_what_to_do(dsn: str) -> None:
    await with_default(dsn, "default_transaction_isolation = 'repeatable read'")
    async with connect(dsn, ConnectionSettings(pgbouncer=True)) as database:
        with pytest.raises(DatabaseError, match="READ COMMITTED"):
            await fetchval(database, "SELECT projections.settled_matches_v1()")


@pytest.fixture
async def backslashes(dsn: str) -> AsyncIterator[Database]:
    """A database in which a backslash in a text is no backslash."""
    await with_default(dsn, "standard_conforming_strings = off")
    async with connect(dsn) as database:
        await execute(database, "SELECT set_config('escape_string_warning', 'off', FALSE)")
        yield database


async def test_conditions_are_taken_where_backslashes_escape(backslashes: Database) -> None:
    async with backslashes.session() as session:
        assert await subscribe(session, "g", condition="e.topic ~ '\\d'") > 0


async def test_bounds_of_partitions_are_known_where_backslashes_escape(backslashes: Database) -> None:
    await execute(backslashes, "SELECT projections.create_partition_v1('2020-01-01Z', '2020-01-02Z')")

    bounds = "SELECT to_timestamp - from_timestamp FROM projections.partitions WHERE from_timestamp = '2020-01-01Z'"
    assert await fetchval(backslashes, bounds) == timedelta(days=1)
