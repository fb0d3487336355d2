"""A projection that is given up goes with all that is stored of it, and whoever runs it says so."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

import offsets
from journal import Database, DatabaseError, NotFound
from journal.database import connect
from projections.monitoring import snapshot
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    caught_up,
    effects,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    until_effects,
)

LEFT = """
SELECT count(*) FROM (
    SELECT projection_id FROM projections.projections WHERE name = 'p'
    UNION ALL SELECT projection_id FROM projections.projection_ranges WHERE projection_id = 1
    UNION ALL SELECT projection_id FROM projections.source_offsets WHERE projection_id = 1
    UNION ALL SELECT projection_id FROM projections.parked_sources WHERE projection_id = 1
    UNION ALL SELECT projection_id FROM projections.rebuilds WHERE projection_id = 1
) AS stored
"""
REBUILD = """
INSERT INTO projections.rebuilds (
    projection_id, min_slice, max_slice, version, fence, import_id, evicted_before, fingerprint, method, state
)
VALUES (1, 0, 1023, 1, now(), 0, now(), '', 'rename', $1)
"""
HOLDERS = "SELECT count(*) FROM projections._retention_holders_v1() WHERE holder = 'p'"


@pytest.fixture
async def handled(database: Database) -> Database:
    """Projection p has handled an event of each of two sources; a third is parked. So has q."""
    await execute(database, EFFECTS)
    await happen(database, "a", "b", "c")
    await caught_up(database, recording(failing(("c", 1)), recovery=NO_RETRY), ranges=2)
    await caught_up(database, recording(name="q"))
    return database


async def remove(database: Database, name: str = "p", *, force: bool = False) -> offsets.Removed:
    async with database.session() as session:
        return await offsets.remove(session, name, force=force)


async def test_all_that_is_stored_of_it_goes_and_nothing_of_others(handled: Database) -> None:
    removed = await remove(handled)

    assert removed == (2, 2, 1, 0)
    assert await fetchval(handled, LEFT) == 0
    async with handled.session() as session:
        assert [one.name for one in (await snapshot(session)).projections] == ["q"]
    assert await fetchval(handled, "SELECT count(*) FROM projections.source_offsets") == 3
    assert await fetchval(handled, HOLDERS) == 0


async def test_its_name_begins_with_the_first_event_later(handled: Database) -> None:
    await remove(handled)
    await execute(handled, "DELETE FROM effects")

    await caught_up(handled, recording())

    assert sorted(await effects(handled)) == [("a", 1), ("b", 1), ("c", 1)]


async def test_one_that_nobody_knows_is_told_with_those_that_are_known(database: Database) -> None:
    with pytest.raises(NotFound, match="no projection 'p' has run"):
        await remove(database)


async def test_one_that_a_worker_runs_is_refused_and_stays(
    handled: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(handled, recording(), recording(name="q")) as told:
        await told.first("started", 2)
        with pytest.raises(offsets.ProjectionRuns, match="projection 'p' is run by"):
            await remove(handled)
        assert await fetchval(handled, LEFT) > 0

        with caplog.at_level(logging.ERROR):
            await remove(handled, force=True)
            await told.first("stopped")
            await happen(handled, "d")
            await until_effects(handled, 6)

    # The other projection goes on, and nothing makes this one again.
    assert "p: deleted while it runs" in caplog.text
    assert await fetchval(handled, LEFT) == 0


@pytest.mark.slow
@pytest.mark.parametrize("state", ["folding", "verified"])
async def test_one_with_an_unfinished_rebuild_is_refused(handled: Database, state: str) -> None:
    await execute(handled, REBUILD, state)

    with pytest.raises(DatabaseError, match="rebuilds cancel"):
        await remove(handled)


async def test_one_with_tables_of_a_rebuild_left_is_refused_until_they_are_dropped(
    handled: Database,
) -> None:
    await execute(handled, REBUILD, "swapped")
    await execute(handled, "CREATE SCHEMA projections_old_1")

    with pytest.raises(DatabaseError, match="in the schema projections_old_1"):
        await remove(handled)
    await execute(handled, "DROP SCHEMA projections_old_1")

    assert (await remove(handled)).rebuilds == 1
    assert await fetchval(handled, LEFT) == 0


async def test_a_worker_s_role_may_and_a_reader_s_may_not(
    handled: Database, login: Callable[[str], str]
) -> None:
    async with connect(login("projections_reader")) as reader:
        with pytest.raises(DatabaseError):
            await remove(reader)
    async with connect(login("projections_worker")) as worker:
        assert (await remove(worker)).ranges == 2
