"""What servers, roles and owners do to a table that is read in place: it stays right, or says why it waits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import asyncpg
import pytest

from journal import ConnectionSettings, Database, Log, Position, connect
from journal.backtracking import END_OF_TIME
from journal.events import BEGINNING
from journal.foreign import Constant, TableMapping, table_log
from tests.fixtures.foreign import FOREIGN, Orders
from tests.fixtures.projections import (
    caught_up,
    each_once,
    effects,
    fetchval,
    running,
    until,
    until_effects,
)

TABLE = """
CREATE TABLE orders (
    id bigserial, name text, version int, at timestamptz NOT NULL DEFAULT now(), body jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (name, version)
)
"""
BY_NUMBER = TableMapping(
    table="orders", source="name", number="version", position="id", bound="sequence",
    entity_type=Constant("order"), event_type=Constant("Happened"), payload="body",
)  # fmt: skip
MAPPINGS = {
    "sequence": BY_NUMBER,
    "transaction-start": replace(BY_NUMBER, position="at", bound="transaction-start"),
}
SETTINGS = [
    "default_transaction_isolation = 'serializable'",
    "default_transaction_isolation = 'repeatable read'",
    "jit_above_cost = 0",
    "idle_session_timeout = '300ms'",
    "idle_in_transaction_session_timeout = '300ms'",
    "statement_timeout = '5s'",
    "enable_indexscan = off",
    "timezone = 'Asia/Kathmandu'",
    "standard_conforming_strings = off",
]
ROLE = "DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET {}', current_user, current_database()); END $$"


@asynccontextmanager
async def reading(
    dsn: str, bound: str = "sequence", settings: ConnectionSettings = FOREIGN["asyncpg"]
) -> AsyncIterator[Log]:
    async with connect(dsn, settings) as database:
        yield await table_log(database, MAPPINGS[bound], name="shop")


async def insert(connection: asyncpg.Connection, *names: str) -> None:
    for name in names:
        await connection.execute(
            "INSERT INTO public.orders (name, version) "
            "SELECT $1, coalesce(max(version), 0) + 1 FROM public.orders WHERE name = $1",
            name,
        )


async def failure(database: Database) -> str:
    """Why a range waits, as soon as one does."""
    await until(database, "SELECT count(*) > 0 FROM projections.projection_ranges WHERE error IS NOT NULL")
    return str(await fetchval(database, "SELECT max(error) FROM projections.projection_ranges"))


@pytest.mark.slow
@pytest.mark.parametrize("bound", MAPPINGS)
@pytest.mark.parametrize("setting", SETTINGS)
async def test_whatever_a_role_sets_late_commits_are_found(
    empty_dsn: str, owner: asyncpg.Connection, read_side: Database, setting: str, bound: str
) -> None:
    late = await asyncpg.connect(empty_dsn)
    await owner.execute(ROLE.format(setting.replace("'", "''")))
    async with reading(empty_dsn, bound) as log, running(read_side, Orders, journal=log, ranges=2) as told:
        for n in range(3):
            transaction = late.transaction()
            await transaction.start()
            await insert(late, f"late{n}")
            await insert(owner, "a", "b")
            await until_effects(read_side, 3 * n + 2)
            await asyncio.sleep(0.5)  # longer than a connection may be idle
            await transaction.commit()
            await until_effects(read_side, 3 * n + 3)
        failed = told.all("failed")
    await late.close()
    each_once(await effects(read_side), a=3, b=3, late0=1, late1=1, late2=1)
    assert await fetchval(read_side, "SELECT count(*) FROM projections.parked_sources") == 0
    assert not failed or "idle_session" in setting


async def test_an_event_whose_transaction_began_before_the_event_before_it_was_written_waits_for_that_one(
    empty_dsn: str, owner: asyncpg.Connection, read_side: Database
) -> None:
    early = await asyncpg.connect(empty_dsn)
    transaction = early.transaction()
    await transaction.start()
    await early.fetchval("SELECT now()")
    await insert(owner, "a")
    await insert(early, "a")
    await transaction.commit()
    await early.close()
    stamps = await owner.fetch("SELECT version FROM orders ORDER BY at")
    assert [version for (version,) in stamps] == [2, 1]

    async with reading(empty_dsn, "transaction-start") as log:
        await caught_up(read_side, Orders, journal=log)

    each_once(await effects(read_side), a=2)


async def test_a_page_that_the_role_may_not_wait_for_fails_the_range_and_no_event(
    empty_dsn: str, owner: asyncpg.Connection, read_side: Database
) -> None:
    slow = (
        "CREATE FUNCTION public.slow(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT '{}' FROM pg_sleep(1) $$"
    )
    await owner.execute(slow)
    await insert(owner, "a")
    await owner.execute(ROLE.format("statement_timeout = ''200ms''"))
    mapping = replace(BY_NUMBER, payload="body", metadata=None)
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, mapping, name="shop")
        log = replace(
            log,
            queries=replace(
                log.queries, events=log.queries.events.replace('t."body"', 'public.slow(t."body")', 1)
            ),
        )
        async with running(read_side, Orders, journal=log):
            assert "canceling statement due to statement timeout" in await failure(read_side)
            assert await fetchval(read_side, "SELECT count(*) FROM projections.parked_sources") == 0


async def test_a_right_that_is_revoked_is_waited_for(
    empty_dsn: str, owner: asyncpg.Connection, read_side: Database
) -> None:
    await owner.execute("DROP ROLE IF EXISTS foreign_reader; CREATE ROLE foreign_reader LOGIN PASSWORD 'p'")
    rights = "SELECT ON orders {0} foreign_reader; {1} SELECT ON SEQUENCE orders_id_seq {0} foreign_reader"
    grant, revoke = f"GRANT {rights.format('TO', 'GRANT')}", f"REVOKE {rights.format('FROM', 'REVOKE')}"
    await owner.execute(grant)
    parts = urlsplit(empty_dsn)
    login = parts._replace(netloc=f"foreign_reader:p@{parts.netloc.rpartition('@')[2]}").geturl()
    try:
        async with reading(login) as log, running(read_side, Orders, journal=log, ranges=2):
            await insert(owner, "a")
            await until_effects(read_side, 1)
            await owner.execute(revoke)
            await insert(owner, "a", "b")
            assert "permission denied" in await failure(read_side)
            await owner.execute(grant)
            await until_effects(read_side, 3)
        each_once(await effects(read_side), a=2, b=1)
    finally:
        await owner.execute("DROP OWNED BY foreign_reader; DROP ROLE foreign_reader")


async def test_a_table_that_is_renamed_is_waited_for(
    empty_dsn: str, owner: asyncpg.Connection, read_side: Database
) -> None:
    async with reading(empty_dsn) as log, running(read_side, Orders, journal=log, ranges=2):
        await insert(owner, "a")
        await until_effects(read_side, 1)
        await owner.execute("ALTER TABLE orders RENAME TO gone")
        error = await failure(read_side)
        assert 'relation "public.orders" does not exist' in error
        await owner.execute("ALTER TABLE gone RENAME TO orders")
        await insert(owner, "a", "b")
        await until_effects(read_side, 3)
    each_once(await effects(read_side), a=2, b=1)


@pytest.mark.slow
@pytest.mark.parametrize("bound", MAPPINGS)
async def test_a_partition_that_is_added_is_read(
    empty_dsn: str, dsn: str, read_side: Database, bound: str
) -> None:
    owner, late = await asyncpg.connect(empty_dsn), await asyncpg.connect(empty_dsn)
    await owner.execute(
        "CREATE TABLE orders (id bigserial, name text, version int, at timestamptz NOT NULL DEFAULT now(), "
        "body jsonb NOT NULL DEFAULT '{}', PRIMARY KEY (name, version)) PARTITION BY LIST (name); "
        "CREATE TABLE orders_a PARTITION OF orders FOR VALUES IN ('a')"
    )
    async with reading(empty_dsn, bound) as log, running(read_side, Orders, journal=log, ranges=2):
        await insert(owner, "a")
        await until_effects(read_side, 1)
        await owner.execute("CREATE TABLE orders_b PARTITION OF orders FOR VALUES IN ('b')")
        transaction = late.transaction()
        await transaction.start()
        await insert(late, "b")
        await insert(owner, "a")
        await until_effects(read_side, 2)
        await transaction.commit()
        await until_effects(read_side, 3)
    await owner.close()
    await late.close()
    each_once(await effects(read_side), a=2, b=1)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [True, False], ids=["running", "started again"])
@pytest.mark.parametrize(
    "back",
    [
        "SELECT setval('orders_id_seq', 2)",
        "ALTER SEQUENCE orders_id_seq RESTART",
        "TRUNCATE orders RESTART IDENTITY",
    ],
)
async def test_a_sequence_that_is_set_back_is_refused_until_it_is_set_forward(
    empty_dsn: str, owner: asyncpg.Connection, read_side: Database, back: str, runs: bool
) -> None:
    await insert(owner, *["a"] * 9)
    async with reading(empty_dsn) as log:
        if not runs:
            await caught_up(read_side, Orders, journal=log)
            await owner.execute(back)
        async with running(read_side, Orders, journal=log):
            await until_effects(read_side, 9)
            if runs:
                await until(
                    read_side,
                    "SELECT min(horizon) >= '1970-01-01T00:00:00.00001Z' FROM projections.projection_ranges",
                )
                await owner.execute(back)
            error = await failure(read_side)
            assert "the sequence of journal 'shop' has gone back to" in error
            assert "what is before 10 counts as handled: set it forward" in error
            await owner.execute("SELECT setval('orders_id_seq', 9)")
            await insert(owner, "new")
            await until_effects(read_side, 10)
    each_once(await effects(read_side), a=9, new=1)


async def test_rows_that_are_truncated_are_no_events_and_what_follows_is_handled(
    empty_dsn: str, owner: asyncpg.Connection, read_side: Database
) -> None:
    async with reading(empty_dsn) as log, running(read_side, Orders, journal=log, ranges=2):
        await insert(owner, "a", "a")
        await until_effects(read_side, 2)
        await owner.execute("TRUNCATE orders")
        await owner.execute("INSERT INTO orders (name, version) VALUES ('a', 3), ('b', 1)")
        await until_effects(read_side, 4)
    each_once(await effects(read_side), a=3, b=1)


@pytest.mark.slow
@pytest.mark.parametrize("bound", MAPPINGS)
async def test_no_page_of_a_million_rows_depends_on_statistics(
    empty_dsn: str, owner: asyncpg.Connection, bound: str
) -> None:
    """Statistics are of an empty table: a page, a poll, a look-up and a window read a few hundred pages."""
    await owner.execute("ALTER TABLE orders SET (autovacuum_enabled = off); ANALYZE orders")
    await owner.execute("CREATE INDEX ON orders (id); CREATE INDEX ON orders (at)")
    await owner.execute(
        "INSERT INTO orders (name, version, at) "
        "SELECT 'o-' || n % 100000, n / 100000 + 1, now() + n * interval '1 ms' FROM generate_series(0, 999999) AS n"
    )
    middle = await owner.fetchrow("SELECT id, at FROM orders WHERE id = 500000")
    place = middle["at"] if bound == "transaction-start" else BEGINNING + middle["id"] * timedelta.resolution
    async with reading(empty_dsn, bound) as log, log.session() as session:
        asked = {
            "events": (["order"], 0, 1023, *Position.before(place), END_OF_TIME, 1000, 2**20),
            "keys": (["order"], 0, 511, *Position.before(place), END_OF_TIME, 1000),
            "load": (["o-7", "o-8"], [5, 5], [place, place], 2**20),
            "latest": ("o-7",),
            "source": ("o-7", 1, 10, False, 10, 2**20),
            "poll": (0, ["order"], [place]),
        }
        for name, arguments in asked.items():
            statement = getattr(log.queries, name)
            rows = await session.fetch(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {statement}", *arguments)
            plan = "\n".join(row["QUERY PLAN"] for row in rows)
            assert "Seq Scan on orders t" not in plan, plan
            read = sum(
                map(int, re.findall(r"(?:hit|read)=(\d+)", plan.partition("Buffers:")[2].partition("\n")[0]))
            )
            assert read < 12_000, plan
