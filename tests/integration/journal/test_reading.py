"""Reading a real journal: a source, an event, a range of slices up to now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from journal import (
    Database,
    Position,
    SliceRange,
    SliceReader,
    append,
    current_events,
    find_event,
    latest_seq_nr,
    read_source,
    slice_of,
    slice_ranges,
)
from tests.fixtures.reading import KIND, event, now, write


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def test_a_quarter_of_the_slices_has_a_quarter_of_the_sources(
    database: Database, writer: asyncpg.Connection
) -> None:
    sources = [f"s{i}" for i in range(200)]
    await write(writer, *sources)

    for slices in slice_ranges(4):
        expected = {s for s in sources if slice_of(s) in slices}
        assert {e.source_id async for e in current_events(database, KIND, slices)} == expected


async def test_current_events_are_in_the_order_of_time_and_end(
    database: Database, writer: asyncpg.Connection
) -> None:
    for n in range(5):
        await write(writer, *(f"s{(n + i) % 300}" for i in range(500)))

    found = [e async for e in current_events(database, KIND)]

    assert len(found) == 2500
    assert [e.position for e in found] == sorted(e.position for e in found)


async def test_current_events_begin_at_a_time(database: Database, writer: asyncpg.Connection) -> None:
    await write(writer, "a")
    start = await now(writer)
    await write(writer, "a", "b")

    found = [(e.source_id, e.seq_nr) async for e in current_events(database, KIND, start=start)]

    assert sorted(found) == [("a", 2), ("b", 1)]


async def test_current_events_of_another_kind_are_not_there(
    database: Database, writer: asyncpg.Connection
) -> None:
    await write(writer, "a")

    assert [e async for e in current_events(database, "other")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(1, 2501)),
        ({"backwards": True}, range(2500, 0, -1)),
        ({"first": 700, "last": 1900}, range(700, 1901)),
        ({"first": 700, "last": 1900, "backwards": True}, range(1900, 699, -1)),
        ({"first": 2600}, range(0)),
        ({"first": 5, "last": 4}, range(0)),
    ],
)
async def test_a_source_is_read_forwards_and_backwards_over_pages(
    database: Database, writer: asyncpg.Connection, options: dict[str, Any], expected: range
) -> None:
    await write(writer, *["a"] * 2500, "b")

    async with database.session() as session:
        found = [e.seq_nr async for e in read_source(session, "a", **options)]

    assert found == list(expected)


async def test_an_unknown_source_has_no_events(database: Database) -> None:
    async with database.session() as session:
        assert [e async for e in read_source(session, "nobody")] == []
        assert await latest_seq_nr(session, "nobody") == 0


async def test_the_latest_number_is_that_of_the_last_event(
    database: Database, writer: asyncpg.Connection
) -> None:
    await write(writer, "a", "a", "a")

    async with database.session() as session:
        assert await latest_seq_nr(session, "a") == 3


async def test_an_event_is_found_by_its_id(database: Database, writer: asyncpg.Connection) -> None:
    random_id = uuid4()
    appended = await append(writer, [event("a", {"n": 1}), event("a", {"n": 2}, random_id)])

    async with database.session() as session:
        by_time = await find_event(session, appended[0].event_id)
        at_random = await find_event(session, random_id)
        unknown = await find_event(session, uuid4())

    assert by_time is not None
    assert (by_time.seq_nr, by_time.payload) == (1, {"n": 1})
    assert at_random is not None
    assert (at_random.seq_nr, at_random.payload) == (2, {"n": 2})
    assert unknown is None


async def test_a_page_holds_no_more_than_its_size_and_starts_after_its_place(
    database: Database, writer: asyncpg.Connection
) -> None:
    await write(writer, *(f"s{i}" for i in range(10)))
    reader = SliceReader(KIND, SliceRange(0, 1023), page_size=4)
    until = await now(writer)

    async with database.session() as session:
        events, keys = [], []
        for _ in range(3):
            after = events[-1].position if events else Position.before(until - timedelta(hours=1))
            keys += await reader.keys(session, after, until)
            events += await reader.events(session, after, until)

    assert len({e.source_id for e in events}) == 10
    assert [key.position for key in keys] == [e.position for e in events]
