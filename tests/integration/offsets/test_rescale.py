"""The slices are cut again while workers run and events come: each event once, in order, and progress is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import offsets
from journal import ConnectionSettings, Database, NotFound, SliceRange, connect
from offsets import OffsetStore
from projections.running.ranges import Ranges
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    until,
    until_effects,
)

SOURCES = [f"s{number}" for number in range(40)]
RANGES = "projections.projection_ranges"
# A worker more than there are ranges has none.
ALL_OWNED = f"SELECT count(*) = count(owner) AND count(DISTINCT owner) = least($1, count(*)) FROM {RANGES}"


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn) as pool:
        await execute(pool, EFFECTS)
        yield pool


@asynccontextmanager
async def workers(dsn: str, number: int, connections: int = 10) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(number):
            settings = ConnectionSettings(max_connections=connections)
            pool = await stack.enter_async_context(connect(dsn, settings))
            await stack.enter_async_context(running(pool, recording(batch_size=7), ranges=4))
        yield


async def rescale(database: Database, ranges: int) -> None:
    async with database.session() as session:
        await offsets.rescale(session, "p", ranges)


async def appended(database: Database, times: int) -> None:
    for turn in range(times):
        await happen(database, *SOURCES[turn % 3 :: 3])


async def counted(database: Database) -> dict[str, int]:
    """How many events each source has."""
    async with database.session() as session:
        rows = await session.fetch("SELECT source_id, seq_nr FROM projections.sources")
    return {row["source_id"]: row["seq_nr"] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "connections"), [(2, 10), pytest.param(3, 5, marks=pytest.mark.slow)])
async def test_cutting_anew_again_and_again_while_events_come_keeps_each_once_and_in_order(
    journal: Database, dsn: str, processes: int, connections: int
) -> None:
    """With five connections two are left for the ranges, which take turns."""
    async with workers(dsn, processes, connections):
        appending = asyncio.create_task(appended(journal, 120))
        for ranges in [1, 8, 3, 64, 1, 7, 100, 2, 5]:
            await rescale(journal, ranges)
            handled = len(await effects(journal))
            await happen(journal, *SOURCES)
            await until_effects(journal, handled + 5)
        await appending
        await until(
            journal, "SELECT (SELECT count(*) FROM effects) = (SELECT count(*) FROM projections.events)"
        )

    each_once(await effects(journal), **await counted(journal))


@pytest.mark.slow
async def test_a_range_for_every_slice_is_possible(journal: Database, dsn: str) -> None:
    async with workers(dsn, 2, 5):
        await happen(journal, *SOURCES)
        await rescale(journal, 1024)
        await happen(journal, *SOURCES)
        await until_effects(journal, 80)
        await rescale(journal, 1)
        await rescale(journal, 7)
        await happen(journal, *SOURCES)
        await until_effects(journal, 120)

    each_once(await effects(journal), **await counted(journal))


@pytest.mark.slow
async def test_rescales_one_upon_the_other_are_safe(journal: Database, dsn: str) -> None:
    """Several at once, none of which waits for the workers; any of them may be the last."""
    cuts = [1, 8, 3, 16, 2, 9]
    async with workers(dsn, 2):
        appending = asyncio.create_task(appended(journal, 30))
        await asyncio.gather(*(rescale(journal, ranges) for ranges in cuts))
        await appending
        assert await fetchval(journal, f"SELECT count(*) FROM {RANGES}") in cuts
        await until(journal, ALL_OWNED, 2)
        await until(
            journal, "SELECT (SELECT count(*) FROM effects) = (SELECT count(*) FROM projections.events)"
        )

    each_once(await effects(journal), **await counted(journal))


async def test_a_rescale_that_overtakes_a_release_is_no_warning(
    journal: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No heartbeat is answered meanwhile: one would say that the range is gone before the release does."""
    release, beat, keep = OffsetStore.release, offsets.heartbeat, Ranges._keep
    answered, overtaken = asyncio.Event(), list[SliceRange]()
    answered.set()

    async def rescale_first(store: OffsetStore, *arguments: Any) -> bool:
        if not overtaken:
            overtaken.append(store.claim.slices)
            answered.clear()
            await rescale(journal, 2)
        return await release(store, *arguments)

    async def late(*arguments: Any, leaving: bool) -> Any:
        told = await beat(*arguments, leaving=leaving)
        await answered.wait()
        return told

    async def keeping(self: Ranges, *arguments: Any) -> None:
        await keep(self, *arguments)
        answered.set()

    monkeypatch.setattr(offsets, "heartbeat", late)
    monkeypatch.setattr(Ranges, "_keep", keeping)
    caplog.set_level("INFO", logger="projections")
    monkeypatch.setattr(OffsetStore, "release", rescale_first)
    await happen(journal, "a")

    await caught_up(journal, recording())

    told = [(record.levelname, record.action) for record in caplog.records if "given back" in record.message]  # type: ignore[attr-defined]
    assert told == [("INFO", "release_overtaken")]
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []


async def test_progress_is_kept_when_ranges_split_and_merge(journal: Database) -> None:
    await happen(journal, *SOURCES)
    await caught_up(journal, recording(), ranges=4)
    horizon = await fetchval(journal, f"SELECT min(horizon) FROM {RANGES}")

    for ranges in [8, 3, 1, 1024, 7]:
        await rescale(journal, ranges)
        kept = await fetchval(
            journal, f"SELECT min(horizon) >= $1 AND sum(handled) = 40 FROM {RANGES}", horizon
        )
        assert kept
    told = await caught_up(journal, recording())

    assert told.all("handled") == []
    assert len(await effects(journal)) == 40


@pytest.mark.slow
async def test_the_workers_share_what_was_cut_evenly(journal: Database, dsn: str) -> None:
    async with workers(dsn, 3):
        for ranges in [3, 64, 10, 1]:
            await rescale(journal, ranges)
            await until(journal, ALL_OWNED, 3)
            async with journal.session() as session:
                shares = [worker.ranges for worker in await offsets.workers(session)]
            assert sum(shares) == ranges
            assert max(shares) - min(shares) <= 1


@pytest.mark.daily(1)
@pytest.mark.parametrize("ranges", [0, -1, 1025])
async def test_an_impossible_number_is_refused(journal: Database, ranges: int) -> None:
    await caught_up(journal, recording(), ranges=3)

    with pytest.raises(ValueError, match="1 to 1024"):
        await rescale(journal, ranges)

    assert await fetchval(journal, f"SELECT count(*) FROM {RANGES}") == 3


async def test_an_unknown_projection_is_named(journal: Database) -> None:
    with pytest.raises(NotFound, match="no projection 'p'"):
        await rescale(journal, 3)
