"""An older state of the database is put in its place while workers and readers are at work: none of it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from journal import ConnectionSettings, Database, connect
from offsets import live_events
from tests.fixtures.failover import Server, dump, pair, restore
from tests.fixtures.postgres import Run, binaries_for
from tests.fixtures.projections import (
    EFFECTS,
    Told,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    until,
)

SOURCES = [f"s{number}" for number in range(8)]
_HANDLED = "SELECT count(*) >= (SELECT count(*) FROM projections.events) FROM effects"
_LAST = "SELECT jsonb_object_agg(source_id, seq_nr)::text FROM projections.sources"


@pytest.fixture
def client(postgres_run: Run) -> Path:
    directory = binaries_for(postgres_run.kind).directory
    if not (directory / "pg_restore").exists():
        pytest.skip(f"{directory} has no pg_restore: install PostgreSQL's client packages")
    return directory


@pytest.fixture(params=["asyncpg", "psycopg"])
async def either(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(driver=request.param, max_connections=8)) as pool:
        await execute(pool, EFFECTS)
        yield pool


class Heard(Told):
    def went_back(self, *args: Any) -> None:
        self._tell("went_back", *args)


async def handled_once(database: Database, **extra: int) -> None:
    await until(database, _HANDLED)
    each_once(await effects(database), **eval(await fetchval(database, _LAST)))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["drop", "data"])
async def test_a_worker_handles_once_what_is_appended_to_an_older_dump(
    either: Database, dsn: str, client: Path, tmp_path: Path, how: str
) -> None:
    told = Heard()
    async with running(either, recording(batch_size=3), ranges=3, observer=told):
        for _ in range(2):
            await happen(either, *SOURCES)
        await until(either, _HANDLED)
        made = await asyncio.to_thread(dump, client, dsn, tmp_path / "dump")
        for _ in range(3):
            await happen(either, *SOURCES)
        await until(either, _HANDLED)

        await asyncio.to_thread(restore, client, dsn, made, how)

        for _ in range(4):
            await happen(either, *SOURCES)
        await handled_once(either)
        if (
            how == "data"
        ):  # where the schema is dropped, ranges may fail on what is missing before they see that it is older
            await told.first("went_back")
    assert told.all("parked") == []


@pytest.mark.daily(1)
@pytest.mark.parametrize("paused", [False, True])
async def test_an_idle_or_paused_worker_drops_what_it_remembers_of_it(
    either: Database, dsn: str, client: Path, tmp_path: Path, paused: bool
) -> None:
    """Nothing is appended: it is a heartbeat that shows it, before the first event."""
    told = Heard()
    async with running(either, recording(batch_size=3), ranges=3, observer=told):
        await happen(either, *SOURCES)
        await until(either, _HANDLED)
        made = await asyncio.to_thread(dump, client, dsn, tmp_path / "dump")
        await happen(either, *SOURCES)
        await until(either, _HANDLED)
        if paused:
            await execute(either, "UPDATE projections.projections SET paused = TRUE")

        await asyncio.to_thread(restore, client, dsn, made, "data")

        await told.first("went_back")
        await happen(either, *SOURCES)
        await handled_once(either)


@pytest.mark.daily(1)
async def test_a_live_reader_gives_what_is_appended_to_an_older_dump(
    either: Database, dsn: str, client: Path, tmp_path: Path
) -> None:
    async with aclosing(live_events(either, "plane")) as events:
        reading = asyncio.create_task(anext(events))
        await asyncio.sleep(0)
        await happen(either, "begin")
        assert (await reading).source_id == "begin"
        await happen(either, *SOURCES)
        given = [await anext(events) for _ in SOURCES]
        made = await asyncio.to_thread(dump, client, dsn, tmp_path / "dump")
        for _ in range(2):
            await happen(either, *SOURCES)
        given += [await anext(events) for _ in range(2 * len(SOURCES))]

        await asyncio.to_thread(restore, client, dsn, made, "data")

        for _ in range(3):
            await happen(either, *SOURCES)
        async with asyncio.timeout(300):
            later = [await anext(events) for _ in range(3 * len(SOURCES))]

    each_once([(e.source_id, e.seq_nr - 1) for e in later], **dict.fromkeys(SOURCES, 3))
    assert not {e.event_id for e in given} & {e.event_id for e in later}


@pytest.mark.slow
async def test_a_restore_to_a_point_in_time_is_swapped_in_under_a_worker(base_cluster: Server) -> None:
    async with pair(base_cluster, "one") as servers:
        servers.back_up()
        settings = ConnectionSettings(driver="psycopg", max_connections=8)
        async with connect(servers.primary.dsn("one"), settings) as database:
            await execute(database, EFFECTS)
            async with running(database, recording(batch_size=3), ranges=3):
                await happen(database, *SOURCES)
                await until(database, _HANDLED)
                mark = servers.mark()
                for _ in range(3):
                    await happen(database, *SOURCES)
                await until(database, _HANDLED)

                await servers.swap_in(mark)

                # The pool of the worker may still lend what the old server has closed.
                async with connect(servers.primary.dsn("one"), settings) as later:
                    for _ in range(4):
                        await happen(later, *SOURCES)
                    await handled_once(later)
                    assert await fetchval(later, "SELECT max(seq_nr) FROM projections.sources") == 5
