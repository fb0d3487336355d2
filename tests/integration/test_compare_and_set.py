"""Progress is stored on what is as it was left, or not at all; driven against the store itself."""

from __future__ import annotations

from datetime import timedelta

import pytest

import offsets
from journal import ALL_SLICES, Database, EventEnvelope, generation, read_source
from offsets import Beats, DatabaseWentBack, OffsetOvertaken, OffsetStore, Progress, Worker
from tests.fixtures.projections import execute, fetchval, happen

LEASE = timedelta(seconds=10)
_STORED = "SELECT seq_nr FROM projections.source_offsets WHERE source_id = 'a'"


@pytest.fixture
async def store(database: Database) -> OffsetStore:
    """One that holds all slices, with events 1 to 3 of a source in the journal."""
    await happen(database, "a", "a", "a")
    worker, beats = Worker("me", "host", 1), Beats()
    async with database.session() as session:
        number = await offsets.register(session, "p", "plane")
        await offsets.heartbeat(session, worker, LEASE, {number: 1}, beats)
        await offsets.assign_ranges(session, number)
        (told,) = await offsets.heartbeat(session, worker, LEASE, {number: 1}, beats)
        assert told.held[0].claim.slices == ALL_SLICES
        made = OffsetStore(told.held[0].claim, beats)
        made.generation = await generation(session)
    return made


async def events(database: Database) -> list[EventEnvelope]:
    async with database.session() as session:
        return [envelope async for envelope in read_source(session, "a")]


async def save(database: Database, store: OffsetStore, event: EventEnvelope, **previous: int) -> None:
    async with database.session() as session:
        await session.begin("ab")
        try:
            await store.save_in_tx(
                session, "ab", (store.claim.horizon, 0), {"a": event}, 1, previous=previous
            )
            await session.commit()
            store.commits += 1
        finally:
            await session.rollback()


async def test_an_offset_moves_from_the_number_that_is_remembered_alone(
    database: Database, store: OffsetStore
) -> None:
    first, second, third = await events(database)
    await save(database, store, first)

    with pytest.raises(OffsetOvertaken):
        await save(database, store, third, a=2)
    with pytest.raises(OffsetOvertaken):
        await save(database, store, second)
    await save(database, store, second, a=1)

    assert await fetchval(database, _STORED) == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE projections.projection_ranges SET commits = commits - 1",
        "UPDATE projections.projection_ranges SET epoch = epoch - 1",
        "UPDATE projections.projection_ranges SET owner = 'another'",
        "UPDATE projections.workers SET beats = beats - 1",
        "DELETE FROM projections.workers",
    ],
)
async def test_nothing_is_stored_on_a_range_that_is_not_as_it_was_left(
    database: Database, store: OffsetStore, change: str
) -> None:
    first, second, _ = await events(database)
    await save(database, store, first)
    await execute(database, change)

    with pytest.raises(DatabaseWentBack):
        await save(database, store, second, a=1)
    async with database.session() as session:
        at = store.claim.horizon + timedelta(days=1)
        refused = await offsets.save_horizons(session, store.claim.projection_id, [Progress(store, at, 0)])
        released = await store.release(session, at, 0)

    assert len(refused) == 1
    assert not released
    assert await fetchval(database, _STORED) == 1


async def test_an_evicted_offset_is_made_again_and_one_that_is_only_gone_is_not(
    database: Database, store: OffsetStore
) -> None:
    first, second, third = await events(database)
    await save(database, store, first)
    await execute(database, "DELETE FROM projections.source_offsets")

    with pytest.raises(OffsetOvertaken):
        await save(database, store, second, a=1)
    await execute(database, "UPDATE projections.projections SET evicted_before = now()")
    await save(database, store, third, a=2)

    assert await fetchval(database, _STORED) == 3


async def test_a_heartbeat_tells_that_those_before_it_are_gone_and_not_that_an_answer_was(
    database: Database, store: OffsetStore
) -> None:
    worker, beats, versions = Worker("me", "host", 1), Beats(), {store.claim.projection_id: 1}
    async with database.session() as session:
        beats.sent = beats.answered = 2
        (same,) = await offsets.heartbeat(session, worker, LEASE, versions, beats)
        beats.answered -= 1
        (unanswered,) = await offsets.heartbeat(session, worker, LEASE, versions, beats)
        await execute(database, "UPDATE projections.workers SET beats = 1")
        (back,) = await offsets.heartbeat(session, worker, LEASE, versions, beats)

    assert [same.went_back, unanswered.went_back, back.went_back] == [False, False, True]
