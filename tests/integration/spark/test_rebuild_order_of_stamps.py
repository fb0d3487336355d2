"""Rebuilds where stamps of a source run against its numbers: each event is on one side of the fence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest

import offsets
from journal import Database, Log, connect
from journal.backtracking import CLOCK_MARGIN
from journal.foreign import table_log
from spark_projections.rebuilds import folding
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.foreign_tables import MAPPINGS, Theirs, add, counts, read_side, theirs
from tests.fixtures.projections import caught_up, execute, fetchval, until
from tests.fixtures.rebuilds import ONE, Counts, in_this_process

__all__ = ["in_this_process", "read_side", "theirs"]


@pytest.fixture
async def log(theirs: Theirs) -> AsyncIterator[Log]:
    async with connect(theirs.database.dsn, FOREIGN["asyncpg"]) as database:
        yield await table_log(database, MAPPINGS["transaction-start"], name="theirs")


@asynccontextmanager
async def fence_between_stamps(theirs: Theirs, *before: str) -> AsyncIterator[asyncpg.Connection]:
    """
    Have event 2 of source s begin before event 1, and what is still open between the two hold the fence there.

    Yields:
        The session that is open.
    """
    async with theirs.connection() as early, theirs.connection() as between:
        await theirs.write(*before)
        begun = early.transaction()
        await begun.start()
        margin = CLOCK_MARGIN + timedelta(milliseconds=2)
        begun_at = await early.fetchval("SELECT now()")
        await until(theirs.database, "SELECT clock_timestamp() > $1::timestamptz", begun_at + margin)
        async with between.transaction():
            await between.fetchval("SELECT now()")
            await theirs.write("s")
            await add(early, "s")
            await begun.commit()
            await theirs.settled()
            yield between


async def test_what_a_fence_cuts_is_folded_up_to_the_last_event_before_it(
    theirs: Theirs, log: Log, read_side: Database, in_this_process: None
) -> None:
    async with fence_between_stamps(theirs, "a", "a"):
        result = await rebuild(read_side, read_side.dsn, Counts, ONE, journal=log)
    assert result.events == 4
    await caught_up(read_side, Counts, journal=log)
    assert await counts(read_side) == {"a": (2, 2), "s": (2, 2)}
    await theirs.write("s", "a")
    await caught_up(read_side, Counts, journal=log)
    assert await counts(read_side) == {"a": (3, 3), "s": (3, 3)}


@pytest.mark.slow
async def test_an_offset_that_is_older_than_what_is_read_again_is_kept(
    theirs: Theirs, log: Log, read_side: Database, in_this_process: None
) -> None:
    """The projection has begun between the two stamps, before the fence."""
    await theirs.write("a")
    await caught_up(read_side, Counts, journal=log)
    async with fence_between_stamps(theirs) as between:
        async with read_side.session() as session:
            start = await between.fetchval(
                "SELECT now() - $1::interval", CLOCK_MARGIN + timedelta(milliseconds=1)
            )
            await offsets.set_offset(session, "counts", start)
        await execute(read_side, "DELETE FROM counts")
        await rebuild(read_side, read_side.dsn, Counts, ONE, journal=log)
    await caught_up(read_side, Counts, journal=log)
    await theirs.write("s", "a")
    await caught_up(read_side, Counts, journal=log)
    assert await counts(read_side) == {"a": (2, 2), "s": (3, 3)}


@pytest.mark.slow
async def test_the_offset_of_a_source_that_is_folded_in_pages_has_the_time_of_its_last_event(
    theirs: Theirs, log: Log, read_side: Database, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By it a journal that has lost the event is told from one that has it."""
    async with fence_between_stamps(theirs, "a"):
        pass
    monkeypatch.setattr(folding, "_BATCH", 1)
    await rebuild(read_side, read_side.dsn, Counts, ONE, journal=log)
    stored = await fetchval(
        read_side, "SELECT db_timestamp FROM projections.source_offsets WHERE source_id = 's'"
    )
    assert stored == await fetchval(theirs.database, "SELECT at FROM log WHERE source = 's' AND number = 2")
