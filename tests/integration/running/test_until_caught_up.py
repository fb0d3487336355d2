"""A run that ends when all is handled ends when the database says so: nothing that it remembers may be lost with it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from journal import Database, DatabaseUnavailable, Session, slice_of
from journal.events import HistoricEvent
from journal.importing import import_events
from offsets import OffsetStore
from projections import EventEnvelope
from tests.fixtures.journal import PAST
from tests.fixtures.projections import Happened, caught_up, effects, execute, fetchval, recording, until

HORIZONS = "SELECT array_agg(horizon ORDER BY min_slice) FROM projections.projection_ranges"
SOURCES = [f"s{n}" for n in range(40)]  # in both halves of the slices


@pytest.fixture
async def history(database: Database) -> datetime:
    """Events of 2020 in both of two ranges, imported now."""
    await execute(
        database,
        "CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, source_id text, seq_nr bigint)",
    )
    events = [
        HistoricEvent(source_id, Happened(), "plane", seq_nr=1, db_timestamp=PAST) for source_id in SOURCES
    ]
    await import_events(database, events)
    return datetime.fromisoformat(str(await fetchval(database, "SELECT clock_timestamp()")))


async def behind(database: Database, imported_at: datetime) -> list[datetime]:
    horizons: list[datetime] = await fetchval(database, HORIZONS)
    return [horizon for horizon in horizons if horizon < imported_at]


async def test_a_range_that_could_not_be_released_is_stored_where_it_stood(
    database: Database, history: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, failed = OffsetStore.release, list[str]()

    async def fail_once(store: OffsetStore, *args: Any) -> bool:
        if not failed:
            failed.append(str(store.claim.slices))
            raise DatabaseUnavailable("the connection was lost")
        return await release(store, *args)

    monkeypatch.setattr(OffsetStore, "release", fail_once)

    await caught_up(database, recording(), ranges=2)

    assert len(failed) == 1
    assert len(await effects(database)) == 40
    assert await behind(database, history) == []


async def test_a_range_that_was_lost_and_is_held_by_nobody_here_is_waited_for(
    database: Database, history: datetime
) -> None:
    lost = list[int]()

    async def lose_the_range(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        """Its epoch moves on, as when another has claimed it and gone; the other range catches up meanwhile."""
        if envelope.slice < 512 or lost:
            return
        lost.append(envelope.slice)
        await until(
            database,
            "SELECT count(*) = $1 FROM effects",
            sum(slice_ < 512 for slice_ in map(slice_of, SOURCES)),
        )
        await execute(
            database, "UPDATE projections.projection_ranges SET epoch = epoch + 1 WHERE min_slice = 512"
        )

    await caught_up(database, recording(lose_the_range), ranges=2)

    assert lost
    assert len(await effects(database)) == 40
    assert await behind(database, history) == []


async def test_all_ranges_are_stored_before_the_run_ends(
    database: Database, history: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, stored = OffsetStore.release, list[list[datetime]]()

    async def look_first(store: OffsetStore, *args: Any) -> bool:
        stored.append(await behind(database, history))
        return await release(store, *args)

    monkeypatch.setattr(OffsetStore, "release", look_first)

    await caught_up(database, recording(), ranges=4)

    assert stored == [[]] * 4
