"""The hand-over from the old read model to the new: nothing lost, nothing twice, and nothing that hangs on a table."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

import offsets
from journal import ConnectionSettings, Database, DatabaseError, Event, append, connect
from journal.importing import import_events
from projections.testing import run_until_caught_up
from spark_projections.errors import SwapRefused
from spark_projections.rebuilds import swapping
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.journal import pid
from tests.fixtures.projections import (
    NO_RETRY,
    Happened,
    caught_up,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    until,
    until_effects,
)
from tests.fixtures.rebuilds import (
    EXACT,
    ONE,
    Counts,
    Effects,
    Gate,
    Kept,
    differing,
    fence_passes,
    tied,
)

_LATEST = "SELECT max(db_timestamp) FROM projections.events"


async def number_of(database: Database, name: str) -> int:
    async with database.session() as session:
        return (await offsets.status(session, name)).projection_id


@pytest.mark.slow
async def test_workers_that_run_meanwhile_go_on_at_the_fence(journal: Database, dsn: str) -> None:
    await happen(journal, *(f"s{n % 9}" for n in range(60)))
    async with running(journal, Effects, ranges=3) as told:
        await until_effects(journal, 60)
        await fence_passes(journal)
        kept = Kept()
        gate = Gate(journal, dsn, Effects)
        result = await gate.at("swap", lambda: happen(journal, "s1", "s2", "new"), kept)
        await happen(journal, "s1", "s3", "newer")
        await until_effects(journal, 66)
        await until(journal, "SELECT count(*) = 3 FROM projections.projection_ranges WHERE owner IS NOT NULL")
        started_again = told.names("started")

    assert result.events == 60
    assert await differing(journal) == EXACT
    assert len(started_again) >= 6


@pytest.mark.slow
async def test_a_worker_that_has_written_the_old_table_goes_on_with_the_new(
    journal: Database, dsn: str
) -> None:
    async with running(journal, Counts, ranges=2) as told:
        await happen(journal, "a", "b")
        await until(journal, "SELECT sum(n) = 2 FROM counts")
        await fence_passes(journal)
        await rebuild(journal, dsn, Counts, ONE)
        await happen(journal, "a", "c")
        await until(journal, "SELECT sum(n) = 4 FROM counts")

    rows = 'SELECT array_agg(source_id || n || last ORDER BY source_id COLLATE "C") FROM counts'
    assert await fetchval(journal, rows) == ["a22", "b11", "c11"]
    assert told.names("parked", "skipped") == []


@pytest.mark.slow
async def test_appends_all_the_time_are_handled_once_and_in_order(journal: Database, dsn: str) -> None:
    stop = asyncio.Event()

    async def append_on() -> None:
        for turn in range(10**6):
            await happen(journal, f"s{turn % 7}", f"t{turn % 11}")
            if stop.is_set():
                return

    async with running(journal, Effects, ranges=4):
        task = asyncio.create_task(append_on())
        await until_effects(journal, 40)
        first = await rebuild(journal, dsn, Effects, ONE)
        await until(journal, "SELECT count(*) > $1 FROM effects", first.events + 20)
        second = await rebuild(journal, dsn, Effects, ONE)
        stop.set()
        await task
        events = await fetchval(journal, "SELECT count(*) FROM projections.events")
        await until_effects(journal, events)

    assert 0 < first.events < second.events <= events
    assert await differing(journal) == EXACT


async def test_an_append_from_before_the_fence_is_waited_for_and_named(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    kept = Kept()
    settings = ConnectionSettings(application_name="the slow importer")
    async with connect(dsn, settings) as slow, slow.session() as late:
        await late.begin()
        await append(late, [Event("late", Happened(), "plane")])
        await fence_passes(journal, await late.fetchval(_LATEST))
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
        waits = asyncio.create_task(kept.until_waiting())
        await asyncio.wait([task, waits], return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
        said, number = await waits, await pid(late)
        await happen(journal, "after")
        await late.commit()
        result = await task
    in_new_table = await fetchval(
        journal, 'SELECT array_agg(source_id ORDER BY source_id COLLATE "C") FROM effects'
    )
    await run_until_caught_up(journal, Effects)

    assert str(number) in said
    assert "the slow importer" in said
    assert set(in_new_table) >= {"late"}
    assert result.events == len(in_new_table)
    assert await differing(journal) == EXACT


@pytest.mark.slow
async def test_an_append_from_after_the_fence_is_not_named(
    journal: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journal.writers._TELL_EVERY", 0.2)
    kept = Kept()
    settings = ConnectionSettings(application_name="who came later")
    async with journal.session() as late, connect(dsn, settings) as pool, pool.session() as later:
        await late.begin()
        await append(late, [Event("late", Happened(), "plane")])
        task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
        await kept.until_waiting()
        await later.begin()
        await append(later, [Event("later", Happened(), "plane")])
        said, number = await kept.until_waiting(2), await pid(late)
        await late.commit()
        result = await task
        await later.commit()

    assert f"process {number} " in said
    assert "who came later" not in said
    assert result.events <= 1


@pytest.mark.slow
@pytest.mark.parametrize("prepared", ["before", "meanwhile"])
async def test_a_prepared_append_from_before_the_fence_is_waited_for(
    journal: Database, dsn: str, monkeypatch: pytest.MonkeyPatch, prepared: str
) -> None:
    monkeypatch.setattr("journal.writers._TELL_EVERY", 0.2)
    await happen(journal, "a")
    kept, name = Kept(), uuid4()
    late = await asyncpg.connect(dsn)
    await late.execute("BEGIN")
    await append(late, [Event("late", Happened(), "plane")])
    await fence_passes(journal, await late.fetchval(_LATEST))
    if prepared == "before":
        await late.execute(f"PREPARE TRANSACTION '{name}'")
    task = asyncio.create_task(rebuild(journal, dsn, Effects, ONE, progress=kept))
    await kept.until_waiting()
    if prepared == "meanwhile":
        await late.execute(f"PREPARE TRANSACTION '{name}'")
    said = await kept.until_waiting(2)
    await late.execute(f"COMMIT PREPARED '{name}'")
    await late.close()
    result = await task

    assert any("a prepared transaction" in text for text in [said, *kept.waited])
    assert result.events == 2
    assert await fetchval(journal, "SELECT count(*) FROM effects WHERE source_id = 'late'") == 1


@pytest.mark.slow
async def test_an_append_that_begins_after_the_fence_is_for_the_workers(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    async with journal.session() as late:

        async def begin_late() -> None:
            await late.begin()
            await append(late, [Event("late", Happened(), "plane")])
            await happen(journal, "a")

        result = await Gate(journal, dsn, Effects).at("fold", begin_late)
        await late.commit()
    await run_until_caught_up(journal, Effects)

    assert result.events == 1
    assert await differing(journal) == EXACT


@pytest.mark.daily(1)
@pytest.mark.parametrize("stage", ["fold", "combine", "verify", "swap"])
async def test_history_that_is_imported_meanwhile_is_handled_once(
    journal: Database, dsn: str, stage: str
) -> None:
    await happen(journal, "a", "b")
    async with running(journal, Effects, ranges=2):
        await until_effects(journal, 2)
        await fence_passes(journal)

        async def load() -> None:
            await import_events(
                journal, tied([("old", Happened()), ("old", Happened()), ("older", Happened())])
            )
            await until_effects(journal, 5)

        await Gate(journal, dsn, Effects).at(stage, load)
        await happen(journal, "a", "b")
        await until_effects(journal, 7)

    assert await differing(journal) == EXACT


@pytest.mark.slow
async def test_sources_that_were_parked_flow_again(journal: Database, dsn: str) -> None:
    broken = recording(failing(("b", 2)), "effects", recovery=NO_RETRY)
    await happen(journal, "a", "b", "b", "b")
    await caught_up(journal, broken)
    assert await fetchval(journal, "SELECT count(*) FROM projections.parked_sources") == 1
    await fence_passes(journal)

    await rebuild(journal, dsn, Effects, ONE)
    await happen(journal, "b")
    await run_until_caught_up(journal, Effects)

    assert await fetchval(journal, "SELECT count(*) FROM projections.parked_sources") == 0
    assert await differing(journal) == EXACT


@pytest.mark.slow
async def test_offsets_are_the_last_numbers_up_to_the_fence(journal: Database, dsn: str) -> None:
    await happen(journal, "a", "a", "b")
    await run_until_caught_up(journal, Effects)
    await fence_passes(journal)
    await happen(journal, "c")
    await fence_passes(journal)

    async def after_the_fence() -> None:
        await happen(journal, "a", "d")
        await run_until_caught_up(journal, Effects)

    result = await Gate(journal, dsn, Effects).at("swap", after_the_fence)

    found = """
    SELECT array_agg(o.source_id || o.seq_nr ORDER BY o.source_id COLLATE "C") FROM projections.source_offsets AS o
    """
    assert result.fence > datetime(2020, 1, 1, tzinfo=UTC)
    assert await fetchval(journal, found) == ["a2", "b1", "c1"]
    await run_until_caught_up(journal, Effects)
    assert await differing(journal) == EXACT


@pytest.mark.slow
async def test_offsets_are_not_evicted_while_a_rebuild_is_unfinished(journal: Database, dsn: str) -> None:
    await happen(journal, "a", "b")
    await run_until_caught_up(journal, Effects)
    await fence_passes(journal)
    offsets_left = "SELECT count(*) FROM projections.source_offsets"

    async def evict() -> int:
        async with journal.session() as session:
            await session.execute("UPDATE projections.projection_ranges SET horizon = clock_timestamp()")
            await offsets.evict(session, await number_of(journal, "effects"), timedelta(0))
        return int(await fetchval(journal, offsets_left))

    left: list[int] = []

    async def evict_between() -> None:
        left.append(await evict())

    await Gate(journal, dsn, Effects).at("swap", evict_between)

    assert left == [2]
    assert await fetchval(journal, offsets_left) == 2
    assert await evict() == 0


async def test_an_offset_that_was_set_past_the_fence_refuses_the_swap(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    await execute(journal, "INSERT INTO effects (source_id, seq_nr) VALUES ('what serves', 1)")

    async def skip_ahead() -> None:
        async with journal.session() as session:
            await offsets.set_offset(session, "effects", datetime(2100, 1, 1, tzinfo=UTC))

    with pytest.raises(SwapRefused, match="offset of the projection was set"):
        await Gate(journal, dsn, Effects).at("swap", skip_ahead)

    assert await fetchval(journal, "SELECT array_agg(source_id) FROM effects") == ["what serves"]


@pytest.mark.slow
async def test_rows_that_only_the_old_table_refers_to_can_be_deleted(journal: Database, dsn: str) -> None:
    await execute(journal, "CREATE TABLE kinds (kind text PRIMARY KEY)")
    await execute(journal, "INSERT INTO kinds VALUES ('a'), ('what serves')")
    await execute(journal, "ALTER TABLE counts ADD FOREIGN KEY (source_id) REFERENCES kinds")
    await execute(journal, "INSERT INTO counts (source_id) VALUES ('what serves')")
    await happen(journal, "a")
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Counts, ONE)
    await execute(journal, "DELETE FROM kinds WHERE kind = 'what serves'")

    assert await fetchval(journal, f"SELECT source_id FROM {result.old_schema}.counts") == "what serves"
    with pytest.raises(DatabaseError, match="counts_source_id_fkey"):
        await execute(journal, "DELETE FROM kinds")


async def test_a_process_that_is_frozen_before_its_commit_does_not_keep_the_tables(
    journal: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swapping, "_SILENCE", "50ms")
    frozen, goes_on = asyncio.Event(), asyncio.Event()
    async with journal.session() as session:
        commit = session.commit

        async def commit_late() -> None:
            frozen.set()
            await goes_on.wait()
            await commit()

        monkeypatch.setattr(session, "commit", commit_late)
        task = asyncio.create_task(swapping.try_with_lock(session, "LOCK TABLE counts"))
        await frozen.wait()
        assert await fetchval(journal, "SELECT count(*) FROM counts") == 0
        goes_on.set()
        with pytest.raises(DatabaseError):
            await task
