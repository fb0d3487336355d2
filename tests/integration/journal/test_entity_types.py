"""Reading several entity types, or every one, as if they were one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from journal import (
    ALL_TYPES,
    Database,
    EntityTypes,
    Event,
    HeadReader,
    InvalidEvent,
    Origin,
    Position,
    SliceRange,
    SliceReader,
    append,
    current_events,
)
from offsets.live import live_events
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute
from tests.fixtures.reading import WAIT, now

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
# Few times for many events, so that they are equal across types.
LOG = """
INSERT INTO projections.events (
    db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload
)
SELECT
    '2020-01-01Z'::timestamptz + (n * 7919 % 1000) / 4 * interval '23 minutes', 1, gen_random_uuid(),
    projections.slice_of_v1('s' || n), 1, 's' || n, 'type' || n % 5, 'happened',
    to_json(repeat('x', CASE WHEN n % 50 = 0 THEN 20000 ELSE 1 END))
FROM generate_series(1, 1000) AS n;
INSERT INTO projections.sources (source_id, entity_type, slice, seq_nr, db_timestamp)
SELECT e.source_id, e.entity_type, e.slice, e.seq_nr, e.db_timestamp FROM projections.events AS e
"""
PARTITIONS = """
DO $$
BEGIN
    FOR n IN 0..1 LOOP
        EXECUTE format(
            'CREATE TABLE projections.events_%s PARTITION OF projections.events FOR VALUES FROM (%L) TO (%L)',
            n, '2020-01-01Z'::timestamptz + n * interval '1 day',
            '2020-01-01Z'::timestamptz + (n + 1) * interval '1 day'
        );
    END LOOP;
END;
$$
"""


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def slow(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """Another writer, whose transactions stay open."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def write(connection: asyncpg.Connection, *events: tuple[str, str]) -> None:
    """Append an event for each source and its type, in a transaction where none is open."""
    async with connection.transaction():
        await append(connection, [Event(source, None, kind, "happened") for kind, source in events])


@pytest.mark.slow
@pytest.mark.parametrize("tries", [12, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("partitions", [PARTITIONS, "SELECT"], ids=["partitions", "none"])
async def test_pages_of_any_types_are_what_the_whole_log_has_of_them(
    database: Database, partitions: str, tries: int
) -> None:
    await execute(database, partitions)
    for statement in LOG.split(";\n"):
        await execute(database, statement)
    chance, until = random.Random(1), BEGIN + timedelta(days=9)
    async with database.session() as session:
        rows = await session.fetch(
            "SELECT db_timestamp, slice, source_id, seq_nr, entity_type FROM projections.events"
        )
        log = sorted(tuple(row.values()) for row in rows)
        for _ in range(tries):
            names: Collection[str] = chance.sample([f"type{n}" for n in range(7)], chance.randint(1, 7))
            types = EntityTypes.of(names) if chance.random() < 0.8 else ALL_TYPES
            low, high = sorted(chance.choices(range(1024), k=2))
            size, page_bytes = chance.choice([(1, 2**20), (7, 2**20), (100, 30_000), (5000, 2**20)])
            reader = chance.choice([SliceReader, HeadReader])(types, SliceRange(low, high), size, page_bytes)
            wanted = [e for e in log if e[4] in types and low <= e[1] <= high]

            place, found = Position.before(BEGIN), []
            while True:
                page = await reader.events(session, place, until)
                found += page
                if not page.more:
                    break
                place = page[-1].position

            assert [(*e.position, e.entity_type) for e in found] == wanted
            keys, place = [], Position.before(BEGIN)
            while part := await reader.keys(session, place, until):
                keys += part
                place = part[-1].position
            assert [key.position for key in keys] == [e[:4] for e in wanted]


async def test_what_is_there_now_of_several_types_comes_in_the_order_of_time(
    database: Database, writer: asyncpg.Connection
) -> None:
    events = [("plane", "a"), ("airport", "b"), ("ship", "c"), ("plane", "a"), ("airport", "d")]
    for one in events:
        await write(writer, one)

    both = [(e.entity_type, e.source_id) async for e in current_events(database, ("plane", "airport"))]
    every = [(e.entity_type, e.source_id) async for e in current_events(database, ALL_TYPES)]

    assert both == [one for one in events if one[0] != "ship"]
    assert every == events


async def test_a_journal_without_events_has_none_of_every_type(database: Database) -> None:
    assert [e async for e in current_events(database, ALL_TYPES)] == []


@pytest.mark.parametrize("types", [("plane", "airport"), ALL_TYPES], ids=["two", "all"])
async def test_a_late_commit_of_another_type_is_delivered_once(
    database: Database,
    writer: asyncpg.Connection,
    slow: asyncpg.Connection,
    types: EntityTypes | tuple[str, ...],
) -> None:
    start = await now(writer)
    async with aclosing(live_events(database, types, start=start)) as reader, asyncio.timeout(WAIT):
        transaction = slow.transaction()
        await transaction.start()
        await write(slow, ("airport", "late"))  # the first of its type
        await write(writer, ("plane", "a"))
        assert (await anext(reader)).source_id == "a"
        await write(writer, ("plane", "b"))
        assert (await anext(reader)).source_id == "b"
        await transaction.commit()

        late = await anext(reader)
        assert (late.source_id, late.entity_type, late.origin) == ("late", "airport", Origin.BACKTRACKING)
        await write(writer, ("airport", "after"), ("plane", "a"))
        assert sorted([(await anext(reader)).source_id for _ in range(2)]) == ["a", "after"]


async def test_a_type_that_comes_to_be_is_one_of_every_type(
    database: Database, writer: asyncpg.Connection
) -> None:
    async with (
        aclosing(live_events(database, ALL_TYPES, start=await now(writer))) as reader,
        asyncio.timeout(WAIT),
    ):
        for kind in ("plane", "airport", "ship"):
            await write(writer, (kind, kind))
            assert (await anext(reader)).entity_type == kind


async def test_a_source_is_of_one_type_so_that_its_numbers_are_one_row(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    transaction = slow.transaction()
    await transaction.start()
    await write(slow, ("plane", "a"))
    other = asyncio.create_task(write(writer, ("airport", "a")))
    async with database.session() as session:
        while not await session.fetchval(f"SELECT EXISTS (SELECT FROM {WAITING})"):
            await asyncio.sleep(0.001)
    await transaction.commit()

    with pytest.raises(InvalidEvent, match="source 'a' is of entity type 'plane', not 'airport'"):
        await other
    assert [(e.entity_type, e.seq_nr) async for e in current_events(database, ALL_TYPES)] == [("plane", 1)]
