"""Journals that are ordered by numbers have no times: how old their events are, and when their offsets may go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

import offsets
from journal import BEGINNING, Database, EntityTypes, Log, connect
from journal.foreign import TableMapping, table_log
from projections.monitoring import projection_lag
from tests.fixtures.commands import called
from tests.fixtures.foreign import FOREIGN, Orders
from tests.fixtures.projections import (
    caught_up,
    effects,
    execute,
    fetchval,
    running,
    until,
    until_effects,
)

TABLE = """
CREATE TABLE orders (
    id bigserial UNIQUE, name text, version int, kind text DEFAULT 'Happened', body jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (name, version)
)
"""
TOML = """
table = "orders"
source = "name"
number = "version"
position = "id"
bound = "sequence"
entity_type = { constant = "order" }
event_type = "kind"
payload = "body"
"""
MAPPING = TableMapping.from_toml(TOML)
DAY = timedelta(days=1)
_EARLIER = """
UPDATE projections.journal_watermarks SET reached_at = reached_at - $1::interval, seen_at = seen_at - $1::interval
"""


@pytest.fixture
async def log(empty_dsn: str, owner: asyncpg.Connection) -> AsyncIterator[Log]:
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        yield await table_log(database, MAPPING, name="shop")


async def insert(owner: asyncpg.Connection, first: int, last: int, version: int = 1) -> None:
    await owner.execute(
        "INSERT INTO orders (name, version) SELECT 'o-' || n, $3 FROM generate_series($1::int, $2::int) AS n",
        first, last, version,
    )  # fmt: skip


async def note(database: Database, log: Log, retention: timedelta = DAY) -> None:
    async with database.session() as session:
        await offsets.note_watermark(session, log, retention)


async def time_passes(database: Database, time: timedelta) -> None:
    await execute(database, _EARLIER, time)


async def lag(database: Database, log: Log) -> tuple[float, int]:
    async with database.session() as session:
        found = await projection_lag(session, "orders", journal=log)
        assert max(one.lag for one in found.slices) == found.lag
        return found.lag, found.backlog


async def register(database: Database) -> int:
    async with database.session() as session:
        return await offsets.register(session, "orders", EntityTypes.of("order"), journal="shop")


async def evict(database: Database, number: int) -> int:
    async with database.session() as session:
        await offsets.evict(session, number, DAY)
    left: int = await fetchval(database, "SELECT count(*) FROM projections.source_offsets")
    return left


async def test_lag_says_since_when_the_oldest_event_may_have_been_there(
    owner: asyncpg.Connection, log: Log, read_side: Database, dsn: str, empty_dsn: str
) -> None:
    await register(read_side)
    await execute(read_side, "UPDATE projections.projections SET created_at = now() - interval '3 h'")
    assert await lag(read_side, log) == (0.0, 0)
    await insert(owner, 1, 2)
    assert await lag(read_side, log) == (pytest.approx(3 * 3600, abs=60), 2)  # nobody has ever looked
    await note(read_side, log)
    assert await lag(read_side, log) == (pytest.approx(0, abs=60), 2)  # they were there before anybody looked
    await time_passes(read_side, timedelta(hours=2))
    await note(read_side, log)
    assert await lag(read_side, log) == (pytest.approx(2 * 3600, abs=60), 2)  # they still are
    await insert(owner, 3, 3)
    await note(read_side, log)
    await time_passes(read_side, timedelta(minutes=10))
    await insert(owner, 4, 4)
    assert await lag(read_side, log) == (pytest.approx(7800, abs=60), 4)
    async with read_side.session() as session:
        await offsets.set_offset(session, "orders", BEGINNING + timedelta(microseconds=3))
    assert await lag(read_side, log) == (
        pytest.approx(600, abs=60),
        2,
    )  # 3 came after the end was seen before it
    command = ["lag", "--journal", "shop", "--read-side", dsn]
    await execute(
        read_side,
        "INSERT INTO projections.journals (name, kind, mapping, dsn) VALUES ('shop', 'table', $1, $2)",
        TOML,
        empty_dsn,
    )
    assert called(*command, "--fail-above", "5m").returncode == 3
    assert called(*command, "--fail-above", "15m").returncode == 0


async def test_offsets_leave_when_the_retention_is_over_and_not_what_is_newer_than_the_horizon(
    empty_dsn: str, owner: asyncpg.Connection, log: Log, read_side: Database
) -> None:
    await insert(owner, 1, 100)
    await caught_up(read_side, Orders, journal=log)
    open_ = await asyncpg.connect(empty_dsn)
    transaction = open_.transaction()
    await transaction.start()
    await insert(open_, 101, 101)  # holds the horizon here
    await insert(owner, 102, 200)
    await time_passes(read_side, timedelta(minutes=1))
    await note(read_side, log)
    number = await register(read_side)
    async with running(read_side, Orders, journal=log):
        await until_effects(read_side, 199)
    assert await evict(read_side, number) == 199  # younger than the retention
    await time_passes(read_side, 2 * DAY)
    assert await evict(read_side, number) == 99  # up to what is still open
    await transaction.commit()
    await open_.close()
    await caught_up(read_side, Orders, journal=log)
    assert await evict(read_side, number) == 0
    await insert(owner, 1, 200, 2)
    await caught_up(read_side, Orders, journal=log)
    handled = await effects(read_side)
    assert len(handled) == len(set(handled)) == 400
    assert await evict(read_side, number) == 200


@pytest.mark.slow
async def test_offsets_and_watermarks_do_not_grow_with_what_was_ever_there(
    owner: asyncpg.Connection, log: Log, read_side: Database
) -> None:
    number, left = await register(read_side), []
    for day in range(4):
        await insert(owner, 1000 * day, 1000 * day + 999)
        await caught_up(read_side, Orders, journal=log)
        await note(read_side, log)
        await time_passes(read_side, 1.1 * DAY)
        left.append(await evict(read_side, number))
    assert left == [0, 0, 0, 0]
    await note(read_side, log)
    assert await fetchval(read_side, "SELECT count(*) FROM projections.journal_watermarks") == 1
    assert len(set(await effects(read_side))) == 4000


async def test_a_sequence_that_goes_back_takes_its_watermarks_along(
    owner: asyncpg.Connection, log: Log, read_side: Database
) -> None:
    await insert(owner, 1, 50)
    await note(read_side, log)
    await time_passes(read_side, timedelta(hours=1))
    await insert(owner, 51, 60)
    await note(read_side, log)
    await owner.execute("DELETE FROM orders WHERE id > 50; SELECT setval('orders_id_seq', 55)")
    await note(read_side, log)
    await time_passes(read_side, timedelta(minutes=1))
    await note(read_side, log)
    places = await fetchval(
        read_side,
        "SELECT array_agg(extract(EPOCH FROM place) * 1000000 ORDER BY place) FROM projections.journal_watermarks",
    )
    assert places == [51, 56]


async def test_a_sequence_that_is_set_back_behind_evicted_offsets_is_refused(
    owner: asyncpg.Connection, log: Log, read_side: Database
) -> None:
    """What it numbers then would count as handled."""
    number = await register(read_side)
    await insert(owner, 1, 50)
    await caught_up(read_side, Orders, journal=log)
    await time_passes(read_side, 2 * DAY)
    assert await evict(read_side, number) == 0
    await owner.execute("DELETE FROM orders; ALTER SEQUENCE orders_id_seq RESTART")
    await insert(owner, 101, 105)
    async with running(read_side, Orders, journal=log):
        await until(
            read_side, "SELECT count(*) > 0 FROM projections.projection_ranges WHERE error IS NOT NULL"
        )
        error = await fetchval(read_side, "SELECT max(error) FROM projections.projection_ranges")
        assert (
            "the sequence of journal 'shop' has gone back to 6, and what is before 51 counts as handled"
            in error
        )
        await owner.execute("SELECT setval('orders_id_seq', 60)")
        await insert(owner, 106, 106)
        await until_effects(read_side, 51)
    assert [key for key in await effects(read_side) if key[0] in {f"o-{n}" for n in range(101, 107)}] == [
        ("o-106", 1)
    ]


async def test_workers_note_where_the_end_is(
    owner: asyncpg.Connection, log: Log, read_side: Database
) -> None:
    await insert(owner, 1, 3)
    async with running(read_side, Orders, journal=log):
        await until(
            read_side, "SELECT count(*) = 1 FROM projections.journal_watermarks WHERE journal = 'shop'"
        )
