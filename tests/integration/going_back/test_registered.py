"""The database goes back to before a projection was registered, under the worker that runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import offsets
from journal import ConnectionSettings, Database, connect
from projections import run
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.projections import (
    EFFECTS,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    settings,
    until,
    until_effects,
)

_NUMBER = "SELECT projection_id FROM projections.projections WHERE name = $1"
_OWNED = """
SELECT count(*) = 2
FROM projections.projection_ranges AS r INNER JOIN projections.projections AS p USING (projection_id)
WHERE p.name = 'p' AND r.owner IS NOT NULL
"""


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=8)) as pool:
        await execute(pool, EFFECTS)
        await happen(pool, "a", "b")
        await remember(pool)
        yield pool


async def test_it_is_registered_again_and_begins_at_the_beginning(journal: Database) -> None:
    async with running(journal, recording(), ranges=2):
        await happen(journal, "a")
        await until_effects(journal, 3)

        await go_back(journal)

        await until(journal, _OWNED)
        await happen(journal, "a", "c")
        await until_effects(journal, 4)

    each_once(await effects(journal), a=2, b=1, c=1)


async def test_it_is_registered_again_where_no_heartbeat_has_shown_it(journal: Database) -> None:
    stop = asyncio.Event()
    async with journal.session() as session, asyncio.TaskGroup() as group:
        await session.begin()
        # Until it is lost, no heartbeat gets through.
        await session.execute("LOCK TABLE projections.workers IN ACCESS EXCLUSIVE MODE")
        group.create_task(run(journal, recording(), ranges=2, settings=settings(), stop=stop))
        await until(journal, "SELECT count(*) = 2 FROM projections.projection_ranges")
        await session.execute("DELETE FROM projections.projections")
        await session.commit()

        await until_effects(journal, 2)
        stop.set()

    each_once(await effects(journal), a=1, b=1)


async def test_another_that_has_its_number_now_is_none_of_its_business(journal: Database) -> None:
    async with running(journal, recording(), ranges=2):
        await until_effects(journal, 2)
        number = await fetchval(journal, _NUMBER, "p")

        async with journal.session() as session:
            await session.begin()
            # Until the other one is there, no heartbeat gets through.
            await session.execute("LOCK TABLE projections.workers IN ACCESS EXCLUSIVE MODE")
            await session.execute("TRUNCATE effects, projections.workers, projections.source_offsets")
            await session.execute("DELETE FROM projections.projections")
            await session.execute(
                "SELECT setval(pg_get_serial_sequence('projections.projections', 'projection_id'), $1, FALSE)",
                number,
            )
            await offsets.register(session, "another", "plane", version=1)
            await session.commit()
        assert await fetchval(journal, _NUMBER, "another") == number

        await until(journal, _OWNED)
        await until_effects(journal, 2)

    each_once(await effects(journal), a=1, b=1)
    assert await fetchval(
        journal, "SELECT horizon = '1970-01-01T00:00:00Z' FROM projections.projection_ranges WHERE projection_id = $1",
        number,
    )  # fmt: skip
