"""Moved offsets, ranges cut again, evictions and imports: everything stays exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import offsets
from journal import ConnectionSettings, Database, connect
from journal.events import HistoricEvent
from journal.importing import import_events
from projections import EventEnvelope, Session, run
from projections.testing import run_until_caught_up
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
    until_effects,
)

PAST = datetime(2020, 1, 1, tzinfo=UTC)
SOURCES = [f"s{number}" for number in range(40)]


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await execute(pool, EFFECTS)
        yield pool


async def cut(database: Database, ranges: int) -> None:
    async with database.session() as session:
        await offsets.rescale(session, "p", ranges)


def history(source_id: str, first: int, last: int, at: datetime = PAST) -> list[HistoricEvent]:
    return [
        HistoricEvent(source_id, Happened(n=n), "plane", seq_nr=n, db_timestamp=at + timedelta(seconds=n))
        for n in range(first, last + 1)
    ]


async def test_a_cleared_offset_handles_everything_again_while_running(journal: Database) -> None:
    async with running(journal, recording()):
        await happen(journal, "a", "b", "a")
        await until_effects(journal, 3)
        async with journal.transaction() as session:
            await session.execute("TRUNCATE effects")
            await offsets.clear_offset(session, "p")
        await until_effects(journal, 3)
        await happen(journal, "a")
        await until_effects(journal, 4)

    each_once(await effects(journal), a=3, b=1)


async def test_a_set_offset_starts_sources_in_the_middle_and_loads_nothing_before(journal: Database) -> None:
    async with running(journal, recording()):
        await happen(journal, "a", "b", "a")
        await until_effects(journal, 3)
        since = await fetchval(journal, "SELECT clock_timestamp()")
        await happen(journal, "a", "c")
        await until_effects(journal, 5)
        async with journal.transaction() as session:
            await session.execute("TRUNCATE effects")
            await offsets.set_offset(session, "p", since)
        await until_effects(journal, 2)
        await happen(journal, "b", "a")
        await until_effects(journal, 4)

    assert sorted(await effects(journal)) == [("a", 3), ("a", 4), ("b", 2), ("c", 1)]


@pytest.mark.slow
async def test_an_offset_in_the_future_passes_over_what_comes_before_it(journal: Database) -> None:
    await run_until_caught_up(journal, recording())
    later = await fetchval(journal, "SELECT clock_timestamp() + '300 ms'")
    async with journal.session() as session:
        await offsets.set_offset(session, "p", later)
    await happen(journal, "a")

    async with running(journal, recording()):
        await until(journal, "SELECT clock_timestamp() > $1", later)
        await happen(journal, "a")
        await until_effects(journal, 1)

    assert await effects(journal) == [("a", 2)]


@pytest.mark.slow
async def test_setting_the_offset_forgets_what_was_parked(journal: Database) -> None:
    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        raise RuntimeError

    await happen(journal, "a")
    async with running(journal, recording(fail)) as told:
        await told.first("parked")
    async with journal.session() as session:
        await offsets.clear_offset(session, "p")

    await run_until_caught_up(journal, recording())

    each_once(await effects(journal), a=1)


@pytest.mark.slow
async def test_ranges_are_cut_anew_between_runs_and_keep_everything_exactly_once(journal: Database) -> None:
    """1, 8, 3 ranges; part of the slices is far behind when 8 become 3."""
    await happen(journal, *SOURCES)
    await run_until_caught_up(journal, recording())
    await happen(journal, *SOURCES)
    entered = asyncio.Event()

    async def slow(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.slice < 512:
            entered.set()
            await asyncio.Event().wait()

    half = await fetchval(
        journal, "SELECT count(*) FROM unnest($1::text[]) s WHERE projections.slice_of_v1(s) >= 512", SOURCES
    )
    exact = settings(clock_margin=timedelta(0), save_horizon_every=timedelta(milliseconds=10))
    await cut(journal, 8)
    crashed = asyncio.create_task(run(journal, recording(slow), settings=exact))
    await entered.wait()
    await until_effects(journal, len(SOURCES) + half)
    newest = await fetchval(journal, "SELECT max(db_timestamp) FROM projections.events")
    await until(
        journal,
        "SELECT max(horizon) > $1::timestamptz + interval '100 ms' FROM projections.projection_ranges",
        newest,
    )
    crashed.cancel()
    await asyncio.gather(crashed, return_exceptions=True)

    await cut(journal, 3)

    await run(journal, recording(), settings=exact, until_caught_up=True)

    each_once(await effects(journal), **dict.fromkeys(SOURCES, 2))


@pytest.mark.slow
async def test_ranges_are_cut_anew_while_running(journal: Database) -> None:
    async with running(journal, recording(batch_size=7)):
        for ranges in (8, 3, 16, 1):
            await happen(journal, *SOURCES)
            await cut(journal, ranges)
            await happen(journal, *SOURCES)
        await until_effects(journal, 8 * len(SOURCES))

    each_once(await effects(journal), **dict.fromkeys(SOURCES, 8))


async def evict(database: Database) -> None:
    """Evict with no retention at all: whatever the horizon has passed goes."""
    async with database.session() as session:
        found = await offsets.status(session, "p")
        await offsets.evict(session, found.projection_id, timedelta(0))


async def until_settled(database: Database) -> None:
    """Wait until the stored horizon has passed every event."""
    newest = await fetchval(database, "SELECT max(db_timestamp) FROM projections.events")
    await until(database, "SELECT min(horizon) > $1 FROM projections.projection_ranges", newest)


@pytest.mark.slow
async def test_evicted_sources_go_on_where_they_were(journal: Database) -> None:
    for _ in range(3):
        await happen(journal, "a", "b", "a")
        async with running(journal, recording(), settings=settings(save_horizon_every=timedelta(0))):
            await until_settled(journal)
            await evict(journal)
        assert await fetchval(journal, "SELECT count(*) FROM projections.source_offsets") == 0

    await happen(journal, "a", "b")
    await run_until_caught_up(journal, recording())

    each_once(await effects(journal), a=7, b=4)


async def test_an_eviction_while_running_makes_nothing_look_unhandled(journal: Database) -> None:
    """The cache holds one source, so the others are looked up after their offsets have gone."""
    tight = settings(cache_size=1, save_horizon_every=timedelta(0))
    async with running(journal, recording(batch_size=1), settings=tight):
        for round_number in range(1, 4):
            await happen(journal, "a", "b", "c")
            await until_effects(journal, 3 * round_number)
            await until_settled(journal)
            await evict(journal)

    each_once(await effects(journal), a=3, b=3, c=3)


async def test_history_that_is_imported_while_running_is_handled_once(journal: Database) -> None:
    async with running(journal, recording(), ranges=3):
        await happen(journal, "new", "other")
        await until_effects(journal, 2)
        await import_events(journal, history("old", 1, 5), chunk=2)
        await import_events(journal, history("older", 1, 3, PAST - timedelta(days=100)))
        await until_effects(journal, 10)
        await happen(journal, "old", "new")
        await until_effects(journal, 12)

    each_once(await effects(journal), new=2, other=1, old=6, older=3)


@pytest.mark.slow
async def test_history_that_is_imported_while_nothing_runs_is_handled_once(journal: Database) -> None:
    await happen(journal, "new")
    await run_until_caught_up(journal, recording())
    await import_events(journal, history("old", 1, 5))

    await run_until_caught_up(journal, recording())
    await run_until_caught_up(journal, recording())

    each_once(await effects(journal), new=1, old=5)


async def test_an_eviction_before_an_import_was_read_does_not_lose_it(journal: Database) -> None:
    await happen(journal, "new")
    await run_until_caught_up(journal, recording())
    await import_events(journal, history("old", 1, 5))
    await evict(journal)

    await run_until_caught_up(journal, recording())

    each_once(await effects(journal), new=1, old=5)


async def test_a_gap_in_what_was_handled_is_filled_in_order(journal: Database) -> None:
    """The stored offset of one source is behind the horizon: its next event brings those that are missing."""
    await happen(journal, "a", "a", "b", "a")
    await run_until_caught_up(journal, recording())
    await execute(journal, "UPDATE projections.source_offsets SET seq_nr = 1 WHERE source_id = 'a'")
    await execute(journal, "TRUNCATE effects")
    await happen(journal, "a")

    await run_until_caught_up(journal, recording(batch_size=2))

    assert await effects(journal) == [("a", 2), ("a", 3), ("a", 4)]


async def test_a_restore_sets_no_source_back_whose_offset_was_evicted(journal: Database) -> None:
    await happen(journal, *["a"] * 5)
    await run_until_caught_up(journal, recording())
    await execute(journal, "DELETE FROM projections.source_offsets")
    await execute(journal, "UPDATE projections.projections SET evicted_before = clock_timestamp()")

    await execute(
        journal,
        "SELECT projections._pass_restored_v1(1, '{[0,1024)}', e.db_timestamp, ARRAY[e.source_id], ARRAY[e.slice], "
        "ARRAY[e.seq_nr], ARRAY[e.db_timestamp]) FROM projections.events AS e WHERE e.seq_nr = 3",
    )
    await happen(journal, "a")
    await run_until_caught_up(journal, recording())

    each_once(await effects(journal), a=6)


@pytest.mark.slow
async def test_an_event_that_its_source_is_parked_at_is_not_handled_however_old_it_is(
    journal: Database,
) -> None:
    async def fail(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        if envelope.source_id == "a":
            raise RuntimeError

    await happen(journal, "a", "b", "a")
    async with running(journal, recording(fail)) as told:
        await told.first("parked")
        await until(journal, "SELECT count(*) = 1 FROM projections.source_offsets")
    await execute(journal, "DELETE FROM projections.source_offsets")
    await execute(journal, "UPDATE projections.projections SET evicted_before = clock_timestamp()")

    handled = "SELECT array_agg(h) FROM projections._handled_v1('{p,p,p}', '{a,a,b}', '{1,2,1}', $1) AS h"
    times = "SELECT array_agg(db_timestamp ORDER BY source_id, seq_nr) FROM projections.events"

    assert await fetchval(journal, handled, await fetchval(journal, times)) == [3]
