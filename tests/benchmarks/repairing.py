"""Comparing a read model with the journal, and mending rows: beside a rebuild, and SQL for this one read model."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from functools import partial

import psycopg

from journal import ConnectionSettings, Database, connect
from projections import run
from spark_projections import RebuildOptions, rebuild
from spark_projections.rebuilds.repairing import Comparison, repair, verify
from tests.benchmarks import workload
from tests.benchmarks.harness import Line, Sizes, compare
from tests.benchmarks.server import Server, settle
from tests.benchmarks.spark import CREATE, Planes

_SAMPLE = 100
# Knows what the handler does; of where the workers are it knows nothing.
_BY_HAND = """
SELECT count(*) FROM planes AS t FULL JOIN (
    SELECT
        source_id AS tail, (array_agg(payload ->> 'carrier' ORDER BY seq_nr DESC))[1] AS carrier, count(*) AS flights,
        sum((payload ->> 'delay')::integer) AS delay, max((payload ->> 'delay')::integer) AS worst
    FROM projections.events WHERE entity_type = $1 GROUP BY source_id
) AS j USING (tail)
WHERE (t.carrier, t.flights, t.delay, t.worst) IS DISTINCT FROM (j.carrier, j.flights, j.delay, j.worst)
"""


class _Work:
    """A read model with a row for each source, which is what the journal says."""

    def __init__(self, database: Database, dsn: str, sizes: Sizes) -> None:
        self._database, self._dsn = database, dsn
        self._events = sizes.repaired
        self._sources = (f"N{n % sizes.batch_sources}" for n in itertools.count(0, workload.STEP))

    async def verified(self) -> float:
        """Events a second."""
        return self._events / await _seconds(self._compared)

    async def by_hand(self) -> float:
        """Events a second."""

        async def work() -> None:
            async with self._database.session() as session:
                _right(await session.fetchval(_BY_HAND, workload.ENTITY_TYPE) == 0)

        return self._events / await _seconds(work)

    async def rebuilt(self) -> float:
        """Events a second."""
        options = RebuildOptions(splits=1)
        return self._events / await _seconds(lambda: rebuild(self._database, self._dsn, Planes, options))

    async def _compared(self) -> None:
        _right((await verify(self._database, Planes, sources=None)).differing == 0)

    async def verified_some(self, number: int) -> float:
        """Milliseconds."""
        return 1000 * await _seconds(lambda: verify(self._database, Planes, sources=number))

    async def repaired(self) -> float:
        """Milliseconds, for another source each time, whose row is wrong."""
        source_id = next(self._sources)
        async with self._database.session() as session:
            await session.execute("UPDATE planes SET flights = 0 WHERE tail = $1", source_id)
        found: list[Comparison] = []

        async def work() -> None:
            found.append(await repair(self._database, Planes, [source_id]))

        took = await _seconds(work)
        _right(found[0].differing == 1)
        return 1000 * took


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


def _right(holds: bool) -> None:
    if not holds:
        raise AssertionError("what was compared is not what was expected")


def _fill(dsn: str, sizes: Sizes) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(CREATE)
    workload.fill(dsn, sizes.repaired, sizes.batch_sources)
    settle(dsn)


async def measure_repair(server: Server, sizes: Sizes) -> list[Line]:
    """A whole read model, a sample of it, and single rows."""
    with server.database() as dsn:
        await asyncio.to_thread(_fill, dsn, sizes)
        async with connect(dsn, ConnectionSettings(max_connections=5)) as database:
            await run(database, Planes, ranges=1, until_caught_up=True)
            await asyncio.to_thread(settle, dsn)
            work = _Work(database, dsn, sizes)
            rates = await compare(
                {"verify": work.verified, "rebuild, 1 process": work.rebuilt, "SQL by hand": work.by_hand},
                sizes.rounds,
            )
            times = await compare(
                {
                    "repair": work.repaired,
                    "verify one": partial(work.verified_some, 1),
                    "verify some": partial(work.verified_some, _SAMPLE),
                },
                sizes.first_batches,
            )
    what = f"verify {sizes.batch_sources:,} rows of {sizes.repaired:,} events"
    return [
        rates.line(what, "events/s", "verify", "rebuild, 1 process"),
        rates.line(what, "events/s", "verify", "SQL by hand"),
        Line(what, rates.median("verify") * sizes.batch_sources / sizes.repaired, "rows/s"),
        times.line(f"verify {_SAMPLE} sources", "ms", "verify some", "verify one"),
        times.line("repair the row of a source", "ms", "repair", "verify one"),
    ]
