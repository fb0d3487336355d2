"""Settings that a database or a role gives every session, and that others than ours may depend on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from journal import ConnectionSettings, Database, connect
from projections import run
from projections.subscriptions import Consumer, Listener, Matching, publish, subscribe
from tests.fixtures.connections import with_default
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import execute, fetchval, settings
from tests.fixtures.subscriptions import Seen, consuming, quick


@pytest.fixture(params=["asyncpg", "psycopg"])
def driver(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["direct", "pooled"])
async def strict(request: pytest.FixtureRequest, dsn: str, driver: Any) -> AsyncIterator[Database]:
    """A database whose transactions keep their snapshots, where they do not say that they should not."""
    await with_default(dsn, "default_transaction_isolation = 'serializable'")
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(pooler(dsn)) if request.param == "pooled" else dsn
        yield await stack.enter_async_context(connect(address, ConnectionSettings(driver=driver)))


@pytest.mark.slow
async def test_events_are_matched_consumed_and_listened_to_where_serializable_is_the_default(
    strict: Database,
) -> None:
    seen, reading, stop = Seen(), Consumer(strict, "g", settings=quick()), asyncio.Event()
    reading.handle(seen, name="h")
    matching = asyncio.create_task(run(strict, discovery=Matching(), settings=settings(), stop=stop))
    async with consuming(strict, reading), Listener(strict, "l") as listener, listener.listen() as events:
        async with strict.transaction() as session:
            await publish(session, "t", {})

        async with asyncio.timeout(300):
            assert (await anext(aiter(events))).topic == "t"
        await seen.until_events(1)
        stop.set()
        await matching


async def test_a_transaction_sees_what_others_commit(strict: Database) -> None:
    async with strict.transaction() as session:
        assert await session.fetchval("SHOW transaction_isolation") == "read committed"


async def test_a_statement_alone_sees_what_others_commit(strict: Database) -> None:
    async with strict.session() as session:
        assert await session.fetchval("SHOW transaction_isolation") == "read committed"
        assert not session.in_transaction


@pytest.fixture
async def backslashes(dsn: str) -> AsyncIterator[Database]:
    """A database in which a backslash in a text is not a backslash."""
    await with_default(dsn, "standard_conforming_strings = off")
    async with connect(dsn) as database:
        await execute(database, "SELECT set_config('escape_string_warning', 'off', FALSE)")
        yield database


async def test_conditions_are_taken_where_backslashes_escape(backslashes: Database) -> None:
    async with backslashes.session() as session:
        assert await subscribe(session, "g", condition="e.topic ~ '\\d'") > 0


async def test_bounds_of_partitions_are_known_where_backslashes_escape(backslashes: Database) -> None:
    await execute(backslashes, "SELECT projections._create_partition_v1('2020-01-01Z', '2020-01-02Z')")

    bounds = "SELECT to_timestamp - from_timestamp FROM projections.partitions WHERE from_timestamp = '2020-01-01Z'"
    assert await fetchval(backslashes, bounds) == timedelta(days=1)
