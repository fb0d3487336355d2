"""A range of slices, a time, and whatever a source may look like."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import offsets
from journal import (
    Database,
    Event,
    SliceRange,
    append,
    slice_of,
)
from projections.testing import run_until_caught_up
from spark_projections.errors import NotRebuildable
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import execute, fetchval, happen, running, until
from tests.fixtures.rebuilds import (
    COUNTS,
    Counts,
    fence_passes,
    in_this_process,
    source_in,
    write,
)

__all__ = ["in_this_process"]

HALF = SliceRange(0, 511)


# A range of slices


async def test_a_range_of_slices_replaces_the_rows_of_its_sources_alone(journal: Database, dsn: str) -> None:
    inside, outside = source_in(0, 511), source_in(512, 1023)
    await happen(journal, inside, outside, inside, outside)
    await run_until_caught_up(journal, Counts, ranges=4)
    await execute(journal, "UPDATE counts SET n = 99")
    untouched = (
        "SELECT c.xmin::text || ' ' || o.xmin::text FROM counts AS c INNER JOIN projections.source_offsets AS o "
        "USING (source_id) WHERE source_id = $1"
    )
    before = await fetchval(journal, untouched, outside)
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Counts, RebuildOptions(slices=HALF, splits=1))

    assert (result.slices, result.events, result.rows) == (HALF, 2, {"counts": 1})
    assert await counts(journal) == {inside: 2, outside: 99}
    assert await fetchval(journal, untouched, outside) == before


@pytest.mark.slow
async def test_workers_go_on_after_a_range_of_slices_was_rebuilt(journal: Database, dsn: str) -> None:
    inside, outside = source_in(0, 511), source_in(512, 1023)
    await happen(journal, inside, outside)
    await run_until_caught_up(journal, Counts)
    await fence_passes(journal)
    await rebuild(journal, dsn, Counts, RebuildOptions(slices=HALF, splits=1))
    await happen(journal, inside, outside)

    await run_until_caught_up(journal, Counts)

    assert await counts(journal) == {inside: 2, outside: 2}


async def counts(database: Database) -> dict[str, int]:
    async with database.session() as session:
        rows = await session.fetch(f"SELECT source_id, n FROM {COUNTS}")
    return {row["source_id"]: row["n"] for row in rows}


@pytest.mark.slow
async def test_a_range_of_slices_is_rebuilt_under_load_with_nothing_lost_or_twice(
    journal: Database, dsn: str
) -> None:
    stop = asyncio.Event()

    async def append_on() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            await happen(journal, f"s{turn % 17}", f"t{turn % 11}")

    async with running(journal, Counts, ranges=3) as told:
        task = asyncio.create_task(append_on())
        for slices in (SliceRange(100, 700), SliceRange(0, 99), SliceRange(600, 1023)):
            await told.first("handled", len(told.names("handled")) + 3)
            await rebuild(journal, dsn, Counts, RebuildOptions(slices=slices, splits=2))
        stop.set()
        await task
        await until(journal, "SELECT sum(n) >= (SELECT count(*) FROM projections.events) FROM counts")

    wrong = """
    SELECT count(*) FROM (SELECT source_id, max(seq_nr) AS last FROM projections.events GROUP BY 1) AS e
    FULL JOIN counts AS c USING (source_id) WHERE (c.n, c.last) IS DISTINCT FROM (e.last, e.last)
    """
    assert await fetchval(journal, wrong) == 0


async def before_the_offsets(journal: Database) -> Any:
    """A time from before the oldest offset that is kept; two events of a source have been handled."""
    await write(journal, ("a", 0))
    then = await fetchval(journal, "SELECT max(db_timestamp) FROM projections.events")
    await write(journal, ("a", 0))
    await run_until_caught_up(journal, Counts)
    async with journal.session() as session:
        number = (await offsets.status(session, "counts")).projection_id
        await offsets.evict(session, number, timedelta(0))
    return then


@pytest.mark.slow
async def test_a_part_of_the_slices_as_of_a_time_of_which_offsets_are_gone_is_refused(
    journal: Database, dsn: str
) -> None:
    then = await before_the_offsets(journal)

    with pytest.raises(NotRebuildable, match=r"offsets up to .* are gone, which is after the fence"):
        await rebuild(
            journal, dsn, Counts, RebuildOptions(splits=1, until=then, slices=SliceRange(0, slice_of("a")))
        )

    assert await counts(journal) == {"a": 2}


@pytest.mark.slow
async def test_all_slices_are_rebuilt_as_of_a_time_of_which_offsets_are_gone(
    journal: Database, dsn: str
) -> None:
    then = await before_the_offsets(journal)

    await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, until=then))

    assert await counts(journal) == {"a": 1}
    await write(journal, ("b", 0))
    await run_until_caught_up(journal, Counts)
    assert await counts(journal) == {"a": 2, "b": 1}


# What a source or an event may look like


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
async def test_one_source_with_half_of_all_events_and_a_payload_of_5_mb(journal: Database, dsn: str) -> None:
    await write(journal, *[("hot", 0)] * 500, *((f"s{n}", 0) for n in range(500)))
    async with journal.transaction() as session:
        payload = {"n": 0, "text": "\U0001f600ü" * 700_000}
        await append(session, [Event("big", payload, "plane", event_type="Happened")])
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=8))

    assert (result.events, result.rows) == (1001, {"counts": 502})
    assert (await counts(journal))["hot"] == 500
    assert (await counts(journal))["big"] == 1


async def test_a_time_cuts_the_read_model_and_workers_handle_what_is_later(
    journal: Database, dsn: str
) -> None:
    await write(journal, ("a", 0), ("b", 0))
    until_then = await fetchval(journal, "SELECT max(db_timestamp) FROM projections.events")
    await write(journal, ("a", 0))

    result = await rebuild(journal, dsn, Counts, RebuildOptions(splits=1, until=until_then))
    as_of_then = await counts(journal)
    await run_until_caught_up(journal, Counts)

    assert (result.fence, as_of_then) == (until_then, {"a": 1, "b": 1})
    assert await counts(journal) == {"a": 2, "b": 1}
