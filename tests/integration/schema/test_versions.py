"""A new version of a projection waits beside the one that runs, until a rebuild by it takes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from journal import ConnectionSettings, Database, connect
from projections import EventEnvelope, Table, handles, projection, run
from projections.testing import run_until_caught_up
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import Happened, Told, execute, fetchval, happen, running, settings, until
from tests.fixtures.rebuilds import COUNTS, ONE, fence_passes, make_read_models

SOURCES = [f"s{number}" for number in range(12)]
NEW_COUNTS = Table("new_counts", key="source_id", increment="n", maximum="last", source="source_id")
_OWNERS = "SELECT count(DISTINCT owner) FROM projections.projection_ranges"
_EXACT = """
SELECT
    count(*) = (SELECT count(DISTINCT source_id) FROM projections.events)
    AND bool_and(c.n = c.last AND c.last = e.last)
FROM {table} AS c INNER JOIN (
    SELECT source_id, max(seq_nr) AS last FROM projections.events GROUP BY source_id
) AS e USING (source_id)
"""


def counting(version: int, table: Table = COUNTS) -> type[Any]:
    @projection("versioned", entity_type="plane", version=version, tables=(table,))
    class Counting:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Any:
            return table.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)

    return Counting


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=20)) as pool:
        await make_read_models(pool)
        await execute(pool, "CREATE TABLE new_counts (LIKE counts INCLUDING ALL)")
        await happen(pool, *SOURCES)
        yield pool


class Warnings(logging.Handler):
    """Lets a test wait for what is logged of other versions."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._logged = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", None) == "other_version":
            self.texts.append(record.getMessage())
            self._logged.set()

    async def first(self) -> str:
        async with asyncio.timeout(300):
            await self._logged.wait()
        return self.texts[0]


@pytest.fixture
def warnings() -> Iterator[Warnings]:
    handler = Warnings()
    logging.getLogger("projections").addHandler(handler)
    yield handler
    logging.getLogger("projections").removeHandler(handler)


@asynccontextmanager
async def started(database: Database, definition: type[Any]) -> AsyncIterator[Told]:
    """Run a projection for the length of the block, whether it is given a range or not."""
    stop, told = asyncio.Event(), Told()
    task = asyncio.create_task(run(database, definition, stop=stop, settings=settings(), observer=told))
    try:
        yield told
    finally:
        stop.set()
        async with asyncio.timeout(300):
            await task


async def exact(database: Database, table: Table) -> bool:
    return bool(await fetchval(database, _EXACT.format(table=table)))


async def until_counted(database: Database, table: Table) -> None:
    await until(database, f"SELECT (SELECT sum(n) FROM {table}) >= (SELECT count(*) FROM projections.events)")


async def test_a_new_version_waits_and_says_so_while_the_old_one_runs(
    journal: Database, warnings: Warnings
) -> None:
    async with running(journal, counting(1), ranges=4), started(journal, counting(2, NEW_COUNTS)) as waiting:
        said = await warnings.first()
        await until(journal, "SELECT count(*) = 2 FROM projections.workers")
        await happen(journal, *SOURCES)
        await until_counted(journal, COUNTS)
        owners = await fetchval(journal, _OWNERS)

    assert "versioned: version 1 runs, and this code is version 2" in said
    assert owners == 1
    assert waiting.names("started", "handled") == []
    assert await fetchval(journal, "SELECT count(*) FROM new_counts") == 0


@pytest.mark.slow
@pytest.mark.parametrize("table", [NEW_COUNTS, COUNTS], ids=["another table", "the same table"])
async def test_after_a_rebuild_by_the_new_version_its_worker_goes_on_and_the_old_one_gives_up(
    journal: Database, dsn: str, warnings: Warnings, table: Table
) -> None:
    new = counting(2, table)
    async with running(journal, counting(1), ranges=4) as old, started(journal, new) as waiting:
        await until_counted(journal, COUNTS)
        await warnings.first()
        await fence_passes(journal)
        await rebuild(journal, dsn, new, ONE)
        handled_by_old = len(old.names("handled"))
        await happen(journal, *SOURCES, "new")
        await until_counted(journal, table)
        await waiting.first("started", 4)
        await happen(journal, *SOURCES)
        await until_counted(journal, table)

    assert len(old.names("handled")) == handled_by_old
    assert await fetchval(journal, "SELECT version FROM projections.projections") == 2
    assert await exact(journal, table)


@pytest.mark.slow
async def test_a_worker_of_the_old_version_gets_no_range_after_the_switch(
    journal: Database, dsn: str, warnings: Warnings
) -> None:
    await run_until_caught_up(journal, counting(1))
    await fence_passes(journal)
    await rebuild(journal, dsn, counting(2, NEW_COUNTS), ONE)

    async with started(journal, counting(1)) as late:
        said = await warnings.first()
        await happen(journal, *SOURCES)
        await run_until_caught_up(journal, counting(2, NEW_COUNTS))

    assert "version 2 runs, and this code is version 1" in said
    assert late.names("started") == []
    assert await exact(journal, NEW_COUNTS)


@pytest.mark.slow
async def test_appends_all_the_time_survive_the_switch(journal: Database, dsn: str) -> None:
    stop = asyncio.Event()

    async def append_on() -> None:
        while not stop.is_set():
            await happen(journal, *SOURCES[:3])

    new = counting(2, NEW_COUNTS)
    async with running(journal, counting(1), ranges=3), started(journal, new) as waiting:
        task = asyncio.create_task(append_on())
        await until(journal, "SELECT sum(n) > 50 FROM counts")
        await rebuild(journal, dsn, new, ONE)
        await waiting.first("handled")
        stop.set()
        await task
        await until_counted(journal, NEW_COUNTS)

    assert await exact(journal, NEW_COUNTS)
