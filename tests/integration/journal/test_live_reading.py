"""Reading a real journal for ever: what becomes visible late, step by step on several connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from journal import (
    Database,
    EntityTypes,
    IntervalBacktracking,
    Origin,
    SliceRange,
    WritersPoller,
    append,
    current_events,
    slice_of,
)
from journal.events import HistoricEvent
from journal.importing import import_events
from journal.reader import PAGE_SIZE
from tests.fixtures.reading import KIND, event, insert_at, live, now, write


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


async def test_new_events_come_as_they_are_committed(database: Database, writer: asyncpg.Connection) -> None:
    async with live(database) as reader:
        await write(writer, "a", "b", "a")

        assert sorted(await reader.keys(3)) == [("a", 1), ("a", 2), ("b", 1)]


async def test_events_before_the_start_are_left_out(database: Database, writer: asyncpg.Connection) -> None:
    await write(writer, "a", "b")
    async with live(database) as reader:
        await write(writer, "a")

        assert await reader.keys() == [("a", 2)]


async def test_a_late_commit_is_delivered_once(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    async with live(database) as reader:
        transaction = slow.transaction()
        await transaction.start()
        await write(slow, "late")
        await write(writer, "a", "b")
        assert sorted(await reader.keys(2)) == [("a", 1), ("b", 1)]
        await transaction.commit()

        (late,) = await reader.take()
        assert (late.source_id, late.origin) == ("late", Origin.BACKTRACKING)
        await write(writer, "after")
        assert await reader.keys() == [("after", 1)]


@pytest.mark.slow
async def test_a_transaction_that_is_open_for_many_pages_is_waited_for(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    async with live(database) as reader:
        transaction = slow.transaction()
        await transaction.start()
        await write(slow, "late", "late")
        for n in range(5):
            await write(writer, *(f"s{n}-{i}" for i in range(PAGE_SIZE // 2)))
            await reader.take(PAGE_SIZE // 2)
        await transaction.commit()

        assert await reader.keys(2) == [("late", 1), ("late", 2)]


async def test_an_aborted_transaction_leaves_nothing_behind(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    async with live(database) as reader:
        transaction = slow.transaction()
        await transaction.start()
        await write(slow, "a")
        await write(writer, "b")
        assert await reader.keys() == [("b", 1)]
        await transaction.rollback()
        await write(writer, "a")

        assert await reader.keys() == [("a", 1)]


async def test_events_of_a_savepoint_are_delivered_or_gone_with_it(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    async with live(database) as reader:
        transaction = slow.transaction()
        await transaction.start()
        with suppress(ZeroDivisionError):
            async with slow.transaction():
                await write(slow, "gone")
                raise ZeroDivisionError
        async with slow.transaction():
            await write(slow, "kept")
        await write(writer, "b")
        assert await reader.keys() == [("b", 1)]
        await transaction.commit()

        assert await reader.keys() == [("kept", 1)]


async def test_a_prepared_transaction_is_waited_for(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    if await writer.fetchval("SHOW max_prepared_transactions") == "0":
        pytest.skip("the server allows no prepared transactions")
    name = f"late-{uuid4()}"
    async with live(database) as reader:
        await slow.execute("BEGIN")
        await append(slow, [event("late")])
        await write(writer, "a")
        assert await reader.keys() == [("a", 1)]
        await slow.execute(f"PREPARE TRANSACTION '{name}'")
        await write(writer, "a")
        assert await reader.keys() == [("a", 2)]
        await write(writer, "a")
        assert await reader.keys() == [("a", 3)]
        await writer.execute(f"COMMIT PREPARED '{name}'")

        assert await reader.keys() == [("late", 1)]


async def test_a_source_that_another_transaction_holds_goes_on_in_order(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    async with live(database) as reader:
        transaction = slow.transaction()
        await transaction.start()
        await write(slow, "a")
        waiting = asyncio.create_task(write(writer, "a", "b"))
        await transaction.commit()
        await waiting

        found = await reader.keys(3)
        assert [key for key in found if key[0] == "a"] == [("a", 1), ("a", 2)]


async def test_a_clock_behind_the_last_timestamp_keeps_the_order(
    database: Database, writer: asyncpg.Connection
) -> None:
    await write(writer, "a")
    ahead = await now(writer) + timedelta(seconds=1)
    await writer.execute("UPDATE projections.sources SET db_timestamp = $1", ahead)
    async with live(database) as reader:
        await write(writer, "a", "b", "a")

        found = sorted(await reader.take(3), key=lambda e: (e.source_id, e.seq_nr))
        assert [(e.source_id, e.seq_nr) for e in found] == [("a", 2), ("a", 3), ("b", 1)]
        assert ahead < found[0].db_timestamp < found[1].db_timestamp
        assert found[2].db_timestamp < ahead


@pytest.mark.slow
async def test_more_equal_timestamps_than_a_page_holds_are_all_read(
    database: Database, writer: asyncpg.Connection
) -> None:
    at = await now(writer)
    sources = {f"s{i}" for i in range(2 * PAGE_SIZE + 500)}
    async with writer.transaction():
        await insert_at(writer, at, sorted(sources))

    found = [e.source_id async for e in current_events(database, KIND)]
    assert len(found) == len(sources)
    assert set(found) == sources
    async with live(database, start=at) as reader:
        assert {e.source_id for e in await reader.take(len(sources))} == sources


@pytest.mark.slow
async def test_a_late_commit_among_more_equal_timestamps_than_a_page_holds(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    at = await now(writer)
    sources = [f"s{i:05}" for i in range(2 * PAGE_SIZE + 500)]
    async with live(database, start=at) as reader:
        transaction = slow.transaction()
        await transaction.start()
        await insert_at(slow, at, ["late-1", "late-2"])
        async with writer.transaction():
            await insert_at(writer, at, sources)
        assert len({e.source_id for e in await reader.take(len(sources))}) == len(sources)
        await transaction.commit()

        assert sorted(await reader.keys(2)) == [("late-1", 1), ("late-2", 1)]


async def test_a_live_reader_of_a_range_sees_that_range_alone(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    slices = SliceRange(256, 511)
    mine = [f"s{i}" for i in range(400) if slice_of(f"s{i}") in slices]
    others = [f"s{i}" for i in range(400) if slice_of(f"s{i}") not in slices]
    async with live(database, slices=slices) as reader:
        transaction = slow.transaction()
        await transaction.start()
        await write(slow, mine[0], others[0])
        await write(writer, *others[1:], *mine[1:])
        assert {s for s, _ in await reader.keys(len(mine) - 1)} == set(mine[1:])
        await transaction.commit()

        assert await reader.keys() == [(mine[0], 1)]


@pytest.mark.slow
async def test_interval_backtracking_delivers_a_commit_within_its_time(
    database: Database, writer: asyncpg.Connection, slow: asyncpg.Connection
) -> None:
    def soon(start: datetime) -> IntervalBacktracking:
        return IntervalBacktracking(
            start,
            behind=timedelta(0),
            late_by=timedelta(seconds=1),
            every=timedelta(milliseconds=50),
        )

    async with live(database, backtracking=soon) as reader:
        transaction = slow.transaction()
        await transaction.start()
        await write(slow, "late")
        await write(writer, "a")
        assert await reader.keys() == [("a", 1)]
        await transaction.commit()

        assert await reader.keys() == [("late", 1)]


async def test_history_that_is_imported_comes_as_late_events(
    database: Database, writer: asyncpg.Connection
) -> None:
    start = await now(writer) - timedelta(seconds=30)
    history = [
        HistoricEvent("old", {}, KIND, "happened", seq_nr=n, db_timestamp=start + timedelta(seconds=n))
        for n in (1, 2)
    ]
    async with live(database, start=start) as reader:
        await write(writer, "a")
        assert await reader.keys() == [("a", 1)]
        await import_events(database, history)
        await write(writer, "old")

        assert await reader.keys(3) == [("old", 1), ("old", 2), ("old", 3)]


async def test_a_range_that_joins_a_poller_learns_of_the_imports_that_it_alone_has_not_seen(
    database: Database, writer: asyncpg.Connection
) -> None:
    at = await now(writer) - timedelta(seconds=30)
    await import_events(database, [HistoricEvent("old", {}, KIND, "happened", seq_nr=1, db_timestamp=at)])
    poller = WritersPoller(database)
    first = await poller.look("a range", EntityTypes((KIND,)), at, after=0, import_id=1)

    joined = await poller.look("another", EntityTypes((KIND,)), at, after=0, import_id=0)

    assert first.poll.imports == {}
    assert joined.poll.imports == {1: at}
    assert joined.number > first.number
