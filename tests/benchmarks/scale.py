"""What an event costs in a journal of a million events, and in one of many more: it must not grow with the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial

import psycopg

from journal import Database, connect
from journal.appending import append
from projections import RunSettings, run
from spark_projections import RebuildOptions, rebuild
from tests.benchmarks import spark, workload
from tests.benchmarks.harness import Goal, Line, Sizes, compare
from tests.benchmarks.latency import worker
from tests.benchmarks.server import Server, settle

_CLEAR = "TRUNCATE projections.projections, projections.source_offsets, delays, planes CASCADE"
_WAL = "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
_BYTES = """
SELECT sum(pg_table_size(t.relid))::bigint, sum(pg_indexes_size(t.relid))::bigint
FROM pg_partition_tree(%s) AS t WHERE t.isleaf
"""
_OFFSETS = (
    "SELECT pg_total_relation_size('projections.source_offsets'), count(*) FROM projections.source_offsets"
)
_SMALL, _LARGE = 50, 500
_GROWS_BY = Goal(1.3, at_most=True)


class _Journal:
    """A journal of a number of events, and what is done in it; each way returns microseconds for an event."""

    def __init__(self, dsn: str, database: Database, count: int, sizes: Sizes) -> None:
        self._dsn, self._database = dsn, database
        self._sources, self._more = sizes.scale_sources, sizes.scale_more
        self.count = count
        self._appended = count
        self.wal: dict[str, float] = {}

    async def catch_up(self) -> float:
        """A table handler on one worker, from the beginning."""
        self._do(_CLEAR)
        await asyncio.to_thread(settle, self._dsn)
        took = await self._measured("catch up", self._handle_all, self.count)
        await asyncio.to_thread(workload.check, self._dsn, workload.expected(self.count, self._sources))
        return took

    async def rebuild(self) -> float:
        """A read model with a row for each source, in processes of this machine; checked and swapped in."""
        await asyncio.to_thread(settle, self._dsn)

        async def work() -> None:
            await rebuild(self._database, self._dsn, spark.Planes, RebuildOptions(restart=True))

        return await self._measured("rebuild", work, self.count)

    async def append(self) -> float:
        """Batches of 500 on one connection."""
        return await self._measured("append", lambda: self._append(_LARGE), self._more)

    async def live(self) -> float:
        """Batches of 50, and one worker that handles them meanwhile."""
        await self._handle_all()
        async with worker(self._database, 1, RunSettings()) as seen:

            async def work() -> None:
                before = len(seen.at)
                await self._append(_SMALL)
                await seen.until(events=before + self._more)

            return await self._measured("live", work, self._more)

    async def vacuum(self) -> float:
        """A vacuum of the whole journal, as the first of autovacuum is."""
        begun = time.perf_counter()
        await asyncio.to_thread(self._do, "VACUUM (FREEZE, ANALYZE) projections.events, projections.sources")
        return (time.perf_counter() - begun) / self.count * 1e6

    def bytes(self) -> tuple[float, float, float]:
        """Of the journal's rows and of its indexes for each event, and of the offsets for each row of theirs."""
        with psycopg.connect(self._dsn) as connection:
            rows, indexes = connection.execute(_BYTES, ["projections.events"]).fetchone() or (0, 0)
            size, offsets = connection.execute(_OFFSETS).fetchone() or (0, 0)
        return rows / self._appended, indexes / self._appended, size / max(offsets, 1)

    async def _handle_all(self) -> None:
        await run(self._database, workload.ByTable, ranges=1, until_caught_up=True)

    async def _append(self, size: int) -> None:
        async with self._database.session() as session:
            for first in range(self._appended, self._appended + self._more, size):
                await append(session, workload.events(first, size, self._sources))
        self._appended += self._more

    async def _measured(self, what: str, work: Callable[[], Awaitable[None]], events: int) -> float:
        before = self._wal()
        begun = time.perf_counter()
        await work()
        took = time.perf_counter() - begun
        self.wal[what] = (self._wal() - before) / events
        return took / events * 1e6

    def _wal(self) -> int:
        with psycopg.connect(self._dsn) as connection:
            return int((connection.execute(_WAL).fetchone() or (0,))[0])

    def _do(self, statement: str) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(statement.encode())


async def measure_scale(server: Server, sizes: Sizes) -> list[Line]:
    """Each at every size, in turns; what is left by one is what the next one finds."""
    with ExitStack() as stack:
        dsns = [stack.enter_context(server.database()) for _ in sizes.scale]
        for dsn, count in zip(dsns, sizes.scale, strict=True):
            await asyncio.to_thread(_fill, dsn, count, sizes.scale_sources)
        async with AsyncExitStack() as connected:
            databases = [await connected.enter_async_context(connect(dsn)) for dsn in dsns]
            journals = [
                _Journal(dsn, database, count, sizes)
                for dsn, database, count in zip(dsns, databases, sizes.scale, strict=True)
            ]
            return [line async for line in _measure(journals, sizes.rounds)]


def _fill(dsn: str, count: int, sources: int) -> None:
    workload.fill(dsn, count, sources)
    with psycopg.connect(dsn) as connection:
        connection.execute(spark.CREATE)


async def _measure(journals: Sequence[_Journal], rounds: int) -> AsyncIterator[Line]:
    """The long ones once, the short ones in rounds; then what they have written and what it takes on the disk."""
    small, large = journals[0], journals[-1]
    beside, title = f"{small.count:,} events", f"{large.count:,} events"
    for what, way, times in _WAYS:
        measured = await compare({f"{j.count:,} events": partial(way, j) for j in journals}, times or rounds)
        yield measured.line(f"{title}: {what}", "µs/event", title, beside, _GROWS_BY)
        for between in journals[1:-1]:
            name = f"{between.count:,} events"
            yield measured.line(f"{name}: {what}", "µs/event", name, beside, _GROWS_BY)
    for what, wal in large.wal.items():
        yield _line(f"{title}: {what}, WAL", "bytes/event", wal, beside, small.wal[what])
    for what, ours, other in zip(_SIZES, large.bytes(), small.bytes(), strict=True):
        yield _line(f"{title}: {what}", "bytes", ours, beside, other)


def _line(what: str, unit: str, value: float, beside: str, other: float) -> Line:
    return Line(what, value, unit, beside, other, value / max(other, 1.0), _GROWS_BY)


_WAYS: Sequence[tuple[str, Callable[[_Journal], Awaitable[float]], int]] = (
    ("vacuum", _Journal.vacuum, 1),
    ("catch up, a table handler", _Journal.catch_up, 1),
    ("rebuild in processes, a row for each source", _Journal.rebuild, 1),
    ("append, batches of 500", _Journal.append, 0),
    ("append, batches of 50, and a worker handles them", _Journal.live, 0),
)
"""What, how, and how often; 0: as often as there are rounds."""
_SIZES = ("the journal's rows, an event", "the journal's indexes, an event", "the offsets, a source")
