"""Rebuilds whose journal is in another database: nothing is missed between what they read and what workers read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal import (
    Database,
    Event,
    HistoricEvent,
    IntervalBacktracking,
    Log,
    OwnedSession,
    append,
    connect,
    import_events,
)
from offsets import WrongJournal
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds import rebuilding
from spark_projections.rebuilds.bookkeeping import Rebuild
from spark_projections.rebuilds.journal import RebuiltFrom
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import _Run, rebuild
from tests.fixtures.failover import Server
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.hot_standby import hot_standby
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import (
    Happened,
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    running,
    until_effects,
)
from tests.fixtures.rebuilds import (
    ONE,
    AllKinds,
    Changed,
    Counts,
    Effects,
    Kept,
    append_changes,
    fence_passes,
    held,
    in_this_process,
    make_read_models,
    plain_fold,
    schemas,
    state_of,
    tables_of_all_kinds,
    until_held_up,
)

__all__ = ["in_this_process"]


@pytest.fixture
async def read_side(databases: Databases, template: str) -> AsyncIterator[Database]:
    """A database with the read models of :mod:`tests.fixtures.rebuilds`, and an empty journal of its own."""
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            await make_read_models(database)
            yield database


@pytest.mark.slow
async def test_a_rebuild_beside_workers_that_read_a_standby_reads_its_primary(
    base_cluster: Server, databases: Databases, template: str
) -> None:
    async with hot_standby(base_cluster, databases, template) as servers:
        read_side = servers.read_side
        await execute(read_side, "DROP TABLE effects")
        await make_read_models(read_side)
        await happen(servers.primary, "a", "b")
        async with running(read_side, Effects, journal=servers.log):
            await until_effects(read_side, 2)
            await servers.pause()
            await happen(servers.primary, "a", "c")
            result = await rebuild(read_side, read_side.dsn, Effects, ONE, journal=servers.log)
            servers.resume()
            await until_effects(read_side, 4)
            await happen(servers.primary, "b")
            await until_effects(read_side, 5)
        assert result.events == 4
        each_once(await effects(read_side), a=2, b=2, c=1)


async def test_live_workers_go_on_over_a_rebuild_while_appends_are_late(
    database: Database, read_side: Database
) -> None:
    await happen(database, *["a", "b", "c"] * 10)
    told = Kept()
    async with running(read_side, Effects, journal=database, ranges=4):
        await until_effects(read_side, 30)
        async with database.session() as late, held(read_side) as let_go:
            await late.begin()
            await append(late, [Event("late", Happened(n=1), "plane")])
            work = asyncio.create_task(
                rebuild(read_side, read_side.dsn, Effects, ONE, journal=database, progress=told)
            )
            assert "appends from before the fence are in flight" in await told.until_waiting()
            await happen(database, "a", "d")
            await append(late, [Event("late", Happened(), "plane")])
            await late.commit()
            await until_held_up(read_side)
            # After the fence, while the rebuild folds: the live worker has it, and has it again after the swap.
            await late.begin()
            await append(late, [Event("later", Happened(), "plane")])
            await happen(database, "b")
            await let_go()
            result = await work
            await late.commit()
        await until_effects(read_side, 36)
        await happen(database, "a")
        await until_effects(read_side, 37)
    await caught_up(read_side, Effects, journal=database)

    each_once(await effects(read_side), a=12, b=11, c=10, d=1, late=2, later=1)
    assert result.events == 31
    assert await schemas(database) == []
    assert await fetchval(database, "SELECT count(*) FROM projections.projections") == 0
    assert await fetchval(read_side, "SELECT count(*) FROM projections.events") == 0


@pytest.mark.slow
async def test_rows_that_sources_share_and_their_own_are_as_a_plain_fold_makes_them(
    database: Database, read_side: Database, in_this_process: None
) -> None:
    events = [
        (f"s{n % 7}", Changed(key=f"k{n % 3}", n=n, name=f"n{n % 5}" if n % 2 else None)) for n in range(60)
    ]
    await append_changes(database, events)
    await fence_passes(database)

    result = await rebuild(
        read_side, read_side.dsn, AllKinds, RebuildOptions(splits=4), journal=Log(database)
    )

    assert await tables_of_all_kinds(read_side) == plain_fold(events)
    assert (result.events, result.sampled) == (60, 7)
    assert await fetchval(read_side, "SELECT journal FROM projections.projections") == "journal"


@pytest.mark.slow
async def test_tasks_are_processes_that_reach_both_databases(database: Database, read_side: Database) -> None:
    await happen(database, *[f"s{n}" for n in range(40)] * 2)
    await fence_passes(database)

    result = await rebuild(read_side, read_side.dsn, Counts, RebuildOptions(splits=4), journal=database)

    assert (result.events, result.rows) == (80, {"counts": 40})


async def test_a_range_of_slices_is_rebuilt_beside_the_others(
    database: Database, read_side: Database
) -> None:
    sources = [f"s{n}" for n in range(40)]
    await happen(database, *sources)
    await caught_up(read_side, Counts, journal=database)
    await execute(read_side, "UPDATE counts SET n = 7")
    await fence_passes(database)

    options = RebuildOptions(splits=1, slices=rebuilding.SliceRange(0, 511))
    result = await rebuild(read_side, read_side.dsn, Counts, options, journal=database)
    await happen(database, *sources)
    await caught_up(read_side, Counts, journal=database)

    right = "CASE WHEN projections.slice_of_v1(source_id) < 512 THEN 2 ELSE 8 END"
    assert await fetchval(read_side, f"SELECT count(*) FROM counts WHERE n = {right}") == 40
    assert 0 < result.events < 40


async def test_the_journal_that_the_projection_reads_must_be_named(
    database: Database, read_side: Database
) -> None:
    await happen(database, "a")
    await caught_up(read_side, Counts, journal=database)

    with pytest.raises(WrongJournal, match="reads journal 'journal' of another database, not that"):
        await rebuild(read_side, read_side.dsn, Counts, ONE)
    with pytest.raises(WrongJournal, match="not journal 'other' of another database"):
        await rebuild(read_side, read_side.dsn, Counts, ONE, journal=Log(database, "other"))

    assert await fetchval(read_side, "SELECT count(*) FROM projections.rebuilds") == 0


@pytest.mark.slow
async def test_history_that_is_imported_while_it_is_rebuilt_is_for_the_workers(
    database: Database, read_side: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await happen(database, "a", "b")
    await caught_up(read_side, Effects, journal=database)
    await fence_passes(database)
    fold, past = _Run._fold, datetime.now(UTC) - timedelta(hours=1)

    async def importing(run: _Run, *args: Any) -> None:
        await fold(run, *args)
        history = [
            HistoricEvent("old", Happened(), "plane", seq_nr=n, db_timestamp=past + timedelta(seconds=n))
            for n in (1, 2)
        ]
        await import_events(database, history)

    monkeypatch.setattr(_Run, "_fold", importing)
    await rebuild(read_side, read_side.dsn, Effects, ONE, journal=database)
    await caught_up(read_side, Effects, journal=database)

    each_once(await effects(read_side), a=1, b=1, old=2)


@pytest.mark.slow
async def test_a_journal_that_loses_what_was_folded_is_noticed_before_the_swap(
    database: Database, read_side: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await happen(database, "a", "b")
    await caught_up(read_side, Counts, journal=database)
    await remember(database)
    await happen(database, "a", "c")
    await fence_passes(database)
    check = RebuiltFrom.check

    async def going_back(source: RebuiltFrom, session: OwnedSession, found: Rebuild) -> None:
        await go_back(database)
        await happen(database, "a")  # gets the number of what is lost
        # As if the server had started again, which a test cannot have it do.
        await check(source, session, found._replace(fence=found.fence._replace(life="another")))

    monkeypatch.setattr(RebuiltFrom, "check", going_back)
    with pytest.raises(RebuildFailed, match=r"journal 'journal' went back in time .* such as '[ac]' \(event"):
        await rebuild(read_side, read_side.dsn, Counts, ONE, journal=database)
    monkeypatch.undo()

    assert await state_of(read_side) == "cancelled"
    assert await schemas(read_side) == []
    await fence_passes(database)
    result = await rebuild(read_side, read_side.dsn, Counts, ONE, journal=database)
    assert (result.events, result.rows) == (3, {"counts": 2})


@pytest.mark.slow
async def test_workers_compare_what_a_rebuild_has_brought_in_another_life_of_the_journal(
    database: Database, read_side: Database
) -> None:
    await happen(database, "a", "b")
    await remember(database)
    await happen(database, "a")
    await fence_passes(database)
    await rebuild(read_side, read_side.dsn, Effects, ONE, journal=database)

    assert await fetchval(
        read_side, "SELECT bool_and(journal_life IS NOT NULL) FROM projections.projection_ranges"
    )
    await go_back(database)
    await execute(read_side, "UPDATE projections.projection_ranges SET journal_life = journal_life || '+'")
    await happen(database, "a", "b")
    await caught_up(read_side, Effects, journal=database)

    assert await fetchval(
        read_side, "SELECT array_agg(source_id || ' ' || seq_nr) FROM projections.parked_sources"
    ) == ["a 2"]
    assert sorted(await effects(read_side)) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


async def test_a_bound_that_tells_nothing_is_refused(database: Database, read_side: Database) -> None:
    log = Log(database, bound=IntervalBacktracking)

    with pytest.raises(NotRebuildable, match="does not tell what is in flight"):
        await rebuild(read_side, read_side.dsn, Counts, ONE, journal=log)
