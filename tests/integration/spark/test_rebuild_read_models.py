"""Read models in SQL built again from the journal, compared with it, and mended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from journal import Database, DatabaseError, Event, Log, SliceRange, connect
from projections import RawJson, TableError, events, projection, read_model
from projections.testing import run_until_caught_up
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from spark_projections.rebuilds.repairing import repair, verify
from tests.fixtures.foreign_tables import Theirs, log, theirs
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import Happened, caught_up, execute, running, until
from tests.fixtures.read_models import Delays, LateOnly, Planes, as_the_journal_says, land, landing, rows
from tests.fixtures.rebuilds import ONE, Gate, fence_passes, in_this_process

__all__ = ["in_this_process", "log", "theirs"]

pytestmark = pytest.mark.usefixtures("in_this_process")

BAD = Event(
    "bad", RawJson('{"carrier": "UA", "day": "2013-01-01", "delay": "late"}'), "plane", event_type="Landed"
)

# As other systems write what a model reads: PostgreSQL would refuse all of it.
ODD = Event(
    "odd", RawJson('{"carrier": "UA", "day": 1356998400, "delay": 1e2}'), "plane", event_type="Landed"
)


async def begun(database: Database, definition: type[Any], number: int = 40) -> None:
    """Events that a worker has handled, and some that come later."""
    await land(
        database, *[landing(f"p{n % 7}", delay=n - 3, carrier="UA" if n % 3 else "AA") for n in range(number)]
    )
    await run_until_caught_up(database, definition)
    await land(database, *[landing(f"p{n}", delay=n) for n in range(9)])
    await fence_passes(database)


@pytest.mark.slow
@pytest.mark.parametrize(("definition", "table"), [(Delays, "delays"), (Planes, "planes")])
@pytest.mark.parametrize("options", [RebuildOptions(splits=3), RebuildOptions(splits=2, in_place=True)])
async def test_a_rebuild_makes_what_the_journal_says(
    database: Database, dsn: str, definition: type[Any], table: str, options: RebuildOptions
) -> None:
    await begun(database, definition)
    await execute(database, f"DELETE FROM {table}")

    result = await rebuild(database, dsn, definition, options)

    assert (result.events, result.skipped) == (49, 0)
    await land(database, landing("p1", delay=100), landing("new", delay=1))
    await run_until_caught_up(database, definition)
    await as_the_journal_says(database, definition, table)


_NO_COMMENTS = """
CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no comments'; END $$;
CREATE EVENT TRIGGER no_comments ON ddl_command_start WHEN TAG IN ('COMMENT') EXECUTE FUNCTION refuse()
"""


async def test_a_table_is_not_swapped_without_its_mark(database: Database, dsn: str) -> None:
    await begun(database, Delays)
    await execute(database, "DELETE FROM delays")

    with pytest.raises(DatabaseError, match="no comments"):
        await Gate(database, dsn, Delays).at("swap", lambda: execute(database, _NO_COMMENTS))

    assert await rows(database, "SELECT * FROM delays") == []
    await execute(database, "DROP EVENT TRIGGER no_comments")
    assert (await rebuild(database, dsn, Delays, ONE)).resumed


@pytest.mark.slow
async def test_workers_go_on_beside_a_rebuild(database: Database, dsn: str) -> None:
    await begun(database, Delays)
    async with running(database, Delays, ranges=4):
        await rebuild(database, dsn, Delays, ONE)
        await land(database, *[landing(f"p{n}", delay=50) for n in range(20)])
        await until(database, "SELECT coalesce(sum(flights), 0) = 64 FROM delays")

    await as_the_journal_says(database, Delays, "delays")


@pytest.mark.slow
async def test_another_statement_takes_over_by_a_rebuild(database: Database, dsn: str) -> None:
    await begun(database, Delays)

    await rebuild(database, dsn, LateOnly, ONE)

    await land(database, landing("a", delay=16), landing("a", delay=15))
    await run_until_caught_up(database, LateOnly)
    await as_the_journal_says(database, LateOnly, "delays")
    await execute(database, "UPDATE projections.projections SET version = 1")
    await land(database, landing("a", delay=16))
    with pytest.raises(TableError, match="filled by another statement"):
        await run_until_caught_up(database, Delays)


@pytest.mark.slow
async def test_slices_of_rows_of_one_source_are_built_alone(database: Database, dsn: str) -> None:
    await begun(database, Planes)
    await run_until_caught_up(database, Planes)
    await execute(database, "UPDATE planes SET flights = 99")

    await rebuild(database, dsn, Planes, RebuildOptions(slices=SliceRange(0, 511), splits=2))

    wrong = "SELECT projections.slice_of_v1(source_id) > 511 FROM planes WHERE flights = 99"
    assert {late for (late,) in await rows(database, wrong)} <= {True}
    with pytest.raises(NotRebuildable, match="cannot be told apart by slice"):
        await rebuild(database, dsn, Delays, RebuildOptions(slices=SliceRange(0, 511)))


@pytest.mark.slow
async def test_an_event_that_does_not_fit_is_named_or_left_out(database: Database, dsn: str) -> None:
    await begun(database, Delays)
    await land(database, BAD, landing("bad", delay=4))
    await fence_passes(database)

    with pytest.raises(RebuildFailed, match="event 'Landed' of source 'bad', seq_nr 1"):
        await rebuild(database, dsn, Delays, ONE)
    result = await rebuild(database, dsn, Delays, RebuildOptions(splits=1, skip=True))

    assert (result.events, result.skipped) == (51, 1)
    assert await rows(database, "SELECT sum(flights) FROM delays") == [(45,)]


async def test_rows_that_differ_are_found_and_mended(database: Database) -> None:
    await begun(database, Planes)
    await run_until_caught_up(database, Planes)
    assert (await verify(database, Planes, sources=None)).differing == 0
    await execute(database, "UPDATE planes SET minutes = minutes + 1, seat = 'none' WHERE source_id = 'p1'")

    found = await verify(database, Planes, sources=None)
    await repair(database, Planes, ["p1"])

    assert [(row.key, set(row.columns)) for row in found.differences] == [
        ({"source_id": "p1"}, {"minutes", "seat"})
    ]
    assert (await verify(database, Planes, sources=None)).differing == 0


@pytest.mark.parametrize("definition", [Planes, Delays])
async def test_what_only_models_read_is_compared(database: Database, definition: type[Any]) -> None:
    await begun(database, definition)
    await land(database, ODD)
    await run_until_caught_up(database, definition)

    assert (await verify(database, definition, sources=None)).differing == 0


@pytest.mark.slow
async def test_what_only_models_read_is_built_again(database: Database, dsn: str) -> None:
    await begun(database, Planes)
    await land(database, ODD)
    await run_until_caught_up(database, Planes)
    await fence_passes(database)
    before = await rows(database, "SELECT * FROM planes ORDER BY 1")

    await rebuild(database, dsn, Planes, ONE)

    assert await rows(database, "SELECT * FROM planes ORDER BY 1") == before
    assert ("odd", 1, 100) in [row[:3] for row in before]


async def test_shared_rows_are_compared_as_a_whole(database: Database) -> None:
    await begun(database, Delays)
    await execute(database, "UPDATE delays SET flights = flights + 1 WHERE carrier = 'AA'")

    assert (await verify(database, Delays, sources=None)).differing == 1


@pytest.fixture
async def read_side(databases: Databases, template: str) -> AsyncIterator[Database]:
    """A database whose own journal is empty."""
    with databases.fresh(template) as dsn:
        async with connect(dsn) as database:
            yield database


@pytest.mark.slow
@pytest.mark.parametrize(("definition", "table"), [(Delays, "delays"), (Planes, "planes")])
async def test_from_a_journal_elsewhere(
    database: Database, read_side: Database, definition: type[Any], table: str
) -> None:
    await land(database, *[landing(f"p{n % 7}", delay=n - 3) for n in range(40)])
    await caught_up(read_side, definition, journal=database)
    await execute(read_side, f"DELETE FROM {table}")
    await fence_passes(database)

    options = RebuildOptions(splits=3)
    result = await rebuild(read_side, read_side.dsn, definition, options, journal=database)

    assert (result.events, result.skipped) == (40, 0)
    await land(database, landing("p1", delay=100), landing("new", delay=1))
    await caught_up(read_side, definition, journal=database)
    await as_the_journal_says(read_side, definition, table, journal=database)
    assert (await verify(read_side, definition, sources=None, journal=database)).differing == 0
    await execute(read_side, f"UPDATE {table} SET minutes = minutes + 1")
    assert (await verify(read_side, definition, sources=None, journal=database)).differing > 0


@pytest.mark.slow
async def test_an_event_of_a_journal_elsewhere_that_does_not_fit_is_named_or_left_out(
    database: Database, read_side: Database
) -> None:
    await land(database, landing("p0", delay=1))
    await caught_up(read_side, Delays, journal=database)
    await land(database, *[landing(f"p{n}", delay=n) for n in range(1, 40)], BAD)
    await fence_passes(database)

    with pytest.raises(RebuildFailed, match="event 'Landed' of source 'bad', seq_nr 1"):
        await rebuild(read_side, read_side.dsn, Delays, ONE, journal=database)
    options = RebuildOptions(splits=1, skip=True)
    result = await rebuild(read_side, read_side.dsn, Delays, options, journal=database)

    assert (result.events, result.skipped) == (41, 1)
    assert await rows(read_side, "SELECT sum(flights) FROM delays") == [(40,)]


@projection("happened", entity_type="plane")
class Sums:
    happened = events(Happened)
    sums = read_model("SELECT source_id, count(*) AS events, sum(n) AS n FROM happened GROUP BY source_id")


@pytest.mark.slow
async def test_from_the_journal_of_another_system(theirs: Theirs, log: Log, read_side: Database) -> None:
    await theirs.write(*["a", "b", "a"] * 5, n=2)
    await caught_up(read_side, Sums, journal=log)
    await execute(read_side, "UPDATE sums SET n = 0")
    assert (await verify(read_side, Sums, sources=None, journal=log)).differing == 2

    result = await rebuild(read_side, read_side.dsn, Sums, RebuildOptions(splits=2), journal=log)

    assert (result.events, result.skipped) == (15, 0)
    await theirs.write("a", n=1)
    await caught_up(read_side, Sums, journal=log)
    assert sorted(await rows(read_side, "SELECT source_id, events, n FROM sums")) == [
        ("a", 11, 21),
        ("b", 5, 10),
    ]
