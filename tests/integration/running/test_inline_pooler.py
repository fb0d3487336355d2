"""Handling inline through PgBouncer in transaction mode, where each transaction may have another session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from journal import ConnectionSettings, Database, connect
from projections.testing import run_until_caught_up
from tests.fixtures.connections import WAYS, Way, by_asyncpg, by_psycopg_sync
from tests.fixtures.inline import DELAYS, TWINS, counted, event, inline_journal, mode
from tests.fixtures.pgbouncer import pooler_beside
from tests.fixtures.projections import execute, fetchval, happen, running, until


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with inline_journal(dsn) as database:
        yield database


@pytest.fixture
def bouncer(dsn: str) -> Iterator[str]:
    with pooler_beside(dsn) as address:  # a synchronous connection keeps the test's own event loop
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_every_connection_handles_what_it_appends(journal: Database, bouncer: str, way: Way) -> None:
    async with by_asyncpg(bouncer) as other:  # has one of the sessions, so that others come to be used
        await other.execute("SELECT 1")
        for _ in range(8):  # more often than a driver waits before it prepares
            async with way(bouncer) as caller:
                await caller.call(TWINS, [event("a"), event("b"), event("a")])
                await caller.call(TWINS, [event("a")])
    await run_until_caught_up(journal, DELAYS)

    assert await counted(journal) == (32, 0)


@pytest.mark.slow
async def test_a_connection_that_stays_is_lent_other_sessions(journal: Database, bouncer: str) -> None:
    options = [ConnectionSettings(driver=driver, max_connections=3) for driver in ("asyncpg", "psycopg")]
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(connect(bouncer, option)) for option in options]

        async def often(pool: Database, source: str) -> None:
            for _ in range(10):
                async with pool.transaction() as session:
                    await TWINS[0](session, [event(source), event("shared")])

        await asyncio.gather(*(often(pool, f"{n}") for n, pool in enumerate(pools * 3)))
    await run_until_caught_up(journal, DELAYS)

    assert await counted(journal) == (120, 0)


async def test_a_search_path_of_one_transaction_is_gone_by_in_it_alone(
    journal: Database, bouncer: str
) -> None:
    await execute(journal, "CREATE SCHEMA other CREATE TABLE counts (source_id text PRIMARY KEY, n int, last bigint) "
                  "CREATE TABLE kinds (kind text PRIMARY KEY, n bigint)")  # fmt: skip
    for _ in range(3):
        async with by_psycopg_sync(bouncer) as caller:
            await caller.execute("SET LOCAL search_path = other")
            await caller.call(TWINS, [event("b")])
        async with by_asyncpg(bouncer) as caller:
            await caller.call(TWINS, [event("a")])

    assert await fetchval(journal, "SELECT array_agg(source_id || n) FROM counts") == ["a3"]
    assert await fetchval(journal, "SELECT array_agg(source_id || n) FROM other.counts") == ["b3"]


async def test_modes_change_while_all_go_through_it(journal: Database, bouncer: str) -> None:
    settings = ConnectionSettings(max_connections=8)
    async with connect(bouncer, settings) as pool, running(pool, DELAYS, ranges=2):
        over = asyncio.Event()

        async def often(source: str) -> int:
            count = 0
            while not over.is_set():
                async with pool.transaction() as session:
                    await TWINS[0](session, [event(source), event("shared")])
                await happen(pool, source)
                count += 3
            return count

        tasks = [asyncio.create_task(often(f"s{n}")) for n in range(3)]
        for turn in range(20):
            await mode(pool, "live" if turn % 2 == 0 else "inline")
        over.set()
        total = sum(await asyncio.gather(*tasks))
        await until(pool, f"SELECT coalesce(sum(n), 0) = {total} FROM counts")
    await run_until_caught_up(journal, DELAYS)

    assert (await counted(journal))[0] == total
    assert await fetchval(journal, "SELECT n FROM kinds") == total
