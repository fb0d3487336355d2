"""Rebuilds from a table of another system: nothing is missed between what they read and what workers read."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from typing import Any

import pytest

from journal import Database, Log, SliceRange, connect
from journal.foreign import table_log
from journal.foreign.mapping import Expression
from spark_projections.errors import NotRebuildable, RebuildFailed, RebuildUnderWay
from spark_projections.rebuilds import fence
from spark_projections.rebuilds.journal import RebuiltFrom
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import _Run, rebuild
from tests.fixtures.commands import environment
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.foreign_tables import MAPPINGS, Theirs, add, counts, log, read_side, theirs
from tests.fixtures.projections import (
    caught_up,
    each_once,
    effects,
    execute,
    fetchval,
    running,
    until,
    until_effects,
)
from tests.fixtures.rebuilds import (
    ADVISORY_LOCKS,
    ONE,
    Counts,
    Effects,
    Kept,
    held,
    in_this_process,
    schemas,
    state_of,
    until_held_up,
)

__all__ = ["in_this_process", "log", "read_side", "theirs"]

SHIFTED = Expression("jsonb_build_object('n', (body ->> 'n')::int + 0)")


@pytest.mark.slow
async def test_live_workers_go_on_over_a_rebuild_while_commits_are_late(
    theirs: Theirs, log: Log, read_side: Database
) -> None:
    """One transaction is open across the fence, another across the swap."""
    await theirs.write(*["a", "b", "c"] * 5)
    told = Kept()
    async with running(read_side, Effects, journal=log, ranges=4):
        await until_effects(read_side, 15)
        async with theirs.connection() as application, held(read_side) as let_go:
            late = application.transaction()
            await late.start()
            await add(application, "late")
            work = asyncio.create_task(
                rebuild(read_side, read_side.dsn, Effects, ONE, journal=log, progress=told)
            )
            if log.is_by_number:
                assert "appends from before the fence are in flight" in await told.until_waiting()
            else:  # it shows since when it is open: the fence is before it
                await until(
                    read_side, "SELECT count(*) = 1 FROM projections.rebuilds WHERE state <> 'folding'"
                )
            await theirs.write("a", "d")
            await add(application, "late")
            await late.commit()
            if log.is_by_number:
                await until(read_side, "SELECT count(*) = 1 FROM projections.rebuilds")
            later = application.transaction()
            await later.start()
            await add(application, "later", "late")
            await theirs.write("b")
            await let_go()
            result = await work
            await later.commit()
        await until_effects(read_side, 22)
        await theirs.write("a")
        await until_effects(read_side, 23)
    await caught_up(read_side, Effects, journal=log)

    each_once(await effects(read_side), a=7, b=6, c=5, d=1, late=3, later=1)
    assert result.events == (16 if log.is_by_number else 15)
    assert await fetchval(read_side, "SELECT journal FROM projections.projections") == "theirs"


async def test_a_fence_that_does_not_wait_for_who_has_inserted_is_noticed(
    theirs: Theirs, read_side: Database, monkeypatch: pytest.MonkeyPatch, in_this_process: None
) -> None:
    """The wrong bound: an event with a number below the fence commits when it is folded already."""
    await theirs.write("a")
    fold = _Run._fold

    async def wait_for_nobody(*_: Any, **__: Any) -> None:
        pass

    async with (
        theirs.connection() as application,
        connect(theirs.database.dsn, FOREIGN["asyncpg"]) as database,
    ):
        log = await table_log(database, MAPPINGS["sequence"], name="theirs")
        late = application.transaction()
        await late.start()
        await add(application, "late")
        await theirs.write("b")

        async def committing(run: _Run, *args: Any) -> None:
            await fold(run, *args)
            await late.commit()

        monkeypatch.setattr(_Run, "_fold", committing)
        monkeypatch.setattr(fence, "wait_for_writers", wait_for_nobody)
        with pytest.raises(
            RebuildFailed, match=r"of slice [0-9]+ 0 events were folded, and 1 are in the journal"
        ):
            await rebuild(read_side, read_side.dsn, Effects, ONE, journal=log)


@pytest.mark.slow
@pytest.mark.parametrize("splits", [4])
async def test_slices_are_cut_and_a_range_of_them_is_rebuilt_beside_the_others(
    theirs: Theirs, log: Log, read_side: Database, in_this_process: None, splits: int
) -> None:
    sources = [f"s{n}" for n in range(40)]
    await theirs.write(*sources, *sources)
    result = await rebuild(read_side, read_side.dsn, Counts, RebuildOptions(splits=splits), journal=log)
    assert (result.events, result.rows, result.sampled) == (80, {"counts": 40}, 20)
    await execute(read_side, "UPDATE counts SET n = 7")

    options = RebuildOptions(splits=splits, slices=SliceRange(0, 511))
    result = await rebuild(read_side, read_side.dsn, Counts, options, journal=log)
    await theirs.write(*sources)
    await caught_up(read_side, Counts, journal=log)

    right = "CASE WHEN projections.slice_of_v1(source_id) < 512 THEN 3 ELSE 8 END"
    assert await fetchval(read_side, f"SELECT count(*) FROM counts WHERE n = {right}") == 40
    assert 0 < result.events < 80


@pytest.mark.slow
async def test_deleted_events_are_missed_unless_one_goes_by_those_that_are_kept(
    theirs: Theirs, log: Log, read_side: Database, in_this_process: None
) -> None:
    await theirs.write(*["a", "b", "c"] * 4)
    await caught_up(read_side, Counts, journal=log)
    kept = RebuildOptions(splits=1, from_first_kept=True)
    for statement, said in (
        ("DELETE FROM log WHERE source = 'a' AND number < 3", "of source 'a', seq_nr 3 follows seq_nr 0"),
        ("DELETE FROM log WHERE source = 'b' AND number = 2", "of source 'b', seq_nr 3 follows seq_nr 1"),
    ):
        await theirs.execute(statement)
        with pytest.raises(RebuildFailed, match=f"{said}.*from-first-kept"):
            await rebuild(
                read_side, read_side.dsn, Counts, RebuildOptions(splits=1, restart=True), journal=log
            )
        await theirs.execute("DELETE FROM log WHERE source = 'a'")
    await theirs.execute("DELETE FROM log WHERE source = 'b'")
    with pytest.raises(
        RebuildFailed, match="all events of 2 sources, such as 'a', are no longer in the journal"
    ):
        await rebuild(read_side, read_side.dsn, Counts, RebuildOptions(splits=1, restart=True), journal=log)
    await theirs.write("d", "d", "d")
    await theirs.execute("DELETE FROM log WHERE source = 'd' AND number = 2")

    result = await rebuild(read_side, read_side.dsn, Counts, kept, journal=log)

    assert result.events == 6
    assert await counts(read_side) == {"c": (4, 4), "d": (2, 3)}
    await theirs.write("a", "c", "d")
    await caught_up(read_side, Counts, journal=log)
    assert await counts(read_side) == {"a": (1, 1), "c": (5, 5), "d": (3, 4)}


@pytest.mark.daily(1)
async def test_events_that_are_deleted_while_it_runs_keep_their_effects(
    theirs: Theirs, log: Log, read_side: Database, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the live read model has them."""
    await theirs.write(*["a", "b", "c"] * 4)
    fold = _Run._fold

    async def deleting(run: _Run, *args: Any) -> None:
        await fold(run, *args)
        await theirs.execute("DELETE FROM log WHERE source = 'a' OR (source = 'b' AND number = 2)")

    monkeypatch.setattr(_Run, "_fold", deleting)
    result = await rebuild(read_side, read_side.dsn, Counts, ONE, journal=log)

    assert await counts(read_side) == {"a": (4, 4), "b": (4, 4), "c": (4, 4)}
    assert result.sampled == 1


@pytest.mark.daily(1)
async def test_a_journal_that_loses_what_was_folded_is_noticed_before_the_swap(
    theirs: Theirs, log: Log, read_side: Database, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await theirs.write("a", "b", "a", "c")
    await caught_up(read_side, Counts, journal=log)
    check = RebuiltFrom.check

    async def going_back(source: RebuiltFrom, session: Any, found: Any) -> None:
        await theirs.execute("DELETE FROM log WHERE id > 2; ALTER SEQUENCE log_id_seq RESTART WITH 3")
        await theirs.write("a")  # gets the number of what is lost
        # As if the server had started again, which a test cannot have it do.
        await check(source, session, found._replace(fence=found.fence._replace(life="another")))

    monkeypatch.setattr(RebuiltFrom, "check", going_back)
    with pytest.raises(RebuildFailed, match=r"journal 'theirs' went back in time .* such as '[ac]' \(event"):
        await rebuild(read_side, read_side.dsn, Counts, ONE, journal=log)
    monkeypatch.undo()

    assert await state_of(read_side) == "cancelled"
    assert await schemas(read_side) == []


DRIVER = """
import asyncio, sys
from journal import connect, ConnectionSettings
from journal.foreign import table_log
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.foreign_tables import MAPPINGS
from tests.fixtures.rebuilds import ONE, Effects

async def main(dsn, theirs):
    async with connect(dsn) as database, connect(theirs, ConnectionSettings(foreign_journal=True)) as elsewhere:
        log = await table_log(elsewhere, MAPPINGS["sequence"], name="theirs")
        await rebuild(database, dsn, Effects, ONE, journal=log)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
async def test_what_a_killed_driver_left_is_gone_on_with_unless_the_mapping_has_changed(
    theirs: Theirs, read_side: Database, changed: bool
) -> None:
    await theirs.write(*["a"] * 12)
    await theirs.write("a", n=1)
    await theirs.write(*["a"] * 7)
    async with held(read_side):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DRIVER, read_side.dsn, theirs.database.dsn, env=environment(), stderr=PIPE
        )
        try:
            await until_held_up(read_side)
            async with connect(theirs.database.dsn, FOREIGN["asyncpg"]) as database:
                other = await table_log(database, MAPPINGS["sequence"], name="theirs")
                with pytest.raises(RebuildUnderWay, match="is being rebuilt already"):
                    await rebuild(read_side, read_side.dsn, Effects, ONE, journal=other)
        finally:
            process.kill()
            await process.communicate()
    await until(read_side, f"SELECT count(*) = 0 FROM {ADVISORY_LOCKS}")
    await theirs.write("a")
    kept = Kept()
    async with connect(theirs.database.dsn, FOREIGN["asyncpg"]) as database:
        mapping = MAPPINGS["sequence"]
        if changed:
            mapping = type(mapping)(**{
                **{name: getattr(mapping, name) for name in mapping.__slots__}, "payload": SHIFTED
            })  # fmt: skip
        again = await table_log(database, mapping, name="theirs")
        result = await rebuild(read_side, read_side.dsn, Effects, ONE, journal=again, progress=kept)
        await caught_up(read_side, Effects, journal=again)

    assert (result.resumed, result.events) == (not changed, 21 if changed else 20)
    assert any("the mapping of the journal" in said for said in kept.waited) is changed
    each_once(await effects(read_side), a=21)


@pytest.mark.daily(1)
async def test_a_time_is_refused_where_there_are_none(theirs: Theirs, log: Log, read_side: Database) -> None:
    await theirs.write("a", "a")
    at = await fetchval(theirs.database, "SELECT clock_timestamp()")
    await theirs.write("a")
    options = RebuildOptions(splits=1, until=at)
    if log.is_by_number:
        with pytest.raises(NotRebuildable, match="'theirs' is in the order of a number, and knows no times"):
            await rebuild(read_side, read_side.dsn, Effects, options, journal=log)
        return
    result = await rebuild(read_side, read_side.dsn, Effects, options, journal=log)
    assert result.events == 2
    await caught_up(read_side, Effects, journal=log)
    each_once(await effects(read_side), a=3)
