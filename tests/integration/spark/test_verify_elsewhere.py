"""Comparing and repairing read models whose journal is in another database: of another system, or ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from journal import Database, Event, Log, append, connect
from offsets import WrongJournal
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds import repairing
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.repairing import repair, verify
from tests.fixtures.foreign_tables import Theirs, add, counts, log, read_side, theirs
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import Happened, caught_up, execute, fetchval, happen, running, until
from tests.fixtures.rebuilds import Counts, Effects

__all__ = ["log", "read_side", "theirs"]

KEPT = RebuildOptions(from_first_kept=True)


@pytest.mark.slow
async def test_what_differs_is_found_and_repaired(theirs: Theirs, log: Log, read_side: Database) -> None:
    await theirs.write("a", "b", "a", "c")
    await caught_up(read_side, Counts, journal=log)
    await theirs.write("a", "new")  # not handled yet

    for sources in (None, 100, ["a", "c"]):
        found = await verify(read_side, Counts, sources=sources, journal=log)
        assert (found.differing, found.events) == (0, 3 if isinstance(sources, list) else 4)
        assert (found.sources, found.of_sources) == (2 if isinstance(sources, list) else 4, 4)
    await execute(read_side, "UPDATE counts SET n = 99 WHERE source_id = 'a'")
    await execute(read_side, "DELETE FROM counts WHERE source_id = 'b'")
    await execute(read_side, "INSERT INTO counts VALUES ('nobody', 1, 1)")
    found = await verify(read_side, Counts, sources=None, journal=log)
    assert [(row.key["source_id"], row.kind) for row in found.differences] == [
        ("a", "different"), ("b", "missing"), ("nobody", "surplus"),
    ]  # fmt: skip
    repaired = await repair(read_side, Counts, ["a", "b", "c"], journal=log)
    assert (repaired.differing, repaired.events) == (2, 4)
    assert await counts(read_side) == {"a": (2, 2), "b": (1, 1), "c": (1, 1), "nobody": (1, 1)}
    with pytest.raises(NotRebuildable, match="the journal has no source 'nobody' that this projection reads"):
        await repair(read_side, Counts, ["nobody"], journal=log)


@pytest.mark.daily(1)
async def test_the_journal_that_the_projection_reads_must_be_named(
    theirs: Theirs, log: Log, read_side: Database
) -> None:
    await theirs.write("a")
    await caught_up(read_side, Counts, journal=log)
    for named in (None, Log(log.database, "other", log.queries, log.bound)):
        for work in (
            verify(read_side, Counts, journal=named),
            repair(read_side, Counts, ["a"], journal=named),
        ):
            with pytest.raises(
                WrongJournal, match=r"reads journal 'theirs' of another database, and .* was named"
            ):
                await work


@pytest.mark.slow
async def test_nothing_differs_while_an_application_writes_and_workers_handle(
    theirs: Theirs, log: Log, read_side: Database
) -> None:
    """Its transactions stay open over others, so that events become visible out of the order."""
    stop = asyncio.Event()

    async def write_on(number: int) -> None:
        async with theirs.connection() as application:
            while not stop.is_set():
                async with application.transaction():
                    await add(application, f"s{number}", f"t{number}", f"s{number}")
                    await asyncio.wait([asyncio.ensure_future(stop.wait())], timeout=0.05 * number)

    async with running(read_side, Counts, ranges=3, journal=log) as told:
        writing = [asyncio.create_task(write_on(number)) for number in range(4)]
        for _ in range(4):
            await told.first("handled", len(told.names("handled")) + 2)
            for sources in (3, None):
                found = await verify(read_side, Counts, sources=sources, journal=log)
                assert found.differences == []
        await repair(read_side, Counts, ["s0", "t1"], journal=log)
        stop.set()
        await asyncio.gather(*writing)
    await caught_up(read_side, Counts, journal=log)
    assert {source: last for source, (_, last) in (await counts(read_side)).items()} == await theirs.last()
    assert (await verify(read_side, Counts, sources=None, journal=log)).differing == 0


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["lock_tables", "handled_until"])
async def test_workers_go_on_at_each_moment_of_a_repair(
    theirs: Theirs, log: Log, read_side: Database, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    original = getattr(repairing, moment)
    async with running(read_side, Counts, journal=log):
        await theirs.write("a", "b")
        await until(read_side, "SELECT count(*) = 2 FROM counts")
        await execute(read_side, "UPDATE counts SET n = 99 WHERE source_id = 'a'")

        async def meanwhile(*args: Any) -> Any:
            await theirs.write("a", "b")
            if moment == "lock_tables":
                await until(read_side, "SELECT n = 2 FROM counts WHERE source_id = 'b'")
            found = await original(*args)
            await theirs.write("a", "b")
            return found

        monkeypatch.setattr(repairing, moment, meanwhile)
        await repair(read_side, Counts, ["a"], journal=log)
        last = await theirs.last()
        await until(read_side, "SELECT bool_and(last = $1) FROM counts", last["a"])
    assert await fetchval(read_side, "SELECT bool_and(n = last) FROM counts")


@pytest.mark.slow
async def test_what_is_deleted_is_said_and_left_out_when_one_asks_for_that(
    theirs: Theirs, log: Log, read_side: Database
) -> None:
    await theirs.write(*["a", "b", "c"] * 4)
    await caught_up(read_side, Counts, journal=log)
    for source, deleted, said in (
        ("a", "< 3", "follows seq_nr 0"),
        ("b", "= 2", "follows seq_nr 1"),
        ("c", "> 2", "ends at"),
    ):
        await theirs.execute(f"DELETE FROM log WHERE source = '{source}' AND number {deleted}")
        for work in (
            verify(read_side, Counts, sources=[source], journal=log),
            repair(read_side, Counts, [source], journal=log),
        ):
            with pytest.raises(RebuildFailed, match=f"{said}.*--from-first-kept"):
                await work
    found = await verify(read_side, Counts, sources=None, journal=log, from_first_kept=True)
    assert [row.columns for row in found.differences] == [
        {"n": ("4", "2")}, {"n": ("4", "3")}, {"n": ("4", "2"), "last": ("4", "2")},
    ]  # fmt: skip
    await repair(read_side, Counts, ["a", "b"], KEPT, journal=log)
    assert await counts(read_side) == {"a": (2, 4), "b": (3, 4), "c": (4, 4)}


@pytest.mark.daily(1)
async def test_sources_whose_offsets_are_evicted_are_handled_up_to_then(
    theirs: Theirs, log: Log, read_side: Database
) -> None:
    await theirs.write("a", "a", "b")
    await caught_up(read_side, Counts, journal=log)
    last = await fetchval(read_side, "SELECT max(db_timestamp) FROM projections.source_offsets")
    await execute(read_side, "DELETE FROM projections.source_offsets")
    await execute(
        read_side, "UPDATE projections.projections SET evicted_before = $1", last + timedelta(microseconds=1)
    )
    await theirs.write("a", "c")

    found = await verify(read_side, Counts, sources=None, journal=log)

    assert (found.differing, found.events, found.of_sources) == (0, 3, 3)


@pytest.fixture
async def elsewhere(databases: Databases, template: str) -> AsyncIterator[Database]:
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            yield database


@pytest.mark.slow
async def test_our_journal_in_another_database(elsewhere: Database, read_side: Database) -> None:
    await happen(elsewhere, "a", "b", "a")
    await caught_up(read_side, Counts, journal=elsewhere)
    await happen(elsewhere, "a", "new")
    async with elsewhere.transaction() as session:
        await append(session, [Event("other", Happened(), "airport")])
    for sources in (None, 100, ["a", "b"]):
        found = await verify(read_side, Counts, sources=sources, journal=elsewhere)
        assert (found.differing, found.events, found.of_sources) == (0, 3, 3)
    await execute(read_side, "UPDATE counts SET n = 99")
    assert (await verify(read_side, Counts, sources=None, journal=elsewhere)).differing == 2
    assert (await repair(read_side, Counts, ["a", "b"], journal=elsewhere)).differing == 2
    assert await counts(read_side) == {"a": (2, 2), "b": (1, 1)}
    with pytest.raises(NotRebuildable, match="no source 'other'"):
        await repair(read_side, Counts, ["other"], journal=elsewhere)
    with pytest.raises(WrongJournal, match="reads journal 'journal' of another database, and none was named"):
        await verify(read_side, Counts)
    with pytest.raises(NotRebuildable, match="write by themselves"):
        await verify(read_side, Effects, sources=None, journal=elsewhere)
