"""Progress is stored on what is as it was left, or not at all; driven against the store itself."""

from __future__ import annotations

from datetime import timedelta

import pytest

import offsets
from journal import (
    ALL_SLICES,
    Database,
    DatabaseWentBack,
    EntityTypes,
    EventEnvelope,
    generation,
    read_source,
)
from offsets import Beats, OffsetOvertaken, OffsetStore, Progress, RangeLost, Registered, Worker
from tests.fixtures.projections import execute, fetchval, happen

LEASE = timedelta(seconds=10)
P = Registered("p", 1, EntityTypes(("plane",)))
_AT_SECOND = "SELECT count(*) FROM projections.source_offsets WHERE seq_nr = 2"
_STORED = "SELECT seq_nr FROM projections.source_offsets WHERE source_id = 'a'"


@pytest.fixture
def beats() -> Beats:
    return Beats()


@pytest.fixture
async def store(database: Database, beats: Beats) -> OffsetStore:
    """One that holds all slices, with events 1 to 3 of a source in the journal."""
    await happen(database, "a", "a", "a")
    worker = Worker("me", "host", 1)
    async with database.session() as session:
        number = await offsets.register(session, "p", "plane")
        await offsets.heartbeat(session, worker, LEASE, {number: P}, beats)
        (told,) = await offsets.heartbeat(session, worker, LEASE, {number: P}, beats)
        assert told.held[0].claim.slices == ALL_SLICES
        made = OffsetStore(told.held[0].claim, beats)
        made.generation = await generation(session)
    return made


async def events(database: Database) -> list[EventEnvelope]:
    async with database.session() as session:
        return [envelope async for envelope in read_source(session, "a")]


async def save(database: Database, store: OffsetStore, *batch: EventEnvelope, **previous: int) -> None:
    async with database.session() as session:
        await session.begin("ab")
        try:
            await store.save_in_tx(session, "ab", (store.claim.horizon, 0), batch, previous=previous)
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


async def test_the_newest_time_of_a_batch_is_kept_whichever_of_its_events_has_it(
    database: Database, store: OffsetStore
) -> None:
    first, second, _ = await events(database)
    later = first._replace(db_timestamp=second.db_timestamp + timedelta(hours=1))

    await save(database, store, later, second)

    kept = await fetchval(database, "SELECT handled_until FROM projections.projection_ranges")
    assert kept == later.db_timestamp


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

    assert [type(error) for _, error in refused] == [DatabaseWentBack]
    assert not released
    assert await fetchval(database, _STORED) == 1


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 4000])
async def test_a_batch_of_many_sources_is_stored_on_what_is_as_it_was_left_whether_there_are_others_or_not(
    database: Database, store: OffsetStore, others: int
) -> None:
    event = (await events(database))[1]
    last = {f"s{n:02}": event._replace(source_id=f"s{n:02}") for n in range(40)}
    await execute(
        database,
        "INSERT INTO projections.source_offsets SELECT $1, s.id, 0, 1, now() FROM unnest($2::text[]) AS s (id)",
        store.claim.projection_id,
        [*last, *(f"other{n}" for n in range(others))],
    )
    previous = dict.fromkeys(last, 1)

    async def saved() -> int:
        async with database.session() as session:
            await session.begin("ab")
            try:
                progress = (store.claim.horizon, 0)
                await store.save_in_tx(session, "ab", progress, [*last.values()], previous=previous)
                return int(await session.fetchval(_AT_SECOND))
            finally:
                await session.rollback()

    assert await saved() == len(last)
    await execute(database, "UPDATE projections.source_offsets SET seq_nr = 7 WHERE source_id = 's20'")
    with pytest.raises(OffsetOvertaken):
        await saved()
    await execute(database, "DELETE FROM projections.source_offsets WHERE source_id = 's20'")
    await execute(database, "UPDATE projections.projections SET evicted_before = now()")
    assert await saved() == len(last)


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
    worker, beats, known = Worker("me", "host", 1), Beats(), {store.claim.projection_id: P}
    told = []
    async with database.session() as session:
        beats.sent = beats.answered = 2
        await offsets.heartbeat(session, worker, LEASE, known, beats)
        told.append(beats.went_back)
        beats.answered -= 1
        await offsets.heartbeat(session, worker, LEASE, known, beats)
        told.append(beats.went_back)
        await execute(database, "UPDATE projections.workers SET beats = 1")
        await offsets.heartbeat(session, worker, LEASE, known, beats)
        told.append(beats.went_back)
        await offsets.heartbeat(session, worker, LEASE, known, beats)
        told.append(beats.went_back)

    assert told == [False, False, True, False]


@pytest.mark.parametrize(
    "change", ["UPDATE projections.workers SET beats = beats - 1", "DELETE FROM projections.workers"]
)
async def test_nothing_is_stored_until_a_worker_has_learnt_that_the_database_went_back(
    database: Database, store: OffsetStore, beats: Beats, change: str
) -> None:
    """The first heartbeat after it is carried out, and its answer is lost."""
    worker, known = Worker("me", "host", 1), {store.claim.projection_id: P}
    first, _, _ = await events(database)
    await execute(database, change)
    async with database.session() as session:
        unheard = Beats()
        unheard.sent, unheard.answered = beats.sent, beats.answered
        await offsets.heartbeat(session, worker, LEASE, known, unheard)

    with pytest.raises(DatabaseWentBack):
        await save(database, store, first)
    async with database.session() as session:
        await offsets.heartbeat(session, worker, LEASE, known, beats)

    assert beats.went_back


async def test_progress_that_is_known_to_be_worth_nothing_is_not_stored(
    database: Database, store: OffsetStore
) -> None:
    at = store.claim.horizon + timedelta(days=1)
    store.outdated = DatabaseWentBack("a heartbeat has shown it")

    async with database.session() as session:
        assert await offsets.save_horizons(session, store.claim.projection_id, [Progress(store, at, 0)]) == []
        assert not await store.release(session, at, 0)

    assert (
        await fetchval(database, "SELECT horizon FROM projections.projection_ranges") == store.claim.horizon
    )


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE projections.projection_ranges SET epoch = epoch + 1",
        "UPDATE projections.projection_ranges SET owner = NULL",
        "DELETE FROM projections.projection_ranges",
    ],
)
async def test_a_range_that_is_another_s_by_now_is_no_sign_that_the_database_went_back(
    database: Database, store: OffsetStore, change: str
) -> None:
    await execute(database, change)
    at = store.claim.horizon + timedelta(days=1)

    async with database.session() as session:
        refused = await offsets.save_horizons(session, store.claim.projection_id, [Progress(store, at, 0)])

    assert [type(error) for _, error in refused] == [RangeLost]
